"""Every result of a merge, for every kind of write that can be merged, and what it costs."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from copy import deepcopy
from typing import Any, NamedTuple

import pytest

from proxy.kube.envelope import MERGE_PATCH, STRATEGIC_PATCH
from tests.harness.apiserver import ApiServer
from tests.harness.caching import caught_up, eventually
from tests.harness.differential import cache_status
from tests.harness.faults import FaultProxy
from tests.harness.http import Answer, Server, ask, get
from tests.harness.objects import Object, create, patch
from tests.harness.proxy import Proxy, metrics, parse_metrics

MERGE = ("X-Kubecache-On-Conflict", "merge")
DELAY = 0.6
"""Seconds that a request is on its way, in which others write."""


class Way(NamedTuple):
    """A kind of write, and what it writes: *fields* stand below *place*."""

    method: str
    content_type: str
    place: str

    @property
    def subresource(self) -> str:
        return "/status" if self.place == "status" else ""

    def theirs(self, result: str) -> Object:
        return {self.place: (SPEC if self.place == "spec" else STATUS)[result][0]}

    def mine(self, result: str) -> Object:
        return {self.place: (SPEC if self.place == "spec" else STATUS)[result][1]}


WAYS = {
    "update": Way("PUT", "application/json", "spec"),
    "merge patch": Way("PATCH", MERGE_PATCH, "spec"),
    "strategic patch": Way("PATCH", STRATEGIC_PATCH, "spec"),
    "status": Way("PUT", "application/json", "status"),
}

Changes = Mapping[str, tuple[Object, Object]]
SPEC: Changes = {
    "merged": ({"replicas": 3}, {"paused": True}),
    "overlap": ({"replicas": 3}, {"replicas": 5}),
    "lost": ({"replicas": 3}, {"paused": True}),
    "unknown": ({"replicas": 3}, {"paused": True}),
    "failed": ({"progressDeadlineSeconds": 10}, {"minReadySeconds": 20}),
}
STATUS: Changes = {
    "merged": ({"replicas": 4}, {"observedGeneration": 2}),
    "overlap": ({"replicas": 4}, {"replicas": 5}),
    "lost": ({"replicas": 4}, {"observedGeneration": 2}),
    "unknown": ({"replicas": 4}, {"observedGeneration": 2}),
    "failed": ({"replicas": 1}, {"readyReplicas": 2}),
}
"""By result: what another changes, and what the client does."""

SENT = {"merged": 1, "overlap": 0, "lost": 1, "unknown": 0, "failed": 1}
"""Writes that the API server gets for a conflict that the cache knows of."""


@pytest.fixture(scope="module")
def line(apiserver: ApiServer) -> Iterator[FaultProxy]:
    with FaultProxy(apiserver.port) as running:
        yield running


@pytest.fixture(scope="module")
def proxy(apiserver: ApiServer, line: FaultProxy) -> Iterator[Proxy]:
    """One that has Deployments in its cache, behind a line that may fail."""
    with Proxy(apiserver.kubeconfig(port=line.port), config=config()) as running:
        yield running


@pytest.fixture(scope="module")
def forwarding(apiserver: ApiServer) -> Iterator[Proxy]:
    """One that lets the API server find conflicts."""
    with Proxy(apiserver.kubeconfig(), config=config(conflict_check="forward")) as running:
        yield running


@pytest.fixture(scope="module")
def bare(apiserver: ApiServer) -> Iterator[Proxy]:
    """One that has nothing in its cache."""
    with Proxy(apiserver.kubeconfig()) as running:
        yield running


def config(**settings: str) -> Object:
    return {"cache": {"resources": [{"resource": "deployments.apps"}]}, **settings}


class Conflict(NamedTuple):
    """A deployment as a client has read it, and which another has changed since."""

    apiserver: Server
    target: str
    seen: Object
    now: Object

    def write(self, server: Server, way: Way, fields: Object, *headers: tuple[str, str]) -> Answer:
        """Change *fields* of what was read."""
        if way.method == "PUT":
            body = deepcopy(self.seen)
            body[way.place] |= fields[way.place]
        else:
            version = self.seen["metadata"]["resourceVersion"]
            body = {"metadata": {"resourceVersion": version}, **fields}
        kind = ("Content-Type", way.content_type)
        target = f"{self.target}{way.subresource}"
        return ask(server, way.method, target, headers=(kind, *headers), body=body)

    def live(self) -> Object:
        found: Object = get(self.apiserver, self.target).ok().json()
        return found


def conflict(
    apiserver: ApiServer, proxy: Proxy | None, namespace: str, way: Way, theirs: Object
) -> Conflict:
    """Create a deployment and change it, and wait until a proxy's cache has that."""
    server = apiserver.server
    collection = f"/apis/apps/v1/namespaces/{namespace}/deployments"
    create(server, collection, deployment())
    target = f"{collection}/x"
    seen = patch(server, f"{target}/status", {"status": {"replicas": 2, "observedGeneration": 1}})
    now = patch(server, f"{target}{way.subresource}", theirs)
    if proxy is not None:
        caught_up(proxy.read, collection, now["metadata"]["resourceVersion"])
    return Conflict(server, target, seen, now)


