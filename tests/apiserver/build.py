"""Builds kube-apiserver, etcd and kubectl from Go modules, once, into a cache outside the tree.

Needs only Python's standard library and Go. `KUBEBUILDER_ASSETS`, a folder with the same three
binaries (envtest's convention), is used instead when it is set. Prints the folder as last line.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

HERE = Path(__file__).resolve().parent
BINARIES = ("kube-apiserver", "etcd", "kubectl")

_PINNED = re.search(r"^\s*k8s\.io/kubernetes (v1\.(\d+)\.\d+)", (HERE / "go.mod").read_text(), re.M)
assert _PINNED, "go.mod requires k8s.io/kubernetes"
KUBERNETES, _MINOR = _PINNED.groups()
_VERSION = "k8s.io/component-base/version"
FLAGS = (
    "-trimpath",
    "-ldflags",
    f"-s -w -X {_VERSION}.gitVersion={KUBERNETES}"
    f" -X {_VERSION}.gitMajor=1 -X {_VERSION}.gitMinor={_MINOR}",
)
PACKAGES = (
    "k8s.io/kubernetes/cmd/kube-apiserver",
    "k8s.io/kubernetes/cmd/kubectl",
    "go.etcd.io/etcd/server/v3",
)


class CannotBuildError(Exception):
    """There is neither a built kube-apiserver nor the Go to build one."""


def assets() -> Path:
    """The folder with the three binaries, which are built if they must be."""
    if given := os.environ.get("KUBEBUILDER_ASSETS"):
        return _checked(Path(given))
    folder = _built_folder()
    if not folder.is_dir():
        _build(folder)
    return folder


def available() -> bool:
    """Whether `assets` can succeed: binaries are named, built already, or Go is here."""
    return bool(os.environ.get("KUBEBUILDER_ASSETS") or shutil.which("go")) or (
        _built_folder().is_dir()
    )


def _checked(folder: Path) -> Path:
    missing = [name for name in BINARIES if not os.access(folder / name, os.X_OK)]
    if missing:
        raise CannotBuildError(f"KUBEBUILDER_ASSETS={folder} lacks {', '.join(missing)}")
    return folder


def _built_folder() -> Path:
    return cache_root() / f"apiserver-{_recipe_hash()}" / "bin"


def cache_root() -> Path:
    """Where what is built for the tests is kept between runs."""
    if given := os.environ.get("KUBECACHE_TEST_CACHE"):
        return Path(given)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "kubecache"


def _recipe_hash() -> str:
    digest = hashlib.sha256("\n".join((*FLAGS, *PACKAGES)).encode())
    for name in ("go.mod", "go.sum"):
        digest.update((HERE / name).read_bytes())
    return digest.hexdigest()[:12]


def _build(folder: Path) -> None:
    if not shutil.which("go"):
        raise CannotBuildError("neither Go nor KUBEBUILDER_ASSETS is here")
    home = folder.parent
    home.parent.mkdir(parents=True, exist_ok=True)
    with locked(home.with_suffix(".lock")):
        if not folder.is_dir():  # another run may have built it while this one waited
            _build_into(home)


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Keeps other runs from building the same meanwhile."""
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _build_into(home: Path) -> None:
    print(f"building kube-apiserver {KUBERNETES}, etcd and kubectl: minutes, once", flush=True)
    with tempfile.TemporaryDirectory(dir=home.parent, prefix="building-") as scratch:
        binaries = Path(scratch) / home.name / "bin"
        binaries.mkdir(parents=True)
        _go_build(binaries)
        (binaries / "server").rename(binaries / "etcd")
        binaries.parent.rename(home)


def _go_build(output: Path) -> None:
    command = ["go", "build", *FLAGS, "-o", f"{output}{os.sep}", *PACKAGES]
    environment = os.environ | {"GOFLAGS": "-mod=readonly -buildvcs=false", "GOWORK": "off"}
    done = subprocess.run(command, cwd=HERE, env=environment, check=False, stdout=sys.stderr)
    if done.returncode:
        raise CannotBuildError(f"go build failed with exit code {done.returncode}")


def main() -> int:
    """Builds what is missing and prints where it is."""
    try:
        print(assets())
    except CannotBuildError as error:
        print(f"no kube-apiserver: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
