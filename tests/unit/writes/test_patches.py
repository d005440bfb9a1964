"""What patches touch, and whether they can be made for a newer state."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from proxy.kube.envelope import MERGE_PATCH, STRATEGIC_PATCH
from proxy.writes.changes import Json, OverlapError, retarget_patch
from proxy.writes.lists import Item, Member, Path, Schema
from proxy.writes.patches import meets, touched, tree_of

APP = Item((("name", "app"),))
CONTAINERS = ("spec", "containers")
PORTS = ("spec", "ports")
DNS = Item((("port", 53), ("protocol", "UDP")))
FINALIZERS = ("metadata", "finalizers")


@pytest.mark.parametrize(
    ("patch", "merge", "strategic"),
    [
        ({}, [], []),
        ({"spec": {"a": 1}}, [("spec", "a")], [("spec", "a")]),
        ({"spec": {"a": None, "b": 2}}, [("spec", "a"), ("spec", "b")],
         [("spec", "a"), ("spec", "b")]),
        ({"spec": {}}, [("spec",)], [("spec",)]),
        ({"spec": None}, [("spec",)], [("spec",)]),
        ({"spec": {"args": [1]}}, [("spec", "args")], [("spec", "args")]),
        ({"spec": {"containers": [{"name": "app", "image": "x"}]}}, [CONTAINERS],
         [(*CONTAINERS, APP, "name"), (*CONTAINERS, APP, "image")]),
        ({"spec": {"containers": []}}, [CONTAINERS], [CONTAINERS]),
        ({"spec": {"containers": [{"image": "x"}]}}, [CONTAINERS], [CONTAINERS]),
        ({"spec": {"containers": [{"name": "app", "$patch": "delete"}]}}, [CONTAINERS],
         [CONTAINERS]),
        ({"spec": {"containers": [{"name": "app"}, {"$patch": "replace"}]}}, [CONTAINERS],
         [CONTAINERS]),
        ({"spec": {"volumes": [{"name": "app", "$retainKeys": ["name"]}]}}, [("spec", "volumes")],
         [("spec", "volumes")]),
        ({"spec": {"$setElementOrder/containers": [{"name": "app"}], "a": 1}},
         [("spec", "$setElementOrder/containers"), ("spec", "a")], [CONTAINERS, ("spec", "a")]),
        ({"metadata": {"$deleteFromPrimitiveList/finalizers": ["a"]}},
         [("metadata", "$deleteFromPrimitiveList/finalizers")], [FINALIZERS]),
        ({"metadata": {"finalizers": ["a"]}}, [FINALIZERS], [(*FINALIZERS, Member("a"))]),
        ({"spec": {"strategy": {"$retainKeys": ["type"], "type": "x"}}},
         [("spec", "strategy", "$retainKeys"), ("spec", "strategy", "type")],
         [("spec", "strategy")]),
        ({"spec": {"a": {"$patch": "replace", "b": 1}}},
         [("spec", "a", "$patch"), ("spec", "a", "b")], [("spec", "a")]),
        ({"$patch": "replace"}, [("$patch",)], [()]),
        # A Service's ports are the same by their number alone in a strategic patch.
        ({"spec": {"ports": [{"port": 53, "protocol": "UDP"}]}}, [PORTS],
         [(*PORTS, Item((("port", 53),)), key) for key in ("port", "protocol")]),
    ],
)  # fmt: skip
def test_touched(patch: Json, merge: list[Path], strategic: list[Path]) -> None:
    assert touched(MERGE_PATCH, patch, Schema.BUILT_IN) == merge
    assert touched(f"{STRATEGIC_PATCH}; charset=utf-8", patch, Schema.BUILT_IN) == strategic


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        (("a",), ("a",), True),
        (("a",), ("a", "b"), True),
        (("a", "b"), ("a",), True),
        (("a", "b"), ("a", "c"), False),
        ((), ("a",), True),
        ((*PORTS, Item((("port", 53),))), (*PORTS, DNS), True),
        ((*PORTS, Item((("port", 54),))), (*PORTS, DNS), False),
        (("x", "z"), ("x", "a"), True),
        (("a", "b"), ("a", "b", "c"), True),
        (("a",), (), True),
    ],
)  # fmt: skip
def test_paths_that_meet(one: Path, other: Path, expected: bool) -> None:
    assert meets(tree_of([("x", "y"), one, ("x",)]), other) is expected


def deployment(version: int = 1, /, **spec: Any) -> Json:
    metadata = {"name": "x", "uid": "u", "resourceVersion": str(version)}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata, "spec": spec}


def template(*containers: Json, **fields: Any) -> Json:
    return {"template": {"spec": {"containers": list(containers), **fields}}}


def app(**fields: Any) -> Json:
    return {"name": "app", **fields}


LOG = {"name": "log"}
TWO = deployment(1, replicas=1, **template(app(image="1"), LOG))

BOTH = (MERGE_PATCH, STRATEGIC_PATCH)
DISJOINT: list[tuple[tuple[str, ...], Json, Json]] = [
    (BOTH, deployment(2, replicas=1, **template(app(image="1"), LOG)), {"spec": {"replicas": 3}}),
    (BOTH, deployment(2, replicas=1, **template(app(image="2"), LOG)), {"spec": {"replicas": 3}}),
    (BOTH, deployment(2, replicas=2, **template(app(image="1"), LOG)),
     {"spec": template(app(image="2"))}),
    (BOTH, deployment(2, paused=True, replicas=1, **template(app(image="1"), LOG)),
     {"metadata": {"uid": "u", "labels": {"a": "b"}}}),
    ((STRATEGIC_PATCH,),
     deployment(2, replicas=1, **template(app(image="2"), LOG)),
     {"spec": template({"name": "log", "image": "3"})}),
    ((STRATEGIC_PATCH,), deployment(2, replicas=1, **template(app(image="2"), LOG)),
     {"spec": template(app(tty=True))}),
]  # fmt: skip
OVERLAPPING: list[tuple[tuple[str, ...], Json, Json]] = [
    (BOTH, deployment(2, replicas=2, **template(app(image="1"), LOG)), {"spec": {"replicas": 3}}),
    # Even to the same: the patch may have been meant for the old state.
    (BOTH, deployment(2, replicas=2, **template(app(image="1"), LOG)), {"spec": {"replicas": 2}}),
    (BOTH, deployment(2, replicas=2, **template(app(image="1"), LOG)), {"spec": None}),
    (BOTH, deployment(2, **template(app(image="1"), LOG)), {"spec": {"replicas": 3}}),
    ((MERGE_PATCH,), deployment(2, replicas=1, **template(app(image="2"), LOG)),
     {"spec": template({"name": "log", "image": "3"})}),
    (BOTH, deployment(2, replicas=1, **template(app(image="2"), LOG)),
     {"spec": template(app(image="3"))}),
    (BOTH, deployment(2, replicas=1, **template(app(image="1"))), {"spec": template(LOG)}),
    (BOTH, deployment(2, replicas=1, **template(LOG, app(image="1"))), {"spec": template(LOG)}),
    ((STRATEGIC_PATCH,), deployment(2, replicas=1, **template(app(image="2"), LOG)),
     {"spec": {"template": {"spec": {"$setElementOrder/containers": [{"name": "log"}]}}}}),
]  # fmt: skip


def _stamped(patch: Json, version: str) -> Json:
    metadata = {**patch.get("metadata", {}), "resourceVersion": version}
    return {**patch, "metadata": metadata}


@pytest.mark.parametrize(("content_types", "theirs", "patch"), DISJOINT)
def test_a_patch_of_something_else(
    content_types: tuple[str, ...], theirs: Json, patch: Json
) -> None:
    stamped = _stamped(patch, "1")
    before = copy.deepcopy(stamped)
    for content_type in content_types:
        found = retarget_patch(content_type, stamped, TWO, theirs)
        assert found == _stamped(patch, "2")
        assert stamped == before


@pytest.mark.parametrize(("content_types", "theirs", "patch"), OVERLAPPING)
def test_a_patch_of_the_same(content_types: tuple[str, ...], theirs: Json, patch: Json) -> None:
    for content_type in content_types:
        with pytest.raises(OverlapError) as caught:
            retarget_patch(content_type, _stamped(patch, "1"), TWO, theirs)
        assert caught.value.changes


def test_a_patch_of_another_object() -> None:
    theirs = copy.deepcopy(TWO)
    theirs["metadata"] |= {"uid": "v", "resourceVersion": "2"}
    with pytest.raises(OverlapError) as caught:
        retarget_patch(MERGE_PATCH, _stamped({}, "1"), TWO, theirs)
    assert [change.path for change in caught.value.changes] == [("metadata", "uid")]


@pytest.mark.parametrize(
    "content_type", ["", "application/json", "application/json-patch+json", "application/yaml"]
)
def test_other_patches(content_type: str) -> None:
    with pytest.raises(ValueError, match="is no merge patch"):
        retarget_patch(content_type, {}, TWO, TWO)
