"""resourceVersions, and what isn't one."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from proxy.kube.versions import parse_requested_version, parse_version

PARSERS = pytest.mark.parametrize("parse", [parse_version, parse_requested_version])


@PARSERS
@pytest.mark.parametrize(
    ("text", "version"), [("0", 0), ("1", 1), ("007", 7), (str(2**64 - 1), 2**64 - 1)]
)
def test_decimal_numbers(parse: Callable[[str], int], text: str, version: int) -> None:
    assert parse(text) == version


@PARSERS
@pytest.mark.parametrize(
    "text",
    ["", " ", "-1", "+1", " 1", "1 ", "1.0", "1e3", "0x1", "1_000", "abc", "²", "\u0661", "1\n"],
)
def test_what_is_no_version(parse: Callable[[str], int], text: str) -> None:
    with pytest.raises(ValueError, match="not a decimal number"):
        parse(text)


def test_objects_may_be_newer_than_a_request_may_ask_for() -> None:
    assert parse_version(str(2**64)) == 2**64
    with pytest.raises(ValueError, match="out of range"):
        parse_requested_version(str(2**64))
