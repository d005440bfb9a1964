"""The store against the plainest model of it: a dict that is sorted whenever it's read."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from proxy.cache.store import CHUNK, EVERYTHING, KeyRange, Snapshot, Store, namespace_range
from proxy.forms.objects import Object
from tests.unit.builders import store_of, stored

NAMESPACES = ["a", "a-b", "a.b", "a0", "ab", "b"]
"""Around "a/", bytewise: "-" and "." come before "/", "0" and letters behind it."""

NAMES = ["x", "x-1", "x.1", "x0", "xa", *(f"{number:03}" for number in range(40))]

KEYS = [f"{namespace}/{name}" for namespace in NAMESPACES for name in NAMES]

keys = st.sampled_from(KEYS)
bounds = st.one_of(
    st.just(""), keys, st.sampled_from(["a", "a/", "a0", "a/x.", "c", "!", "a-b/x-", "~"])
)


def check_ranges(snapshot: Snapshot, model: dict[str, Object], low: str, high: str) -> None:
    selected = [key for key in sorted(model) if low <= key and (not high or key < high)]
    keys = KeyRange(low, high)
    assert [found.key for found in snapshot.range(keys)] == selected
    if not high or low <= high:
        assert snapshot.count(keys) == len(selected)


def check_chunks(snapshot: Snapshot) -> None:
    assert all(1 <= len(chunk) <= CHUNK for chunk in snapshot._chunks)
    assert snapshot._firsts == [chunk[0].key for chunk in snapshot._chunks]


class StoreMachine(RuleBasedStateMachine):
    """Writes at random, singly and in swarms; snapshots taken on the way must stay as they are."""

    def __init__(self) -> None:
        super().__init__()
        self.store = Store()
        self.model: dict[str, Object] = {}
        self.replaced = 0
        self.writes = 0
        self.kept: list[tuple[Snapshot, dict[str, Object]]] = []

    @rule(key=keys, size=st.integers(0, 9))
    def put(self, key: str, size: int) -> None:
        self.writes += 1
        found = stored(key, self.writes, raw=b"x" * size)
        previous = self.model.get(key)
        assert self.store.put(found) is previous
        self.store.version = self.store.changed = self.writes
        self.model[key] = found
        self.replaced += len(previous.raw) if previous else 0

    @rule(swarm=st.lists(keys, min_size=CHUNK, max_size=3 * CHUNK))
    def put_many(self, swarm: list[str]) -> None:
        for key in swarm:
            self.put(key, 1)

    @rule(step=st.integers(1, 3), start=st.integers(0, len(KEYS) - 1), back=st.booleans())
    def put_in_a_row(self, step: int, start: int, back: bool) -> None:
        row = sorted(KEYS)[start::step]
        for key in reversed(row) if back else row:
            self.put(key, 1)

    @rule(key=keys)
    def remove(self, key: str) -> None:
        previous = self.model.pop(key, None)
        assert self.store.remove(key) is previous
        self.replaced += len(previous.raw) if previous else 0

    @rule(step=st.integers(1, 3), start=st.integers(0, len(KEYS) - 1))
    def remove_in_a_row(self, step: int, start: int) -> None:
        for key in sorted(KEYS)[start::step]:
            self.remove(key)

    @rule()
    def snapshot(self) -> None:
        self.kept.append((self.store.snapshot(), dict(self.model)))

    @rule(low=bounds, high=bounds)
    def read_range(self, low: str, high: str) -> None:
        check_ranges(self.store.snapshot(), self.model, low, high)

    @rule(wanted=st.lists(keys, unique=True))
    def pick(self, wanted: list[str]) -> None:
        held = [key for key in wanted if key in self.model]
        assert self.store.pick(held) == [self.model[key] for key in sorted(held)]

    @invariant()
    def is_as_the_model(self) -> None:
        snapshot = self.store.snapshot()
        assert list(snapshot) == [self.model[key] for key in sorted(self.model)]
        assert len(self.store) == len(snapshot) == len(self.model)
        assert all(self.store.get(key) is self.model.get(key) for key in KEYS[::7])
        check_chunks(snapshot)

    @invariant()
    def counts_bytes(self) -> None:
        assert self.store.raw_bytes == sum(len(found.raw) for found in self.model.values())
        assert self.store.replaced_bytes == self.replaced

    def teardown(self) -> None:
        for snapshot, model in self.kept:
            assert list(snapshot) == [model[key] for key in sorted(model)]
            assert len(snapshot) == len(model)
            check_chunks(snapshot)
            check_ranges(snapshot, model, "a/", "a0")
            check_ranges(snapshot, model, "a/x", "")


TestStore = StoreMachine.TestCase
TestStore.settings = settings(max_examples=40, stateful_step_count=25, deadline=None)


@given(
    st.sets(st.integers(0, 9999), max_size=600),
    st.lists(st.tuples(st.integers(0, 9999), st.integers(0, 9999)), max_size=8),
)
@settings(max_examples=40, deadline=None)
def test_counting_a_range_is_filtering_it(numbers: set[int], ranges: list[tuple[int, int]]) -> None:
    model = {f"n/{number:04}": stored(f"n/{number:04}") for number in numbers}
    snapshot = store_of(model.values()).snapshot()
    for first, second in ranges:
        low, high = sorted((f"n/{first:04}", f"n/{second:04}"))
        check_ranges(snapshot, model, low, high)
        check_ranges(snapshot, model, low, "")
        check_ranges(snapshot, model, "", high)


# --- by example ------------------------------------------------------------------------------


def test_objects_are_ordered_by_one_string() -> None:
    names = ["foo/a", "foo-bar/b", "foo.bar/c", "foo0/d", "foo/a-1", "foo/a.1", "foo/a0"]
    store = store_of(map(stored, names))
    assert [found.key for found in store.snapshot()] == [
        "foo-bar/b",
        "foo.bar/c",
        "foo/a",
        "foo/a-1",
        "foo/a.1",
        "foo/a0",
        "foo0/d",
    ]


@pytest.mark.parametrize(
    ("namespace", "inside", "outside"),
    [
        ("foo", ["foo/a", "foo/0", "foo/-", "foo/z.z"], ["foo-bar/a", "foo.x/a", "foo0/a", "fo/a"]),
        ("foo-bar", ["foo-bar/a"], ["foo/a", "foo-bar-x/a", "foo-ba/a"]),
        ("", ["foo/a", "node", "!"], []),
    ],
)
def test_the_range_of_a_namespace(namespace: str, inside: list[str], outside: list[str]) -> None:
    keys = namespace_range(namespace)
    assert all(key in keys for key in inside)
    assert not any(key in keys for key in outside)
    snapshot = store_of(map(stored, [*inside, *outside])).snapshot()
    assert [found.key for found in snapshot.range(keys)] == sorted(inside)
    assert snapshot.count(keys) == len(inside)


def test_an_empty_store_has_nothing_anywhere() -> None:
    snapshot = Store().snapshot()
    assert list(snapshot) == []
    assert [snapshot.count(keys) for keys in (EVERYTHING, KeyRange("a"), KeyRange("", "b"))] == [
        0
    ] * 3
    assert list(snapshot.range(KeyRange("a", "b"))) == []
    assert Store().remove("a/x") is None


def test_objects_that_arrive_in_order_leave_full_chunks_behind() -> None:
    store = store_of(stored(f"n/{number:05}") for number in range(10 * CHUNK))
    assert [len(chunk) for chunk in store.snapshot()._chunks] == [CHUNK] * 10


def test_a_write_copies_one_chunk_and_shares_the_others() -> None:
    store = store_of(stored(f"n/{number:05}") for number in range(10 * CHUNK))
    before = store.snapshot()
    store.put(stored(f"n/{5 * CHUNK:05}", 2))
    after = store.snapshot()
    shared = [old is new for old, new in zip(before._chunks, after._chunks, strict=True)]
    assert shared == [True] * 5 + [False] + [True] * 4


def test_snapshots_without_a_write_between_them_share_everything() -> None:
    store = store_of(map(stored, ["a/x", "a/y"]))
    assert store.snapshot()._chunks is store.snapshot()._chunks


@pytest.mark.parametrize(
    ("version", "known"), [(9, False), (10, True), (15, True), (20, True), (21, False)]
)
def test_the_state_at_a_version_since_the_newest_change(version: int, known: bool) -> None:
    store = store_of([stored("a/x", 10)])
    store.version = 20  # a bookmark
    snapshot = store.snapshot_at(version)
    assert (snapshot is not None) is known
    assert snapshot is None or (snapshot.version == version and len(snapshot) == 1)
    assert store.snapshot().version == 20


@pytest.mark.parametrize("count", [0, 1, CHUNK, 3 * CHUNK + 1])
def test_a_store_is_taken_apart_in_steps_and_its_snapshots_stay(count: int) -> None:
    objects = [stored(f"n/{number:05}") for number in range(count)]
    store = store_of(objects)
    snapshot = store.snapshot()
    sizes = [count, *(len(store) for _ in store.dismantle())]
    assert all(0 < first - second <= CHUNK for first, second in pairwise(sizes))
    assert len(store) == 0
    assert not store.indexes.namespaces
    assert list(snapshot) == objects
