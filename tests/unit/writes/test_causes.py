"""Causes of a conflict: what changed, from what to what, and by whom."""

from __future__ import annotations

import json
from typing import Any

import pytest

from proxy.kube.resources import Resource
from proxy.writes.causes import MAX_CAUSES, REASON, conflict_causes
from proxy.writes.changes import Json

DEPLOYMENTS = Resource("apps", "v1", "deployments")
SECRETS = Resource("", "v1", "secrets")
EARLY, LATE = "2026-01-05T08:00:00Z", "2026-01-05T09:00:00Z"

Managed = dict[str, Any]


def managed(manager: str, fields: Any, time: str = EARLY) -> Managed:
    return {"manager": manager, "operation": "Update", "time": time, "fieldsV1": fields}


def obj(version: int = 1, /, *entries: Managed, metadata: Json | None = None,
        **members: Any) -> Json:  # fmt: skip
    own = {"name": "x", "uid": "u", "resourceVersion": str(version), **(metadata or {})}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": own | {"managedFields": list(entries)},
        **members,
    }


def told(base: Json, theirs: Json, resource: Resource = DEPLOYMENTS) -> list[tuple[str, str]]:
    """The causes, by their fields."""
    causes = conflict_causes(resource, base, theirs, 1)
    assert all(cause["reason"] == REASON for cause in causes)
    return [(cause.get("field", ""), cause["message"]) for cause in causes]


APP = {"name": "app", "image": "1"}
TEMPLATE = "spec.template.spec"


def pods(*containers: Json, **fields: Any) -> Json:
    return obj(spec={"template": {"spec": {"containers": list(containers), **fields}}})


@pytest.mark.parametrize(
    ("base", "theirs", "expected"),
    [
        (obj(spec={"replicas": 1}), obj(spec={"replicas": 3}),
         [("spec.replicas", "changed from 1 to 3")]),
        (obj(), obj(spec={"replicas": 3}), [("spec.replicas", "set to 3")]),
        (obj(spec={"replicas": 1}), obj(spec={}), [("spec.replicas", "removed, was 1")]),
        (obj(spec={"a": None}), obj(spec={"a": False}), [("spec.a", "changed from null to false")]),
        (obj(metadata={"labels": {"app.kubernetes.io/name": "x", "a": "1"}}),
         obj(metadata={"labels": {"app.kubernetes.io/name": "y"}}),
         [("metadata.labels[app.kubernetes.io/name]", 'changed from "x" to "y"'),
          ("metadata.labels[a]", 'removed, was "1"')]),
        (obj(spec={"selector": {"matchLabels": {"a": "1"}}}),
         obj(spec={"selector": {"matchLabels": {"a": "2"}}}),
         [("spec.selector.matchLabels[a]", 'changed from "1" to "2"')]),
        (obj(data={"a": "1"}), obj(data={"a": "2"}), [("data[a]", 'changed from "1" to "2"')]),
        (obj(spec={"x-y": 1}), obj(spec={"x-y": 2}), [("spec[x-y]", "changed from 1 to 2")]),
        (pods(APP), pods(APP | {"image": "2"}),
         [(f"{TEMPLATE}.containers[0].image", 'changed from "1" to "2"')]),
        (pods(APP), pods({"name": "init"}, APP | {"image": "2"}),
         [(f"{TEMPLATE}.containers[0]", 'set to {"name":"init"}'),
          (f"{TEMPLATE}.containers[1].image", 'changed from "1" to "2"')]),
        (pods({"name": "init"}, APP), pods({"name": "init"}),
         [(f"{TEMPLATE}.containers[1]", 'removed, was {"name":"app","image":"1"}')]),
        (pods(APP | {"env": [{"name": "A", "value": "1"}]}),
         pods(APP | {"env": [{"name": "A", "value": "2"}]}),
         [(f"{TEMPLATE}.containers[0].env[0].value", 'changed from "1" to "2"')]),
        (pods(tolerations=[{"key": "a"}]), pods(tolerations=[]),
         [(f"{TEMPLATE}.tolerations", 'changed from [{"key":"a"}] to []')]),
        (obj(metadata={"finalizers": ["a"]}), obj(metadata={"finalizers": ["a", "b/c"]}),
         [("metadata.finalizers[1]", 'set to "b/c"')]),
        (obj(), obj(2), [("", "no field differs between resourceVersion 1 and 2")]),
    ],
)  # fmt: skip
def test_what_changed(base: Json, theirs: Json, expected: list[tuple[str, str]]) -> None:
    assert told(base, theirs) == expected


REPLICAS: Json = {"f:spec": {"f:replicas": {}}}


