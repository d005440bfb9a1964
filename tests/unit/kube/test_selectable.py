"""The table of selectable fields, read from objects as the API server writes them."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from proxy.forms.objects import ObjectDecoder
from proxy.kube.selectable import (
    _BY_RESOURCE,
    field_text,
    knows_namespace,
    selectable_fields,
    wire_paths,
)


def _read(group: str, plural: str, found: dict[str, Any]) -> dict[str, object]:
    """The values of an object's fields by their labels."""
    fields = selectable_fields(group, plural)
    assert fields is not None
    metadata = {"name": "x", "resourceVersion": "1"}
    encoded = msgspec.json.encode({"metadata": metadata, **found})
    values = ObjectDecoder(fields).decode(encoded, encoded).fields
    return dict(zip((field.label for field in fields), values, strict=True))


def test_fields_of_a_pod() -> None:
    spec = {
        "nodeName": "node-1",
        "restartPolicy": "Never",
        "schedulerName": "s",
        "serviceAccountName": "robot",
        "hostNetwork": True,
    }
    status = {
        "phase": "Running",
        "podIP": "10.1.0.7",
        "podIPs": [{"ip": "10.1.0.7"}],
        "nominatedNodeName": "node-9",
    }
    assert _read("", "pods", {"spec": spec, "status": status}) == {
        "spec.nodeName": "node-1",
        "spec.host": "node-1",
        "spec.restartPolicy": "Never",
        "spec.schedulerName": "s",
        "spec.serviceAccountName": "robot",
        "spec.hostNetwork": "true",
        "status.phase": "Running",
        "status.podIP": "10.1.0.7",
        "status.podIPs": "",
        "status.nominatedNodeName": "node-9",
    }


@pytest.mark.parametrize("found", [{}, {"spec": None, "status": None}, {"spec": {}, "status": {}}])
def test_what_a_pod_lacks_is_empty(found: dict[str, Any]) -> None:
    values = _read("", "pods", found)
    assert values.pop("spec.hostNetwork") == "false"
    assert set(values.values()) == {""}


@pytest.mark.parametrize(
    ("source", "controller", "expected"),
    [
        ({"component": "kubelet"}, "b", "kubelet"),
        ({"component": "kubelet"}, "", "kubelet"),
        ({"component": ""}, "b", "b"),
        ({"host": "node-1"}, "b", "b"),
        ({}, "", ""),
        (None, "b", "b"),
    ],
)
def test_an_event_comes_from_its_source_or_else_its_controller(
    source: dict[str, str] | None, controller: str, expected: str
) -> None:
    found = {"source": source, "reportingComponent": controller}
    assert _read("", "events", found)["source"] == expected


@pytest.mark.parametrize(
    ("group", "member", "reporter"),
    [
        ("", "involvedObject", "reportingComponent"),
        ("events.k8s.io", "regarding", "reportingController"),
    ],
)
def test_both_kinds_of_events_know_their_object(group: str, member: str, reporter: str) -> None:
    about = {
        step: f"the {step}"
        for step in ("kind", "namespace", "name", "uid", "apiVersion", "resourceVersion")
    }
    values = _read(group, "events", {member: about, "reason": "r", "type": "t", reporter: "c"})
    assert values.pop("source", "c") == "c"
    assert values == {
        **{f"{member}.{step}": text for step, text in about.items()},
        f"{member}.fieldPath": "",
        "reason": "r",
        "type": "t",
        reporter: "c",
    }


@pytest.mark.parametrize(
    ("group", "plural", "found", "label", "expected"),
    [
        ("", "nodes", {"spec": {}}, "spec.unschedulable", "false"),
        ("", "nodes", {"spec": {"unschedulable": True}}, "spec.unschedulable", "true"),
        ("", "namespaces", {"status": {"phase": "Active"}}, "status.phase", "Active"),
        ("", "secrets", {"type": "Opaque"}, "type", "Opaque"),
        ("", "services", {"spec": {"clusterIP": "None"}}, "spec.clusterIP", "None"),
        ("", "replicationcontrollers", {"status": {"replicas": 0}}, "status.replicas", "0"),
        ("", "replicationcontrollers", {}, "status.replicas", "0"),
        ("batch", "jobs", {"status": {"succeeded": 12}}, "status.successful", "12"),
        ("batch", "jobs", {"status": {}}, "status.successful", "0"),
        ("resource.k8s.io", "resourceslices", {"spec": {}}, "spec.nodeName", ""),
    ],
)
def test_values_are_read_as_the_apiserver_compares_them(
    group: str, plural: str, found: dict[str, Any], label: str, expected: str
) -> None:
    assert _read(group, plural, found)[label] == expected


def test_most_resources_have_no_fields_of_their_own() -> None:
    assert selectable_fields("", "configmaps") == ()
    assert selectable_fields("apps", "replicasets") == ()


@pytest.mark.parametrize(
    ("group", "plural"),
    [("example.com", "pods"), ("", "jobs"), ("apps", "pods"), ("", "events.events.k8s.io")],
)
def test_what_is_not_built_in_is_not_in_the_table(group: str, plural: str) -> None:
    assert selectable_fields(group, plural) is None


def test_one_namespaced_resource_does_not_select_by_namespace() -> None:
    assert knows_namespace("", "pods")
    assert knows_namespace("example.com", "widgets")
    assert not knows_namespace("certificates.k8s.io", "podcertificaterequests")


@pytest.mark.parametrize(
    ("value", "expected"), [("x", "x"), (True, "true"), (False, "false"), (0, "0"), (-7, "-7")]
)
def test_leaves_are_written_as_go_writes_them(value: str | int, expected: str) -> None:
    assert field_text(value) == expected


@pytest.mark.parametrize(("group", "plural"), _BY_RESOURCE)
def test_every_path_has_its_numbers_in_protobuf(group: str, plural: str) -> None:
    fields = selectable_fields(group, plural)
    assert fields is not None
    paths = wire_paths(group, plural)
    assert paths.keys() == {path for field in fields for path in field.paths}
    places = [place.numbers for place in paths.values()]
    assert len({*places}) == len(places)
    assert {place.type for place in paths.values()} <= {"string", "bool", "int32"}


def test_numbers_of_what_is_not_known() -> None:
    assert wire_paths("example.com", "widgets") == {}
