"""Builds the Go clients of the tests, once, beside the kube-apiserver that they speak to.

Each folder here is one program. Needs only Python's standard library and Go.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

_HERE = Path(__file__).resolve().parent
if __name__ == "__main__":  # as a script, it sees only its own folder
    sys.path.insert(0, str(_HERE.parents[1]))

from tests.apiserver.build import CannotBuildError, cache_root, locked  # noqa: E402

CLIENTS = ("reconcile", "informers")

# Trimmed as tests/apiserver/build.py has it, so that what both need is compiled once.
_FLAGS = ("-trimpath", "-ldflags", "-s -w")


def available() -> bool:
    """Whether `client` can succeed: all of them are built already, or Go is here."""
    return bool(shutil.which("go")) or all(_binary(name).is_file() for name in CLIENTS)


def client(name: str) -> Path:
    """The binary of one of `CLIENTS`, which is built if it must be."""
    binary = _binary(name)
    if not binary.is_file():
        _build(name, binary)
    return binary


def _binary(name: str) -> Path:
    digest = hashlib.sha256("\n".join(_FLAGS).encode())
    for file in sorted((_HERE / name).iterdir()):
        digest.update(file.read_bytes())
    return cache_root() / f"client-{name}-{digest.hexdigest()[:12]}"


def _build(name: str, binary: Path) -> None:
    if not shutil.which("go"):
        raise CannotBuildError("Go is not here")
    binary.parent.mkdir(parents=True, exist_ok=True)
    with locked(binary.with_suffix(".lock")):
        if not binary.is_file():  # another run may have built it while this one waited
            _build_into(name, binary)


def _build_into(name: str, binary: Path) -> None:
    print(f"building the client {name}: a minute, once", flush=True)
    with tempfile.TemporaryDirectory(dir=binary.parent, prefix="building-") as scratch:
        built = Path(scratch) / binary.name
        command = ["go", "build", *_FLAGS, "-o", str(built), "."]
        environment = os.environ | {"GOFLAGS": "-mod=readonly -buildvcs=false", "GOWORK": "off"}
        done = subprocess.run(command, cwd=_HERE / name, env=environment, check=False)
        if done.returncode:
            raise CannotBuildError(f"go build of {name} failed with exit code {done.returncode}")
        built.rename(binary)


def main() -> int:
    """Builds what is missing and prints where it is."""
    try:
        for name in CLIENTS:
            print(client(name))
    except CannotBuildError as error:
        print(f"no clients: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
