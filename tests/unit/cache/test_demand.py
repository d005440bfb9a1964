"""Which reads earn an informer."""

from __future__ import annotations

import pytest

from proxy.cache.demand import MAX_NAME, MAX_SCOPES, WINDOW, Demand
from proxy.cache.scope import Scope
from proxy.kube.requests import Verb
from proxy.kube.resources import Resource
from tests.unit.builders import Clock

PODS = Resource("", "v1", "pods")
THRESHOLDS = {Verb.WATCH: 1, Verb.LIST: 2, Verb.GET: 10}


def demand(clock: Clock | None = None, thresholds: dict[str, int] | None = None) -> Demand:
    changed = {Verb(name): count for name, count in (thresholds or {}).items()}
    return Demand(THRESHOLDS | changed, clock or Clock())


@pytest.mark.parametrize(
    ("thresholds", "reads", "earned"),
    [
        ({}, ["watch"], 1),
        ({}, ["list", "list"], 2),
        ({}, ["get"] * 10, 10),
        ({}, ["list"], 0),
        ({}, ["get"] * 9, 0),
        ({}, ["get"] * 9 + ["list"], 0),  # kinds are not added up
        ({}, ["get", "list", "get", "list"], 4),
        ({"get": 1}, ["get"], 1),
        ({"watch": 0}, ["watch"] * 50, 0),
        ({"get": 0, "list": 0}, ["get", "list"] * 50, 0),
        ({"watch": 3}, ["watch", "watch", "watch"], 3),
    ],
)
def test_the_read_that_earns_it(thresholds: dict[str, int], reads: list[str], earned: int) -> None:
    counted = demand(thresholds=thresholds)
    earning = [counted.earns(Scope(PODS), Verb(read)) for read in reads]
    assert earning == [number == earned for number in range(1, len(reads) + 1)]


@pytest.mark.parametrize(("gap", "earned"), [(0.0, True), (WINDOW, True), (WINDOW + 0.1, False)])
def test_only_reads_within_a_minute_count_together(gap: float, earned: bool) -> None:
    clock = Clock()
    counted = demand(clock)
    counted.earns(Scope(PODS), Verb.LIST)
    clock.advance(gap)
    assert counted.earns(Scope(PODS), Verb.LIST) is earned


def test_the_window_slides() -> None:
    clock = Clock()
    counted = demand(clock)
    for _ in range(3):
        assert not counted.earns(Scope(PODS), Verb.LIST)
        clock.advance(WINDOW + 1)
    counted.earns(Scope(PODS), Verb.LIST)
    clock.advance(WINDOW - 1)
    assert counted.earns(Scope(PODS), Verb.LIST)


def test_scopes_are_counted_apart() -> None:
    counted = demand()
    scopes = [Scope(PODS), Scope(PODS, "a"), Scope(PODS, "b"), Scope(Resource("", "v1", "nodes"))]
    assert not any(counted.earns(scope, Verb.LIST) for scope in scopes)
    assert all(counted.earns(scope, Verb.LIST) for scope in scopes)


def test_a_scope_that_is_forgotten_starts_anew() -> None:
    counted = demand()
    counted.earns(Scope(PODS), Verb.LIST)
    counted.earns(Scope(PODS, "a"), Verb.LIST)
    counted.forget(Scope(PODS))
    counted.forget(Scope(PODS, "never seen"))
    assert not counted.earns(Scope(PODS), Verb.LIST)
    assert counted.earns(Scope(PODS, "a"), Verb.LIST)


def test_a_sweep_over_scopes_pushes_out_those_that_are_not_read() -> None:
    counted = demand(thresholds={"list": 3})
    quiet, busy = Scope(PODS, "quiet"), Scope(PODS, "busy")
    counted.earns(quiet, Verb.LIST)
    counted.earns(quiet, Verb.LIST)
    counted.earns(busy, Verb.LIST)
    for number in range(MAX_SCOPES - 1):
        counted.earns(Scope(PODS, f"n{number}"), Verb.LIST)
        if number == 0:
            counted.earns(busy, Verb.LIST)
    assert not counted.earns(quiet, Verb.LIST), "its two reads are forgotten"
    assert counted.earns(busy, Verb.LIST)


@pytest.mark.parametrize("name", ["n" * MAX_NAME, "n" * (MAX_NAME + 1)])
def test_what_no_name_can_be_is_not_remembered(name: str) -> None:
    scopes = [Scope(PODS, name), *(Scope(PODS._replace(**{part: name})) for part in PODS._fields)]
    for scope in scopes:
        counted = Demand(THRESHOLDS, Clock())
        assert counted.earns(scope, Verb.WATCH) is (len(name) == MAX_NAME)
