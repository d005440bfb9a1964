"""Lists whose elements have keys: how elements are named, found and ordered."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.writes.lists import (
    Element,
    Item,
    Member,
    Path,
    Schema,
    by_keys,
    interleave,
    keys_of,
    name_of,
    position,
    same_order,
    schema_of,
)

APP = Item((("name", "app"),))
TCP, UDP = (Item((("containerPort", 53), ("protocol", p))) for p in ("TCP", "UDP"))
TEMPLATE = ("spec", "template", "spec")
JOB = ("spec", "jobTemplate", *TEMPLATE)


@pytest.mark.parametrize(
    ("path", "built_in", "custom"),
    [
        (("spec", "containers"), ("name",), None),
        ((*TEMPLATE, "initContainers"), ("name",), None),
        ((*JOB, "volumes"), ("name",), None),
        ((*TEMPLATE, "containers", APP, "env"), ("name",), None),
        ((*TEMPLATE, "containers", APP, "ports"), ("containerPort", "protocol"), None),
        (("spec", "ports"), ("port", "protocol"), None),
        (("spec", "ingress"), None, None),
        (("ports",), None, None),
        (("spec", "tolerations"), None, None),
        (("status", "containerStatuses"), None, None),
        (("status", "conditions"), ("type",), ("type",)),
        (("metadata", "ownerReferences"), ("uid",), ("uid",)),
        (("metadata", "finalizers"), (), ()),
        (("imagePullSecrets",), ("name",), None),
        ((*TEMPLATE, "imagePullSecrets"), ("name",), None),
        (("webhooks", APP, "matchConditions"), ("name",), None),
        (("spec",), None, None),
        (("spec", "containers", APP), None, None),
        ((), None, None),
    ],
)
def test_keys(path: Path, built_in: tuple[str, ...] | None, custom: tuple[str, ...] | None) -> None:
    assert keys_of(path, Schema.BUILT_IN) == built_in
    assert keys_of(path, Schema.CUSTOM) == custom


@pytest.mark.parametrize(
    ("api_versions", "schema"),
    [
        (["v1"], Schema.BUILT_IN),
        (["apps/v1"], Schema.BUILT_IN),
        (["resource.k8s.io/v1"], Schema.BUILT_IN),
        (["rbac.authorization.k8s.io/v1"], Schema.BUILT_IN),
        (["example.com/v1"], Schema.CUSTOM),
        (["gateway.networking.k8s.io/v1"], Schema.CUSTOM),
        (["apps.example.com/v1"], Schema.CUSTOM),
        ([None, "example.com/v1"], Schema.CUSTOM),
        ([None, "apps/v1"], Schema.BUILT_IN),
        ([None, None], Schema.BUILT_IN),
    ],
)
def test_schemas(api_versions: list[str | None], schema: Schema) -> None:
    objects = [{} if version is None else {"apiVersion": version} for version in api_versions]
    assert schema_of(*objects) is schema


PORT = ("containerPort", "protocol")


@pytest.mark.parametrize(
    ("element", "keys", "name"),
    [
        ({"name": "app", "image": "x"}, ("name",), APP),
        ({"image": "x"}, ("name",), None),
        ({"name": None}, ("name",), None),
        ({"name": {}}, ("name",), None),
        ({"name": True}, ("name",), None),
        ({"name": 1.5}, ("name",), None),
        ("app", ("name",), None),
        ({"containerPort": 53, "protocol": "UDP"}, PORT, UDP),
        ({"containerPort": 53}, PORT, TCP),
        ({"protocol": "UDP"}, PORT, None),
        ({"containerPort": 53, "protocol": []}, PORT, None),
        ({"topologyKey": "zone"}, ("topologyKey", "other"), Item((("topologyKey", "zone"),))),
        ("a", (), Member("a")),
        (1, (), None),
        ({"name": "app"}, (), None),
    ],
)
def test_names(element: Any, keys: tuple[str, ...], name: Element | None) -> None:
    assert name_of(element, keys) == name


def test_an_element_without_a_name_of_its_own() -> None:
    app = {"name": "app"}
    assert by_keys([app], ("name",)) == {APP: app}
    assert by_keys([], ("name",)) == {}
    assert by_keys([app, {"name": "app"}], ("name",)) is None
    assert by_keys([app, {}], ("name",)) is None
    assert by_keys(["a", "b"], ()) == {Member("a"): "a", Member("b"): "b"}
    assert by_keys(["a", "a"], ()) is None


def test_positions() -> None:
    ports = [{"containerPort": 80}, {"containerPort": 53, "protocol": "UDP"}, {"containerPort": 53}]
    assert position(ports, UDP) == 1
    assert position(ports, TCP) == 2
    assert position(ports[:2], TCP) is None
    assert position(["a", "b"], Member("b")) == 1


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        ("", "", ""),
        ("abc", "abc", "abc"),
        ("abc", "", "abc"),
        ("", "abc", "abc"),
        ("abc", "axbyc", "axbyc"),
        ("ac", "xyac", "xyac"),
        ("axc", "ayc", "ayxc"),
        ("ab", "abxy", "abxy"),
    ],
)
def test_joined_orders(first: str, second: str, expected: str) -> None:
    assert "".join(map(str, interleave(first, second))) == expected


_SUBSETS = st.lists(st.integers(0, 9).map(str), unique=True).map(sorted)


@given(_SUBSETS, _SUBSETS)
def test_joining_keeps_both_orders(first: list[str], second: list[str]) -> None:
    joined = interleave(first, second)
    assert set(joined) == {*first, *second}
    assert len(joined) == len(set(joined))
    assert same_order(joined, first)
    assert same_order(joined, second)


def test_orders() -> None:
    assert same_order("abc", "xaybzc")
    assert same_order("abc", "xyz")
    assert not same_order("abc", "ba")
