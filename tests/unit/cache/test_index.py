"""The indexes against a scan of everything, after any writes."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from proxy.cache.index import Indexes, field_values
from proxy.forms.objects import NO_LABELS, LabelSet, Object
from tests.unit.builders import store_of, stored

LABEL_SETS = [
    NO_LABELS,
    LabelSet(app="web"),
    LabelSet(app="web"),  # equal, and another one: sets are told apart by identity
    LabelSet(app="web", tier="front"),
    LabelSet(app="db", tier="back"),
    LabelSet(tier=""),
]
PAIRS = [("app", "web"), ("app", "db"), ("tier", "front"), ("tier", "back"), ("tier", "")]

NODES = ["", "node-1", "node-2"]
IMAGES = ["web:1", "db:1", "db:2"]

NODE, PHASE, IMAGE = 0, 1, 2
"""Places in ``Object.fields``; the phase has no index."""

keys = st.sampled_from(["a/x", "a/y", "a-b/x", "b/x", "node"])
fields = st.tuples(
    st.sampled_from(NODES),
    st.sampled_from(["Running", "Failed"]),
    st.lists(st.sampled_from(IMAGES), unique=True).map(lambda images: tuple(sorted(images))),
)


class IndexMachine(RuleBasedStateMachine):
    """Puts and removes objects whose labels and fields change."""

    def __init__(self) -> None:
        super().__init__()
        self.indexes = Indexes((NODE, IMAGE))
        self.model: dict[str, Object] = {}

    @rule(key=keys, labels=st.sampled_from(LABEL_SETS), values=fields)
    def put(self, key: str, labels: LabelSet, values: tuple[str | tuple[str, ...], ...]) -> None:
        found = stored(key, labels=labels, fields=values)
        self.indexes.change(self.model.get(key), found)
        self.model[key] = found

    @rule(key=keys)
    def remove(self, key: str) -> None:
        if key in self.model:
            self.indexes.change(self.model.pop(key), None)

    @invariant()
    def namespaces_are_counted(self) -> None:
        counted = Counter(found.namespace for found in self.model.values())
        assert dict(self.indexes.namespaces) == dict(counted)

    @invariant()
    def label_sets_hold_their_objects(self) -> None:
        scanned: dict[int, set[str]] = {}
        for found in self.model.values():
            scanned.setdefault(id(found.labels), set()).add(found.key)
        assert {id(labels): held for labels, held in self.indexes.label_sets.items()} == scanned

    @invariant()
    def pairs_lead_to_label_sets(self) -> None:
        held = {id(found.labels): found.labels for found in self.model.values()}
        for key, value in PAIRS:
            scanned = {at for at, labels in held.items() if labels.get(key) == value}
            assert {id(labels) for labels in self.indexes.with_pair(key, [value])} == scanned

    @invariant()
    def several_values_are_their_union(self) -> None:
        either = self.indexes.with_pair("app", ["web", "db", "none"])
        assert self.indexes.count_pair("app", ["web", "db", "none"]) == len(either)
        assert either == self.indexes.with_pair("app", ["web"]) | self.indexes.with_pair(
            "app", ["db"]
        )

    @invariant()
    def fields_lead_to_objects(self) -> None:
        for place, values in ((NODE, NODES), (IMAGE, IMAGES)):
            for value in values:
                scanned = {
                    key for key, found in self.model.items() if value in field_values(found, place)
                }
                assert self.indexes.with_field(place, value) == scanned

    @invariant()
    def nothing_empty_is_kept(self) -> None:
        assert all(self.indexes.label_sets.values())
        assert all(self.indexes._pairs.values())
        assert all(self.indexes._fields.values())


TestIndexes = IndexMachine.TestCase
TestIndexes.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)


def test_a_field_without_index_is_not_answered() -> None:
    indexes = Indexes((NODE,))
    indexes.change(None, stored("a/x", fields=("node-1", "Running")))
    assert indexes.with_field(NODE, "node-1") == {"a/x"}
    assert indexes.with_field(NODE, "nowhere") == set()
    assert indexes.with_field(PHASE, "Running") is None


def test_labels_of_their_own_leave_nothing_behind() -> None:
    indexes = Indexes()
    previous = None
    for number in range(100):
        found = stored("a/x", labels=LabelSet(hash=str(number)))
        indexes.change(previous, found)
        previous = found
    assert len(indexes.label_sets) == len(indexes._pairs) == 1
    indexes.change(previous, None)
    assert not indexes.label_sets
    assert not indexes._pairs
    assert not indexes.namespaces


def test_a_store_indexes_what_it_holds() -> None:
    store = store_of([stored("a/x", fields=("node-1",))], indexed=(NODE,))
    store.put(stored("a/x", 2, fields=("node-2",)))
    assert store.indexes.with_field(NODE, "node-1") == set()
    assert store.indexes.with_field(NODE, "node-2") == {"a/x"}
    store.remove("a/x")
    assert store.indexes.with_field(NODE, "node-2") == set()


@pytest.mark.parametrize(
    ("place", "expected"), [(NODE, ("node-1",)), (PHASE, ()), (IMAGE, ("db:1", "web:1"))]
)
def test_a_field_has_any_number_of_values(place: int, expected: tuple[str, ...]) -> None:
    found = stored("a/x", fields=("node-1", (), ("db:1", "web:1")))
    assert field_values(found, place) == expected
    assert field_values(None, place) == ()
