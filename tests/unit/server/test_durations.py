"""Durations: what is read as one, and how one is spelt."""

from __future__ import annotations

import pytest

from proxy.server.durations import parse_duration, spell_duration


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("30m", 1800.0),
        ("1h30m", 5400.0),
        ("1h30m15s", 5415.0),
        ("1.5s", 1.5),
        ("250ms", 0.25),
        ("1m500ms", 60.5),
        ("0s", 0.0),
        (12, 12),
        (0.5, 0.5),
        ("12", "12"),  # a number, which pydantic reads
    ],
)
def test_durations(value: object, seconds: object) -> None:
    assert parse_duration(value) == seconds


@pytest.mark.parametrize("value", ["30m ", " 30m", "30m5", "x30m", "1h-30m", "30M1s", "1.m1s"])
def test_durations_that_are_none(value: str) -> None:
    with pytest.raises(ValueError, match="is not a duration like 30m or 1h30m"):
        parse_duration(value)


@pytest.mark.parametrize(
    ("seconds", "spelt"),
    [
        (0.0, "0"),
        (1.0, "1s"),
        (90.0, "90s"),
        (120.0, "2m"),
        (1800.0, "30m"),
        (7200.0, "2h"),
        (0.5, "0.5"),
    ],
)
def test_how_they_are_spelt(seconds: float, spelt: str) -> None:
    assert spell_duration(seconds) == spelt
    assert float(str(parse_duration(spelt))) == seconds
