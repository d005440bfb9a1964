"""How long a cheap get waits while the proxy does something big: the event loop's pauses."""

import time
from collections.abc import Callable, Iterator
from statistics import median

from bench.load import pinging, run
from bench.report import Figure
from bench.rounds import ROUNDS
from bench.sync import PING
from bench.world import World
from tests.harness.http import ask

_SECONDS = 2.0


def pings(world: World) -> Iterator[Figure]:
    """Pings a thousand times a second: at rest, which shows the machine's own noise, and amid work.

    Of a few rounds the median of each round's longest counts.
    """
    for name, work in (
        ("at rest", lambda: time.sleep(_SECONDS)),
        ("amid lists of everything", lambda: run(world.proxy, ["/api/v1/pods"], _SECONDS)),
        ("amid a relist", lambda: _relist(world)),
    ):
        longest, p99 = zip(*(_round(world, work) for _ in range(ROUNDS)), strict=True)
        yield Figure(f"get {name}: longest", median(longest) * 1e3, "ms")
        yield Figure(f"get {name}: p99", median(p99) * 1e3, "ms")


def _round(world: World, work: Callable[[], object]) -> tuple[float, float]:
    with pinging(world.proxy.server, PING) as seen:
        work()
    return seen.percentile(1), seen.percentile(0.99)


def _relist(world: World) -> None:
    ask(world.admin, "POST", "/informers/pods.v1/relist").ok()
    time.sleep(_SECONDS)