def deployment() -> Object:
    labels = {"app": "x"}
    template = {
        "metadata": {"labels": labels},
        "spec": {"containers": [{"name": "app", "image": "app:1"}]},
    }
    spec = {"replicas": 1, "selector": {"matchLabels": labels}, "template": template}
    return {"metadata": {"name": "x"}, "spec": spec}


def writes(apiserver: ApiServer) -> float:
    """Writes of Deployments that the API server has answered."""
    text = get(apiserver.server, "/metrics").ok().body.decode()
    lines = (line for line in text.splitlines() if line.startswith("apiserver_request_total{"))
    found = parse_metrics("\n".join(lines) + "\n")  # all that it tells takes a second to parse
    return sum(
        found.total("apiserver_request_total", resource="deployments", verb=verb)
        for verb in ("PUT", "PATCH", "APPLY", "POST", "DELETE")
    )


@contextmanager
def counted(apiserver: ApiServer, proxy: Proxy, sent: int, **counts: float) -> Iterator[None]:
    """Assert how many writes reach the API server, and what the proxy's metrics go up by."""

    def result() -> dict[str, float]:
        found = metrics(proxy)
        return {
            label: found.total("kubecache_conflict_merges_total", result=label)
            + found.total("kubecache_conflicts_total", detected=label)
            for label in (*SENT, "local", "upstream")
        }

    before, wrote = result(), writes(apiserver)
    yield
    after = result()
    changed = {key: after[key] - before[key] for key in after if after[key] != before[key]}
    assert changed == counts
    eventually(lambda: writes(apiserver) == wrote + sent, f"{sent} writes", timeout=2)


@pytest.mark.parametrize("result", ["merged", "overlap", "failed"])
@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
def test_a_merge(apiserver: ApiServer, proxy: Proxy, namespace: str, way: Way, result: str) -> None:
    found = conflict(apiserver, proxy, namespace, way, way.theirs(result))
    with counted(apiserver, proxy, SENT[result], local=1, **{result: 1}):
        answer = found.write(proxy.read, way, way.mine(result), MERGE)
    _assert_result(answer, found, way, result)


