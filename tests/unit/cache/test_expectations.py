"""What reads have to wait for, and which of them."""

from __future__ import annotations

import pytest

from proxy.cache.expectations import (
    MAX_EXPECTATIONS,
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
        Expectation("a/x", 2.0),
        Expectation("a/x", 3.0, uid="u"),
        Expectation("a/x", 4.0, client="c", version=9),
    ]
    assert added(*each).of("a/x", "c") == each


def test_what_is_met_is_let_go() -> None:
    expectations = added(Expectation("a/x", 1.0, version=12), Expectation("a/y", 1.0, version=13))
    expectations.settle(lambda each: each.version <= 12)
    assert [each.key for each in expectations.of("", "")] == ["a/y"]
    assert expectations
    expectations.clear()
    assert not expectations


def test_too_many_are_one_for_everything() -> None:
    expectations = added(
        *(Expectation(f"a/{n}", float(n), version=n + 1) for n in range(MAX_EXPECTATIONS + 1))
    )
    assert expectations.of("b/z", "anybody") == [Expectation("", float(MAX_EXPECTATIONS))]


def test_keys_of_collections() -> None:
    assert [collection_key("a"), collection_key("")] == ["a/", ""]
