"""Runs helm from Go modules: built once and kept in Go's own cache.

Needs only Python's standard library and Go.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

HERE = Path(__file__).resolve().parent

# Read-only and trimmed as tests/apiserver/build.py has it: what both need is compiled once.
_GO = {"GOFLAGS": "-mod=readonly -buildvcs=false -trimpath", "GOWORK": "off"}


def available() -> bool:
    """Whether there is the Go that builds it."""
    return shutil.which("go") is not None


def helm(words: Sequence[str], *, capture: bool = False) -> subprocess.CompletedProcess[str]:
    """One helm command, which takes minutes the first time; paths in it must be absolute."""
    return subprocess.run(
        ["go", "tool", "helm", *words],
        cwd=HERE,
        env=os.environ | _GO,
        check=False,
        capture_output=capture,
        stdin=subprocess.DEVNULL,
        encoding="utf-8",
    )


def main(words: Sequence[str]) -> int:
    """Passes the command line on."""
    if not available():
        print("no helm: Go is not here to build it", file=sys.stderr)
        return 1
    return helm(words).returncode


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
