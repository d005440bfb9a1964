"""Which kube-apiserver the integration tests get, and what is said where there is none."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.apiserver.build import BINARIES

ROOT = Path(__file__).parents[2]
TEST = "tests/integration/test_websocket.py"
WARNING = "WARNING: 1 skipped: no Go and no KUBEBUILDER_ASSETS"


class Machine:
    """One without Go, and on which nothing was built."""

    def __init__(self, folder: Path, *spread: str) -> None:
        self.folder = folder
        self._spread = spread
        dropped = ("CI", "KUBEBUILDER_ASSETS", "PYTEST_ADDOPTS")
        kept = {name: value for name, value in os.environ.items() if name not in dropped}
        self.env = kept | {"PATH": str(folder), "KUBECACHE_TEST_CACHE": str(folder / "cache")}

    def run(self, *words: str, **env: str) -> tuple[int, str]:
        done = subprocess.run(
            [sys.executable, *words],
            cwd=ROOT,
            env=self.env | env,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            timeout=100,
        )
        return done.returncode, done.stdout

    def pytest(self, **env: str) -> tuple[int, str]:
        """An integration test; the list of what failed stays that of the run that is under way."""
        return self.run("-m", "pytest", "-p", "no:cacheprovider", *self._spread, TEST, **env)

    def build(self, **env: str) -> tuple[int, str]:
        return self.run("tests/apiserver/build.py", **env)

    def assets(self, *names: str) -> str:
        """A folder with these programs."""
        folder = self.folder / "assets"
        folder.mkdir()
        for name in names:
            (folder / name).write_text("#!/bin/sh\n")
            (folder / name).chmod(0o755)
        return str(folder)


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


@pytest.fixture(params=["", "-n 2 --dist loadfile"], ids=["one process", "workers"])
def spread(request: pytest.FixtureRequest, tmp_path: Path) -> Machine:
    """A machine that runs tests by themselves, or by workers."""
    return Machine(tmp_path, *request.param.split())


def test_without_one_integration_tests_are_skipped_aloud(spread: Machine) -> None:
    code, output = spread.pytest()
    assert code == 0
    assert "1 skipped" in output
    assert output.count("WARNING") == 1
    assert WARNING in output


def test_without_one_ci_fails(spread: Machine) -> None:
    code, output = spread.pytest(CI="true")
    assert code not in (0, 1, 5)  # before any test: nothing that would be run once more
    assert "integration tests need a kube-apiserver: neither Go nor KUBEBUILDER_ASSETS" in output
    assert "skipped" not in output


def test_assets_that_lack_a_program_are_an_error(machine: Machine) -> None:
    """Who names a folder wants it to be used."""
    folder = machine.assets("kube-apiserver", "kubectl")
    complaint = f"KUBEBUILDER_ASSETS={folder} lacks etcd"
    code, output = machine.pytest(KUBEBUILDER_ASSETS=folder)
    assert code not in (0, 1, 5)
    assert complaint in output
    assert machine.build(KUBEBUILDER_ASSETS=folder) == (1, f"no kube-apiserver: {complaint}\n")


def test_assets_that_are_named_are_used_without_go(machine: Machine) -> None:
    folder = machine.assets(*BINARIES)
    assert machine.build(KUBEBUILDER_ASSETS=folder) == (0, f"{folder}\n")


def test_what_was_built_before_is_used_without_go(machine: Machine) -> None:
    code, output = machine.build()
    assert (code, output) == (1, "no kube-apiserver: neither Go nor KUBEBUILDER_ASSETS is here\n")
    told = "import tests.apiserver.build as b; print(b._built_folder())"
    _, built = machine.run("-c", told)
    Path(built.strip()).mkdir(parents=True)
    assert machine.build() == (0, built)