def _assert_result(answer: Answer, found: Conflict, way: Way, result: str) -> None:
    now = found.live()
    if result == "merged":
        assert answer.ok().json() == now
        both = {**way.theirs(result)[way.place], **way.mine(result)[way.place]}
        assert both.items() <= now[way.place].items()
        return
    assert (answer.status, answer.json()["reason"]) == (409, "Conflict")
    assert answer.json()["details"]["causes"]
    assert now == found.now


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
def test_a_merge_of_what_nobody_knows_any_more(
    apiserver: ApiServer, proxy: Proxy, namespace: str, way: Way
) -> None:
    found = conflict(apiserver, proxy, namespace, way, way.theirs("unknown"))
    metadata = {**found.seen["metadata"], "resourceVersion": "1"}
    found = found._replace(seen={**found.seen, "metadata": metadata})
    with counted(apiserver, proxy, 0, local=1, unknown=1):
        answer = found.write(proxy.read, way, way.mine("unknown"), MERGE)
    _assert_result(answer, found, way, "unknown")
    [cause] = answer.json()["details"]["causes"]
    assert "no longer known" in cause["message"]


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
def test_a_merge_that_another_write_overtakes(
    apiserver: ApiServer, proxy: Proxy, line: FaultProxy, namespace: str, way: Way
) -> None:
    """It comes when the object has been read again, and what is merged is on its way."""
    found = conflict(apiserver, proxy, namespace, way, way.theirs("lost"))
    late: Object = {"metadata": {"labels": {"late": "yes"}}}
    again = threading.Timer(1.5 * DELAY, patch, (apiserver.server, found.target, late))
    line.delay(up=DELAY)
    try:
        with counted(apiserver, proxy, 2, local=1, lost=1):  # one of them is the other's
            again.start()
            answer = found.write(proxy.read, way, way.mine("lost"), MERGE)
            again.join()
    finally:
        line.resume()
    assert answer.status == 409
    now = found.live()
    assert now["metadata"]["labels"] == {"late": "yes"}
    assert now[way.place] == found.now[way.place]


def test_a_merge_while_the_api_server_is_away(
    apiserver: ApiServer, proxy: Proxy, line: FaultProxy, namespace: str
) -> None:
    """The client gets the conflict as the cache knows it, and reads go on."""
    way = WAYS["update"]
    found = conflict(apiserver, proxy, namespace, way, way.theirs("unknown"))
    line.refuse()
    line.cut()
    try:
        with counted(apiserver, proxy, 0, local=1, unknown=1):
            answer = found.write(proxy.read, way, way.mine("unknown"), MERGE)
        _assert_result(answer, found, way, "unknown")
        seen = get(proxy.read, found.target).ok()
        assert cache_status(seen).hit
        assert seen.json() == found.now
    finally:
        line.resume()


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
def test_a_merge_of_what_is_not_cached(
    apiserver: ApiServer, bare: Proxy, namespace: str, way: Way
) -> None:
    """What the client read is in a list then, whose items don't say what they are."""
    found = conflict(apiserver, None, namespace, way, way.theirs("merged"))
    with counted(apiserver, bare, 2, upstream=1, merged=1):
        answer = found.write(bare.read, way, way.mine("merged"), MERGE)
    _assert_result(answer, found, way, "merged")


@pytest.mark.unchained("the one behind finds the conflict")
@pytest.mark.parametrize(
    ("headers", "sent", "counts"),
    [((), 1, {}), ((MERGE,), 2, {"merged": 1})],
    ids=["explained", "merged"],
)
def test_conflicts_that_the_api_server_finds(
    apiserver: ApiServer,
    forwarding: Proxy,
    namespace: str,
    headers: tuple[tuple[str, str], ...],
    sent: int,
    counts: dict[str, Any],
) -> None:
    """As the settings want it, though the cache knows."""
    way = WAYS["update"]
    found = conflict(apiserver, forwarding, namespace, way, way.theirs("merged"))
    with counted(apiserver, forwarding, sent, upstream=1, **counts):
        answer = found.write(forwarding.read, way, way.mine("merged"), *headers)
    assert not cache_status(answer).hit
    if headers:
        _assert_result(answer, found, way, "merged")
        return
    plain = answer.json()
    fields = [cause["field"] for cause in plain["details"].pop("causes")]
    assert fields == ["spec.replicas"]
    assert plain == found.write(apiserver.server, way, way.mine("merged")).json()
