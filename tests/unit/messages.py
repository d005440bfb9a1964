"""Objects, lists and watch frames in protobuf, as kube-apiserver writes them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from proxy.kube.gogo import field
from proxy.kube.protobuf import wrap

_INITIAL_END = {"k8s.io/initial-events-end": "true"}


def metadata(
    name: str = "",
    namespace: str = "",
    *,
    uid: str = "",
    version: str = "",
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
) -> bytes:
    """An ObjectMeta with all the fields that Go always writes."""
    texts = ((1, name), (2, ""), (3, namespace), (4, ""), (5, uid), (6, version))
    return b"".join(
        (
            *(field(number, text.encode()) for number, text in texts),
            b"\x38\x00" + field(8, b""),
            *(field(11, _entry(*pair)) for pair in sorted((labels or {}).items())),
            *(field(12, _entry(*pair)) for pair in sorted((annotations or {}).items())),
        )
    )


def _entry(key: str, value: str) -> bytes:
    return field(1, key.encode()) + field(2, value.encode())


def message(
    name: str,
    namespace: str = "a",
    *,
    version: int = 1,
    labels: Mapping[str, str] | None = None,
    rest: bytes = b"",
) -> bytes:
    """An object as a list item; *rest* are its other fields."""
    found = metadata(name, namespace, uid=f"uid-{name}", version=str(version), labels=labels)
    return field(1, found) + rest


class Messages(NamedTuple):
    """A kind on the wire; *backwards* is a list whose items come first."""

    api_version: str
    kind: str
    backwards: bool = False

    def object(self, raw: bytes) -> bytes:
        """The body of a get."""
        return wrap(self.api_version, self.kind, raw)

    def page(self, *items: bytes, version: int = 1, token: str = "", remaining: int = 0) -> bytes:
        """A list, or a page of one."""
        own = field(1, b"") + field(2, str(version).encode()) + field(3, token.encode())
        own += b"\x20" + bytes([remaining]) if remaining else b""
        numbers = (2, 1) if self.backwards else (1, 2)
        parts = [field(numbers[0], own), b"".join(field(numbers[1], each) for each in items)]
        raw = b"".join(reversed(parts) if self.backwards else parts)
        return wrap(self.api_version, f"{self.kind}List", raw)

    def frame(self, event_type: str, raw: bytes) -> bytes:
        """A watch frame with its length."""
        return framed(event_type, self.object(raw))

    def bookmark(self, version: int, *, initial_end: bool = False, rest: bytes = b"") -> bytes:
        """A BOOKMARK frame; *rest* are the zero object's other fields."""
        annotations = _INITIAL_END if initial_end else None
        found = metadata(version=str(version), annotations=annotations)
        return self.frame("BOOKMARK", field(1, found) + rest)


def framed(event_type: str, enveloped: bytes) -> bytes:
    """A watch frame of what is in an envelope."""
    event = field(1, event_type.encode()) + field(2, field(1, enveloped))
    return len(event).to_bytes(4) + event
