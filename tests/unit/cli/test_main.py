"""The kubecache command: finding subcommands, and `version`."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib import import_module

import pytest

from proxy import __version__
from proxy.cli.main import COMMANDS, main


@pytest.mark.parametrize(("arguments", "code"), [([], 2), (["--help"], 0), (["help"], 0)])
def test_the_usage_names_every_command_and_says_what_it_does(
    arguments: list[str], code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == code
    lines = capsys.readouterr().out.splitlines()
    listed = {words[0]: words[1] for line in lines if len(words := line.split(None, 1)) == 2}
    for name, summary in COMMANDS.items():
        assert listed[name] == summary
        assert (import_module(f"proxy.cli.{name}").__doc__ or "").splitlines()[0] == summary


def test_a_command_that_is_unknown(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["unknown"]) == 2
    output, errors = capsys.readouterr()
    assert output == ""
    assert "no command 'unknown'" in errors
    assert "usage: kubecache" in errors


@pytest.mark.parametrize("name", ["run", "demo", "status"])
def test_commands_say_their_usage(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main([name, "--help"])
    assert ended.value.code == 0
    assert capsys.readouterr().out.startswith(f"usage: kubecache {name}")


@pytest.mark.parametrize(
    ("arguments", "code", "output"),
    [
        ([], 0, __version__),
        (["--help"], 0, "usage: kubecache version"),
        (["more"], 2, "usage: kubecache version"),
    ],
)
@pytest.mark.parametrize("name", ["version", "--version"])
def test_version(
    name: str, arguments: list[str], code: int, output: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([name, *arguments]) == code
    assert capsys.readouterr().out == f"{output}\n"


@pytest.mark.parametrize("arguments", [["version"], ["status", "--help"], ["--help"]])
def test_what_a_command_does_not_need_is_not_imported(arguments: list[str]) -> None:
    """The web framework and the API client take a second of CPU, which is long for a version."""
    script = (
        "import sys, proxy.cli.main as m\n"
        f"try: m.main({arguments})\n"
        "except SystemExit: pass\n"
        "print(*sys.modules, file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    loaded = set(done.stderr.split())
    assert "proxy.cli.main" in loaded
    assert not {"pydantic", "fastapi", "aiohttp", "uvloop"} & loaded


def test_a_reader_that_has_seen_enough() -> None:
    """Such as head: the command ends without a traceback."""
    read, write = os.pipe()
    os.close(read)
    try:
        command = [sys.executable, "-m", "proxy.cli.main", "version"]
        done = subprocess.run(command, stdout=write, stderr=subprocess.PIPE, check=False)
    finally:
        os.close(write)
    assert (done.returncode, done.stderr) == (1, b"")
