"""Three-way comparison: what changed, what overlaps, and what is merged."""

from __future__ import annotations

import copy
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.writes.changes import ABSENT, Change, Json, OverlapError, each_change, merge
from proxy.writes.lists import Element, Item, Member, Path, position

APP, LOG = Item((("name", "app"),)), Item((("name", "log"),))


def obj(version: int = 1, /, api_version: str = "v1", **members: Any) -> Json:
    """An object; *metadata* among the members adds to its own."""
    metadata = {
        "name": "x",
        "uid": "u",
        "resourceVersion": str(version),
        "generation": version,
        "managedFields": [{"manager": f"m{version}"}],
        **members.pop("metadata", {}),
    }
    return {"apiVersion": api_version, "kind": "Any", "metadata": metadata, **members}


def spec(version: int = 1, /, **fields: Any) -> Json:
    return obj(version, spec=fields)


def container(name: str, **fields: Any) -> Json:
    return {"name": name, **fields}


def containers(*named: Json, version: int = 1) -> Json:
    return spec(version, containers=list(named))


def finalizers(*names: str) -> Json:
    return obj(metadata={"finalizers": list(names)})


@pytest.mark.parametrize(
    ("base", "other", "expected"),
    [
        (spec(1, a=1), spec(2, a=1), []),
        (spec(a=1), spec(a=2), [(("spec", "a"), 1, 2)]),
        (spec(a=1), spec(a=True), [(("spec", "a"), 1, True)]),
        (spec(a=[1]), spec(a=[True]), [(("spec", "a"), [1], [True])]),
        (spec(a=1), spec(), [(("spec", "a"), 1, ABSENT)]),
        (spec(), spec(a=None), [(("spec", "a"), ABSENT, None)]),
        (spec(), spec(a={"b": 1, "c": 2}), [(("spec", "a", "b"), ABSENT, 1),
                                            (("spec", "a", "c"), ABSENT, 2)]),
        (spec(), spec(a={}), [(("spec", "a"), ABSENT, {})]),
        (spec(a={}), spec(), [(("spec", "a"), {}, ABSENT)]),
        (spec(a={"b": 1}), spec(), [(("spec", "a"), {"b": 1}, ABSENT)]),
        (spec(a={"b": 1}), spec(a=[1]), [(("spec", "a"), {"b": 1}, [1])]),
        (spec(a={"x": 1, "y": 2}), spec(a={"y": 2, "x": 1}), []),
        (spec(a=[{"x": 1, "y": 2}]), spec(a=[{"y": 2, "x": 1}]), []),
        # A list of which nothing is known is one value.
        (spec(a=[1, 2]), spec(a=[1, 3]), [(("spec", "a"), [1, 2], [1, 3])]),
        # Elements with keys.
        (containers(container("app", image="1")), containers(container("app", image="2")),
         [(("spec", "containers", APP, "image"), "1", "2")]),
        (containers(container("app")), containers(container("log", a=1), container("app")),
         [(("spec", "containers", LOG), ABSENT, container("log", a=1))]),
        (containers(container("app"), container("log")), containers(container("app")),
         [(("spec", "containers", LOG), container("log"), ABSENT)]),
        (spec(), containers(container("app")),
         [(("spec", "containers", APP), ABSENT, container("app"))]),
        # Another order is another list, and so is one whose keys repeat or lack.
        (containers(container("app"), container("log")),
         containers(container("log"), container("app")),
         [(("spec", "containers"), [container("app"), container("log")],
           [container("log"), container("app")])]),
        (containers({}), containers({"a": 1}), [(("spec", "containers"), [{}], [{"a": 1}])]),
        (containers(container("app"), container("app")), containers(container("app")),
         [(("spec", "containers"), [container("app")] * 2, [container("app")])]),
        (obj(api_version="example.com/v1", spec={"containers": [container("app", a=1)]}),
         obj(api_version="example.com/v1", spec={"containers": [container("app", a=2)]}),
         [(("spec", "containers"), [container("app", a=1)], [container("app", a=2)])]),
        # Sets, and maps that may be left out.
        (finalizers("a", "b"), finalizers("b", "c"),
         [(("metadata", "finalizers", Member("a")), "a", ABSENT),
          (("metadata", "finalizers", Member("c")), ABSENT, "c")]),
        (finalizers("a"), obj(), [(("metadata", "finalizers", Member("a")), "a", ABSENT)]),
        (finalizers(), obj(), []),
        (obj(metadata={"labels": {"a": "1"}}), obj(),
         [(("metadata", "labels", "a"), "1", ABSENT)]),
        (obj(metadata={"labels": {}}), obj(), []),
        (obj(metadata={"labels": None}), obj(metadata={"labels": {"a": "1"}}),
         [(("metadata", "labels"), None, {"a": "1"})]),
        # Items of lists have no type.
        ({"metadata": {"name": "x"}}, {"apiVersion": "v1", "kind": "Pod",
                                       "metadata": {"name": "x"}}, []),
    ],
)  # fmt: skip
def test_changes(base: Json, other: Json, expected: list[tuple[Path, Any, Any]]) -> None:
    assert list(each_change(base, other)) == [Change(*change) for change in expected]