@pytest.mark.parametrize(
    ("entries", "by"),
    [
        ([], ""),
        ([managed("kubectl", REPLICAS)], ' by "kubectl"'),
        ([managed('a"b', REPLICAS)], r' by "a\"b"'),
        ([managed("kubectl", {"f:spec": {"f:paused": {}}})], ""),
        ([managed("kubectl", {"f:spec": {".": {}, "f:replicas": {}}})], ' by "kubectl"'),
        ([managed("kubectl", REPLICAS), managed("hpa", REPLICAS, LATE)], ' by "hpa"'),
        ([managed("hpa", REPLICAS, LATE), managed("kubectl", REPLICAS)], ' by "hpa"'),
        ([managed("kubectl", REPLICAS), managed("other", {"f:data": {}}, LATE)], ' by "kubectl"'),
        # Whose time is the same can't be told apart.
        ([managed("kubectl", REPLICAS), managed("hpa", REPLICAS)], ""),
        ([managed("kubectl", REPLICAS), managed("kubectl", REPLICAS)], ' by "kubectl"'),
        # Nor can one without a time, as updates by the scale subresource leave it.
        ([managed("kubectl", REPLICAS, LATE), {"manager": "hpa", "fieldsV1": REPLICAS}], ""),
        # Who owns just the map above is not who owns what is in it.
        ([managed("hpa", REPLICAS), managed("map", {"f:spec": {}}, LATE)], ' by "hpa"'),
        # The owner of a value that is atomic to it, and of nothing.
        ([managed("kubectl", {"f:spec": {}})], ' by "kubectl"'),
        ([managed("kubectl", {})], ""),
        ([managed("kubectl", None)], ""),
        ([managed("kubectl", ["f:spec"])], ""),
        ([managed("kubectl", {"f:spec": "f:replicas"})], ""),
        ([{"fieldsV1": REPLICAS}, {"manager": 7, "fieldsV1": REPLICAS}], ""),
        ([{"manager": "kubectl", "fieldsV1": REPLICAS}], ' by "kubectl"'),
    ],
)
def test_who_changed_it(entries: list[Managed], by: str) -> None:
    theirs = obj(2, *entries, spec={"replicas": 3})
    assert told(obj(spec={"replicas": 1}), theirs) == [
        ("spec.replicas", f"changed from 1 to 3{by}")
    ]


CONTAINERS: Json = {'k:{"name":"app"}': {".": {}, "f:name": {}, "f:image": {}}}
PORTS: Json = {'k:{"port":53,"protocol":"TCP"}': {"f:name": {}}}
FINALIZERS: Json = {".": {}, 'v:"b"': {}}


@pytest.mark.parametrize(
    ("before", "after", "fields"),
    [
        ({"spec": {"containers": [APP]}}, {"spec": {"containers": [APP | {"image": "2"}]}},
         {"f:spec": {"f:containers": CONTAINERS}}),
        ({"spec": {"containers": []}}, {"spec": {"containers": [APP]}},
         {"f:spec": {"f:containers": CONTAINERS}}),
        ({"spec": {"ports": [{"port": 53, "name": "a"}]}},
         {"spec": {"ports": [{"port": 53, "name": "b"}]}}, {"f:spec": {"f:ports": PORTS}}),
        ({"spec": {"tolerations": []}}, {"spec": {"tolerations": [{"key": "a"}]}},
         {"f:spec": {"f:tolerations": {}}}),
        ({"metadata": {"finalizers": ["a"]}}, {"metadata": {"finalizers": ["a", "b"]}},
         {"f:metadata": {"f:finalizers": FINALIZERS}}),
        ({"metadata": {"labels": {}}}, {"metadata": {"labels": {"x/y": "1"}}},
         {"f:metadata": {"f:labels": {".": {}, "f:x/y": {}}}}),
        # A list with keys here that is atomic by the CRD.
        ({"status": {"conditions": [{"type": "A", "status": "1"}]}},
         {"status": {"conditions": [{"type": "A", "status": "2"}]}},
         {"f:status": {"f:conditions": {}}}),
    ],
)  # fmt: skip
def test_owners_of_elements(before: Json, after: Json, fields: Json) -> None:
    [(_, message)] = told(obj(1, **before), obj(2, managed("kubectl", fields), **after))
    assert message.endswith(' by "kubectl"')


def test_nobody_is_named_for_what_is_gone() -> None:
    theirs = obj(2, managed("kubectl", {"f:spec": {}}, LATE), spec={})
    assert told(obj(spec={"replicas": 1}), theirs) == [("spec.replicas", "removed, was 1")]


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("x" * 98, '"' + "x" * 98 + '"'),
        ("x" * 99, '"' + "x" * 98 + "…"),
        ("x" * 1_000_000, '"' + "x" * 98 + "…"),
        ("ä" * 200, '"' + "ä" * 98 + "…"),
        ("\n" * 200, '"' + r"\n" * 49 + "…"),
        (list(range(100)), json.dumps(list(range(100)), separators=(",", ":"))[:99] + "…"),
        ({"a": {"b": "c" * 200}}, '{"a":{"b":"' + "c" * 88 + "…"),
    ],
)
def test_long_values_are_cut(value: Any, shown: str) -> None:
    assert len(shown) <= 100
    assert told(obj(spec={"a": 0}), obj(spec={"a": value}))[0][1] == (f"changed from 0 to {shown}")


