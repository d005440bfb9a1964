"""Partial metadata have the order of Go's structs, from whatever order the object has."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from proxy.forms.partial import added_annotations, encode_partial, partial_metadata
from proxy.kube import gojson

ORDERED: dict[str, Any] = {
    "name": "x",
    "generateName": "x-",
    "namespace": "a",
    "selfLink": "/x",
    "uid": "u",
    "resourceVersion": "7",
    "generation": 2,
    "creationTimestamp": "2026-01-01T00:00:00Z",
    "deletionTimestamp": "2026-01-02T00:00:00Z",
    "deletionGracePeriodSeconds": 0,
    "labels": {"a": "<b>", "c": "\u2028é"},
    "annotations": {"a": '"metadata":{}'},
    "ownerReferences": [
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "name": "o",
            "uid": "v",
            "controller": True,
            "blockOwnerDeletion": False,
        },
        {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "w"},
    ],
    "finalizers": ["z", "a"],
    "managedFields": [
        {
            "manager": "m",
            "operation": "Update",
            "apiVersion": "v1",
            "time": "2026-01-01T00:00:00Z",
            "fieldsType": "FieldsV1",
            "fieldsV1": {"f:spec": {".": {}, "f:a": {}}},
            "subresource": "status",
        },
        {"operation": "Apply"},
    ],
}


def _sorted(node: Any) -> Any:
    if isinstance(node, list):
        return list(map(_sorted, node))
    return {key: _sorted(node[key]) for key in sorted(node)} if isinstance(node, dict) else node


@pytest.mark.parametrize("metadata", [ORDERED, {"name": "x"}, {}], ids=["all", "name", "none"])
def test_both_layouts_give_the_same(metadata: dict[str, Any]) -> None:
    struct = gojson.encode({"kind": "X", "apiVersion": "v1", "metadata": metadata, "spec": {}})
    unstructured = gojson.encode(_sorted({"apiVersion": "v1", "kind": "X", "metadata": metadata}))
    assert partial_metadata(struct) == gojson.encode(metadata)
    assert partial_metadata(memoryview(unstructured)) == gojson.encode(metadata)


def test_the_zero_time_is_left_out() -> None:
    encoded = b'{"apiVersion":"v1","kind":"X","metadata":{"creationTimestamp":null,"name":"x"}}'
    assert partial_metadata(encoded) == b'{"name":"x"}'


@pytest.mark.parametrize("encoded", [b"[]", b"{}", b'{"apiVersion":"v1"}', b'{"metadata":'])
def test_what_is_no_object(encoded: bytes) -> None:
    with pytest.raises(msgspec.MsgspecError):
        partial_metadata(encoded)


def test_the_version_of_meta() -> None:
    assert encode_partial(b"{}", "v1beta1") == (
        b'{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1beta1","metadata":{}}'
    )


HIDDEN = frozenset({"a", "b"})


@pytest.mark.parametrize(
    ("metadata", "expected"),
    [
        ({"name": "x"}, {"name": "x"}),
        ({"annotations": {"c": "1"}, "uid": "u"}, {"annotations": {"c": "1"}, "uid": "u"}),
        (
            {"annotations": {"a": "1", "c": "<"}, "uid": "u"},
            {"annotations": {"c": "<"}, "uid": "u"},
        ),
        ({"annotations": {"a": "1", "b": "2"}, "uid": "u"}, {"uid": "u"}),
    ],
)
def test_annotations_that_are_hidden(metadata: dict[str, Any], expected: dict[str, Any]) -> None:
    encoded = gojson.encode({"kind": "X", "apiVersion": "v1", "metadata": metadata})
    assert partial_metadata(encoded, HIDDEN) == gojson.encode(expected)


HPA = "autoscaling.alpha.kubernetes.io"


@pytest.mark.parametrize(
    ("group", "plural", "added"),
    [
        ("apps", "daemonsets", {"deprecated.daemonset.template.generation"}),
        ("apps", "deployments", {"deprecated.deployment.rollback.to"}),
        (
            "autoscaling",
            "horizontalpodautoscalers",
            {f"{HPA}/metrics", f"{HPA}/current-metrics", f"{HPA}/behavior", f"{HPA}/conditions"},
        ),
        ("", "pods", set()),
    ],
)
def test_annotations_that_kinds_are_given(group: str, plural: str, added: set[str]) -> None:
    assert added_annotations(group, plural) == added
