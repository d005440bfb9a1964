"""What the body of a write, or of its answer, says about the object it's of."""

from typing import NamedTuple

import msgspec

from proxy.kube.versions import parse_version


class Envelope(NamedTuple):
    """Who an object is; *version* is None where there is none, or it isn't a number.

    ``is_last``: it's being deleted, and nothing holds it back any more. Of a ``Status``, name and
    uid are those in its details.
    """

    api_version: str
    kind: str
    namespace: str
    name: str
    uid: str
    version: int | None
    is_last: bool


class _Metadata(msgspec.Struct):
    name: str = ""
    namespace: str = ""
    uid: str = ""
    resourceVersion: str = ""  # noqa: N815 - the wire's spelling
    deletionTimestamp: str | None = None  # noqa: N815
    deletionGracePeriodSeconds: int | None = None  # noqa: N815
    finalizers: list[str] | None = None


class _Details(msgspec.Struct):
    name: str = ""
    uid: str = ""


class _Body(msgspec.Struct):
    kind: str = ""
    apiVersion: str = ""  # noqa: N815
    metadata: _Metadata = msgspec.field(default_factory=_Metadata)
    details: _Details | None = None


_BODY = msgspec.json.Decoder(_Body)


def read_envelope(content_type: str, body: bytes) -> Envelope | None:
    """Read an envelope; None for what isn't understood."""
    if content_type.partition(";")[0].strip().lower() != "application/json":
        return None
    try:
        found = _BODY.decode(body)
    except (msgspec.MsgspecError, RecursionError):
        return None
    metadata = found.metadata
    if found.kind == "Status" and found.details is not None:
        metadata.name, metadata.uid = found.details.name, found.details.uid
    is_held = bool(metadata.finalizers or metadata.deletionGracePeriodSeconds)
    return Envelope(
        found.apiVersion,
        found.kind,
        metadata.namespace,
        metadata.name,
        metadata.uid,
        _version(metadata.resourceVersion),
        metadata.deletionTimestamp is not None and not is_held,
    )


def _version(text: str) -> int | None:
    try:
        return parse_version(text)
    except ValueError:
        return None
