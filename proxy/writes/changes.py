"""Three-way comparison of objects: what changed, what both changed, and all of it together.

Objects are decoded JSON. They are never changed here; a merged one shares its parts with them.
"""

from collections.abc import Iterable, Iterator, Sequence
from enum import Enum
from typing import Any, Final, NamedTuple

import msgspec

from proxy.writes.lists import (
    Element,
    Item,
    Path,
    Schema,
    by_keys,
    interleave,
    keys_of,
    same_order,
    schema_of,
)
from proxy.writes.patches import meets, touched, tree_of

Json = dict[str, Any]
"""An object, decoded; ``forms.objects.Object`` is one that is stored."""


class Absence(Enum):
    """The type of ABSENT."""

    ABSENT = "absent"


ABSENT: Final = Absence.ABSENT
"""What a value is that isn't there; null is another."""


class Change(NamedTuple):
    """What became of one value: *old* or *new* is ABSENT where it wasn't, or isn't, there."""

    path: Path
    old: Any
    new: Any


class OverlapError(Exception):
    """Both sides changed the same. *changes* are theirs."""

    def __init__(self, changes: Sequence[Change]) -> None:
        super().__init__(f"both changed {len(changes)} of the same fields")
        self.changes = list(changes)


_IGNORED: frozenset[Path] = frozenset(
    ("metadata", field) for field in ("resourceVersion", "managedFields", "generation")
)
"""What the API server itself writes at each change."""

_TYPE: frozenset[Path] = frozenset({("apiVersion",), ("kind",)})
"""What items of lists lack; it is no change."""

_MAPS: frozenset[Path] = frozenset(
    {("metadata", "labels"), ("metadata", "annotations"), ("data",), ("binaryData",)}
)
"""Maps of which Go leaves out the empty ones: one that isn't there is empty."""

_DEEPEST = 64
"""Elements of a path below which values are compared whole; Pods have no more than 12."""


def each_change(base: Json, other: Json) -> Iterator[Change]:
    """Compare two states of an object: the smallest paths that differ, in *other*'s order.

    One by one: no more is compared than is asked for.
    """
    return _compare((), base, other, schema_of(base, other)) if base or other else iter(())


def merge(base: Json, theirs: Json, mine: Json) -> Json:
    """Apply to *theirs* what *mine* changed since *base*.

    The resourceVersion, managedFields and generation are theirs. Raises OverlapError where both
    changed the same, or where theirs is another object by its uid. Even to the same value: of two
    who count one up, both would have counted the same.
    """
    _check_uid(theirs, base, mine)
    merging = _Merging(schema_of(base, theirs, mine))
    merged = merging.merge((), base, theirs, mine)
    if merging.overlaps:
        raise OverlapError(merging.overlaps)
    metadata = dict(merged.get("metadata", {}))
    for _, field in _IGNORED:
        metadata.pop(field, None)
        if field in theirs.get("metadata", {}):
            metadata[field] = theirs["metadata"][field]
    types = {key: mine[key] for (key,) in _TYPE if key in mine and key not in merged}
    return {**types, **merged, "metadata": metadata}


def retarget_patch(content_type: str, patch: Json, base: Json, theirs: Json) -> Json:
    """Return *patch*, made for *base*, with the resourceVersion of *theirs*.

    Raises OverlapError if something that the patch touches has changed between the two, and
    ValueError for a patch that is neither a JSON merge patch nor a strategic one.
    """
    tree = tree_of(touched(content_type, patch, schema_of(base, theirs)))
    _check_uid(theirs, base, patch)
    found = [change for change in each_change(base, theirs) if meets(tree, change.path)]
    if found:
        raise OverlapError(found)
    version = theirs["metadata"]["resourceVersion"]
    return {**patch, "metadata": {**patch.get("metadata", {}), "resourceVersion": version}}


