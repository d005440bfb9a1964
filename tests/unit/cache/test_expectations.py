"""What reads have to wait for, and which of them."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from proxy.cache.expectations import (
    MAX_EXPECTATIONS,
    MAX_UNPROVEN,
    Expectation,
    Expectations,
)
from proxy.kube.resources import collection_key


@pytest.mark.parametrize(
    ("key", "read", "waits"),
    [
        ("a/x", "a/x", True),
        ("a/x", "a/y", False),
        ("a/x", "a/xy", False),
        ("a/xy", "a/x", False),
        ("a/x", "a/", True),
        ("a/x", "", True),
        ("a/x", "b/", False),
        ("ab/x", "a/", False),
        ("a/", "a/x", True),
        ("a/", "a/", True),
        ("a/", "", True),
        ("a/", "b/x", False),
        ("", "a/x", True),
        ("", "", True),
        ("x", "x", True),  # cluster-scoped
        ("x", "xy", False),
        ("x", "", True),
        ("", "x", True),
    ],
)
def test_reads_wait_for_what_they_may_show(key: str, read: str, *, waits: bool) -> None:
    assert Expectation(key, 1.0).concerns(read, "anybody") is waits


@pytest.mark.parametrize(
    ("client", "reader", "waits"),
    [("", "a", True), ("", "", True), ("a", "a", True), ("a", "b", False), ("a", "", False)],
)
def test_writes_are_for_all_and_what_was_shown_for_one(
    client: str, reader: str, *, waits: bool
) -> None:
    assert Expectation("a/x", 1.0, client=client).concerns("a/x", reader) is waits


def added(*expected: Expectation) -> Expectations:
    expectations = Expectations()
    for each in expected:
        expectations.add(each)
    return expectations


def test_of_two_alike_the_later_counts() -> None:
    expectations = added(
        Expectation("a/x", 2.0, version=12),
        Expectation("a/x", 1.0, version=13),
        Expectation("a/x", 1.5, version=11),
    )
    assert expectations.of("a/x", "c") == [Expectation("a/x", 2.0, version=13)]


@pytest.mark.parametrize(("first", "second"), [(True, True), (True, False), (False, True)])
def test_what_was_there_and_then_was_not_is_not_just_absent(*, first: bool, second: bool) -> None:
    """A state without it may be from before it was there."""
    shown = [
        Expectation("a/x", moment, "c", absent=absent)
        for moment, absent in ((1.0, first), (2.0, second))
    ]
    assert added(*shown).of("a/x", "c") == [Expectation("a/x", 2.0, "c", absent=first and second)]


def test_those_of_other_kinds_stand_beside_each_other() -> None:
    """An eviction and an update that overtake each other: neither covers the other."""
    each = [
        Expectation("a/x", 1.0, version=12),
        Expectation("a/x", 4.0, client="c", version=9),
        Expectation("a/x", 3.0, uid="u"),
        Expectation("a/x", 2.0),
    ]
    assert added(*each).of("a/x", "c") == each


X = Expectation("a/x", 1.0, version=12)
Y = Expectation("a/y", 2.0, version=13)
GONE = Expectation("a/z", 3.0, uid="u")
LISTED = Expectation("a/", 4.0)


@pytest.mark.parametrize(
    ("meet", "left"),
    [
        (lambda each: each.reach(11), [X, Y, GONE, LISTED]),
        (lambda each: each.reach(12), [Y, GONE, LISTED]),
        (lambda each: each.reach(13), [GONE, LISTED]),
        (lambda each: each.lose("a/x"), [X, Y, GONE, LISTED]),
        (lambda each: each.lose("a/z"), [X, Y, LISTED]),
        (lambda each: each.relisted(lambda found: found.uid == "u"), [X, Y, GONE, LISTED]),
        (lambda each: each.relisted(lambda found: found.uid == "v"), [X, Y, LISTED]),
        (lambda each: each.prove(0.5), [X, Y, GONE, LISTED]),
        (lambda each: each.prove(2.0), [GONE, LISTED]),
        (lambda each: each.prove(4.0), []),
    ],
)
def test_what_is_met_is_let_go(
    meet: Callable[[Expectations], None], left: list[Expectation]
) -> None:
    expectations = added(X, Y, GONE, LISTED)
    meet(expectations)
    assert expectations.of("", "") == left
    assert bool(expectations) is bool(left)


def test_later_ones_are_met_in_their_turn() -> None:
    expectations = added(X)
    expectations.reach(12)
    expectations.add(Y)
    expectations.reach(12)
    assert expectations.of("", "") == [Y]
    expectations.reach(13)
    assert not expectations


KINDS = [(MAX_EXPECTATIONS, 1, ""), (MAX_EXPECTATIONS, 0, "u"), (MAX_UNPROVEN, 0, "")]


@pytest.mark.parametrize("client", ["", "c"])
@pytest.mark.parametrize(("count", "version", "uid"), KINDS)
def test_too_many_of_one_are_one_for_everything(
    count: int, version: int, uid: str, client: str
) -> None:
    """For the client that was shown them; for all, where they are writes."""
    expectations = added(
        X, *(Expectation(f"b/{n}", float(n), client, version, uid) for n in range(count + 1))
    )
    everything = Expectation("", float(count - (version > 0 and not client)), client)
    found = expectations.of("a/none", client or "anybody")
    assert [each._replace(moment=0.0) for each in found] == [everything._replace(moment=0.0)]
    assert found[0].moment >= count - 1
    if client:
        assert expectations.of("a/none", "another") == []
        assert expectations.of("a/x", "another") == [X]


def test_many_clients_do_not_displace_writes() -> None:
    expectations = added(
        LISTED, *(Expectation("a/x", 9.0, f"c{n}") for n in range(5 * MAX_UNPROVEN))
    )
    assert len(expectations) <= 2 * MAX_UNPROVEN
    assert expectations.of("a/x", "another") == [LISTED]


def test_versions_that_mean_something_else_leave_the_proof() -> None:
    expectations = added(X, GONE, LISTED)
    expectations.distrust()
    assert set(expectations.of("", "")) == {
        Expectation("a/x", 1.0),
        Expectation("a/z", 3.0),
        LISTED,
    }
    expectations.reach(100)
    expectations.prove(3.0)
    assert expectations.of("", "") == [LISTED]


def test_keys_of_collections() -> None:
    assert [collection_key("a"), collection_key("")] == ["a/", ""]
