"""An API server that gives no sign is noticed at the next probe, and lag is what it is."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import pytest

from tests.harness.apiserver import ApiServer
from tests.harness.caching import caught_up, eventually
from tests.harness.faults import FaultProxy
from tests.harness.http import ask, get
from tests.harness.objects import configmap, create
from tests.harness.proxy import Metrics, Proxy, metrics
from tests.harness.watch_delay import WatchDelay

DEFAULT = "/api/v1/namespaces/default/configmaps"
NAMED = {"cache": {"resources": [{"resource": "configmaps"}]}}
PROBED = ("--probe-interval", "500ms")


@pytest.fixture(scope="module")
def own() -> Iterator[ApiServer]:
    """A kube-apiserver that may be frozen."""
    with ApiServer() as server:
        create(server.server, DEFAULT, configmap("a"))
        yield server


@pytest.mark.parametrize("fault", ["frozen", "half-open", "refused"])
def test_a_stall_is_noticed_at_the_next_probe(own: ApiServer, fault: str) -> None:
    with (
        FaultProxy(own.port) as line,
        Proxy(own.kubeconfig(port=line.port), *PROBED, config=NAMED, chain=False) as proxy,
    ):
        begin, end = _fault(fault, own, line)
        began = time.monotonic()
        begin()
        try:
            proxy.wait("readyz", status=500, timeout=10)
            assert time.monotonic() - began < 6
            assert metrics(proxy).total("kubecache_informer_stalled") == 1
            stale = eventually(lambda: _staleness(proxy) > 2 and _staleness(proxy), "it's stale")
            age = int(get(proxy.read, f"{DEFAULT}/a").ok().header("Age") or 0)
            assert stale - 1 <= age <= time.monotonic() - began + 1
        finally:
            end()
        began = time.monotonic()
        proxy.wait("readyz", timeout=20)
        eventually(lambda: _staleness(proxy) < 2, "it's current again")
        assert time.monotonic() - began < 10
        assert metrics(proxy).total("kubecache_informer_relists_total") == 1


def _fault(
    name: str, own: ApiServer, line: FaultProxy
) -> tuple[Callable[[], None], Callable[[], None]]:
    def refuse() -> None:
        line.refuse()
        line.cut()

    faults = {
        "frozen": (own.freeze, own.thaw),
        "half-open": (line.freeze, line.resume),
        "refused": (refuse, line.resume),
    }
    return faults[name]


def _staleness(proxy: Proxy) -> float:
    return metrics(proxy).total("kubecache_staleness_seconds")


@pytest.mark.parametrize("late", [0.0, 0.4])
def test_lag_is_measured_by_own_writes(apiserver: ApiServer, namespace: str, late: float) -> None:
    collection = f"/api/v1/namespaces/{namespace}/configmaps"
    with (
        WatchDelay(apiserver.port, late) as line,
        Proxy(apiserver.kubeconfig(port=line.port), config=NAMED, chain=False) as proxy,
    ):
        for number in range(5):
            created = create(proxy.read, collection, configmap(f"c{number}"))
            caught_up(proxy.read, collection, created["metadata"]["resourceVersion"])
        found = metrics(proxy)
        assert found.total("kubecache_lag_seconds_count") == 5
        mean = _lag(found) / 5
    assert late <= mean < late + 0.2


def _lag(found: Metrics) -> float:
    return found.total("kubecache_lag_seconds_sum")


def test_writes_that_change_nothing_have_no_lag(apiserver: ApiServer, namespace: str) -> None:
    collection = f"/api/v1/namespaces/{namespace}/configmaps"
    with Proxy(apiserver.kubeconfig(), config=NAMED, chain=False) as proxy:
        created = create(proxy.read, collection, configmap("a"))
        caught_up(proxy.read, collection, created["metadata"]["resourceVersion"])
        before = metrics(proxy).total("kubecache_lag_seconds_count")
        unchanged = {"metadata": {"name": "a"}}

        ask(proxy.read, "PUT", f"{collection}/a", body=unchanged).ok()
        assert metrics(proxy).total("kubecache_lag_seconds_count") == before