class _Merging:
    """One merge; collects what overlaps."""

    def __init__(self, schema: Schema) -> None:
        self._schema = schema
        self.overlaps: list[Change] = []

    def merge(self, path: Path, base: Any, theirs: Any, mine: Any) -> Any:
        if path in _IGNORED or _same(base, mine):
            return theirs
        if _same(base, theirs):
            return mine
        if path in _TYPE and base is ABSENT:  # nobody has set it
            return theirs
        tables = _tables(path, (base, theirs, mine), self._schema)
        if tables is None:
            found = list(_compare(path, base, theirs, self._schema))
            self.overlaps += found or [Change(path, base, theirs)]
            return theirs
        merged = [
            (element, value)
            for element in _order(tables)
            if (value := self.merge((*path, element), *_sides(tables, element))) is not ABSENT
        ]
        is_list = isinstance(theirs, list) or isinstance(mine, list)
        return [value for _, value in merged] if is_list else dict(merged)


Table = dict[Element, Any]
"""A JSON object, or a list by its elements' keys."""


def _compare(path: Path, base: Any, other: Any, schema: Schema) -> Iterator[Change]:
    if path in _IGNORED or (path in _TYPE and (base is ABSENT or other is ABSENT)):
        return
    tables = _tables(path, (base, other), schema)
    if tables and any(tables):
        for element in _order(tables):
            old, new = _sides(tables, element)
            if not _same(old, new):
                yield from _compare((*path, element), old, new, schema)
    elif tables is None or not _may_be_left_out(path, schema):
        yield Change(path, base, other)


def _tables(path: Path, sides: tuple[Any, ...], schema: Schema) -> list[Table] | None:
    """Take states of one value, the base first, apart; None if it is to be compared whole.

    A value that only the base lacks is taken apart as if it were empty there, since two may add
    different parts of it; not so an element of a list, which is added whole.
    """
    base, *others = sides
    if len(path) > _DEEPEST or (base is ABSENT and isinstance(path[-1], Item)):
        return None
    if any(other is ABSENT for other in others) and not _may_be_left_out(path, schema):
        return None
    present = [side for side in sides if side is not ABSENT]
    if all(isinstance(side, dict) for side in present):
        return [{} if side is ABSENT else side for side in sides]
    keys = keys_of(path, schema)
    if keys is None or not all(isinstance(side, list) for side in present):
        return None
    lists = (by_keys([] if side is ABSENT else side, keys) for side in sides)
    tables = [table for table in lists if table is not None]
    return tables if len(tables) == len(sides) and _in_one_order(tables) else None


def _order(tables: Sequence[Table]) -> list[Element]:
    """Tell the order of all elements: theirs, with what else mine has, and the base."""
    base, theirs, *mine = tables
    order: Iterable[Element] = theirs
    for table in (*mine, base):
        if table.keys() != theirs.keys():
            order = interleave(order, table)
    return list(order)


def _sides(tables: Sequence[Table], element: Element) -> tuple[Any, ...]:
    return tuple(table.get(element, ABSENT) for table in tables)


def _in_one_order(tables: Sequence[Table]) -> bool:
    pairs = ((one, other) for n, one in enumerate(tables) for other in tables[n + 1 :])
    return all(same_order(one, other) for one, other in pairs)


def _may_be_left_out(path: Path, schema: Schema) -> bool:
    """Tell whether an absent value is an empty one."""
    return path in _MAPS or keys_of(path, schema) is not None


def _check_uid(theirs: Json, *others: Json) -> None:
    """Raise OverlapError if theirs is another object."""
    new = theirs.get("metadata", {}).get("uid")
    for other in others:
        old = other.get("metadata", {}).get("uid")
        if old and new and old != new:
            raise OverlapError([Change(("metadata", "uid"), old, new)])


def _same(one: Any, other: Any) -> bool:
    """Compare as JSON does, where true is not 1 as it is in Python."""
    if one is other:
        return True
    if type(one) is not type(other) or one != other:
        return False
    return not isinstance(one, dict | list) or _same_bytes(one, other)


def _same_bytes(one: Any, other: Any) -> bool:
    encode = msgspec.json.encode
    if encode(one) == encode(other):
        return True
    return encode(one, order="deterministic") == encode(other, order="deterministic")
