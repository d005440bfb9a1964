"""The few protobuf messages of the API server that are read here, by dynamic descriptors.

Field numbers are those of ``generated.proto`` in apimachinery's ``meta/v1`` and ``runtime``; the
fields that are missing stay unknown to the parser, which skips them.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

MAGIC = b"k8s\x00"
"""What a body of ``application/vnd.kubernetes.protobuf`` begins with, before its Unknown."""

_PACKAGE = "kubecache"

_MESSAGES: dict[str, tuple[str, ...]] = {
    "TypeMeta": ("apiVersion 1 string", "kind 2 string"),
    "Unknown": (
        "typeMeta 1 TypeMeta",
        "raw 2 bytes",
        "contentEncoding 3 string",
        "contentType 4 string",
    ),
    "Time": ("seconds 1 int64",),
    "ObjectMeta": (
        "name 1 string",
        "namespace 3 string",
        "uid 5 string",
        "resourceVersion 6 string",
        "deletionTimestamp 9 Time",
        "deletionGracePeriodSeconds 10 int64",
        "finalizers 14 string*",
    ),
    "Object": ("metadata 1 ObjectMeta",),
    "Preconditions": ("uid 1 string", "resourceVersion 2 string"),
    "DeleteOptions": ("preconditions 2 Preconditions", "dryRun 5 string*"),
    "RawExtension": ("raw 1 bytes",),
    "WatchEvent": ("type 1 string", "object 2 RawExtension"),
    "Page": ("metadata 1 ListMeta", "items 2 bytes*"),
    "ListMeta": ("selfLink 1 string", "resourceVersion 2 string", "continue 3 string"),
    "StatusCause": ("reason 1 string", "message 2 string", "field 3 string"),
    "StatusDetails": (
        "name 1 string",
        "group 2 string",
        "kind 3 string",
        "causes 4 StatusCause*",
        "retryAfterSeconds 5 int32",
        "uid 6 string",
    ),
    "Status": (
        "metadata 1 ListMeta",
        "status 2 string",
        "message 3 string",
        "reason 4 string",
        "details 5 StatusDetails",
        "code 6 int32",
    ),
}

_Field = descriptor_pb2.FieldDescriptorProto
_SCALARS = {
    "string": _Field.TYPE_STRING,
    "bytes": _Field.TYPE_BYTES,
    "int32": _Field.TYPE_INT32,
    "int64": _Field.TYPE_INT64,
    "bool": _Field.TYPE_BOOL,
}


def _describe(text: str) -> descriptor_pb2.FieldDescriptorProto:
    name, number, kind = text.split()
    repeated = kind.endswith("*")
    kind = kind.removesuffix("*")
    field = _Field(name=name, number=int(number))
    field.label = _Field.LABEL_REPEATED if repeated else _Field.LABEL_OPTIONAL
    field.type = _SCALARS.get(kind, _Field.TYPE_MESSAGE)
    if kind not in _SCALARS:
        field.type_name = f".{_PACKAGE}.{kind}"
    return field


def message_classes(messages: Mapping[str, Sequence[str]]) -> dict[str, Any]:
    """Make classes by name, of the edition whose fields are written when set, even if empty.

    So does gogo-protobuf. Strings that aren't UTF-8 are errors. A field is written
    ``name number type``, with ``*`` behind the type where it's repeated.
    """
    file = descriptor_pb2.FileDescriptorProto(name=f"{_PACKAGE}.proto", package=_PACKAGE)
    file.syntax, file.edition = "editions", descriptor_pb2.EDITION_2023
    for name, fields in messages.items():
        file.message_type.add(name=name, field=map(_describe, fields))
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(file.SerializeToString())
    return {
        name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{_PACKAGE}.{name}"))
        for name in messages
    }


CLASSES = message_classes(_MESSAGES)
"""Message classes by name."""


def unwrap(body: bytes) -> Any | None:
    """Open the envelope of a body: an Unknown, or None where that holds no plain protobuf.

    Raises ``google.protobuf.message.DecodeError``.
    """
    if not body.startswith(MAGIC):
        return None
    unknown = CLASSES["Unknown"].FromString(memoryview(body)[len(MAGIC) :])
    return None if unknown.contentEncoding or unknown.contentType else unknown


def wrap(api_version: str, kind: str, raw: bytes) -> bytes:
    """Put an encoded object into its envelope."""
    unknown = CLASSES["Unknown"](raw=raw, contentEncoding="", contentType="")
    unknown.typeMeta.apiVersion, unknown.typeMeta.kind = api_version, kind
    return MAGIC + bytes(unknown.SerializeToString())
