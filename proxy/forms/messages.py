"""Headers of objects in protobuf: what selection needs is read, all else is passed over."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import attrgetter
from typing import Any
from weakref import WeakValueDictionary

from proxy.forms.objects import NO_LABELS, LabelSet, Object
from proxy.kube.protobuf import message_classes
from proxy.kube.resources import object_key
from proxy.kube.selectable import Path, SelectableField, WirePath, field_text
from proxy.kube.versions import parse_version

_METADATA = (
    "name 1 string",
    "namespace 3 string",
    "uid 5 string",
    "resourceVersion 6 string",
    "labels 11 bytes*",
)
"""Labels as their encoded entries: Go sorts these, so the same labels are the same bytes."""

_PAIR = message_classes({"Pair": ("key 1 string", "value 2 string")})["Pair"]


class MessageDecoder:
    """Decodes object headers of one resource; the only part of an object that is ever decoded.

    *paths* tells where the paths of *fields* are. Label sets are interned by their encoded bytes.
    """

    def __init__(
        self,
        fields: Sequence[SelectableField] = (),
        paths: Mapping[Path, WirePath] = {},
    ) -> None:
        places = [paths[path] for field in fields for path in field.paths]
        self._header = _header_class(places)
        self._values = _getter(places)
        self._fields = tuple((len(field.paths), field.default) for field in fields)
        self._label_sets: WeakValueDictionary[bytes, LabelSet] = WeakValueDictionary()

    def decode(self, raw: bytes) -> Object:
        """Build the object whose encoded message is *raw*.

        Raises ``google.protobuf.message.DecodeError`` or ValueError for what is no API object.
        """
        header = self._header.FromString(raw)
        metadata = header.metadata
        namespace, name = metadata.namespace, metadata.name
        return Object(
            object_key(namespace, name),
            namespace,
            name,
            metadata.uid,
            parse_version(metadata.resourceVersion),
            self._intern(metadata.labels),
            self._texts(self._values(header)),
            raw,
        )

    def _texts(self, values: Sequence[Any]) -> tuple[str, ...]:
        """Choose for each field the first value that is set; zero and false are not."""
        texts = []
        at = 0
        for count, default in self._fields:
            text = default
            for value in values[at : at + count]:
                if value:
                    text = value if type(value) is str else field_text(value)
                    break
            texts.append(text)
            at += count
        return tuple(texts)

    def _intern(self, entries: Iterable[bytes]) -> LabelSet:
        encoded = b"".join(entries)
        if not encoded:
            return NO_LABELS
        found = self._label_sets.get(encoded)
        if found is None:
            pairs = map(_PAIR.FromString, entries)
            found = LabelSet({pair.key: pair.value for pair in pairs})
            self._label_sets[encoded] = found
        return found


def _getter(places: Sequence[WirePath]) -> Callable[[Any], Sequence[Any]]:
    """Make what reads all places of a header in one go."""
    names = [".".join(f"f{number}" for number in place.numbers) for place in places]
    if len(names) > 1:
        return attrgetter(*names)
    if names:
        return lambda header, get=attrgetter(*names): (get(header),)  # type: ignore[misc]
    return lambda _: ()


def _header_class(places: Iterable[WirePath]) -> Any:
    """Define a message with ``metadata`` and just the nested members that *places* name."""
    messages: dict[str, list[str]] = {"ObjectMeta": [*_METADATA], "M": ["metadata 1 ObjectMeta"]}
    for numbers, kind in places:
        parent = "M"
        for number in numbers[:-1]:
            child = f"{parent}_{number}"
            if child not in messages:
                messages[child] = []
                messages[parent].append(f"f{number} {number} {child}")
            parent = child
        leaf = f"f{numbers[-1]} {numbers[-1]} {kind}"
        if leaf not in messages[parent]:
            messages[parent].append(leaf)
    return message_classes(messages)["M"]
