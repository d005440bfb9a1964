"""The kubecache command: finds the subcommand and hands it the rest of the line."""

import os
import sys
from collections.abc import Sequence
from importlib import import_module

COMMANDS = {
    "run": "Run the proxy.",
    "demo": "Take a tour: the proxy in front of a small in-memory API server.",
    "status": "Show a running proxy's informers.",
    "version": "Print the version.",
}
"""The modules beside this one, and their help. Only what runs is imported: some take a second."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a subcommand; returns the process's exit code."""
    try:
        code = _run(list(sys.argv[1:] if arguments is None else arguments))
        sys.stdout.flush()
    except BrokenPipeError:
        # Who reads has seen enough, as head does. The interpreter flushes once more as it ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    return code


def _run(given: list[str]) -> int:
    if not given or given[0] in ("-h", "--help", "help"):
        print(_usage())
        return 0 if given else 2
    name = "version" if given[0] == "--version" else given[0]
    if name not in COMMANDS:
        print(f"kubecache: no command {name!r}\n\n{_usage()}", file=sys.stderr)
        return 2
    code: int = import_module(f"proxy.cli.{name}").main(given[1:])
    return code


def _usage() -> str:
    lines = ["usage: kubecache COMMAND [--help]", "", "commands:"]
    lines += [f"  {name:<12}{summary}" for name, summary in COMMANDS.items()]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
