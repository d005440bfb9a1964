"""What the body of a write, or of its answer, says about itself, in JSON or protobuf."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec
from google.protobuf.message import DecodeError

from proxy.kube import gojson
from proxy.kube.errors import ApiError, from_status
from proxy.kube.negotiation import JSON, PROTOBUF
from proxy.kube.protobuf import CLASSES, MAGIC, unwrap, wrap
from proxy.kube.versions import parse_version

MERGE_PATCH = "application/merge-patch+json"
STRATEGIC_PATCH = "application/strategic-merge-patch+json"

_OBJECTS = frozenset({JSON, MERGE_PATCH, STRATEGIC_PATCH})
"""Media types whose bodies are JSON objects with ``metadata`` where an object has it."""

NOT_UNDERSTOOD = (msgspec.MsgspecError, DecodeError, UnicodeDecodeError, RecursionError)
"""What decoding bodies may raise: they are clients', of any bytes, and nested to any depth."""


class Envelope(NamedTuple):
    """Who an object is. Of a ``Status``, name and uid are those in its details.

    *version* is None where there is none, or it isn't a decimal number. ``is_last``: it has a
    deletion time, and nothing holds the deletion back any more, neither finalizers nor grace, so
    that an update which shows this has removed the object.
    """

    api_version: str
    kind: str
    namespace: str
    name: str
    uid: str
    version: int | None
    is_last: bool = False


class _Metadata(msgspec.Struct):
    name: str | None = None
    namespace: str | None = None
    uid: str | None = None
    resourceVersion: str | None = None  # noqa: N815 - the wire's spelling
    deletionTimestamp: str | None = None  # noqa: N815
    deletionGracePeriodSeconds: int | None = None  # noqa: N815
    finalizers: list[str] | None = None


class _Details(msgspec.Struct):
    name: str = ""
    uid: str = ""


class _Body(msgspec.Struct):
    kind: str = ""
    apiVersion: str = ""  # noqa: N815
    metadata: _Metadata | None = None
    details: _Details | None = None


class _Preconditions(msgspec.Struct):
    resourceVersion: str | None = None  # noqa: N815


class _DeleteOptions(msgspec.Struct):
    preconditions: _Preconditions | None = None
    dryRun: list[str] | None = None  # noqa: N815


_BODY = msgspec.json.Decoder(_Body)
_DELETE_OPTIONS = msgspec.json.Decoder(_DeleteOptions)


def read_envelope(content_type: str, body: bytes) -> Envelope | None:
    """Read who a body's object is; None for what isn't understood, and for lists.

    Understands objects and merge patches in JSON, and objects in protobuf, uncompressed.
    """
    media = media_type(content_type)
    found: Envelope | None = None
    try:
        if media in _OBJECTS:
            found = _read_json(body)
        elif media == PROTOBUF:
            found = _read_protobuf(body)
    except NOT_UNDERSTOOD:
        return None
    return None if found is None or _is_list(found) else found


def read_precondition(body: bytes) -> int | None:
    """Read ``preconditions.resourceVersion`` of DeleteOptions; None for none, or no number."""
    options = _read_delete_options(body)
    preconditions = options.preconditions if options else None
    return _version(preconditions.resourceVersion) if preconditions else None


def read_dry_run(body: bytes) -> bool:
    """Tell whether DeleteOptions ask for a dry run; not where they aren't understood."""
    options = _read_delete_options(body)
    return options is not None and bool(options.dryRun)


def _read_delete_options(body: bytes) -> Any | None:
    """Read DeleteOptions in JSON or protobuf: two classes with the same fields."""
    try:
        if not body.startswith(MAGIC):
            return _DELETE_OPTIONS.decode(body)
        unknown = unwrap(body)
        return CLASSES["DeleteOptions"].FromString(unknown.raw) if unknown else None
    except NOT_UNDERSTOOD:
        return None


def encode_status(status: ApiError | Mapping[str, Any], content_type: str) -> bytes:
    """Write a Status, an error's or one of ``decode_status``, as the API server does.

    In protobuf where *content_type* says so, else in JSON.
    """
    members = status.status() if isinstance(status, ApiError) else status
    if media_type(content_type) == PROTOBUF:
        return _encode_protobuf(members)
    return gojson.encode(members) + b"\n"


def decode_status(content_type: str, body: bytes) -> dict[str, Any] | None:
    """Read a Status whole, its members in the API server's order; None where it's something else.

    What is read of protobuf is all that is in it: with fields that aren't known here it's None.
    """
    media = media_type(content_type)
    try:
        if media == JSON:
            return _status_of_json(body)
        return _status_of_protobuf(body) if media == PROTOBUF else None
    except NOT_UNDERSTOOD:
        return None


