"""Backoff: how long is waited, attempt by attempt."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.cache.backoff import CAP, FIRST, RESET, Backoff
from tests.unit.builders import Clock


def backoff(clock: Clock | None = None, jitter: float = 0.0) -> Backoff:
    return Backoff(clock=clock or Clock(), random=lambda: jitter)


@pytest.mark.parametrize(
    ("jitter", "delays"),
    [
        (0.0, [0.8, 1.6, 3.2, 6.4, 12.8, 25.6, 30.0, 30.0]),
        (0.5, [1.2, 2.4, 4.8, 9.6, 19.2, 38.4, 45.0, 45.0]),
        (1.0, [1.6, 3.2, 6.4, 12.8, 25.6, 51.2, 60.0, 60.0]),
    ],
)
def test_delays_double_up_to_their_cap(jitter: float, delays: list[float]) -> None:
    steps = backoff(jitter=jitter)
    assert [steps.next() for _ in delays] == pytest.approx(delays)


@pytest.mark.parametrize(("quiet", "delay"), [(RESET, 6.4), (RESET + 0.1, FIRST)])
def test_a_quiet_time_starts_it_over(quiet: float, delay: float) -> None:
    clock = Clock()
    steps = backoff(clock)
    for _ in range(3):
        steps.next()
    clock.advance(quiet)
    assert steps.next() == pytest.approx(delay)


def test_what_the_server_asks_for_is_a_minimum() -> None:
    steps = backoff()
    assert [steps.next(1.0), steps.next(1.0), steps.next(100.0), steps.next()] == pytest.approx(
        [1.0, 1.6, 100.0, 6.4]
    )


@given(st.lists(st.floats(0.0, 1.0), min_size=1, max_size=20), st.floats(0.0, 100.0))
def test_every_delay_is_between_its_step_and_twice_that(
    jitters: list[float], at_least: float
) -> None:
    drawn = iter(jitters)
    steps = Backoff(clock=Clock(), random=lambda: next(drawn))
    step = FIRST
    for _ in jitters:
        delay = steps.next(at_least)
        assert max(step, at_least) <= delay <= max(2 * step, at_least)
        step = min(2 * step, CAP)
