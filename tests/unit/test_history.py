"""The checkers of histories: what each of them finds, in histories made by hand."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from tests.harness.history import (
    Log,
    Read,
    Write,
    backwards,
    inexact,
    too_old,
    unseen,
)

# x is created at 11, changed at 13, deleted at 15, created again at 17; y is created at 12.
LOG = Log(
    [
        ("a/x", 11, False),
        ("a/y", 12, False),
        ("a/x", 13, False),
        ("a/x", 15, True),
        ("a/x", 17, False),
    ]
)


def got(version: int, *, called: float = 10.0, client: str = "me", age: int = 0) -> Read:
    found = {"a/x": version} if version else {}
    return Read(client, called, called + 0.1, found, key="a/x", age=age)


def listed(version: int, *, called: float = 10.0, prefix: str = "", **found: int) -> Read:
    items = {f"a/{name}": each for name, each in found.items()}
    return Read("me", called, called + 0.1, items, prefix=prefix, version=version)


@pytest.mark.parametrize(
    ("version", "state"),
    [
        (10, {}),
        (11, {"a/x": 11}),
        (12, {"a/x": 11, "a/y": 12}),
        (14, {"a/x": 13, "a/y": 12}),
        (16, {"a/y": 12}),
        (99, {"a/x": 17, "a/y": 12}),
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
        (listed(16, y=12), True),
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
        ([listed(14, called=1, x=13, y=12), listed(13, called=2, x=13, y=12)], False),
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
