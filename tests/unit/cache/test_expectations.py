"""What reads have to wait for, and which of them."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from proxy.cache.expectations import (
    MAX_EXPECTATIONS,
    MAX_UNPROVEN,
    Expectation,
    Expectations,
    collection_key,
)


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
        (lambda each: each.clear(), []),
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


@pytest.mark.parametrize(
    ("count", "version", "uid"),
    [(MAX_EXPECTATIONS, 1, ""), (MAX_EXPECTATIONS, 0, "u"), (MAX_UNPROVEN, 0, "")],
)
def test_too_many_are_one_for_everything(count: int, version: int, uid: str) -> None:
    expectations = added(
        *(Expectation(f"a/{n}", float(n), "c", version, uid) for n in range(count + 1))
    )
    assert expectations.of("b/z", "anybody") == [Expectation("", float(count))]
    assert len(expectations) == 1


def test_keys_of_collections() -> None:
    assert [collection_key("a"), collection_key("")] == ["a/", ""]
