"""The history against a list of events that is trimmed from its front."""

from __future__ import annotations

import weakref
from typing import NamedTuple, cast

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from proxy.cache.history import KEEP_SECONDS, MAX_BYTES, MAX_EVENTS, Event, History
from proxy.forms.form import EventType
from tests.unit.builders import Clock, stored

SIZES = {
    size: b"x" * size for size in (1, MAX_BYTES // 4, MAX_BYTES // 2, MAX_BYTES, MAX_BYTES + 1)
}


class Entry(NamedTuple):
    """An event as the model has it."""

    version: int
    size: int
    seen: float


class HistoryMachine(RuleBasedStateMachine):
    """Appends, extends and lets time pass; cursors of any age are read from."""

    def __init__(self) -> None:
        super().__init__()
        self.clock = Clock()
        self.history = History(10, self.clock)
        self.floor = 10
        self.version = 10
        self.dropped = 0
        self.model: list[Entry] = []

    def write(self, size: int, step: int) -> Event:
        self.version += step
        self.model.append(Entry(self.version, size, self.clock()))
        found = stored("a/x", self.version, raw=SIZES[size])
        return Event(EventType.MODIFIED, self.version, found, None, self.clock())

    def trim(self) -> None:
        while self.model and (
            sum(entry.size for entry in self.model) > MAX_BYTES
            or self.clock() - self.model[0].seen > KEEP_SECONDS
        ):
            self.floor = self.model.pop(0).version
            self.dropped += 1

    @rule(size=st.sampled_from(list(SIZES)), step=st.integers(1, 3))
    def append(self, size: int, step: int) -> None:
        event = self.write(size, step)
        self.history.append(event.type, event.version, event.object, event.previous)
        self.trim()

    @rule(writes=st.lists(st.tuples(st.sampled_from(list(SIZES)), st.integers(1, 3)), max_size=8))
    def extend(self, writes: list[tuple[int, int]]) -> None:
        self.history.extend([self.write(size, step) for size, step in writes])
        self.trim()

    @rule(seconds=st.sampled_from([1.0, KEEP_SECONDS / 2, KEEP_SECONDS, KEEP_SECONDS + 1]))
    def wait(self, seconds: float) -> None:
        self.clock.advance(seconds)

    @invariant()
    def is_bounded_as_the_model(self) -> None:
        assert self.history.floor == self.floor
        assert self.history.end == self.dropped + len(self.model)

    @invariant()
    def cursors_stand_behind_their_version(self) -> None:
        for version in range(self.floor - 3, self.version + 3):
            behind = sum(entry.version > version for entry in self.model)
            expected = self.history.end - behind if version >= self.floor else None
            assert self.history.cursor_after(version) == expected

    @rule(back=st.integers(0, 12), limit=st.integers(1, 5))
    def read(self, back: int, limit: int) -> None:
        cursor = max(self.history.end - back, 0)
        read = self.history.read(cursor, limit)
        if cursor < self.dropped:
            assert read is None
            return
        expected = self.model[cursor - self.dropped :][:limit]
        assert read is not None
        assert [event.version for event in read] == [entry.version for entry in expected]


TestHistory = HistoryMachine.TestCase
TestHistory.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)


def history_of(count: int, clock: Clock | None = None) -> History:
    history = History(0, clock or Clock())
    for version in range(1, count + 1):
        history.append(EventType.MODIFIED, version, stored("a/x", version), None)
    return history


@pytest.mark.parametrize("start", range(11))
@pytest.mark.parametrize("limit", [1, 3, 100])
def test_reading_on_tells_every_event_once(start: int, limit: int) -> None:
    history = history_of(10)
    cursor: int = start
    told: list[int] = []
    while events := history.read(cursor, limit):
        told += [event.version for event in events]
        cursor += len(events)
    assert told == list(range(start + 1, 11))
    assert cursor == history.end


def test_a_cursor_stays_where_it_is_while_events_come_and_go() -> None:
    clock = Clock()
    history = history_of(3, clock)
    cursor = history.cursor_after(2)
    assert cursor == 2
    clock.advance(KEEP_SECONDS / 2)
    history.append(EventType.ADDED, 4, stored("a/y", 4), None)
    clock.advance(KEEP_SECONDS / 2 + 1)
    history.append(EventType.ADDED, 5, stored("a/z", 5), None)
    assert history.floor == 3
    assert history.read(cursor, 10) is None, "event 3 has gone"
    assert [event.version for event in history.read(cursor + 1, 10) or ()] == [4, 5]


def test_an_event_is_told_as_it_was_written() -> None:
    clock = Clock(7.0)
    history = History(1, clock)
    old, new = stored("a/x", 1), stored("a/x", 2)
    history.append(EventType.DELETED, 3, new, old)
    [event] = history.read(0, 1) or []
    assert (event.type, event.version, event.seen) == (EventType.DELETED, 3, 7.0)
    assert event.object is new
    assert event.previous is old


@pytest.mark.parametrize("at_once", [True, False])
def test_the_number_of_events_is_bounded(at_once: bool) -> None:
    found, over = stored("a/x"), 5
    history = History(0, Clock())
    events = [
        Event(EventType.MODIFIED, version, found, None, 1000.0)
        for version in range(1, MAX_EVENTS + over + 1)
    ]
    cut = 0 if at_once else MAX_EVENTS // 2
    history.extend(events[:cut])
    history.extend(events[cut:])
    assert history.floor == over
    assert history.cursor_after(over) == over
    assert history.end == MAX_EVENTS + over
    assert history.read(over - 1, 1) is None
    assert history.read(over, 1) == [events[over]]


def test_an_empty_history_knows_where_it_begins() -> None:
    history = History(10, Clock())
    assert [history.cursor_after(version) for version in (9, 10, 11)] == [None, 0, 0]
    assert history.read(0, 10) == []
    history.extend([])
    assert history.end == 0


class Looked:
    """An event that counts how often its version is looked at, and may be referred to weakly."""

    def __init__(self, version: int, seen: float = 1000.0) -> None:
        self.looks = 0
        self.object = stored("a/x", version)
        self.seen = seen
        self._version = version

    @property
    def version(self) -> int:
        self.looks += 1
        return self._version


def test_a_cursor_is_found_without_looking_at_all_events() -> None:
    history = History(0, Clock())
    events = [Looked(version) for version in range(1, 1025)]
    history.extend(cast("list[Event]", events))
    for version in (1, 500, 1023):
        before = sum(event.looks for event in events)
        assert history.cursor_after(version) == version
        assert sum(event.looks for event in events) - before <= 11


def test_events_that_are_let_go_are_freed() -> None:
    clock = Clock()
    history = History(0, clock)
    freed: list[int] = []
    for version in range(1, 41):
        clock.advance(KEEP_SECONDS / 10)
        found = Looked(version, clock())
        weakref.finalize(found, freed.append, version)
        history.extend(cast("list[Event]", [found]))
        del found
        assert freed == list(range(1, history.floor + 1))


def test_what_was_replaced_at_once_is_the_callers_to_free() -> None:
    history = history_of(3)
    heavy = stored("a/x", 5, raw=b"x" * (MAX_BYTES - 1))
    events = [Event(EventType.MODIFIED, version, heavy, None, 1000.0) for version in (4, 5)]
    assert [event.version for event in history.extend(events) if event] == [1, 2, 3]
    assert history.extend([]) == []
    assert (history.floor, history.end) == (4, 5)
