"""How long writes take to arrive."""

from __future__ import annotations

from proxy.cache.history import History
from proxy.cache.lag import MAX_AWAITED, Lag, Write
from proxy.forms.form import EventType
from tests.unit.builders import Clock, stored


def counted(lag: Lag) -> int:
    return sum(lag.seconds.counts)


def test_an_event_after_the_answer_is_late_by_that() -> None:
    lag = Lag()
    lag.expect(Write(12, sent=1.0, arrived=2.0), 11, history(0.0))
    lag.reach(11, 2.25)
    assert counted(lag) == 0
    lag.reach(12, 2.5)
    assert (lag.last, lag.seconds.sum, counted(lag)) == (0.5, 0.5, 1)
    lag.reach(13, 9.0)
    assert counted(lag) == 1


def test_several_are_reached_at_once() -> None:
    lag = Lag()
    for version in (12, 13, 14):
        lag.expect(Write(version, 1.0, float(version)), 11, history(0.0))
    lag.reach(13, 20.0)
    assert (lag.seconds.sum, counted(lag)) == (8.0 + 7.0, 2)


def history(seen: float) -> History:
    found = History(10, Clock(seen))
    found.append(EventType.ADDED, 12, stored("a/x", 12), None)
    return found


def test_an_event_that_came_first_was_not_late() -> None:
    lag = Lag()
    lag.expect(Write(12, sent=1.0, arrived=2.0), 12, history(1.5))
    assert (lag.last, counted(lag)) == (0.0, 1)


def test_a_write_that_changed_nothing_is_not_measured() -> None:
    """Its version is that of an event from before it was sent, or of none."""
    lag = Lag()
    lag.expect(Write(12, sent=1.6, arrived=2.0), 12, history(1.5))
    lag.expect(Write(11, sent=1.0, arrived=2.0), 12, history(1.5))
    lag.expect(Write(9, sent=1.0, arrived=2.0), 12, history(1.5))
    assert counted(lag) == 0


def test_no_more_are_awaited_than_can_be() -> None:
    lag = Lag()
    for version in range(11, 11 + MAX_AWAITED + 5):
        lag.expect(Write(version, 1.0, 2.0), 10, history(0.0))
    lag.reach(10**6, 3.0)
    assert counted(lag) == MAX_AWAITED
