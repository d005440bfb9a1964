"""The kubecache command: finds the subcommand and hands it the rest of the line."""

import sys
from collections.abc import Callable, Sequence

from proxy.cli import demo, run, status, version

COMMANDS: dict[str, Callable[[Sequence[str]], int]] = {
    "run": run.main,
    "demo": demo.main,
    "status": status.main,
    "version": version.main,
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a subcommand; returns the process's exit code."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    if not given or given[0] in ("-h", "--help", "help"):
        print(_usage())
        return 0 if given else 2
    command = COMMANDS.get(given[0])
    if command is None:
        print(f"kubecache: no command {given[0]!r}\n\n{_usage()}", file=sys.stderr)
        return 2
    return command(given[1:])


def _usage() -> str:
    lines = ["usage: kubecache COMMAND [--help]", "", "commands:"]
    for name, command in COMMANDS.items():
        summary = (sys.modules[command.__module__].__doc__ or "").partition("\n")[0]
        lines.append(f"  {name:<12}{summary}")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