def test_long_fields_are_cut() -> None:
    [(field, _)] = told(obj(spec={}), obj(spec={"k" * 10_000: 1}))
    assert len(field) == 512


@pytest.mark.parametrize(
    ("changed", "more"),
    [
        (MAX_CAUSES, None),
        (MAX_CAUSES + 1, "and 1 more changed"),
        (MAX_CAUSES + 999, "and 999 more changed"),
        (MAX_CAUSES + 1000, "and more than 999 more changed"),
        (5000, "and more than 999 more changed"),
    ],
)
def test_many_changes_are_counted(changed: int, more: str | None) -> None:
    base, theirs = (obj(spec={f"f{n}": value for n in range(changed)}) for value in (0, 1))
    causes = told(base, theirs)
    assert len(causes) == MAX_CAUSES + (more is not None)
    assert all(cause == (f"spec.f{n}", "changed from 0 to 1")
               for n, cause in enumerate(causes[:MAX_CAUSES]))  # fmt: skip
    if more is not None:
        assert causes[-1] == ("", more)


def test_a_state_that_is_no_longer_known() -> None:
    since = "changed since resourceVersion 1, which is no longer known; now it is 2"
    entries = [managed("old", REPLICAS), managed("new", {}, LATE)]
    for theirs, message in [
        (obj(2), since),
        (obj(2, *entries), f'{since}, last written by "new"'),
        (obj(2, managed("a", {}), managed("b", {})), since),
        (obj(2, managed("a", {}, LATE), {"manager": "b", "fieldsV1": {}}), since),
    ]:
        causes = conflict_causes(DEPLOYMENTS, None, theirs, 1)
        assert causes == [{"reason": REASON, "message": message}]


def test_an_object_that_was_created_again() -> None:
    theirs = obj(2, metadata={"uid": "v"}, spec={"a": 1})
    message = 'deleted and created again: changed from "u" to "v"'
    assert told(obj(), theirs) == [("metadata.uid", message)]


def test_members_are_in_the_order_of_go() -> None:
    [cause] = conflict_causes(DEPLOYMENTS, obj(spec={"a": 1}), obj(spec={"a": 2}), 1)
    assert list(cause) == ["reason", "message", "field"]


HIDDEN = "hunter2"


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ({"data": {"key": "x"}}, {"data": {"key": HIDDEN}}, ("data[key]", "changed")),
        ({"data": {"key": HIDDEN}}, {"data": {"key": "x"}}, ("data[key]", "changed")),
        ({}, {"data": {"key": HIDDEN}}, ("data[key]", "set")),
        ({"data": {"key": HIDDEN}}, {}, ("data[key]", "removed")),
        ({"data": HIDDEN}, {"data": {"key": HIDDEN}}, ("data", "changed")),
        ({"stringData": {"a": "x"}}, {"stringData": {"a": HIDDEN}}, ("stringData[a]", "changed")),
        ({"metadata": {"annotations": {"kubectl.kubernetes.io/last-applied-configuration": "x"}}},
         {"metadata": {"annotations": {
             "kubectl.kubernetes.io/last-applied-configuration": HIDDEN}}},
         ("metadata.annotations[kubectl.kubernetes.io/last-applied-configuration]", "changed")),
        ({"type": "x"}, {"type": HIDDEN}, ("type", "changed")),
        ({"metadata": {"finalizers": ["x"]}}, {"metadata": {"finalizers": ["x", HIDDEN]}},
         ("metadata.finalizers[1]", "set")),
    ],
)  # fmt: skip
def test_values_of_secrets_are_not_told(
    before: Json, after: Json, expected: tuple[str, str]
) -> None:
    base, theirs = obj(1, **before), obj(2, **after)
    for found in (base, theirs):
        found |= {"apiVersion": "v1", "kind": "Secret"}
    causes = conflict_causes(SECRETS, base, theirs, 1)
    assert [(cause["field"], cause["message"]) for cause in causes] == [expected]
    assert HIDDEN not in repr(causes)
    assert HIDDEN not in repr(conflict_causes(SECRETS, None, theirs, 1))


def test_who_changed_a_secret_is_told() -> None:
    theirs = obj(2, managed("kubectl", {"f:data": {"f:a": {}}}), data={"a": HIDDEN})
    assert told(obj(data={"a": "x"}), theirs, SECRETS) == [("data[a]", 'changed by "kubectl"')]
