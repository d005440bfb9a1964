"""What writes change beside their own object, and what the next read sees of it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.harness.apiserver import ApiServer
from tests.harness.caching import caught_up
from tests.harness.http import ask, get
from tests.harness.objects import create, patch, pod, pod_status
from tests.harness.proxy import Proxy
from tests.harness.watch_delay import WatchDelay

BUDGETS = "poddisruptionbudgets"
QUOTAS = "resourcequotas"


@pytest.fixture(scope="module")
def proxy(apiserver: ApiServer) -> Iterator[Proxy]:
    """One that learns half a second late of changes."""
    named = [f"{BUDGETS}.policy", QUOTAS]
    config = {"cache": {"resources": [{"resource": each} for each in named]}}
    with (
        WatchDelay(apiserver.port, 0.5) as line,
        Proxy(apiserver.kubeconfig(port=line.port), config=config) as running,
    ):
        yield running


def test_an_eviction_is_seen_in_its_budget(
    apiserver: ApiServer, proxy: Proxy, namespace: str
) -> None:
    pods = f"/api/v1/namespaces/{namespace}/pods"
    budgets = f"/apis/policy/v1/namespaces/{namespace}/{BUDGETS}"
    create(apiserver.server, pods, pod("app-1-x", app="x"))
    patch(apiserver.server, f"{pods}/app-1-x/status", pod_status())
    spec = {"minAvailable": 0, "selector": {"matchLabels": {"app": "x"}}}
    create(apiserver.server, budgets, {"metadata": {"name": "x"}, "spec": spec})
    status = {"disruptionsAllowed": 1, "currentHealthy": 1, "observedGeneration": 1}
    known = patch(apiserver.server, f"{budgets}/x/status", {"status": status})
    caught_up(proxy.read, budgets, known["metadata"]["resourceVersion"])
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "app-1-x"}}
    ask(proxy.read, "POST", f"{pods}/app-1-x/eviction", body=eviction).ok()
    seen = get(proxy.read, f"{budgets}/x").ok().json()["status"]
    assert (seen["disruptionsAllowed"], [*seen["disruptedPods"]]) == (0, ["app-1-x"])


def test_a_creation_is_seen_in_a_quota_that_is_asked_for_as_it_is_now(
    apiserver: ApiServer, proxy: Proxy, namespace: str
) -> None:
    """The API server counts before it answers; which writes, only it knows."""
    quotas = f"/api/v1/namespaces/{namespace}/{QUOTAS}"
    hard = {"hard": {"configmaps": "10"}}
    create(apiserver.server, quotas, {"metadata": {"name": "x"}, "spec": hard})
    status = {"status": {**hard, "used": {"configmaps": "0"}}}
    known = patch(apiserver.server, f"{quotas}/x/status", status)
    caught_up(proxy.read, quotas, known["metadata"]["resourceVersion"])
    configmaps = f"/api/v1/namespaces/{namespace}/configmaps"
    create(proxy.read, configmaps, {"metadata": {"name": "x"}})
    fresh = get(proxy.read, f"{quotas}/x", headers=(("Cache-Control", "max-age=0"),)).ok()
    assert fresh.json()["status"]["used"] == {"configmaps": "1"}
