"""Watches: how much later an event comes through the proxy, and what a delivery costs."""

import json
import threading
import time
from collections.abc import Iterator
from statistics import median

from bench.fanout import Fanout
from bench.report import Figure
from bench.world import Side, World
from tests.harness.http import watch
from tests.harness.objects import patch

EVENTS = 200
PAUSE = 0.02
"""Seconds between writes: fifty a second."""


def delay(world: World) -> Iterator[Figure]:
    """An event through the proxy against the same event from kube-apiserver: 5 ms at p50."""
    seen = [_Seen(side, world) for side in world.sides]
    _write(world, EVENTS)
    theirs, ours = (each.finish() for each in seen)
    delays = sorted(ours[version] - theirs[version] for version in theirs)
    yield Figure("event: later than kube-apiserver's, p50", median(delays) * 1e3, "ms", 5.0)
    yield Figure(
        "event: later than kube-apiserver's, p99", delays[len(delays) * 99 // 100] * 1e3, "ms"
    )


class _Seen:
    """Notes when the events of a namespace arrive at one side."""

    def __init__(self, side: Side, world: World) -> None:
        self._times: dict[str, float] = {}
        target = (
            f"/api/v1/namespaces/{world.namespace}/pods?resourceVersion=0&sendInitialEvents=false"
        )
        self._stream = watch(side.server, f"{target}&resourceVersionMatch=NotOlderThan&watch=1")
        self._thread = threading.Thread(target=self._read, name=f"watch {side.name}", daemon=True)
        self._thread.start()

    def _read(self) -> None:
        while len(self._times) < EVENTS:
            line = self._stream.line(30)
            now = time.perf_counter()
            version = json.loads(line)["object"]["metadata"]["resourceVersion"]
            self._times[version] = now

    def finish(self) -> dict[str, float]:
        """Wait for all events; returns the time of each version."""
        self._thread.join(60)
        self._stream.close()
        return self._times


def fanout(world: World) -> Iterator[Figure]:
    """CPU of one delivery to one of many watchers."""
    for watchers in (1, 50, 500):
        costs = {}
        for side in world.sides:
            with Fanout(side.server, _target(world), watchers) as crowd:
                before = side.cpu()
                _write(world, EVENTS)
                crowd.wait(EVENTS)
                idle = side.cpu() - before
            costs[side.name] = idle / (EVENTS * watchers)
        theirs, ours = costs.values()
        note = f"kube-apiserver {theirs * 1e6:.0f} µs, its own write included"
        yield Figure(f"event to {watchers} watchers: CPU each", ours * 1e6, "µs", None, note)


def _target(world: World) -> str:
    return (
        f"/api/v1/namespaces/{world.namespace}/pods?watch=1&resourceVersion=0"
        "&sendInitialEvents=false&resourceVersionMatch=NotOlderThan"
    )


def _write(world: World, count: int) -> None:
    key = next(each for each in world.pods if each.startswith(f"{world.namespace}/"))
    namespace, _, name = key.partition("/")
    target = f"/api/v1/namespaces/{namespace}/pods/{name}"
    for number in range(count):
        patch(
            world.apiserver.server,
            target,
            {"metadata": {"annotations": {"n": f"{time.time()}-{number}"}}},
        )
        time.sleep(PAUSE)
