"""Stored objects: a small typed header, which selection needs, and the bytes, which it doesn't."""

from collections.abc import Sequence
from typing import Any
from weakref import WeakValueDictionary

import msgspec

from proxy.kube.resources import object_key
from proxy.kube.selectable import SelectableField, field_text
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

    *raw* is its JSON as a list carries it; *fields* holds the values of the form's
    ``field_labels``, in that order. Immutable, so it is shared by store, history and readers.
    """

    key: str
    namespace: str
    name: str
    uid: str
    version: int
    labels: LabelSet
    fields: tuple[str, ...]
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


def _read(header: Any, field: SelectableField) -> str:
    """Read one selectable field; the first of its paths that is set counts."""
    for path in field.paths:
        value = header
        for step in path:
            value = getattr(value, step, None)
        if value is not None and value != "":
            return field_text(value)
    return field.default


def _header_type(fields: Sequence[SelectableField]) -> type[msgspec.Struct]:
    """Define a struct with ``metadata`` and just the nested members that *fields* read."""
    tree: dict[str, Any] = {}
    for path in (path for field in fields for path in field.paths):
        node = tree
        for step in path[:-1]:
            node = node.setdefault(step, {})
        node[path[-1]] = None
    members = [*_members(tree), ("metadata", _Metadata, _METADATA_DEFAULT)]
    return msgspec.defstruct("Header", members, gc=False)


_METADATA_DEFAULT: Any = msgspec.field(default_factory=_Metadata)


def _members(tree: dict[str, Any]) -> list[tuple[str, Any, Any]]:
    leaf = str | bool | int | float | None
    return [
        (name, leaf, None)
        if children is None
        else (name, msgspec.defstruct(name, _members(children), gc=False) | None, None)
        for name, children in tree.items()
    ]
