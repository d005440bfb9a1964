"""An API server that gives no sign is noticed, with probes soon, and lag is what it is."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from tests.harness.apiserver import ApiServer
from tests.harness.caching import caught_up, eventually
from tests.harness.faults import FaultProxy
from tests.harness.http import ask, get
from tests.harness.objects import configmap, create
from tests.harness.proxy import CHAINED, Metrics, Proxy, metrics
from tests.harness.watch_delay import WatchDelay

DEFAULT = "/api/v1/namespaces/default/configmaps"
NAMED = {"cache": {"resources": [{"resource": "configmaps"}]}}
PROBED = ("--probe-interval", "1s")

NOTICED = 6.0
"""Seconds until a stall is noticed by probes: the interval, and 3 s in which one has to be
answered; the rest is for a busy machine."""

UNPROBED = 80.0
"""The same without: 70 s, and 10 more."""

RECOVERED = {NOTICED: 15.0, UNPROBED: 75.0}
"""Seconds until it has recovered: reconnecting is tried less and less often, after a minute of
refusals as seldom as every 30 to 60 s (client-go's)."""

LINES = ("half-open", "refused")
UNPROBED_TEST = "test_a_stall_is_noticed_without_probes"

Stalls = dict[str, Future[None]]


@pytest.fixture(scope="module")
def stalls(apiserver: ApiServer) -> Iterator[Stalls]:
    """What happens on lines that fail, all at once; the API server behind them is well."""
    with ThreadPoolExecutor() as pool:
        yield {name: pool.submit(notice, apiserver, name, *PROBED) for name in LINES}


@pytest.fixture(scope="session", autouse=True)
def unprobed(request: pytest.FixtureRequest) -> Iterator[Stalls]:
    """The same without probes takes 80 s, which pass beside the tests that follow."""
    if CHAINED or not any(item.name.startswith(UNPROBED_TEST) for item in request.session.items):
        yield {}
        return
    apiserver: ApiServer = request.getfixturevalue("apiserver")
    with ThreadPoolExecutor() as pool:
        yield {name: pool.submit(notice, apiserver, name, within=UNPROBED) for name in LINES}


def notice(apiserver: ApiServer, fault: str, *flags: str, within: float = NOTICED) -> None:
    """A proxy gets unready while its line has a fault, says so, and recovers by itself."""
    with (
        FaultProxy(apiserver.port) as line,
        Proxy(apiserver.kubeconfig(port=line.port), *flags, config=NAMED, chain=False) as proxy,
    ):
        begin, end = _fault(fault, apiserver, line)
        began = time.monotonic()
        begin()
        try:
            proxy.wait("readyz", status=500, timeout=within)
            assert metrics(proxy).total("kubecache_informer_stalled") == 1
            _assert_age_is_told(proxy, time.monotonic() - began)
        finally:
            end()
        proxy.wait("readyz", timeout=RECOVERED[within])
        assert metrics(proxy).total("kubecache_informer_stalled") == 0
        eventually(lambda: _staleness(proxy) < 2, "it's current again", timeout=15)
        assert metrics(proxy).total("kubecache_informer_relists_total") == 1


def _assert_age_is_told(proxy: Proxy, passed: float) -> None:
    """For `passed` seconds there was no sign; the last one was less than a minute earlier."""
    stale = _staleness(proxy)
    assert passed - 2 <= stale <= passed + 60
    age = int(get(proxy.read, DEFAULT).ok().header("Age") or -1)
    assert stale - 1 <= age <= stale + 2


def _fault(
    name: str, apiserver: ApiServer, line: FaultProxy
) -> tuple[Callable[[], None], Callable[[], None]]:
    """How it begins, and how it ends."""

    def refuse() -> None:
        line.refuse()
        line.cut()

    return {
        "frozen": (apiserver.freeze, apiserver.thaw),
        "half-open": (line.freeze, line.resume),
        "refused": (refuse, line.resume),
    }[name]


def _staleness(proxy: Proxy) -> float:
    return metrics(proxy).total("kubecache_staleness_seconds")


def test_a_frozen_apiserver_is_noticed_at_the_next_probe(stalls: Stalls) -> None:
    del stalls  # they go on beside it
    with ApiServer() as own:
        notice(own, "frozen", *PROBED)


@pytest.mark.parametrize("fault", LINES)
def test_a_line_that_fails_is_noticed_at_the_next_probe(stalls: Stalls, fault: str) -> None:
    stalls[fault].result(60)


@pytest.mark.slow
@pytest.mark.timeout(240)
@pytest.mark.unchained("the proxy is one of its own")
@pytest.mark.parametrize("fault", LINES)
def test_a_stall_is_noticed_without_probes(unprobed: Stalls, fault: str) -> None:
    unprobed[fault].result(200)


@pytest.mark.parametrize("late", [0.0, 0.3])
def test_lag_is_measured_by_own_writes(apiserver: ApiServer, namespace: str, late: float) -> None:
    collection = f"/api/v1/namespaces/{namespace}/configmaps"
    with (
        WatchDelay(apiserver.port, late) as line,
        Proxy(apiserver.kubeconfig(port=line.port), config=NAMED, chain=False) as proxy,
    ):
        time.sleep(0.1)  # what comes soon after a request isn't late, but taken for its answer
        for number in range(5):
            created = create(proxy.read, collection, configmap(f"c{number}"))
            caught_up(proxy.read, collection, created["metadata"]["resourceVersion"])
        unchanged = {"metadata": {"name": "c0"}}
        ask(proxy.read, "PATCH", f"{collection}/c0", headers=(MERGE,), body=unchanged).ok()
        found = metrics(proxy)
    assert found.total("kubecache_lag_seconds_count") == 5  # nothing was to come of the last one
    assert late * 0.7 <= _lag(found) / 5 < late + 0.2


MERGE = ("Content-Type", "application/merge-patch+json")


def _lag(found: Metrics) -> float:
    return found.total("kubecache_lag_seconds_sum")
