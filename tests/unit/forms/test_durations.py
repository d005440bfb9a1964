"""Durations are those of kube-apiserver, at every bound of its ranges."""

from __future__ import annotations

import pytest

from proxy.forms.durations import human_duration

MINUTE, HOUR, DAY = 60, 3600, 86400
YEAR = 365 * DAY
SHORT = 0.001


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-YEAR, "<invalid>"),
        (-2, "<invalid>"),
        (-2 + SHORT, "0s"),
        (-1, "0s"),
        (0, "0s"),
        (1 - SHORT, "0s"),
        (70, "70s"),
        (2 * MINUTE - SHORT, "119s"),
        (2 * MINUTE, "2m"),
        (3 * MINUTE + 10, "3m10s"),
        (10 * MINUTE - SHORT, "9m59s"),
        (10 * MINUTE, "10m"),
        (10 * MINUTE + 59, "10m"),
        (3 * HOUR - SHORT, "179m"),
        (3 * HOUR, "3h"),
        (3 * HOUR + MINUTE, "3h1m"),
        (8 * HOUR - SHORT, "7h59m"),
        (8 * HOUR, "8h"),
        (8 * HOUR + 59 * MINUTE, "8h"),
        (2 * DAY - SHORT, "47h"),
        (2 * DAY, "2d"),
        (2 * DAY + HOUR, "2d1h"),
        (8 * DAY - SHORT, "7d23h"),
        (8 * DAY, "8d"),
        (8 * DAY + 23 * HOUR, "8d"),
        (367 * DAY, "367d"),
        (2 * YEAR - SHORT, "729d"),
        (2 * YEAR, "2y"),
        (2 * YEAR + DAY - SHORT, "2y"),
        (2 * YEAR + DAY, "2y1d"),
        (8 * YEAR - SHORT, "7y364d"),
        (8 * YEAR, "8y"),
        (8 * YEAR + 364 * DAY, "8y"),
        (30 * YEAR, "30y"),
    ],
)
def test_durations(seconds: float, text: str) -> None:
    assert human_duration(seconds) == text


def test_no_duration_is_longer_than_go_has() -> None:
    assert human_duration(400 * 365 * 86400) == "292y"
