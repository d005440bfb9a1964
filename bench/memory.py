"""Memory and the start: what the pods weigh in the proxy, and how soon they are there."""

from collections.abc import Iterator

from bench.process import resident_bytes
from bench.report import Figure
from bench.world import World
from tests.harness.http import get
from tests.harness.proxy import parse_metrics


def memory(world: World) -> Iterator[Figure]:
    """Bytes in RAM, against those of the JSON, and the time of the first sync."""
    metrics = parse_metrics(get(world.admin, "/metrics").body.decode())
    raw = metrics.total("kubecache_informer_bytes", resource="pods") / len(world.pods)
    resident = (resident_bytes(world.proxy.pid) - world.empty_bytes) / len(world.pods)
    yield Figure("pod: JSON", raw / 1e3, "KB")
    yield Figure("pod: memory in the proxy", resident / 1e3, "KB")
    yield Figure("first sync, with the start of the process", world.sync_seconds, "s")


def pauses(world: World) -> Iterator[Figure]:
    """The share of the event loop's beats that were later than 10 ms, since the start."""
    metrics = parse_metrics(get(world.admin, "/metrics").body.decode())
    name = "kubecache_event_loop_pause_seconds"
    beats = metrics.total(f"{name}_count")
    early = metrics.total(f"{name}_bucket", le="0.01")
    yield Figure("event loop: beats later than 10 ms", (beats - early), f"of {beats:.0f}")
