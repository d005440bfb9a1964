"""Object headers: what selection sees of an object, and how little of it is kept."""

from __future__ import annotations

import gc
from typing import Any

import msgspec
import pytest

from proxy.forms.objects import NO_LABELS, LabelSet, Object, ObjectDecoder
from proxy.kube import gojson
from proxy.kube.selectable import SelectableField, declared_field, selectable_fields
from tests.unit.builders import Item, item


def decode(found: Item, *fields: SelectableField) -> Object:
    encoded = gojson.encode(found)
    return ObjectDecoder(fields).decode(encoded, encoded)


def read(path: str, **members: Any) -> str | tuple[str, ...]:
    """The value of a declared field."""
    [value] = decode(item("x", **members), declared_field(path)).fields
    return value


def built_in(plural: str, label: str, group: str = "", **members: Any) -> str | tuple[str, ...]:
    """The value of a built-in field."""
    fields = selectable_fields(group, plural)
    assert fields is not None
    place = [field.label for field in fields].index(label)
    return decode(item("x", **members), *fields).fields[place]


# --- headers ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("found", "key"),
    [
        (item("x", "a"), "a/x"),
        (item("x", ""), "x"),
        (item("x.y-z", "kube-system"), "kube-system/x.y-z"),
        (item("system:node", ""), "system:node"),
    ],
)
def test_the_header_of_an_object(found: Item, key: str) -> None:
    decoded = decode(found)
    metadata = found["metadata"]
    assert decoded.key == key
    assert decoded.name == metadata["name"]
    assert decoded.namespace == metadata.get("namespace", "")
    assert decoded.uid == metadata["uid"]
    assert decoded.version == 1
    assert decoded.labels is NO_LABELS
    assert decoded.fields == ()
    assert decoded.raw == gojson.encode(found)


def test_versions_are_numbers_of_any_size() -> None:
    assert decode(item("x", version=2**64)).version == 2**64


def test_members_that_nobody_reads_may_be_anything() -> None:
    found = item("x", spec=[1, "two"], status="text", kind=7, metadata2=None)
    found["metadata"] |= {"annotations": 3, "generation": "x", "finalizers": {}}
    assert decode(found).key == "a/x"


@pytest.mark.parametrize(
    "encoded",
    [
        b"",
        b"[]",
        b"null",
        b"{}",
        b'{"metadata":null}',
        b'{"metadata":[]}',
        b'{"metadata":{"name":"x"}}',
        b'{"metadata":{"name":7,"resourceVersion":"1"}}',
        b'{"metadata":{"name":"x","resourceVersion":1}}',
        b'{"metadata":{"name":"x","resourceVersion":""}}',
        b'{"metadata":{"name":"x","resourceVersion":"0x1"}}',
        b'{"metadata":{"name":"x","resourceVersion":"\xd9\xa1"}}',
        b'{"metadata":{"name":"x","resourceVersion":"1","labels":{"a":1}}}',
        b'{"metadata":{"name":"x","resourceVersion":"1","labels":["a"]}}',
        b'{"metadata":{"name":"x","resourceVersion":"1"}',
    ],
)
def test_what_is_no_object(encoded: bytes) -> None:
    with pytest.raises((msgspec.MsgspecError, ValueError)):
        ObjectDecoder(()).decode(encoded, encoded)


# --- labels ---------------------------------------------------------------------------------------


def test_equal_label_sets_are_one() -> None:
    decoder = ObjectDecoder(())
    first, second, other = (
        decoder.decode(encoded, encoded)
        for encoded in (
            gojson.encode(item("x", labels={"app": "web", "tier": "front"})),
            gojson.encode(item("y", labels={"app": "web", "tier": "front"})),
            gojson.encode(item("z", labels={"app": "web"})),
        )
    )
    assert first.labels is second.labels
    assert first.labels is not other.labels
    assert dict(first.labels) == {"app": "web", "tier": "front"}


@pytest.mark.parametrize("labels", [b"null", b"{}", None])
def test_no_labels_are_one_set(labels: bytes | None) -> None:
    member = b',"labels":' + labels if labels else b""
    encoded = b'{"metadata":{"name":"x","resourceVersion":"1"' + member + b"}}"
    assert ObjectDecoder(()).decode(encoded, encoded).labels is NO_LABELS


def test_label_sets_go_with_their_objects() -> None:
    decoder = ObjectDecoder(())
    encoded = gojson.encode(item("x", labels={"pod-template-hash": "1"}))
    found = decoder.decode(encoded, encoded)
    assert len(decoder._label_sets) == 1
    del found
    gc.collect()
    assert len(decoder._label_sets) == 0


def test_label_sets_are_told_apart_by_identity() -> None:
    first, second = LabelSet(app="web"), LabelSet(app="web")
    assert len({first, second, first}) == 2


