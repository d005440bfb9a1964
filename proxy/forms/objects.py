"""Stored objects: a small typed header, which selection needs, and the bytes, which it doesn't."""

from collections.abc import Iterator, Sequence
from keyword import iskeyword
from types import GenericAlias
from typing import Any
from weakref import WeakValueDictionary

import msgspec

from proxy.kube.resources import object_key
from proxy.kube.selectable import EACH, Path, SelectableField, field_text
from proxy.kube.versions import parse_version


class LabelSet(dict[str, str]):
    """A label set shared by all the objects that carry it; never changed, compared by identity."""

    __slots__ = ("__weakref__",)

    def __hash__(self) -> int:  # type: ignore[override]
        return id(self)

    def __eq__(self, other: object) -> bool:
        return self is other


NO_LABELS = LabelSet()


class Object(msgspec.Struct, frozen=True, gc=False, eq=False):
    """One version of one object.

    *raw* is its JSON as a list carries it; *fields* holds the values of the form's fields, in their
    order: a text, or where a path goes through an array a tuple of texts. Immutable, so it is
    shared by store, history and readers.
    """

    key: str
    namespace: str
    name: str
    uid: str
    version: int
    labels: LabelSet
    fields: tuple[str | tuple[str, ...], ...]
    raw: bytes


class _Metadata(msgspec.Struct, gc=False):
    name: str = ""
    namespace: str = ""
    uid: str = ""
    resourceVersion: str = ""  # noqa: N815 - the wire's spelling
    labels: msgspec.Raw = msgspec.Raw(b"null")


class ObjectDecoder:
    """Decodes object headers of one resource; the only part of an object that is ever decoded.

    Label sets are interned by their encoded bytes: each distinct set is decoded and kept once.
    """

    def __init__(self, fields: Sequence[SelectableField]) -> None:
        self._fields = tuple(fields)
        self._decoder = msgspec.json.Decoder(_header_type(fields))
        self._label_sets: WeakValueDictionary[bytes, LabelSet] = WeakValueDictionary()

    def decode(self, encoded: bytes | msgspec.Raw, raw: bytes) -> Object:
        """Build the object whose JSON is *encoded* and whose stored bytes are *raw*.

        Raises msgspec.MsgspecError or ValueError for what is not an API object.
        """
        header: Any = self._decoder.decode(encoded)
        metadata: _Metadata = header.metadata
        return Object(
            object_key(metadata.namespace, metadata.name),
            metadata.namespace,
            metadata.name,
            metadata.uid,
            parse_version(metadata.resourceVersion),
            self._intern(metadata.labels),
            tuple(_read(header, field) for field in self._fields),
            raw,
        )

    def _intern(self, labels: msgspec.Raw) -> LabelSet:
        encoded = bytes(labels)
        found = self._label_sets.get(encoded)
        if found is None:
            decoded = msgspec.json.decode(encoded, type=dict[str, str] | None)
            found = LabelSet(decoded) if decoded else NO_LABELS
            self._label_sets[encoded] = found
        return found


def _read(header: Any, field: SelectableField) -> str | tuple[str, ...]:
    """Read one field; of several paths the first that is set counts."""
    if field.is_multiple:
        return tuple(sorted({*map(field_text, _values(header, field.paths[0]))}))
    for path in field.paths:
        for value in _values(header, path):
            if value != "":
                return field_text(value)
    return field.default


def _values(node: Any, path: Path) -> Iterator[str | float]:
    """Iterate the leaves that *path* leads to; more than one where it goes through an array."""
    for place, step in enumerate(path):
        if node is None:
            return
        if step == EACH:
            for element in node:
                yield from _values(element, path[place + 1 :])
            return
        node = getattr(node, _attribute(step))
    if node is not None:
        yield node


def _attribute(key: str) -> str:
    """Name the struct attribute of a JSON key, which may be no identifier."""
    return key if key.isidentifier() and not iskeyword(key) else f"x{key.encode().hex()}"


def _header_type(fields: Sequence[SelectableField]) -> type[msgspec.Struct]:
    """Define a struct with ``metadata`` and just the nested members that *fields* read.

    Raises ValueError where one field lies within another.
    """
    tree: dict[str, Any] = {"metadata": {}}
    for path in (path for field in fields for path in field.paths):
        _plant(tree, path)
    metadata = _struct(tree.pop("metadata"), base=_Metadata)
    own = ("metadata", metadata, msgspec.field(default_factory=metadata))
    return _struct(tree, own)


def _plant(node: Any, path: Path) -> None:
    """Add a path to a tree whose leaves are None."""
    for step in path[:-1]:
        node = node.setdefault(step, {}) if node is not None else None
    if node is None or node.setdefault(path[-1], None) is not None:
        raise ValueError(f"{'.'.join(path)} overlaps with another selectable field")


def _struct(
    tree: dict[str, Any], *more: tuple[str, Any, Any], base: type[msgspec.Struct] | None = None
) -> type[msgspec.Struct]:
    inherited = base.__struct_fields__ if base else ()
    members = [
        (_attribute(key), _type(children), None)
        for key, children in tree.items()
        if key not in inherited
    ]
    return msgspec.defstruct(
        "Header",
        [*members, *more],
        bases=(base,) if base else None,
        rename={_attribute(key): key for key in tree},
        gc=False,
    )


def _type(children: dict[str, Any] | None) -> Any:
    if children is None:
        return str | bool | int | float | None
    if EACH in children:
        return GenericAlias(list, (_type(children[EACH]),)) | None
    return _struct(children) | None