def test_what_is_deep_is_compared_whole() -> None:
    def deep(value: int) -> Any:
        nested: Any = value
        for _ in range(200):
            nested = {"a": nested}
        return nested

    [change] = each_change({"spec": deep(1)}, {"spec": deep(2)})
    assert len(change.path) == 65


MERGES: list[tuple[str, Json, Json, Json, Json]] = [
    ("nothing", spec(a=1), spec(2, a=1), spec(a=1), spec(2, a=1)),
    ("theirs", spec(a=1), spec(2, a=2), spec(a=1), spec(2, a=2)),
    ("mine", spec(a=1), spec(2, a=1), spec(a=2), spec(2, a=2)),
    ("both", spec(a=1, b=1), spec(2, a=2, b=1), spec(a=1, b=2), spec(2, a=2, b=2)),
    ("added", spec(), spec(2, a=1), spec(b=1), spec(2, a=1, b=1)),
    ("added within", spec(), spec(2, m={"a": 1}), spec(m={"b": 1}), spec(2, m={"a": 1, "b": 1})),
    ("removed", spec(a=1, b=1), spec(2, b=1), spec(a=1), spec(2)),
    ("true is not 1", spec(a=1), spec(2, a=1), spec(a=True), spec(2, a=True)),
    (
        "fields of one container, and containers",
        containers(container("app", image="1")),
        containers(container("app", image="2"), container("log"), version=2),
        containers(container("init"), container("app", image="1", tty=True)),
        containers(
            container("init"), container("app", image="2", tty=True), container("log"), version=2
        ),
    ),
    (
        "a container goes and one comes",
        containers(container("app"), container("log")),
        containers(container("app"), version=2),
        containers(container("app"), container("log"), container("new")),
        containers(container("app"), container("new"), version=2),
    ),
    (
        "the last finalizer goes and one comes",
        finalizers("a"),
        obj(2),
        finalizers("a", "b"),
        obj(2, metadata={"finalizers": ["b"]}),
    ),
    (
        "the last label goes and one comes",
        obj(metadata={"labels": {"a": "1"}}),
        obj(2),
        obj(metadata={"labels": {"a": "1", "b": "2"}}),
        obj(2, metadata={"labels": {"b": "2"}}),
    ),
    (
        "ports by number and protocol",
        spec(ports=[{"port": 53, "name": "tcp"}, {"port": 53, "protocol": "UDP"}]),
        spec(2, ports=[{"port": 53, "name": "new"}, {"port": 53, "protocol": "UDP"}]),
        spec(ports=[{"port": 53, "name": "tcp"}, {"port": 53, "protocol": "UDP", "name": "udp"}]),
        spec(
            2,
            ports=[{"port": 53, "name": "new"}, {"port": 53, "protocol": "UDP", "name": "udp"}],
        ),
    ),
]


@pytest.mark.parametrize(("base", "theirs", "mine", "merged"), [m[1:] for m in MERGES],
                         ids=[m[0] for m in MERGES])  # fmt: skip
def test_merges(base: Json, theirs: Json, mine: Json, merged: Json) -> None:
    before = copy.deepcopy((base, theirs, mine))
    assert merge(base, theirs, mine) == merged
    assert (base, theirs, mine) == before


