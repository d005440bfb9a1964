"""The kubecache command, one file a subcommand."""
