"""Gets of single pods: from the cache, and forwarded."""

from collections.abc import Iterator
from dataclasses import replace

from bench.report import Figure
from bench.rounds import Rounds, cpu_us, p50_ms, rate
from bench.world import World, pod_path

SHARE = 1 / 5
"""The most CPU that a cached get may cost, of kube-apiserver's."""

_SECONDS = 1.0
_VARIANTS = (
    ("get", "", 1),
    ("get, 8 connections", "", 8),
    ("get at resourceVersion=0", "?resourceVersion=0", 1),
    ("get at resourceVersion=0, 8 connections", "?resourceVersion=0", 8),
)


def gets(world: World) -> Iterator[Figure]:
    """CPU and rate of cached gets.

    For a get kube-apiserver asks etcd, whose CPU isn't counted; at resourceVersion=0 it answers
    from memory, as the proxy does.
    """
    for name, query, connections in _VARIANTS:
        targets = [pod_path(key) + query for key in world.pods[:500]]
        rounds = Rounds(world.sides, targets, _SECONDS, connections=connections)
        yield rounds.figure(f"{name}: CPU", "µs", cpu_us, share=SHARE)
        yield rounds.figure(f"{name}: rate", "/s", rate)


def live(world: World) -> Iterator[Figure]:
    """Forwarded gets: the latency that the way through the proxy adds, and its CPU."""
    targets = [pod_path(key) for key in world.pods[:500]]
    rounds = Rounds(world.sides, targets, _SECONDS, headers="Cache-Control: no-cache\r\n")
    latency = rounds.figure("live get: latency p50", "ms", p50_ms)
    yield latency
    added = latency.value - (latency.apiserver or 0)
    yield replace(latency, name="live get: latency added, p50", value=added, apiserver=None)
    yield rounds.figure("live get: CPU of the proxy", "µs", cpu_us)
