"""kubectl, against kube-apiserver or the proxy."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple, Self

import pytest

from tests.apiserver.build import assets
from tests.harness.http import Server


class Output(NamedTuple):
    """What a command said."""

    code: int
    stdout: str
    stderr: str

    def ok(self) -> Self:
        """Itself, when it succeeded."""
        assert self.code == 0, f"exit code {self.code}: {self.stderr}"
        return self

    def json(self) -> Any:
        return json.loads(self.stdout)


class Kubectl:
    """One binary with one kubeconfig and environment; `folder` takes its discovery cache."""

    def __init__(self, kubeconfig: Path, folder: Path, *, binary: Path | None = None) -> None:
        self.binary = binary or built()
        self._base = [str(self.binary), f"--kubeconfig={kubeconfig}"]
        self._base += [f"--cache-dir={folder / 'kubectl-cache'}"]
        self.env = {"HOME": str(folder), "PATH": os.environ["PATH"]}

    def __call__(self, *words: str, stdin: str | None = None, timeout: float = 30) -> Output:
        """Runs it to its end."""
        done = subprocess.run(
            [*self._base, *words],
            input=stdin,
            capture_output=True,
            check=False,
            encoding="utf-8",
            env=self.env,
            timeout=timeout,
        )
        return Output(done.returncode, done.stdout, done.stderr)

    def start(self, *words: str, terminal: int | None = None) -> subprocess.Popen[str]:
        """Starts it for what has no end, such as `get -w`; the test terminates it.

        A terminal's file descriptor, if there is one, is its stdin, stdout and stderr.
        """
        return subprocess.Popen(
            [*self._base, *words],
            stdin=terminal,
            stdout=subprocess.PIPE if terminal is None else terminal,
            stderr=subprocess.STDOUT if terminal is None else terminal,
            encoding="utf-8",
            env=self.env,
        )


def kubeconfig_for(server: Server, folder: Path) -> Path:
    """A kubeconfig for a server that asks for no credentials, as the proxy's read listener."""
    path = folder / f"kubeconfig-{server.port}"
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "proxy", "cluster": {"server": server.url}}],
        "users": [{"name": "nobody", "user": {}}],  # some clients don't do without
        "contexts": [{"name": "proxy", "context": {"cluster": "proxy", "user": "nobody"}}],
        "current-context": "proxy",
    }
    path.write_text(json.dumps(config))
    return path


def built() -> Path:
    """The kubectl of kube-apiserver's own version."""
    return assets() / "kubectl"


@cache
def older() -> Path:
    """The kubectl on PATH, where it is of another minor version than `built`; else skips the test.

    Even with CI=true, which forbids to skip what is built here: an older one can only be found.
    """
    found = shutil.which("kubectl")
    if not found or _minor(Path(found)) == _minor(built()):
        pytest.skip("no kubectl of another minor version on PATH (Debian has an older one)")
    return Path(found)


BINARIES = [pytest.param(built, id="built"), pytest.param(older, id="older")]
"""Parameters of a test that both kubectls are to pass."""


def _minor(binary: Path) -> str:
    command = [str(binary), "version", "--client", "--output=json"]
    done = subprocess.run(command, capture_output=True, check=True, timeout=30)
    minor: str = json.loads(done.stdout)["clientVersion"]["minor"]
    return minor