# --- fields ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "members", "expected"),
    [
        ("spec.color", {"spec": {"color": "red"}}, "red"),
        ("spec.color", {"spec": {"color": ""}}, ""),
        ("spec.color", {"spec": {"color": None}}, ""),
        ("spec.color", {"spec": {}}, ""),
        ("spec.color", {"spec": None}, ""),
        ("spec.color", {}, ""),
        ("spec.size", {"spec": {"size": 3}}, "3"),
        ("spec.size", {"spec": {"size": 0}}, "0"),
        ("spec.ratio", {"spec": {"ratio": 0.5}}, "0.5"),
        ("spec.on", {"spec": {"on": True}}, "true"),
        ("spec.on", {"spec": {"on": False}}, "false"),
        ("spec.class", {"spec": {"class": "keyword"}}, "keyword"),
        ("spec.a-b", {"spec": {"a-b": "dash"}}, "dash"),
        ("spec.a.b.c", {"spec": {"a": {"b": {"c": "deep"}}}}, "deep"),
        ("spec.a.b.c", {"spec": {"a": {"b": None}}}, ""),
        ("type", {"type": "Opaque"}, "Opaque"),
    ],
)
def test_a_field_is_read_where_it_stands(path: str, members: Item, expected: str) -> None:
    assert read(path, **members) == expected


def test_a_field_of_the_metadata_is_read_beside_the_header() -> None:
    found = item("x", labels={"app": "web"})
    found["metadata"]["annotations"] = {"example.com/owner": "me", "example.com/other": "you"}
    decoded = decode(
        found,
        declared_field("metadata.annotations['example.com/owner']"),
        declared_field("metadata.uid"),
    )
    assert decoded.fields == ("me", "uid-x")
    assert decoded.labels["app"] == "web"


@pytest.mark.parametrize(
    ("path", "members", "expected"),
    [
        (
            "spec.containers[*].image",
            {"spec": {"containers": [{"image": "b"}, {"image": "a"}, {"image": "b"}]}},
            ("a", "b"),
        ),
        ("spec.containers[*].image", {"spec": {"containers": []}}, ()),
        ("spec.containers[*].image", {"spec": {"containers": None}}, ()),
        ("spec.containers[*].image", {}, ()),
        ("spec.containers[*].image", {"spec": {"containers": [{}, {"image": "a"}]}}, ("a",)),
        ("spec.ports[*]", {"spec": {"ports": [443, 80]}}, ("443", "80")),
        (
            "spec.rules[*].hosts[*]",
            {"spec": {"rules": [{"hosts": ["b", "a"]}, {}, {"hosts": ["c"]}]}},
            ("a", "b", "c"),
        ),
    ],
)
def test_a_path_through_an_array_has_all_its_values(
    path: str, members: Item, expected: tuple[str, ...]
) -> None:
    assert read(path, **members) == expected


@pytest.mark.parametrize(
    ("plural", "label", "members", "expected"),
    [
        ("pods", "spec.nodeName", {"spec": {"nodeName": "node-1"}}, "node-1"),
        ("pods", "spec.host", {"spec": {"nodeName": "node-1"}}, "node-1"),
        ("pods", "spec.hostNetwork", {"spec": {}}, "false"),
        ("pods", "spec.hostNetwork", {"spec": {"hostNetwork": True}}, "true"),
        ("pods", "status.phase", {"status": {"phase": "Running"}}, "Running"),
        ("pods", "status.podIPs", {"status": {"podIPs": [{"ip": "10.0.0.1"}]}}, ""),
        ("nodes", "spec.unschedulable", {"spec": {"unschedulable": True}}, "true"),
        ("nodes", "spec.unschedulable", {"spec": {}}, "false"),
        ("replicationcontrollers", "status.replicas", {"status": {"replicas": 0}}, "0"),
        ("replicationcontrollers", "status.replicas", {}, "0"),
        ("events", "source", {"source": {"component": "kubelet"}}, "kubelet"),
        ("events", "source", {"source": {}, "reportingComponent": "new"}, "new"),
        ("events", "source", {"source": {"component": ""}, "reportingComponent": "new"}, "new"),
        ("events", "involvedObject.uid", {"involvedObject": {"uid": "u"}}, "u"),
    ],
)
def test_built_in_fields(plural: str, label: str, members: Item, expected: str) -> None:
    assert built_in(plural, label, **members) == expected


def test_paths_that_begin_alike_are_both_read() -> None:
    deep, shallow = declared_field("spec.a.b"), declared_field("spec.c")
    assert decode(item("x", spec={"a": {"b": "1"}, "c": "2"}), deep, shallow).fields == ("1", "2")


@pytest.mark.parametrize(
    ("path", "members"),
    [
        ("spec.color", {"spec": "text"}),
        ("spec.color", {"spec": {"color": {"a": 1}}}),
        ("spec.color", {"spec": {"color": ["red"]}}),
        ("spec.containers[*].image", {"spec": {"containers": {}}}),
    ],
)
def test_a_field_of_another_type_is_not_guessed(path: str, members: Item) -> None:
    with pytest.raises(msgspec.ValidationError):
        read(path, **members)
