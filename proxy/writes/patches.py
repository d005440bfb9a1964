"""What a patch touches: JSON merge patches (RFC 7386) and strategic merge patches."""

from collections.abc import Iterable, Iterator
from typing import Any

from proxy.kube.envelope import MERGE_PATCH, STRATEGIC_PATCH, media_type
from proxy.writes.lists import Element, Item, Path, Schema, keys_of, name_of


def touched(content_type: str, patch: dict[str, Any], schema: Schema) -> list[Path]:
    """Tell the paths that a patch writes, whole with all below them.

    Raises ValueError for another kind of patch.
    """
    media = media_type(content_type)
    if media == MERGE_PATCH:
        return list(_merge((), patch))
    if media == STRATEGIC_PATCH:
        return list(_strategic((), patch, schema))
    raise ValueError(f"{media!r} is no merge patch")


Tree = dict[Element, "Tree | None"]
"""Paths by their elements in turn; None where one ends, which takes in all below it."""


def tree_of(paths: Iterable[Path]) -> Tree | None:
    """Build the tree of *paths*; None if one of them is the whole."""
    tree: Tree = {}
    for path in paths:
        if not path:
            return None
        inner: Tree | None = tree
        for element in path[:-1]:
            inner = inner.setdefault(element, {}) if inner is not None else None
        if inner is not None:
            inner[path[-1]] = None
    return tree


def meets(tree: Tree | None, changed: Path) -> bool:
    """Tell whether a path leads to, or through, an end of the tree's, or ends inside it."""
    trees = [tree]
    for element in changed:
        if None in trees:
            return True
        trees = [each[name] for each in trees if each for name in _names(element) if name in each]
    return bool(trees)


def _names(element: Element) -> set[Element]:
    """The names of an element in a patch, which knows those of a list by their first key."""
    return {element, Item(element.keys[:1])} if isinstance(element, Item) else {element}


def _merge(path: Path, value: Any) -> Iterator[Path]:
    if not isinstance(value, dict) or (path and not value):
        yield path
        return
    for key, inner in value.items():
        yield from _merge((*path, key), inner)


def _strategic(path: Path, value: Any, schema: Schema) -> Iterator[Path]:
    if isinstance(value, list):
        yield from _list(path, value, schema)
    elif not isinstance(value, dict) or (path and not value) or _directs(value):
        yield path
    else:
        for key, inner in value.items():
            if key.startswith("$"):  # $setElementOrder/list, $deleteFromPrimitiveList/list
                yield (*path, key.partition("/")[2])
            else:
                yield from _strategic((*path, key), inner, schema)


def _list(path: Path, elements: list[Any], schema: Schema) -> Iterator[Path]:
    """Go into elements that a known key names; else the list is touched whole."""
    keys = keys_of(path, schema)
    named = [] if keys is None else [(name_of(found, keys[:1]), found) for found in elements]
    if not named or any(name is None or _has_directive(found) for name, found in named):
        yield path
        return
    for name, found in named:
        if name is not None:
            yield from _strategic((*path, name), found, schema)


def _directs(value: dict[str, Any]) -> bool:
    """Tell directives about the whole of an object: ``$patch`` and ``$retainKeys``."""
    return any(key.startswith("$") and "/" not in key for key in value)


def _has_directive(element: Any) -> bool:
    return isinstance(element, dict) and any(key.startswith("$") for key in element)
