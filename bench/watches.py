"""Watches: how much later an event comes through the proxy, and what a delivery costs."""

import time
from collections.abc import Iterator, Mapping
from statistics import median

from bench.report import Figure
from bench.rounds import ROUNDS
from bench.watchers import Watchers
from bench.world import Side, World, pod_path
from tests.harness.http import Session
from tests.harness.objects import configmap, create

DELAY = 5.0
"""Milliseconds that the median event may come later than kube-apiserver delivers it."""

EVENTS = 200
"""Events whose delay is measured."""

CROWDS = {0: 100, 1: 100, 50: 100, 500: 40}
"""Watchers, and events that are told to them."""

_PAUSE = 0.01
_DELIVERY = 1e-4
"""Seconds between writes at the least, and for each watcher: the crowd must keep up."""

_SIZE = 11_000

_FROM_NOW = "?watch=1&resourceVersion=0&sendInitialEvents=false&resourceVersionMatch=NotOlderThan"

_MERGE_PATCH = (("Content-Type", "application/merge-patch+json"),)


def delay(world: World) -> Iterator[Figure]:
    """The same event at a direct watch and at one through the proxy, in one process."""
    servers = [side.server for side in world.sides]
    pod = pod_path(world.pods[0])
    target = f"/api/v1/namespaces/{world.namespace}/pods{_FROM_NOW}"
    with Watchers(servers, target, 1) as pair, Session(world.apiserver.server) as session:
        for number in _rhythm(EVENTS, _PAUSE):
            change = {"metadata": {"annotations": {"bench": f"{number}"}}}
            session.ask("PATCH", pod, headers=_MERGE_PATCH, body=change).ok()
        theirs, ours = pair.wait(EVENTS)
    delays = sorted((b - a) * 1e3 for a, b in zip(theirs, ours, strict=True))
    yield Figure("event: later than kube-apiserver's, p50", median(delays), "ms", DELAY)
    yield Figure("event: later than kube-apiserver's, p99", delays[len(delays) * 99 // 100], "ms")


def fanout(world: World) -> Iterator[Figure]:
    """CPU of an event with few watchers, its write included; and of one delivery to many.

    A delivery is what an event costs more than without watchers. So that it stands out at
    kube-apiserver, the events are of a ConfigMap as large as a pod, which is cheap to write, and
    there are few pods: with many, its garbage collector works in bursts of half a second.
    """
    create(world.apiserver.server, _configmaps(world), configmap("bench"))
    rounds = [
        {
            (side, count): _cpu_of_event(world, side, count)
            for count in CROWDS
            for side in world.sides
        }
        for _ in range(ROUNDS)
    ]
    for count in CROWDS:
        several = count > 1
        theirs, ours = (
            median(_cost(costs, side, count) if several else costs[side, count] for costs in rounds)
            for side in world.sides
        )
        name = f"event to {count} watchers{', a delivery' * several}: CPU"
        yield Figure(name, ours * 1e6, "µs", apiserver=theirs * 1e6)


def _cost(costs: Mapping[tuple[Side, int], float], side: Side, count: int) -> float:
    """CPU seconds of one delivery to one of *count* watchers."""
    return (costs[side, count] - costs[side, 0]) / count


def _cpu_of_event(world: World, side: Side, count: int) -> float:
    events = CROWDS[count]
    configmaps = _configmaps(world)
    with Watchers([side.server], configmaps + _FROM_NOW, count) as crowd:
        before = side.cpu()
        with Session(world.apiserver.server) as session:
            for number in _rhythm(events, max(_PAUSE, count * _DELIVERY)):
                changed = configmap("bench", {"text": f"{number}".ljust(_SIZE)})
                session.ask("PUT", f"{configmaps}/bench", body=changed).ok()
        crowd.wait(events)
        return (side.cpu() - before) / events


def _configmaps(world: World) -> str:
    return f"/api/v1/namespaces/{world.namespace}/configmaps"


def _rhythm(count: int, pause: float) -> Iterator[int]:
    """Count in a rhythm that is kept however long each step takes."""
    due = time.monotonic()
    for number in range(count):
        yield number
        due += pause
        time.sleep(max(due - time.monotonic(), 0))