def read_error(code: int, body: bytes) -> ApiError:
    """Rebuild the error that an API server answered in either encoding, with HTTP *code*.

    In an ERROR event, where there's none, *code* is 0.
    """
    if body.startswith(MAGIC):
        body = gojson.encode(decode_status(PROTOBUF, body) or {})
    return from_status(code, body)


def media_type(content_type: str) -> str:
    """The media type of a content type, without parameters and in lower case."""
    return content_type.partition(";")[0].strip().lower()


def _version(text: str | None) -> int | None:
    try:
        return parse_version(text or "")
    except ValueError:
        return None


def _is_list(found: Envelope) -> bool:
    """Tell a list by its kind; there are also objects whose kind ends so, which have a name."""
    return found.kind.endswith("List") and not (found.name or found.uid)


def _read_json(body: bytes) -> Envelope:
    found = _BODY.decode(body)
    metadata = found.metadata or _Metadata()
    if found.kind == "Status" and found.details is not None:
        metadata.name, metadata.uid = found.details.name, found.details.uid
    return _envelope(found, metadata, metadata.deletionTimestamp is not None)


def _read_protobuf(body: bytes) -> Envelope | None:
    unknown = unwrap(body)
    if unknown is None:
        return None
    if unknown.typeMeta.kind == "Status":
        details = CLASSES["Status"].FromString(unknown.raw).details
        return _envelope(unknown.typeMeta, _Metadata(name=details.name, uid=details.uid), False)
    metadata = CLASSES["Object"].FromString(unknown.raw).metadata
    return _envelope(unknown.typeMeta, metadata, metadata.HasField("deletionTimestamp"))


def _envelope(type_meta: Any, metadata: Any, is_deleting: bool) -> Envelope:
    is_held = bool(metadata.finalizers or metadata.deletionGracePeriodSeconds)
    return Envelope(
        type_meta.apiVersion,
        type_meta.kind,
        metadata.namespace or "",
        metadata.name or "",
        metadata.uid or "",
        _version(metadata.resourceVersion),
        is_deleting and not is_held,
    )


def _status_of_json(body: bytes) -> dict[str, Any] | None:
    """Read a Status that is one: causes can be added to its details."""
    found = msgspec.json.decode(body)
    if not isinstance(found, dict) or found.get("kind") != "Status":
        return None
    details = found.get("details", {})
    is_sound = isinstance(details, dict) and isinstance(details.get("causes", []), list)
    return found if is_sound else None


def _status_of_protobuf(body: bytes) -> dict[str, Any] | None:
    unknown = unwrap(body)
    if unknown is None or unknown.typeMeta.kind != "Status":
        return None
    status = CLASSES["Status"].FromString(unknown.raw)
    members: dict[str, Any] = {"kind": "Status", "apiVersion": unknown.typeMeta.apiVersion}
    members |= {"metadata": _set_fields(status.metadata, "selfLink", "resourceVersion", "continue")}
    members |= _set_fields(status, "status", "message", "reason")
    if status.HasField("details"):
        members["details"] = _details(status.details)
    members |= _set_fields(status, "code")
    return members if _encode_protobuf(members) == body else None


def _details(details: Any) -> dict[str, Any]:
    members = _set_fields(details, "name", "group", "kind", "uid")
    if details.causes:
        causes = details.causes
        members["causes"] = [_set_fields(cause, "reason", "message", "field") for cause in causes]
    return members | _set_fields(details, "retryAfterSeconds")


def _set_fields(message: Any, *names: str) -> dict[str, Any]:
    """Read fields as JSON shows them: without those that are empty."""
    values = ((name, getattr(message, name)) for name in names)
    return {name: value for name, value in values if value}


def _encode_protobuf(members: Mapping[str, Any]) -> bytes:
    """Write a Status with all its fields, as gogo-protobuf does, even those that are empty."""
    status = CLASSES["Status"]()
    _set(status.metadata, members.get("metadata", {}), "selfLink", "resourceVersion", "continue")
    _set(status, members, "status", "message", "reason")
    if "details" in members:
        details = members["details"]
        _set(status.details, details, "name", "group", "kind", "uid")
        for cause in details.get("causes", ()):
            _set(status.details.causes.add(), cause, "reason", "message", "field")
        status.details.retryAfterSeconds = details.get("retryAfterSeconds", 0)
    status.code = members.get("code", 0)
    return wrap(members["apiVersion"], "Status", status.SerializeToString())


def _set(message: Any, members: Mapping[str, Any], *names: str) -> None:
    for name in names:
        setattr(message, name, members.get(name, ""))
