"""Three-way comparison: what changed, what overlaps, and what is merged."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.writes.changes import ABSENT, OverlapError, changes, merge, retarget_patch
from proxy.writes.lists import Item, Member
from proxy.writes.patches import MERGE_PATCH, STRATEGIC_PATCH

Object = dict[str, Any]


def named(**fields: str) -> Item:
    return Item(tuple(fields.items()))


def container(name: str, image: str = "i", **more: Any) -> Object:
    return {"name": name, "image": image, **more}


def pod(*containers: Object, version: str = "1", **metadata: Any) -> Object:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "x", "resourceVersion": version, **metadata},
        "spec": {"containers": list(containers)},
    }


APP, SIDE = container("app"), container("side")
A = named(name="app")


@pytest.mark.parametrize(
    ("base", "other", "found"),
    [
        ({"a": 1}, {"a": 1}, []),
        ({"a": 1}, {"a": 2}, [(("a",), 1, 2)]),
        ({"a": 1}, {}, [(("a",), 1, ABSENT)]),
        ({}, {"a": None}, [(("a",), ABSENT, None)]),
        ({"a": 1}, {"a": True}, [(("a",), 1, True)]),
        ({"a": {"b": 1, "c": 2}}, {"a": {"b": 1, "c": 3}}, [(("a", "c"), 2, 3)]),
        ({"a": {"b": 1}}, {"a": [1]}, [(("a",), {"b": 1}, [1])]),
        ({"a": [1, 2]}, {"a": [1, 3]}, [(("a",), [1, 2], [1, 3])]),
        # What the API server writes at each change is none.
        (pod(version="1", generation=1), pod(version="2", generation=2), []),
        (pod(managedFields=[1]), pod(managedFields=[2]), []),
        # Elements of a list are told apart by its key, wherever they stand.
        (
            pod(APP, SIDE),
            pod(container("app", "j"), SIDE),
            [(("spec", "containers", A, "image"), "i", "j")],
        ),
        (pod(APP), pod(APP, SIDE), [(("spec", "containers", named(name="side")), ABSENT, SIDE)]),
        (pod(APP, APP), pod(APP), [(("spec", "containers"), [APP, APP], [APP])]),
        (
            pod(finalizers=["a/b"]),
            pod(finalizers=["a/b", "c/d"]),
            [(("metadata", "finalizers", Member("c/d")), ABSENT, "c/d")],
        ),
    ],
)
def test_the_smallest_changes(base: Object, other: Object, found: list[Any]) -> None:
    assert [tuple(change) for change in changes(base, other)] == found


MERGED = [
    ({"a": 1, "b": 1}, {"a": 2, "b": 1}, {"a": 1, "b": 2}, {"a": 2, "b": 2}),
    ({"a": 1, "b": 1}, {"b": 1}, {"a": 1, "b": 2}, {"b": 2}),
    ({"a": 1}, {"a": 2}, {"a": 2}, {"a": 2}),
    ({}, {"a": {"b": 1}}, {"a": {"b": 1}, "c": 1}, {"a": {"b": 1}, "c": 1}),
]


@pytest.mark.parametrize(("base", "theirs", "mine", "merged"), MERGED)
def test_changes_of_different_fields_are_merged(
    base: Object, theirs: Object, mine: Object, merged: Object
) -> None:
    found = merge(base, theirs, mine)
    found.pop("metadata")
    assert found == merged


def test_containers_are_merged_by_their_names() -> None:
    theirs = pod(container("app", "j"), SIDE, container("more"), version="7")
    mine = pod(APP, container("side", env=[{"name": "A", "value": "1"}]), version="3")
    found = merge(pod(APP, SIDE, version="3"), theirs, mine)
    assert found == pod(
        container("app", "j"),
        container("side", env=[{"name": "A", "value": "1"}]),
        container("more"),
        version="7",
    )


@pytest.mark.parametrize(
    ("base", "theirs", "mine"),
    [
        ({"a": 1}, {"a": 2}, {"a": 3}),
        ({"a": 1}, {}, {"a": 3}),
        ({"a": {"b": 1}}, {"a": {"b": 2}}, {}),
        ({"a": {"b": 1}}, {}, {"a": {"b": 2}}),
        ({"a": [1]}, {"a": [1, 2]}, {"a": [0, 1]}),
        (pod(APP), pod(container("app", "j")), pod(container("app", "k"))),
        (pod(APP), pod(), pod(container("app", "k"))),
        (pod(APP, uid="1"), pod(APP, uid="2"), pod(APP, uid="1")),
    ],
)
def test_changes_of_the_same_fields_overlap(base: Object, theirs: Object, mine: Object) -> None:
    with pytest.raises(OverlapError) as caught:
        merge(base, theirs, mine)
    assert caught.value.changes
    for change in caught.value.changes:
        assert change in changes(base, theirs) or change.path == ("metadata", "uid")


def test_versions_and_managers_are_theirs() -> None:
    theirs = pod(version="7", managedFields=[{"manager": "b"}], generation=4)
    mine = pod(version="3", managedFields=[], generation=3, labels={"a": "b"})
    metadata = merge(pod(version="3", managedFields=[], generation=3), theirs, mine)["metadata"]
    assert metadata == {**theirs["metadata"], "labels": {"a": "b"}}


values = st.recursive(
    st.one_of(st.integers(0, 3), st.booleans(), st.none(), st.sampled_from("xy")),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.sampled_from("abc"), inner, max_size=3)
    ),
    max_leaves=8,
)
objects = st.dictionaries(st.sampled_from("abcd"), values, max_size=4)


def without_metadata(found: Object) -> Object:
    return {key: value for key, value in found.items() if key != "metadata"}


@given(objects, objects)
def test_who_changes_nothing_gets_theirs_and_who_alone_changes_gets_his(
    base: Object, changed: Object
) -> None:
    assert without_metadata(merge(base, base, changed)) == changed
    assert without_metadata(merge(base, changed, base)) == changed
    assert without_metadata(merge(base, changed, changed)) == changed


@given(objects, objects, objects)
def test_no_change_is_lost(base: Object, theirs: Object, mine: Object) -> None:
    """What merges, merges either way to the same, and nothing was changed on the way."""
    before = copy.deepcopy((base, theirs, mine))
    try:
        merged = without_metadata(merge(base, theirs, mine))
    except OverlapError:
        with pytest.raises(OverlapError):
            merge(base, mine, theirs)
    else:
        assert without_metadata(merge(base, mine, theirs)) == merged
        for change in (*changes(base, theirs), *changes(base, mine)):
            assert _at(merged, change.path) == change.new
    assert (base, theirs, mine) == before


def _at(found: Any, path: tuple[Any, ...]) -> Any:
    for step in path:
        if not isinstance(found, dict) or step not in found:
            return ABSENT
        found = found[step]
    return found


BASE, THEIRS = pod(APP, SIDE, version="3"), pod(container("app", "j"), SIDE, version="7")


@pytest.mark.parametrize(
    ("media_type", "patch", "overlaps"),
    [
        (MERGE_PATCH, {"metadata": {"labels": {"a": "b"}}}, False),
        (MERGE_PATCH, {"spec": {"nodeName": "n"}}, False),
        (MERGE_PATCH, {"spec": {"containers": [SIDE]}}, True),
        (MERGE_PATCH, {"spec": None}, True),
        (STRATEGIC_PATCH, {"spec": {"containers": [container("side", "k")]}}, False),
        (STRATEGIC_PATCH, {"spec": {"containers": [container("app", "k")]}}, True),
        (STRATEGIC_PATCH, {"spec": {"containers": [{"name": "app", "tty": True}]}}, False),
        (STRATEGIC_PATCH, {"spec": {"containers": [{"$patch": "replace"}, SIDE]}}, True),
        (STRATEGIC_PATCH, {"spec": {"$setElementOrder/containers": [{"name": "side"}]}}, True),
        (STRATEGIC_PATCH, {"spec": {"$patch": "delete"}}, True),
    ],
)
def test_patches(media_type: str, patch: Object, *, overlaps: bool) -> None:
    """They are sent as they are, with another version, unless they touch what has changed."""
    patch = {**patch, "metadata": {**patch.get("metadata", {}), "resourceVersion": "3"}}
    if overlaps:
        with pytest.raises(OverlapError):
            retarget_patch(media_type, patch, BASE, THEIRS)
    else:
        wanted = {**patch, "metadata": {**patch["metadata"], "resourceVersion": "7"}}
        assert retarget_patch(media_type, patch, BASE, THEIRS) == wanted
