""".ci/pytest runs once more what failed, and nothing else makes it pass."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

_ROOT = Path(__file__).parents[2]
_FAILED = ["tests/test_a.py::test_one[a-b]", "tests/test_a.py::test_two"]

# Ends as the next line of the file `codes` says; as pytest does, it leaves a list of what failed.
_PYTEST = """#!/bin/sh
echo "ran: $*"
read -r code < codes
sed -i 1d codes
[ "$code" = 1 ] && mkdir -p .pytest_cache/v/cache && cp failed .pytest_cache/v/cache/lastfailed
exit "$code"
"""
_AGAIN = "ran: --last-failed --last-failed-no-failures=none"


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A tree with the script, a pytest that does as told, and the cache of an earlier run."""
    (tmp_path / ".ci").mkdir()
    shutil.copy(_ROOT / ".ci" / "pytest", tmp_path / ".ci")
    binary = tmp_path / ".venv" / "bin" / "pytest"
    binary.parent.mkdir(parents=True)
    binary.write_text(_PYTEST)
    binary.chmod(0o755)
    (tmp_path / "failed").write_text(json.dumps(dict.fromkeys(_FAILED, True), indent=2))
    cache = tmp_path / ".pytest_cache" / "v" / "cache"
    cache.mkdir(parents=True)
    (cache / "lastfailed").write_text('{\n  "stale": true\n}')
    return tmp_path


def _run(tree: Path, *codes: int, words: Sequence[str] = ()) -> tuple[int, str]:
    (tree / "codes").write_text("".join(f"{code}\n" for code in codes))
    done = subprocess.run(
        [".ci/pytest", *words], cwd=tree, capture_output=True, text=True, check=False, timeout=30
    )
    assert not done.stderr
    assert not (tree / "codes").read_text()  # ran as often as it was to
    return done.returncode, done.stdout


def test_what_passes_runs_once(tree: Path) -> None:
    assert _run(tree, 0) == (0, "ran: \n")


@pytest.mark.parametrize("code", [2, 3, 4, 5, 137])
def test_a_suite_that_did_not_end_fails(tree: Path, code: int) -> None:
    """Killed, interrupted or not collected: what failed is not known."""
    assert _run(tree, code) == (code, "ran: \n")
    assert not (tree / ".pytest_cache").exists()


def test_what_failed_runs_once_more_and_is_named(tree: Path) -> None:
    code, output = _run(tree, 1, 0, words=["-n", "3"])
    assert code == 0
    assert output.startswith("ran: -n 3\n")
    assert f"{_AGAIN} -n 3 -n 0\n" in output  # by itself
    warning = output.partition("WARNING: flaky")[2]
    assert all(each in warning for each in _FAILED)


@pytest.mark.parametrize("code", [1, 2, 5, 137])
def test_what_fails_twice_fails(tree: Path, code: int) -> None:
    found, output = _run(tree, 1, code)
    assert found == code
    assert "WARNING" not in output
    assert all(each in output for each in _FAILED)


def test_ci_runs_make_test_with_it() -> None:
    """`make` is asked what it would run; CI=true is what forbids tests to be skipped."""
    script = (_ROOT / ".ci" / "run").read_text()
    assert "export CI=true" in script
    assert script.rstrip().endswith("exec make test PYTEST=.ci/pytest </dev/null")
    done = subprocess.run(
        ["make", "--dry-run", "test", "PYTEST=.ci/pytest"],
        cwd=_ROOT,
        capture_output=True,
        text=True,
        check=True,
        timeout=30,
        env=os.environ | {"MAKEFLAGS": ""},
    )
    assert any(line.startswith(".ci/pytest ") for line in done.stdout.splitlines())


_DIES = """
import os

def test_dies():
    os._exit(1)

def test_never_runs():
    pass
"""


def test_a_worker_that_dies_leaves_no_list_of_what_failed(tmp_path: Path) -> None:
    """With exit code 1, what it was at would run once more, but not what it had yet to do."""
    tests = tmp_path / "tests"
    tests.mkdir()
    (tests / "test_dies.py").write_text(_DIES)
    options = ["-p", "tests.conftest", "-p", "no:cacheprovider", f"--rootdir={tmp_path}"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options, *_spread(), str(tests)],
        cwd=_ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == pytest.ExitCode.INTERNAL_ERROR, done.stdout
    assert "crashed while running" in done.stdout


def _spread() -> list[str]:
    """How `make test` has pytest divide the tests among workers."""
    [line] = [line for line in (_ROOT / "Makefile").read_text().splitlines() if "SPREAD = " in line]
    return line.partition(" = ")[2].replace("$(WORKERS)", "2").split()
