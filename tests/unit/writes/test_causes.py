"""What a 409 tells: fields, values, managers, and never too much."""

from __future__ import annotations

from typing import Any

import pytest

from proxy.kube.resources import Resource
from proxy.writes.causes import MAX_CAUSES, REASON, conflict_causes

Object = dict[str, Any]
DEPLOYMENTS = Resource("apps", "v1", "deployments")
SECRETS = Resource("", "v1", "secrets")


def managed(manager: str, fields: Object, time: str = "2026-01-01T00:00:00Z") -> Object:
    return {"manager": manager, "operation": "Update", "time": time, "fieldsV1": fields}


def deployment(spec: Object, *managers: Object, version: str = "1", **metadata: Any) -> Object:
    return {
        "apiVersion": "apps/v1",
        "metadata": {
            "name": "x",
            "resourceVersion": version,
            "managedFields": list(managers),
            **metadata,
        },
        "spec": spec,
    }


def template(image: str) -> Object:
    return {"template": {"spec": {"containers": [{"name": "a"}, {"name": "b", "image": image}]}}}


GO_ORDER = ("reason", "message", "field")
REPLICAS: Object = {"f:spec": {"f:replicas": {}}}
SPEC_MAP: Object = {"f:spec": {}}


def told(base: Object | None, theirs: Object, resource: Resource = DEPLOYMENTS) -> list[str]:
    causes = conflict_causes(resource, base, theirs, 1)
    assert all(
        list(cause) in (["reason", "message", "field"], ["reason", "message"]) for cause in causes
    )
    assert {cause["reason"] for cause in causes} == {REASON}
    return [f"{cause.get('field', '')}: {cause['message']}" for cause in causes]


@pytest.mark.parametrize(
    ("old", "new", "managers", "cause"),
    [
        (
            {"replicas": 1},
            {"replicas": 3},
            [managed("kubectl", REPLICAS)],
            'spec.replicas: changed from 1 to 3 by "kubectl"',
        ),
        ({"replicas": 1}, {"replicas": 3}, [], "spec.replicas: changed from 1 to 3"),
        ({"replicas": 1}, {}, [managed("b", {"f:spec": {"f:paused": {}}})],
         "spec.replicas: removed, was 1"),
        ({}, {"replicas": 3}, [managed("b", REPLICAS)], 'spec.replicas: set to 3 by "b"'),
        (
            {"replicas": 1},
            {"replicas": 3},
            [managed("old", REPLICAS), managed("new", REPLICAS, "2026-01-02T00:00:00Z")],
            'spec.replicas: changed from 1 to 3 by "new"',
        ),
        # Of two at the same second nobody knows.
        (
            {"replicas": 1},
            {"replicas": 3},
            [managed("one", REPLICAS), managed("two", REPLICAS)],
            "spec.replicas: changed from 1 to 3",
        ),
        # Who owns just the map above is not who owns what is in it.
        (
            {"replicas": 1},
            {"replicas": 3},
            [managed("hpa", REPLICAS), managed("map", SPEC_MAP, "2026-01-02T00:00:00Z")],
            'spec.replicas: changed from 1 to 3 by "hpa"',
        ),
        (
            {"selector": {"a": 1}},
            {"selector": {"a": 2}},
            [managed("atomic", {"f:spec": {"f:selector": {}}})],
            'spec.selector[a]: changed from 1 to 2 by "atomic"',
        ),
        (
            template("i:1"),
            template("i:2"),
            [
                managed(
                    "ci",
                    {"f:spec": {"f:template": {"f:spec": {"f:containers": {
                        'k:{"name":"b"}': {".": {}, "f:image": {}}}}}}},
                )
            ],
            'spec.template.spec.containers[1].image: changed from "i:1" to "i:2" by "ci"',
        ),
        (
            {"text": ""},
            {"text": "x" * 500},
            [],
            'spec.text: changed from "" to "' + "x" * 98 + "…",
        ),
    ],
)  # fmt: skip
def test_one_change(old: Object, new: Object, managers: list[Object], cause: str) -> None:
    assert told(deployment(old), deployment(new, *managers, version="2")) == [cause]


def test_labels_are_named_in_brackets() -> None:
    base = deployment({}, labels={"app.kubernetes.io/name": "a"})
    theirs = deployment({}, labels={"app.kubernetes.io/name": "b"})
    assert told(base, theirs) == [
        'metadata.labels[app.kubernetes.io/name]: changed from "a" to "b"'
    ]


def test_more_are_counted() -> None:
    old = {f"f{n:03}": n for n in range(MAX_CAUSES + 5)}
    causes = told(deployment(old), deployment(dict.fromkeys(old, -1)))
    assert len(causes) == MAX_CAUSES + 1
    assert causes[0] == "spec.f000: changed from 0 to -1"
    assert causes[-1] == ": and 5 more changed"


def test_secrets_keep_their_values() -> None:
    def secret(**data: str) -> Object:
        applied = {"kubectl.kubernetes.io/last-applied-configuration": str(data)}
        return {
            "apiVersion": "v1",
            "metadata": {"annotations": applied, "resourceVersion": "2"},
            "data": data,
        }

    causes = told(secret(a="c2VjcmV0", b="b2xk"), secret(a="bmV3", c="bW9yZQ=="), SECRETS)
    assert sorted(causes) == [
        "data[a]: changed",
        "data[b]: removed",
        "data[c]: set",
        "metadata.annotations[kubectl.kubernetes.io/last-applied-configuration]: changed",
    ]


def test_what_the_client_read_may_be_forgotten() -> None:
    theirs = deployment({}, managed("old", REPLICAS), managed("b", REPLICAS, "2027"), version="9")
    assert told(None, theirs) == [
        ": changed since resourceVersion 1, which is no longer known; now it is 9, "
        'last written by "b"'
    ]


def test_another_object_of_the_name() -> None:
    [cause] = told(deployment({"a": 1}, uid="u1"), deployment({"a": 2}, uid="u2"))
    assert cause == 'metadata.uid: deleted and created again: changed from "u1" to "u2"'


def test_a_change_that_leaves_nothing_different() -> None:
    assert told(deployment({"a": 1}), deployment({"a": 1}, version="2")) == [
        ": no field differs between resourceVersion 1 and 2"
    ]