OVERLAPS: list[tuple[str, Json, Json, Json, list[tuple[Path, Any, Any]]]] = [
    ("a value", spec(a=1), spec(a=2), spec(a=3), [(("spec", "a"), 1, 2)]),
    ("both counted up", spec(a=1), spec(a=2), spec(a=2), [(("spec", "a"), 1, 2)]),
    ("both added", spec(), spec(a=2), spec(a=3), [(("spec", "a"), ABSENT, 2)]),
    ("both added the same", spec(), spec(a={"b": 2}), spec(a={"b": 2}),
     [(("spec", "a", "b"), ABSENT, 2)]),
    ("both removed", spec(a=1), spec(), spec(), [(("spec", "a"), 1, ABSENT)]),
    ("theirs removed", spec(a=1), spec(), spec(a=3), [(("spec", "a"), 1, ABSENT)]),
    ("mine removed", spec(a=1), spec(a=2), spec(), [(("spec", "a"), 1, 2)]),
    ("mine removed above", spec(a={"b": 1}), spec(a={"b": 2}), spec(),
     [(("spec", "a", "b"), 1, 2)]),
    ("theirs removed above", spec(a={"b": 1}), spec(), spec(a={"b": 2}),
     [(("spec", "a"), {"b": 1}, ABSENT)]),
    ("two of three", spec(a=1, b=1, c=1), spec(a=2, b=2, c=2), spec(a=3, b=3, c=1),
     [(("spec", "a"), 1, 2), (("spec", "b"), 1, 2)]),
    ("a list", spec(a=[1]), spec(a=[1, 2]), spec(a=[1, 3]), [(("spec", "a"), [1], [1, 2])]),
    ("one element", containers(container("app", image="1")),
     containers(container("app", image="2")), containers(container("app", image="3")),
     [(("spec", "containers", APP, "image"), "1", "2")]),
    ("theirs removed an element", containers(container("app")), containers(),
     containers(container("app", tty=True)),
     [(("spec", "containers", APP), container("app"), ABSENT)]),
    ("both added an element", containers(), containers(container("app", a=1)),
     containers(container("app", b=1)),
     [(("spec", "containers", APP), ABSENT, container("app", a=1))]),
    ("another order", containers(container("app"), container("log")),
     containers(container("app", a=1), container("log")),
     containers(container("log"), container("app")),
     [(("spec", "containers", APP, "a"), ABSENT, 1)]),
    ("another object", obj(), obj(metadata={"uid": "v"}), obj(),
     [(("metadata", "uid"), "u", "v")]),
    ("an object that is another to me", obj(metadata={"uid": ""}), obj(metadata={"uid": "v"}),
     obj(), [(("metadata", "uid"), "u", "v")]),
    ("no metadata", obj(1), obj(2), {"spec": {}}, []),
]  # fmt: skip


@pytest.mark.parametrize(("base", "theirs", "mine", "expected"), [o[1:] for o in OVERLAPS],
                         ids=[o[0] for o in OVERLAPS])  # fmt: skip
def test_overlaps(
    base: Json, theirs: Json, mine: Json, expected: list[tuple[Path, Any, Any]]
) -> None:
    with pytest.raises(OverlapError) as caught:
        merge(base, theirs, mine)
    if expected:
        assert caught.value.changes == [Change(*change) for change in expected]
    assert caught.value.changes
    assert repr(caught.value) == f"OverlapError({str(caught.value)!r})"  # no values in logs


def test_mine_without_uid_is_the_same_object() -> None:
    mine = spec(a=2)
    base = spec(a=1)
    del mine["metadata"]["uid"], base["metadata"]["uid"]
    assert merge(base, spec(2, a=1), mine)["spec"] == {"a": 2}


def test_items_of_lists_get_the_type_of_mine() -> None:
    base, theirs = ({"metadata": {"resourceVersion": v}, "spec": {}} for v in "12")
    mine = {"apiVersion": "v1", "kind": "Pod", **base, "spec": {"a": 1}}
    merged = merge(base, theirs, mine)
    assert merged == {**mine, "metadata": {"resourceVersion": "2"}}


def test_a_type_that_only_the_base_lacks_nobody_has_changed() -> None:
    """Of a base that was in a list."""
    base = spec(a=1, b=1)
    del base["apiVersion"], base["kind"]
    merged = merge(base, spec(2, a=2, b=1), spec(a=1, b=2))
    assert merged == spec(2, a=2, b=2)


# Random objects: built-in lists and maps, atomic lists, and structs.
_SCALARS = st.sampled_from([0, 1, True, "a", None])
_ENV = st.lists(
    st.fixed_dictionaries({"name": st.sampled_from("abc")}, optional={"value": _SCALARS}),
    min_size=1,
    max_size=3,
    unique_by=lambda element: element["name"],
)
_CONTAINERS = st.lists(
    st.fixed_dictionaries(
        {"name": st.sampled_from("xyz")}, optional={"image": _SCALARS, "env": _ENV}
    ),
    min_size=1,
    max_size=3,
)
_SPECS = st.fixed_dictionaries(
    {},
    optional={
        "replicas": _SCALARS,
        "containers": _CONTAINERS,
        "args": st.lists(_SCALARS, max_size=2),
        "strategy": st.dictionaries(st.sampled_from("abc"), _SCALARS, max_size=2),
    },
)
_FIELDS = ("replicas", "containers", "args", "strategy")
_LABELS = st.dictionaries(st.sampled_from("abc"), st.sampled_from("12"), min_size=1, max_size=2)
_FINALIZERS = st.lists(st.sampled_from("abc"), unique=True, min_size=1, max_size=3)


