"""The checkers of histories: what each of them finds, in histories made by hand."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf

import pytest

from tests.harness.history import Event, Log, Read, Tide, Update, Write
from tests.harness.violations import (
    backwards,
    inexact,
    lost,
    nonlinear,
    refused,
    too_old,
    unseen,
)

WEB = frozenset({"tier=web"})

# x is created at 11, changed at 13, deleted at 15, created again at 17; y is created at 12, and
# gets a label at 14.
LOG = Log(
    [
        Event("a/x", 11, labels=WEB),
        Event("a/y", 12),
        Event("a/x", 13),
        Event("a/y", 14, labels=WEB),
        Event("a/x", 15, gone=True),
        Event("a/x", 17),
    ]
)


def got(version: int, *, called: float = 10.0, client: str = "me", age: int = 0) -> Read:
    found = {"a/x": version} if version else {}
    return Read(client, called, called + 0.1, found, key="a/x", age=age)


def listed(
    version: int, *, called: float = 10.0, prefix: str = "", label: str = "", **found: int
) -> Read:
    items = {f"a/{name}": each for name, each in found.items()}
    times = (called, called + 0.1)
    return Read("me", *times, items, prefix=prefix, label=label, version=version)


@pytest.mark.parametrize(
    ("version", "state"),
    [
        (10, {}),
        (11, {"a/x": 11}),
        (12, {"a/x": 11, "a/y": 12}),
        (13, {"a/x": 13, "a/y": 12}),
        (16, {"a/y": 14}),
        (99, {"a/x": 17, "a/y": 14}),
    ],
)
def test_states_of_a_log(version: int, state: dict[str, int]) -> None:
    assert LOG.state("", version) == state


@pytest.mark.parametrize(
    ("found", "after", "first"),
    [
        (0, 0, 0),
        (0, 10, 10),
        (0, 11, 15),
        (0, 17, None),
        (11, 0, 11),
        (11, 12, 12),
        (11, 13, None),
        (13, 14, 14),
        (13, 15, None),
        (17, 99, 99),
        (12, 0, None),
    ],
)
def test_where_a_state_was_seen(found: int, after: int, first: int | None) -> None:
    assert LOG.first("a/x", found, after) == first


@pytest.mark.parametrize(
    ("read", "exact"),
    [
        (got(11), True),
        (got(0), True),
        (got(12), False),
        (listed(12, x=11, y=12), True),
        (listed(16, y=14), True),
        (listed(12, label="tier=web", x=11), True),
        (listed(13, label="tier=web"), True),
        (listed(14, label="tier=web", y=14), True),
        (listed(13, label="tier=web", x=11), False),
        (listed(14, label="tier=web", x=13, y=14), False),
        (listed(12, x=11), False),
        (listed(12, x=13, y=12), False),
        (listed(12, prefix="b/"), True),
    ],
)
def test_answers_are_states_of_the_log(read: Read, *, exact: bool) -> None:
    assert (inexact(LOG, [read]) == []) is exact


WRITES = [
    Write("a/x", 11, 0.0, 1.0),
    Write("a/x", 13, 2.0, 3.0),
    Write("a/x", 15, 4.0, 5.0),
]


@pytest.mark.parametrize(
    ("read", "seen"),
    [
        (got(0, called=0.5), True),
        (got(11, called=0.5), True),  # not acknowledged yet, but seen
        (got(0, called=1.0), True),  # deleted later, which it may have seen already
        (got(11, called=1.0), True),
        (got(11, called=2.9), True),
        (got(11, called=3.1), False),
        (got(13, called=3.1), True),
        (got(13, called=5.1), False),
        (got(0, called=5.1), True),
        (got(17, called=5.1), True),
        (listed(12, called=3.1, x=11, y=12), False),
        (listed(13, called=3.1, x=13, y=12), True),
        (listed(12, called=3.1, prefix="b/"), True),
    ],
)
def test_reads_after_a_write_have_to_see_it(read: Read, *, seen: bool) -> None:
    assert (unseen(LOG, WRITES, [read]) == []) is seen


@pytest.mark.parametrize(("called", "seen"), [(4.9, True), (5.1, False)])
def test_within_a_bound_they_need_not(called: float, *, seen: bool) -> None:
    assert (unseen(LOG, WRITES, [got(11, called=called)], within=2.0) == []) is seen


@pytest.mark.parametrize(
    ("reads", "forward"),
    [
        ([got(11, called=1), got(13, called=2), got(0, called=3), got(17, called=4)], True),
        ([got(0, called=1), got(11, called=2), got(0, called=3)], True),
        ([got(13, called=1), got(11, called=2)], False),
        ([got(17, called=1), got(0, called=2)], False),
        ([got(0, called=1), got(13, called=2), got(11, called=3)], False),
        ([got(13, called=2), got(11, called=1)], True),
        ([got(13, called=1), got(11, called=2, client="other")], True),
        ([listed(13, called=1, x=13, y=12), listed(12, called=2, x=11, y=12)], False),
        ([listed(14, called=1, x=13, y=14), listed(13, called=2, x=13, y=12)], False),
        ([listed(13, called=1, x=13, y=12), got(11, called=2)], False),
        ([got(13, called=1), listed(12, called=2, x=11, y=12)], False),
        ([got(13, called=1), listed(13, called=2, x=13, y=12)], True),
    ],
)
def test_nobody_goes_back(reads: Sequence[Read], *, forward: bool) -> None:
    assert (backwards(LOG, reads) == []) is forward


@pytest.mark.parametrize(("age", "allowed"), [(0, True), (2, True), (3, False)])
def test_ages(age: int, *, allowed: bool) -> None:
    assert (too_old([got(11, age=age)], 2.0) == []) is allowed


# Versions that a read beside the proxy has shown, by when it was sent.
TIDE = Tide([(0.5, 10), (1.5, 12), (4.5, 14), (4.4, 15), (9.0, 17)])


@pytest.mark.parametrize(
    ("time", "highest"),
    [(0.0, 10), (0.5, 10), (0.6, 12), (4.0, 14), (4.5, 14), (4.6, 17), (9.1, inf)],
)
def test_nothing_newer_was_there_than_what_was_read_later(time: float, highest: float) -> None:
    assert TIDE.highest(time) == highest


@pytest.mark.parametrize(
    ("read", "possible"),
    [
        (got(13, called=2.0), True),
        (got(13, called=1.0), False),
        (listed(14, called=4.0, x=13, y=14), True),
        (listed(16, called=4.0, y=14), False),
    ],
)
def test_nobody_sees_what_is_yet_to_come(read: Read, *, possible: bool) -> None:
    assert (inexact(LOG, [read], TIDE) == []) is possible


def test_a_later_deletion_is_no_excuse() -> None:
    missed = got(0, called=1.2)
    assert unseen(LOG, WRITES, [missed]) == []  # for all that is known without the tide
    assert unseen(LOG, WRITES, [missed], TIDE)
    assert nonlinear(LOG, WRITES, [missed], TIDE)
    assert backwards(LOG, [got(11, called=1.1), missed._replace(called=1.3)], TIDE)


def test_lists_by_label_have_to_see_a_label_go() -> None:
    missed = listed(12, called=3.1, label="tier=web", x=11)
    assert unseen(LOG, WRITES, [missed])
    assert not unseen(LOG, WRITES, [missed._replace(version=13, found={})])


@pytest.mark.parametrize(
    ("reads", "linear"),
    [
        ([got(11, called=1.1), got(13, called=3.2)], True),
        ([got(11, called=3.1)], False),  # the write of 13 had returned
        ([got(13, called=2.1), got(11, called=2.5, client="other")], False),
        ([got(13, called=2.1), got(11, called=2.15, client="other")], True),  # both at once
        ([listed(13, called=2.1, x=13, y=12), got(11, called=2.5, client="other")], False),
        ([got(0, called=5.1), got(13, called=5.3, client="other")], False),
        ([got(17, called=5.1), got(0, called=5.3, client="other")], False),
    ],
)
def test_each_object_is_a_register(reads: Sequence[Read], *, linear: bool) -> None:
    assert (nonlinear(LOG, WRITES, reads) == []) is linear


# x is made at 11; then c1 and d1 annotate it, and somebody takes away what c1 wrote.
UPDATES = Log(
    [
        Event("a/x", 11),
        Event("a/x", 13, annotations={"c": "1"}),
        Event("a/x", 14, annotations={"c": "1", "d": "1"}),
        Event("a/x", 15, annotations={"d": "2"}),
    ]
)


def updated(base: int, version: int, *, merged: bool = False, **annotations: str) -> Update:
    return Update("a/x", base, annotations, 2.0, 3.0, version, merged)


@pytest.mark.parametrize(
    ("update", "kept"),
    [
        (updated(11, 13, c="1"), True),
        (updated(13, 14, d="1"), True),
        (updated(11, 14, d="1"), False),  # of what was read before c1
        (updated(11, 14, merged=True, d="1"), True),
        (updated(13, 14, merged=True, d="9"), False),
        (updated(14, 15, d="2"), False),
        (updated(13, 15, merged=True, d="2"), False),
        (updated(11, 0, c="2"), True),
    ],
)
def test_updates_undo_nothing(update: Update, *, kept: bool) -> None:
    assert (lost(UPDATES, [update]) == []) is kept


@pytest.mark.parametrize(
    ("update", "right"),
    [
        (updated(11, 0), True),
        (updated(15, 0), False),
        (updated(14, 0), False),  # 15 wasn't there before 4.4
        (updated(11, 13), True),
    ],
)
def test_conflicts_are_with_something(update: Update, *, right: bool) -> None:
    tide = Tide([(3.5, 14), (4.4, 15)])
    assert (refused(UPDATES, [update], tide) == []) is right
