"""Print the version."""

from collections.abc import Sequence

from proxy import __version__


def main(arguments: Sequence[str]) -> int:
    """Print the version; takes no arguments."""
    if arguments:
        print("usage: kubecache version")
        return 0 if arguments[0] in ("-h", "--help") else 2
    print(__version__)
    return 0
