"""The first sync: how long it takes, what the pods weigh then, and whom it keeps waiting."""

import time
from collections.abc import Iterator

from bench.load import pinging
from bench.process import peak_bytes, resident_bytes
from bench.report import Figure
from bench.world import World, caching, pod_path
from tests.harness.caching import eventually, hit
from tests.harness.http import get, watch
from tests.harness.proxy import Proxy, metrics

PING = "/api/v1/namespaces/default"
"""A cheap cached get, which has nothing to do with pods."""


_CONFIG = {"cache": {**caching("namespaces")["cache"], "on_demand": {"get": 0}}}
"""The gets that wait for the sync must not earn an informer of their own."""


def sync(world: World) -> Iterator[Figure]:
    """A proxy that runs already, until it has all pods; pinged a thousand times a second."""
    with Proxy(world.kubeconfig, config=_CONFIG) as proxy:
        empty = resident_bytes(proxy.process.pid)
        with pinging(proxy.read, PING) as pings:
            seconds = _sync_pods(proxy, world)
        resident = resident_bytes(proxy.process.pid)
        raw = metrics(proxy).total("kubecache_informer_bytes", resource="pods", kind="raw")
        peak = peak_bytes(proxy.process.pid)
    yield Figure(f"first sync of {len(world.pods)} pods", seconds, "s")
    yield Figure("get amid the sync: longest", pings.percentile(1) * 1e3, "ms")
    yield Figure("get amid the sync: p99", pings.percentile(0.99) * 1e3, "ms")
    yield Figure("proxy without pods: RSS", empty / 1e6, "MB")
    yield Figure(f"proxy with {len(world.pods)} pods: RSS", resident / 1e6, "MB")
    yield Figure("the same: highest RSS so far", peak / 1e6, "MB")
    yield Figure("their JSON", raw / 1e6, "MB")
    yield Figure("a pod: memory", (resident - empty) / len(world.pods) / 1e3, "KB")
    yield Figure("a pod: JSON", raw / len(world.pods) / 1e3, "KB")


def _sync_pods(proxy: Proxy, world: World) -> float:
    """Earn an informer by a watch, and wait until it answers; returns the seconds."""
    version = get(world.apiserver.server, "/api/v1/pods?limit=1").version
    started = time.perf_counter()
    with watch(proxy.read, f"/api/v1/pods?watch=1&resourceVersion={version}&timeoutSeconds=60"):
        last = pod_path(world.pods[-1])
        eventually(lambda: hit(proxy.read, last), "the pods are cached", timeout=60)
    return time.perf_counter() - started
