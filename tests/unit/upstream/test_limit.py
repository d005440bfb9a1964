"""The rate limit, in a time of its own."""

from __future__ import annotations

import pytest

from proxy.kube.errors import TooManyRequests
from proxy.upstream.limit import RateLimit
from tests.unit.builders import Clock


def refused(limit: RateLimit, name: str = "a") -> int | None:
    """Take a token; the seconds to wait when there is none."""
    try:
        limit.take(name)
    except TooManyRequests as error:
        return error.retry_after
    return None


@pytest.mark.parametrize(
    ("rate", "at_once", "retry_after"),
    [
        (1.0, 1, 1),
        (5.0, 5, 1),
        (2.5, 2, 1),
        (0.5, 1, 2),
        (0.1, 1, 10),
        (0.3, 1, 4),
        (1000.0, 1000, 1),
    ],
)
def test_a_second_is_saved_up(rate: float, at_once: int, retry_after: int) -> None:
    limit = RateLimit(rate, clock=Clock())
    assert [refused(limit) for _ in range(at_once)] == [None] * at_once
    assert refused(limit) == retry_after


@pytest.mark.parametrize("rate", [0.1, 0.5, 1.0, 3.0, 50.0])
def test_who_waits_as_told_is_admitted(rate: float) -> None:
    clock = Clock()
    limit = RateLimit(rate, clock=clock)
    for _ in range(100):
        wait = refused(limit)
        if wait is not None:
            clock.advance(wait)
            assert refused(limit) is None


@pytest.mark.parametrize("rate", [0.5, 1.0, 3.0, 50.0])
def test_the_rate_holds_in_the_long_run(rate: float) -> None:
    clock = Clock()
    limit = RateLimit(rate, clock=clock)
    admitted = 0
    for _ in range(10_000):
        admitted += refused(limit) is None
        clock.advance(0.01)
    assert admitted == pytest.approx(100 * rate, abs=max(1.0, rate) + 1)


def test_names_have_a_bucket_each() -> None:
    limit = RateLimit(1.0, clock=Clock())
    assert [refused(limit, name) for name in "abab"] == [None, None, 1, 1]


def test_no_limit() -> None:
    limit = RateLimit(0.0, clock=Clock())
    assert [refused(limit) for _ in range(1000)] == [None] * 1000


def test_the_refusal_is_a_status() -> None:
    limit = RateLimit(0.25, clock=Clock())
    limit.take("kubectl")
    with pytest.raises(TooManyRequests) as raised:
        limit.take("kubectl")
    assert raised.value.status() == {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": "Too many requests: live reads of kubectl are limited to 0.25 a second",
        "reason": "TooManyRequests",
        "details": {"retryAfterSeconds": 4},
        "code": 429,
    }
