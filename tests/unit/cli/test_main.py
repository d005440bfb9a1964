"""The kubecache command: finding subcommands, and `version`."""

from __future__ import annotations

import sys

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
    for name, command in COMMANDS.items():
        summary = sys.modules[command.__module__].__doc__
        assert summary
        assert listed[name] == summary.splitlines()[0]


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
def test_version(
    arguments: list[str], code: int, output: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["version", *arguments]) == code
    assert capsys.readouterr().out == f"{output}\n"