@st.composite
def _objects(draw: st.DrawFn) -> Json:
    made = obj(metadata={"labels": draw(_LABELS), "finalizers": draw(_FINALIZERS)})
    return {**made, "spec": draw(_SPECS)}


@st.composite
def _histories(draw: st.DrawFn) -> tuple[Json, Json, Json]:
    """A base, and two states that have much in common with it."""
    base = draw(_objects())
    return base, draw(_edits(base)), draw(_edits(base))


@st.composite
def _edits(draw: st.DrawFn, base: Json) -> Json:
    other = draw(_objects())
    kept = draw(st.sets(st.sampled_from(_FIELDS)))
    fields = (base["spec"] if name in kept else other["spec"] for name in _FIELDS)
    spec = {n: f[n] for n, f in zip(_FIELDS, fields, strict=True) if n in f}
    source = base if draw(st.booleans()) else other
    return {**base, "metadata": source["metadata"], "spec": spec}


def _at(found: Any, path: Path) -> Any:
    for element in path:
        found = _child(found, element)
    return found


def _child(found: Any, element: Element) -> Any:
    if isinstance(element, str):
        return found.get(element, ABSENT) if isinstance(found, dict) else ABSENT
    place = position(found, element) if isinstance(found, list) else None
    return ABSENT if place is None else found[place]


def _sorted(found: Any) -> Any:
    """Without the order of lists, which two that both add elements may settle either way."""
    if isinstance(found, dict):
        return {key: _sorted(value) for key, value in found.items()}
    if isinstance(found, list):
        return sorted(map(_sorted, found), key=repr)
    return found


def _encoded(found: Any) -> bytes:
    """For comparisons in which true is not 1."""
    if found is ABSENT:
        return b""
    return msgspec.json.encode(_sorted(found), order="deterministic")


@given(_objects(), _objects())
def test_one_side_alone(base: Json, other: Json) -> None:
    for merged in (merge(base, base, other), merge(base, other, base)):
        assert _encoded(merged) == _encoded(other)
    one, two = (msgspec.json.encode(found, order="deterministic") for found in (base, other))
    assert (not list(each_change(base, other))) == (one == two)


@given(_objects(), _objects())
def test_what_both_have_changed_is_no_ones(base: Json, other: Json) -> None:
    if all(change.old is ABSENT and change.new == {} for change in each_change(base, other)):
        assert _encoded(merge(base, other, other)) == _encoded(other)
    else:
        with pytest.raises(OverlapError):
            merge(base, other, other)


def _assert_kept(change: Change, merged: Json) -> None:
    found = _at(merged, change.path)
    if change.old is ABSENT and change.new == {}:  # the other side may have put something in
        assert isinstance(found, dict)
    else:
        assert _encoded(found) == _encoded(change.new)


@given(_histories())
def test_no_change_is_lost(history: tuple[Json, Json, Json]) -> None:
    base, theirs, mine = history
    wanted = [*each_change(base, theirs), *each_change(base, mine)]
    try:
        merged = merge(base, theirs, mine)
    except OverlapError:
        return
    for change in wanted:
        _assert_kept(change, merged)
    mirrored = merge(base, mine, theirs)
    assert _encoded(mirrored) == _encoded(merged)


@given(_objects(), _SCALARS, _SCALARS)
def test_disjoint_changes_merge(base: Json, one: Any, other: Any) -> None:
    theirs, mine = copy.deepcopy(base), copy.deepcopy(base)
    theirs["spec"]["theirs"] = one
    mine["spec"]["mine"] = other
    merged = merge(base, theirs, mine)
    assert merged["spec"] == {**base["spec"], "theirs": one, "mine": other}


_VALUES = st.recursive(
    st.one_of(st.integers(0, 3), st.booleans(), st.none(), st.sampled_from("xy")),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.sampled_from("abc"), inner, max_size=3)
    ),
    max_leaves=8,
)
_ANY = st.dictionaries(st.sampled_from("abcd"), _VALUES, max_size=4)


def _without_metadata(found: Json) -> Json:
    return {key: value for key, value in found.items() if key != "metadata"}


@given(_ANY, _ANY, _ANY)
def test_either_side_may_be_mine(base: Json, theirs: Json, mine: Json) -> None:
    """Objects of any shape merge either way to the same, or not at all, and stay as they are."""
    before = copy.deepcopy((base, theirs, mine))
    try:
        merged = _without_metadata(merge(base, theirs, mine))
    except OverlapError:
        with pytest.raises(OverlapError):
            merge(base, mine, theirs)
    else:
        assert _without_metadata(merge(base, mine, theirs)) == merged
        for change in (*each_change(base, theirs), *each_change(base, mine)):
            _assert_kept(change, merged)
    assert (base, theirs, mine) == before
