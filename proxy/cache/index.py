"""Secondary indexes of a store: namespaces, labels in two levels, and fields.

Labels: (key, value) -> label sets -> objects. There are far fewer label sets than objects, and an
update that leaves an object's labels alone costs nothing here.
"""

from collections import Counter
from collections.abc import Iterable, Sequence, Set

from proxy.forms.objects import LabelSet, Object

Pair = tuple[str, str]


class Indexes:
    """All indexes of one store; ``change`` is the only way to write them.

    *places* are those fields of ``Object.fields`` that are indexed.
    """

    def __init__(self, places: Sequence[int] = ()) -> None:
        self._places = frozenset(places)
        self.namespaces: Counter[str] = Counter()
        self.label_sets: dict[LabelSet, set[str]] = {}
        self._pairs: dict[Pair, set[LabelSet]] = {}
        self._fields: dict[tuple[int, str], set[str]] = {}

    def change(self, previous: Object | None, found: Object | None) -> None:
        """Take over that *previous* was replaced by *found*; None stands for no object."""
        before = previous.labels if previous is not None else None
        after = found.labels if found is not None else None
        if before is not after:
            if previous is not None:
                self._drop_labels(previous)
            if found is not None:
                self._add_labels(found)
        if previous is None or found is None:
            self._count(previous, -1)
            self._count(found, 1)
        self._change_fields(previous, found)

    def _count(self, found: Object | None, by: int) -> None:
        if found is not None:
            self.namespaces[found.namespace] += by
            if not self.namespaces[found.namespace]:
                del self.namespaces[found.namespace]

    def _add_labels(self, found: Object) -> None:
        keys = self.label_sets.get(found.labels)
        if keys is None:
            keys = self.label_sets[found.labels] = set()
            for pair in found.labels.items():
                self._pairs.setdefault(pair, set()).add(found.labels)
        keys.add(found.key)

    def _drop_labels(self, found: Object) -> None:
        keys = self.label_sets[found.labels]
        keys.discard(found.key)
        if not keys:  # an empty posting is a leak: pods come and go with labels of their own
            del self.label_sets[found.labels]
            for pair in found.labels.items():
                self._pairs[pair].discard(found.labels)
                if not self._pairs[pair]:
                    del self._pairs[pair]

    def _change_fields(self, previous: Object | None, found: Object | None) -> None:
        for place in self._places:
            before = field_values(previous, place)
            after = field_values(found, place)
            if before == after:
                continue
            if previous is not None:
                self._drop_field(place, before, previous.key)
            if found is not None:
                for value in after:
                    self._fields.setdefault((place, value), set()).add(found.key)

    def _drop_field(self, place: int, values: Iterable[str], key: str) -> None:
        for value in values:
            keys = self._fields[place, value]
            keys.discard(key)
            if not keys:
                del self._fields[place, value]

    def with_pair(self, key: str, values: Iterable[str]) -> set[LabelSet]:
        """Find the label sets in which *key* has one of *values*."""
        found: set[LabelSet] = set()
        for value in values:
            found |= self._pairs.get((key, value), set())
        return found

    def count_pair(self, key: str, values: Iterable[str]) -> int:
        """Count them; a set has one value of a key, so none is found twice."""
        return sum(len(self._pairs.get((key, value), ())) for value in values)

    def with_field(self, place: int, value: str) -> Set[str] | None:
        """Find the keys of the objects whose field is *value*; None for a field without index."""
        return self._fields.get((place, value), _NOTHING) if place in self._places else None


_NOTHING: frozenset[str] = frozenset()


def field_values(found: Object | None, place: int) -> tuple[str, ...]:
    """The values of a field: one, or for a path through an array any number."""
    if found is None:
        return ()
    value = found.fields[place]
    return (value,) if isinstance(value, str) else value
