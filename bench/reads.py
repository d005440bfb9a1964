"""Gets and lists: CPU and latency at the proxy against kube-apiserver's."""

from collections.abc import Iterator
from statistics import median

from bench.load import Load, run
from bench.report import Figure
from bench.world import World

ROUNDS = 3
"""Rounds of which the median counts; the sides take turns, so that both see the same noise."""


def gets(world: World) -> Iterator[Figure]:
    """A get of a pod: at most a fifth of kube-apiserver's CPU."""
    targets = [_pod(key) for key in world.pods[:500]]
    theirs, ours = _rounds(world, targets, 2.0)
    yield Figure("get: CPU", ours * 1e6, "µs", None, f"kube-apiserver (TLS) {theirs * 1e6:.0f} µs")
    yield Figure("get: CPU, of kube-apiserver's", ours / theirs, "x", 1 / 5)


def live_gets(world: World) -> Iterator[Figure]:
    """A forwarded get: what the way through the proxy adds."""
    targets = [_pod(key) for key in world.pods[:100]]
    direct = run(world.apiserver, targets, 2.0)
    through = run(world.proxy, targets, 2.0, "Cache-Control: no-cache\r\n")
    added = through.percentile(0.5) - direct.percentile(0.5)
    yield Figure("live get: latency added, p50", added * 1e3, "ms")


def lists(world: World) -> Iterator[Figure]:
    """Lists of one namespace and of everything."""
    for name, target in (
        ("of a namespace", f"/api/v1/namespaces/{world.namespace}/pods"),
        ("of everything", "/api/v1/pods"),
    ):
        theirs, ours = _rounds(world, [target], 3.0)
        yield Figure(f"list {name}: CPU, of kube-apiserver's", ours / theirs, "x", 1 / 5)
    load = run(world.proxy, ["/api/v1/pods"], 3.0)
    speed = load.received / sum(load.latencies)
    yield Figure("list of everything", speed / 1e6, "MB/s")


def _rounds(world: World, targets: list[str], seconds: float) -> tuple[float, float]:
    """CPU seconds of a request at each side."""
    loads: list[tuple[Load, Load]] = []
    for _ in range(ROUNDS):
        theirs, ours = (run(side, targets, seconds) for side in world.sides)
        loads.append((theirs, ours))
    return (
        median(theirs.cpu_per_request for theirs, _ in loads),
        median(ours.cpu_per_request for _, ours in loads),
    )


def _pod(key: str) -> str:
    namespace, _, name = key.partition("/")
    return f"/api/v1/namespaces/{namespace}/pods/{name}"
