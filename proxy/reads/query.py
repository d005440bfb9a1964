"""Which objects of a view a request selects. Pure: selectors against typed headers, no bytes."""

from collections.abc import Iterable, Set
from typing import NamedTuple

from proxy.cache.history import Event
from proxy.cache.index import field_values
from proxy.cache.store import KeyRange, Snapshot, Store, namespace_range
from proxy.forms.form import EventType, Form
from proxy.forms.objects import LabelSet, Object
from proxy.kube.resources import object_key
from proxy.kube.selectors import FieldSelector, LabelSelector, Operator, Requirement

NAME, NAMESPACE = -1, -2
"""Places of the two metadata fields, beside those of ``Object.fields``."""

BROAD = 4
MIN_SETS = 64
"""A label that more than one in so many label sets carry selects little: a scan finds its objects
as fast, and a page of them faster. Below so many sets it doesn't matter."""

MAX_PICKED = 8192
"""Objects that are looked up and sorted at a time, in a few milliseconds; more are scanned."""

MAX_JUDGED = 2 * MAX_PICKED
"""Comparisons made in one go, in 7 ms at the most (0.45 µs each)."""


class FieldTest(NamedTuple):
    """A field compared with a value."""

    label: str
    place: int
    value: str
    negated: bool

    def __call__(self, found: Object) -> bool:
        """Tell whether an object passes."""
        if self.place == NAME:
            return (found.name == self.value) is not self.negated
        if self.place == NAMESPACE:
            return (found.namespace == self.value) is not self.negated
        return (self.value in field_values(found, self.place)) is not self.negated


class Candidates(NamedTuple):
    """Objects in order, among which are all that are selected; *size* says how many there are."""

    size: int
    objects: Iterable[Object]


class Selection:
    """A namespace ("" for all), a label selector and tests of fields.

    For a list, a label set that many objects share is matched once. A watch lasts for hours: what
    it remembered would keep label sets alive that no object has any more.
    """

    def __init__(
        self,
        namespace: str,
        labels: LabelSelector,
        field_tests: tuple[FieldTest, ...],
        *,
        namespaced: bool,
    ) -> None:
        self.keys = namespace_range(namespace)
        self._namespace = namespace
        self._labels = labels
        self._field_tests = field_tests
        self._has_keys = bool(namespace) or not namespaced
        self._verdicts: dict[LabelSet, bool] = {}

    @property
    def filters(self) -> bool:
        """Tell whether objects of the namespace may be left out."""
        return bool(self._labels or self._field_tests)

    @property
    def terms(self) -> int:
        """How many comparisons an object may take."""
        return len(self._labels.requirements) + len(self._field_tests)

    @property
    def single_key(self) -> str | None:
        """The key of the one object that can be selected, when the selector names it."""
        if self._has_keys:
            for _, place, value, negated in self._field_tests:
                if place == NAME and not negated:
                    return object_key(self._namespace, value)
        return None

    @property
    def shape(self) -> str:
        """The selector without its values: what an index would have to be made for."""
        labels = [f"{each.key} {each.operator.value}" for each in self._labels.requirements]
        fields = [f"{test.label}{'!=' if test.negated else '='}" for test in self._field_tests]
        return ", ".join([*labels, *fields])

    def candidates(self, store: Store, snapshot: Snapshot, keys: KeyRange) -> Candidates:
        """Find the candidates within *keys*: of the present state by the most selective index."""
        if store.changed > snapshot.version:
            return Candidates(snapshot.count(keys), snapshot.range(keys))
        if (key := self.single_key) is not None:
            found = store.get(key) if key in keys else None
            return Candidates(1, (found,)) if found else Candidates(0, ())
        indexes = store.indexes
        total = indexes.namespaces[self._namespace] if self._namespace else len(store)
        fewest = min(MAX_PICKED, total)
        picked: list[Set[str]] | None = None
        for postings in (self._by_fields(store), self._by_labels(store, fewest)):
            size = sum(map(len, postings)) if postings is not None else total
            if postings is not None and size < fewest:
                fewest, picked = size, postings
        if picked is None:
            return Candidates(total, snapshot.range(keys))
        return Candidates(
            fewest, store.pick(key for posting in picked for key in posting if key in keys)
        )

    def _by_fields(self, store: Store) -> list[Set[str]] | None:
        """The shortest posting of an indexed field that must equal a value."""
        found = [
            keys
            for _, place, value, negated in self._field_tests
            if not negated and (keys := store.indexes.with_field(place, value)) is not None
        ]
        return [min(found, key=len)] if found else None

    def _by_labels(self, store: Store, most: int) -> list[Set[str]] | None:
        """The postings of the label sets that match; None where there are more sets than *most*."""
        if not self._labels:
            return None
        label_sets = store.indexes.label_sets
        sets: Iterable[LabelSet] = label_sets
        count = len(label_sets)
        narrowest: Requirement | None = None
        for each in self._labels.requirements:
            if each.operator is Operator.IN:
                size = store.indexes.count_pair(each.key, each.values)
                if size < count:
                    narrowest, count = each, size
        if count > min(most, len(label_sets) // BROAD + MIN_SETS):
            return None
        if count * self.terms > MAX_JUDGED:
            return None
        if narrowest is not None:
            sets = store.indexes.with_pair(narrowest.key, narrowest.values)
        return [label_sets[each] for each in sets if self._labels.matches(each)]

    def select(self, objects: Iterable[Object]) -> list[Object]:
        """Choose the selected ones among a list's candidates."""
        found = list(objects)
        if self._labels:
            matches = self._matches_labels
            found = [each for each in found if matches(each)]
        for test in self._field_tests:
            found = [each for each in found if test(each)]
        return found

    def matches(self, found: Object) -> bool:
        """Tell whether one object is selected."""
        return (
            (not self._namespace or found.namespace == self._namespace)
            and (not self._labels or self._labels.matches(found.labels))
            and all(test(found) for test in self._field_tests)
        )

    def _matches_labels(self, found: Object) -> bool:
        verdict = self._verdicts.get(found.labels)
        if verdict is None:
            verdict = self._verdicts[found.labels] = self._labels.matches(found.labels)
        return verdict

    def transition(self, event: Event) -> tuple[EventType, Object] | None:
        """What a watcher of this selection is told of an event (``cacher/cache_watcher.go``).

        An object that leaves the selection is DELETED with its previous state; the frame gets the
        event's version. None when the watcher is told nothing.
        """
        before = event.previous is not None and self.matches(event.previous)
        if event.type is EventType.DELETED:
            return (EventType.DELETED, event.object) if before else None
        after = self.matches(event.object)
        if after:
            return (EventType.MODIFIED if before else EventType.ADDED, event.object)
        if before and event.previous is not None:
            return (EventType.DELETED, event.previous)
        return None


def select_by(
    form: Form, namespace: str, labels: LabelSelector, fields: FieldSelector
) -> Selection | None:
    """Build a selection; None when a field is not known to be selectable."""
    tests = []
    for term in fields.terms:
        place = _place(form, term.field)
        if place is None:
            return None
        tests.append(FieldTest(term.field, place, term.value, term.negated))
    return Selection(namespace, labels, tuple(tests), namespaced=form.namespaced)


def _place(form: Form, field: str) -> int | None:
    if field == "metadata.name" and form.knows_fields:
        return NAME
    if field == "metadata.namespace" and form.knows_fields and form.namespace_selectable:
        return NAMESPACE
    return form.field_labels.get(field)
