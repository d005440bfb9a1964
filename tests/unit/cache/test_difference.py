"""What a relist tells: any two states, and what every client makes of the events between them."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.cache.difference import (
    BREATH,
    SLICE,
    NoHistoryError,
    Pair,
    RereadError,
    changed_pairs,
    differences,
)
from proxy.cache.history import Event
from proxy.forms.form import EventType
from proxy.forms.objects import Object
from tests.unit.builders import stored

State = dict[str, Object]

NOW = 7.0

KEYS = ["a-b/x", "a/x", "a/x-1", "a/x.1", "a0/a", "node"]


def difference(before: State, after: State, since: int, until: int) -> list[Event]:
    pairs = changed_pairs(_in_order(before), _in_order(after))
    return differences(filter(None, pairs), since, until, NOW)


def _in_order(state: State) -> Iterable[Object]:
    return [state[key] for key in sorted(state)]


def applied(state: State, events: Iterable[Event]) -> State:
    """Apply events as a client does, which knows what it holds."""
    state = dict(state)
    for event in events:
        key = event.object.key
        assert event.previous is state.get(key)
        if event.type is EventType.DELETED:
            assert event.object is state.pop(key)
            continue
        assert (key in state) is (event.type is EventType.MODIFIED)
        assert event.version == event.object.version
        state[key] = event.object
    return state


class Relist(NamedTuple):
    """Two states of one history, and the versions they were listed at."""

    before: State
    after: State
    since: int
    until: int


@st.composite
def relists(draw: st.DrawFn) -> Relist:
    """Write at random, each write with a version of its own; the middle is the older list."""
    writes = draw(st.lists(st.tuples(st.sampled_from(KEYS), st.sampled_from(["put", "delete"]))))
    at = draw(st.integers(0, len(writes)))
    before: State = {}
    state: State = {}
    version = since = draw(st.integers(1, 50))
    for number, (key, verb) in enumerate(writes):
        if number == at:
            before, since = dict(state), version + draw(st.integers(0, 2))
            version = since
        version += draw(st.integers(1, 3))
        held = state.pop(key, None)
        if verb == "put":
            state[key] = stored(key, version, uid=held.uid if held else f"{key}-{version}")
    if at == len(writes):
        before, since = dict(state), version
    return Relist(before, state, since, version + draw(st.integers(0, 3)))


@given(relists())
def test_events_lead_from_one_state_to_the_other(relist: Relist) -> None:
    events = difference(*relist)
    assert applied(relist.before, events) == relist.after


@given(relists())
def test_versions_rise_strictly_within_the_bounds(relist: Relist) -> None:
    versions = [relist.since, *(event.version for event in difference(*relist))]
    assert all(first < second for first, second in pairwise(versions))
    assert versions[-1] <= relist.until


@given(relists(), st.data())
def test_a_client_that_resumes_from_any_event_misses_none(
    relist: Relist, data: st.DataObject
) -> None:
    events = difference(*relist)
    told = events[: data.draw(st.integers(0, len(events)))]
    reached = told[-1].version if told else relist.since
    held = applied(relist.before, told)
    resumed = [event for event in events if event.version > reached]
    assert applied(held, resumed) == relist.after


@given(relists())
def test_equal_states_tell_nothing(relist: Relist) -> None:
    assert difference(relist.after, relist.after, relist.since, relist.until) == []


# --- by example ------------------------------------------------------------------------------


def states(*objects: Object) -> State:
    return {found.key: found for found in objects}


X5, X8 = stored("x", 5, uid="old"), stored("x", 8, uid="old")
X8_NEW = stored("x", 8, uid="new")


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ([], [X8], ["ADDED x@8"]),
        ([X5], [X8], ["MODIFIED x@8"]),
        ([X5], [], ["DELETED x@9"]),
        ([X5], [X8_NEW], ["DELETED x@7", "ADDED x@8"]),
        ([X5], [stored("y", 9)], ["DELETED x@8", "ADDED y@9"]),
        ([X5], [stored("y", 8)], ["ADDED y@8", "DELETED x@9"]),
        ([X5, stored("y", 4)], [], ["DELETED y@8", "DELETED x@9"]),
        ([X5], [X8_NEW, stored("y", 7)], ["DELETED x@6", "ADDED y@7", "ADDED x@8"]),
        ([stored("x-1"), stored("x.1")], [stored("x-1"), stored("x.1")], []),
        ([stored("x-1"), stored("x.1")], [stored("x.1")], ["DELETED x-1@9"]),
    ],
)
def test_what_is_told(before: list[Object], after: list[Object], expected: list[str]) -> None:
    events = difference(states(*before), states(*after), 5, 9)
    assert [f"{event.type} {event.object.key}@{event.version}" for event in events] == expected


@pytest.mark.parametrize(
    ("before", "after", "since", "until"),
    [
        ([], [X8], 8, 9),
        ([], [X8], 5, 7),
        ([X8], [X5], 8, 9),
        ([X8], [X8_NEW], 8, 9),
        ([X8], [], 8, 8),
        ([X5], [X8_NEW], 7, 8),
        ([X5, stored("y", 4)], [], 5, 6),
        ([X5], [stored("y", 6)], 5, 6),
    ],
    ids=[
        "an older object",
        "one newer than the list",
        "an object that went back",
        "another one of the same version",
        "no version for a deletion",
        "none below the recreation",
        "one for two deletions",
        "the only one is taken",
    ],
)
def test_states_that_can_not_follow(
    before: list[Object], after: list[Object], since: int, until: int
) -> None:
    with pytest.raises(NoHistoryError):
        difference(states(*before), states(*after), since, until)


def test_a_long_comparison_breathes() -> None:
    same = [stored(f"{number:06}") for number in range(3 * BREATH)]
    assert list(changed_pairs(same, same)) == [None] * 3
    assert len([pair for pair in changed_pairs(same, []) if pair]) == len(same)


def test_pairs_are_told_in_key_order() -> None:
    before = [stored("a"), stored("b"), stored("d")]
    after = [stored("b", 2), stored("c"), stored("d")]
    assert list(changed_pairs(before, after)) == [
        Pair(before[0], None),
        Pair(before[1], after[0]),
        Pair(None, after[1]),
    ]


def test_many_deletions_take_versions_quickly_and_in_order() -> None:
    count = 2 * SLICE + 5
    before = states(*(stored(f"{number:06}", number + 1) for number in range(count)))
    events = difference(before, {}, count, 2 * count)
    assert [event.version for event in events] == list(range(count + 1, 2 * count + 1))
    assert {event.seen for event in events} == {NOW}


def test_what_reads_otherwise_at_its_version_is_no_difference_that_can_be_told() -> None:
    before, after = stored("x", 3), stored("x", 3)
    assert list(changed_pairs([before], [after])) == []
    with pytest.raises(RereadError, match="x at 3"):
        list(changed_pairs([before], [stored("x", 3, raw=b"{ }")]))
