"""Lists of all pods and of one namespace: CPU, time and speed on one connection."""

from collections.abc import Iterator

from bench.gets import SHARE
from bench.report import Figure
from bench.rounds import Rounds, cpu_ms, speed, wall_ms
from bench.world import World


def lists(world: World) -> Iterator[Figure]:
    """Lists as kubectl asks for them, without gzip."""
    for name, target in (
        ("list of a namespace", f"/api/v1/namespaces/{world.namespace}/pods"),
        ("list of everything", "/api/v1/pods"),
    ):
        rounds = Rounds(world.sides, [target], 2.0)
        yield rounds.figure(f"{name}: CPU", "ms", cpu_ms, share=SHARE)
        yield rounds.figure(f"{name}: time", "ms", wall_ms)
        yield rounds.figure(f"{name}: speed", "MB/s", speed)
