"""PartialObjectMetadata: what remains of an object whose metadata alone are asked for.

kube-apiserver writes them from a Go struct for every resource. Objects that are written from one
too have the metadata's bytes already; those of custom resources have sorted keys, and are written
anew in the order of ``metav1.ObjectMeta``.
"""

import msgspec
from msgspec import UNSET, Raw, UnsetType

from proxy.kube import gojson

_UNSTRUCTURED = b'{"apiVersion":'
_Member = Raw | UnsetType


class _Owner(msgspec.Struct, rename="camel", gc=False):
    """``metav1.OwnerReference``."""

    api_version: Raw
    kind: Raw
    name: Raw
    uid: Raw
    controller: _Member = UNSET
    block_owner_deletion: _Member = UNSET


class _ManagedFields(msgspec.Struct, rename="camel", gc=False):
    """``metav1.ManagedFieldsEntry``; what its fieldsV1 hold is sorted either way."""

    manager: _Member = UNSET
    operation: _Member = UNSET
    api_version: _Member = UNSET
    time: _Member = UNSET
    fields_type: _Member = UNSET
    fields_v1: _Member = msgspec.field(default=UNSET, name="fieldsV1")
    subresource: _Member = UNSET


class _ObjectMeta(msgspec.Struct, rename="camel", gc=False):
    """``metav1.ObjectMeta``: members in the order in which Go writes them."""

    name: _Member = UNSET
    generate_name: _Member = UNSET
    namespace: _Member = UNSET
    self_link: _Member = UNSET
    uid: _Member = UNSET
    resource_version: _Member = UNSET
    generation: _Member = UNSET
    creation_timestamp: str | UnsetType | None = UNSET
    deletion_timestamp: _Member = UNSET
    deletion_grace_period_seconds: _Member = UNSET
    labels: _Member = UNSET
    annotations: _Member = UNSET
    owner_references: list[_Owner] | UnsetType = UNSET
    finalizers: _Member = UNSET
    managed_fields: list[_ManagedFields] | UnsetType = UNSET


class _Struct(msgspec.Struct, gc=False):
    metadata: Raw


class _Unstructured(msgspec.Struct, gc=False):
    metadata: _ObjectMeta


_ADDED = {
    ("apps", "daemonsets"): frozenset({"deprecated.daemonset.template.generation"}),
    ("apps", "deployments"): frozenset({"deprecated.deployment.rollback.to"}),
    ("autoscaling", "horizontalpodautoscalers"): frozenset(
        f"autoscaling.alpha.kubernetes.io/{name}"
        for name in ("metrics", "current-metrics", "behavior", "conditions")
    ),
}
"""Fields of the internal types that a version has no place for (``conversion.go`` of each)."""

_STRUCTS = msgspec.json.Decoder(_Struct)
_UNSTRUCTUREDS = msgspec.json.Decoder(_Unstructured)
_ENCODE = msgspec.json.Encoder().encode


def partial_metadata(encoded: bytes | memoryview, hidden: frozenset[str] = frozenset()) -> bytes:
    """Take the metadata out of an object's JSON, as PartialObjectMetadata have them.

    They are without the *hidden* annotations. Raises msgspec.MsgspecError for what is no object.
    """
    if is_unstructured(encoded):
        metadata = _UNSTRUCTUREDS.decode(encoded).metadata
        if metadata.creation_timestamp is None:  # the zero time, which Go leaves out
            metadata.creation_timestamp = UNSET
        return _ENCODE(metadata)
    found = bytes(_STRUCTS.decode(encoded).metadata)
    return _without(hidden, found) if hidden else found


def _without(hidden: frozenset[str], metadata: bytes) -> bytes:
    members = gojson.split_members(metadata)
    annotations = gojson.split_members(members.get("annotations", Raw(b"{}")))
    if hidden.isdisjoint(annotations):
        return metadata
    left = {key: value for key, value in annotations.items() if key not in hidden}
    members["annotations"] = Raw(gojson.join_members(left))
    if not left:
        del members["annotations"]
    return gojson.join_members(members)


def added_annotations(group: str, plural: str) -> frozenset[str]:
    """The annotations that objects of a resource are only given when they're written.

    Tables and partial metadata are made of what kube-apiserver holds, which is without.
    """
    return _ADDED.get((group, plural), frozenset())


def is_unstructured(encoded: bytes | memoryview) -> bool:
    """Tell an object with sorted keys from one that Go writes from a struct."""
    return encoded[: len(_UNSTRUCTURED)] == _UNSTRUCTURED


def encode_partial(metadata: bytes, meta: str) -> bytes:
    """Encode PartialObjectMetadata of a version of ``meta.k8s.io``."""
    head = b'{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/%s","metadata":'
    return head % meta.encode() + metadata + b"}"
