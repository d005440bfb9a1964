"""Conflicts that the proxy is sure of: what their answers cost, here and at the API server."""

import time
from collections.abc import Iterator
from statistics import median

from bench.report import Figure
from bench.world import Side, World, caching
from tests.harness.caching import caught_up
from tests.harness.http import Server, Session, get
from tests.harness.objects import Object, configmap, create, patch
from tests.harness.proxy import Proxy, parse_metrics

_WRITES = 200


def conflicts(world: World) -> Iterator[Figure]:
    """Updates of a version that is no longer: latency, and requests that reach kube-apiserver.

    From an informer that has in its history what the client read, and from one that just listed.
    """
    configmaps = f"/api/v1/namespaces/{world.namespace}/configmaps"
    old = create(world.apiserver.server, configmaps, configmap("conflicts"))
    target = f"{configmaps}/conflicts"
    new = patch(world.apiserver.server, target, {"data": {"a": "b"}})
    caught_up(world.proxy.server, configmaps, new["metadata"]["resourceVersion"])
    (_, theirs), (requests, ours) = (_refused(world, side, target, old) for side in world.sides)
    yield Figure("requests upstream per local 409", requests, "", 0)
    yield Figure("local 409: latency p50", ours * 1e3, "ms", apiserver=theirs * 1e3)
    with Proxy(world.kubeconfig, config=caching("configmaps")) as proxy:
        side = Side("just listed", proxy.read, proxy.process.pid)
        requests, ours = _refused(world, side, target, old)
    yield Figure("requests upstream per local 409, just listed", requests, "", 0)
    yield Figure("local 409, just listed: latency p50", ours * 1e3, "ms", apiserver=theirs * 1e3)


def _refused(world: World, side: Side, target: str, old: Object) -> tuple[float, float]:
    """Requests at kube-apiserver for each refused update, and the median latency in seconds."""
    before = _requests(world.apiserver.server)
    latencies = []
    with Session(side.server) as session:
        for _ in range(_WRITES):
            began = time.perf_counter()
            answer = session.ask("PUT", target, body=old)
            latencies.append(time.perf_counter() - began)
            assert answer.status == 409, answer
    return (_requests(world.apiserver.server) - before) / _WRITES, median(latencies)


def _requests(apiserver: Server) -> float:
    """Reads and writes of ConfigMaps that kube-apiserver has answered."""
    found = parse_metrics(get(apiserver, "/metrics").ok().body.decode())
    return sum(
        found.total("apiserver_request_total", resource="configmaps", verb=verb)
        for verb in ("GET", "LIST", "PUT", "PATCH")
    )
