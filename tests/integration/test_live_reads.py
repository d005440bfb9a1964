"""Many live reads at once: few requests, never an old answer, and nobody else's."""

from __future__ import annotations

import json
import random
import re
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from http.client import HTTPConnection
from typing import TypeVar

import pytest

from tests.harness.apiserver import ApiServer
from tests.harness.caching import cached
from tests.harness.differential import assert_source, compare
from tests.harness.faults import FaultProxy
from tests.harness.http import Answer, Headers, Server, Session, ask, get
from tests.harness.objects import configmap, create, patch
from tests.harness.proxy import Proxy, metrics, parse_metrics

TEMPLATES = "/api/v1/podtemplates"
"""A collection that nothing else in a cluster without controllers reads: its requests are ours."""

LIVE = ("Cache-Control", "no-cache")
T = TypeVar("T")


@pytest.fixture(scope="module")
def faults(apiserver: ApiServer) -> Iterator[FaultProxy]:
    with FaultProxy(apiserver.port) as line:
        yield line


@pytest.fixture(scope="module")
def behind(apiserver: ApiServer, faults: FaultProxy) -> Iterator[Proxy]:
    with Proxy(apiserver.kubeconfig(port=faults.port)) as running:
        yield running


@pytest.fixture
def slow(faults: FaultProxy, behind: Proxy) -> Iterator[Proxy]:
    """A proxy whose requests take a while to arrive, so that those of a moment are concurrent."""
    get(behind.read, TEMPLATES, headers=(LIVE,)).ok()  # connects
    faults.delay(up=0.3)
    yield behind
    faults.resume()


def at_once(count: int, act: Callable[[int], T]) -> list[T]:
    """Does it in so many threads, which start together."""
    start = threading.Barrier(count)

    def run(number: int) -> T:
        start.wait(10)
        return act(number)

    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(run, range(count)))


def is_collapsed(answer: Answer) -> bool:
    return "; collapsed;" in (answer.header("Cache-Status") or "")


def requests_seen(apiserver: ApiServer, resource: str) -> float:
    """How many reads of a resource kube-apiserver has answered, whoever asked."""
    seen = parse_metrics(get(apiserver.server, "/metrics").ok().body.decode())
    verbs = ("GET", "LIST")
    return sum(
        seen.total("apiserver_request_total", resource=resource, verb=verb) for verb in verbs
    )


# --- collapse --------------------------------------------------------------------------------


def test_a_hundred_at_once_cost_the_apiserver_a_handful(apiserver: ApiServer, slow: Proxy) -> None:
    before = requests_seen(apiserver, "podtemplates")
    server = slow.read.adding(("User-Agent", "Crowd/1.0"), LIVE)
    answers = at_once(100, lambda _: get(server, TEMPLATES))
    assert requests_seen(apiserver, "podtemplates") - before <= 5
    assert {(each.status, _timeless(each)) for each in answers} == {(200, _timeless(answers[0]))}
    assert sum(map(is_collapsed, answers)) >= 95
    for answer in answers:
        assert_source(answer, "fwd=request")
    seen = metrics(slow)
    counts = [
        seen.total("kubecache_live_reads_total", user_agent_family="crowd", collapsed=collapsed)
        for collapsed in ("false", "true")
    ]
    assert sum(counts) == 100
    assert counts[0] <= 5


def test_shared_answers_are_the_apiservers(apiserver: ApiServer, slow: Proxy) -> None:
    """Whatever the status and the representation."""
    table = "application/json;as=Table;v=v1;g=meta.k8s.io"
    yaml, protobuf = "application/yaml", "application/vnd.kubernetes.protobuf"
    queries = {"application/json": "", table: "?limit=x", yaml: "?labelSelector=a,,b", protobuf: ""}
    for accept, query in queries.items():
        headers = (LIVE, ("Accept", accept))
        target = f"/api/v1/namespaces/default/podtemplates{query}"
        judged = compare(apiserver.server, slow.read, "GET", target, headers=headers).proxy
        found = at_once(10, partial(_get, slow.read, target, headers))
        assert sum(map(is_collapsed, found)) >= 5
        for answer in found:
            assert (answer.status, _timeless(answer)) == (judged.status, _timeless(judged))
            assert answer.header("Content-Type") == judged.header("Content-Type")


def _timeless(answer: Answer) -> bytes:
    """A body but for a list's version, which goes on with every write of anybody to anything."""
    return re.sub(rb"\d+", b"0", answer.body)


def _get(server: Server, target: str, headers: Headers, _: int) -> Answer:
    return get(server, target, headers=headers)


def test_identities_never_share(apiserver: ApiServer, slow: Proxy) -> None:
    """Of forty readers at once, each gets what kube-apiserver gives to him."""
    users = ("admin", "limited", "nobody")
    target = "/api/v1/namespaces/limited/configmaps"
    servers = [slow.read.adding(*apiserver.as_user(user).headers) for user in users]
    servers.append(slow.read.adding(("Impersonate-User", "nobody")))
    expected = [get(apiserver.as_user(user), target) for user in users]
    expected.append(get(apiserver.server.adding(("Impersonate-User", "nobody")), target))
    assert [answer.status for answer in expected] == [200, 200, 403, 403]
    found = at_once(40, lambda number: get(servers[number % 4], target, headers=(LIVE,)))
    for number, answer in enumerate(found):
        assert _told(answer) == _told(expected[number % 4])
    assert sum(map(is_collapsed, found)) >= 20


def _told(answer: Answer) -> tuple[int, object, object]:
    """What an answer tells, but for a list's version, which goes on with every write."""
    body = answer.json()
    return answer.status, body.get("items"), body.get("message")


def test_what_is_too_large_to_share(apiserver: ApiServer, slow: Proxy, namespace: str) -> None:
    collection = f"/api/v1/namespaces/{namespace}/configmaps"
    for number in range(9):
        create(apiserver.server, collection, configmap(f"c{number}", {"k": "x" * 1_000_000}))
    expected = get(apiserver.server, collection).ok()
    found = at_once(6, lambda _: get(slow.read, collection, headers=(LIVE,)))
    assert [answer.json()["items"] for answer in found] == [expected.json()["items"]] * 6


# --- linearizability -------------------------------------------------------------------------


class Register:
    """A ConfigMap's number, written directly at the API server; *written* is what it surely is."""

    def __init__(self, server: Server, namespace: str) -> None:
        self._server = server
        collection = f"/api/v1/namespaces/{namespace}/configmaps"
        create(server, collection, configmap("register", {"value": "0"}))
        self.target = f"{collection}/register"
        self.begun = 0
        self.written = 0

    def write(self) -> None:
        self.begun += 1
        patch(self._server, self.target, {"data": {"value": str(self.begun)}})
        self.written = self.begun


def read_until(done: threading.Event, register: Register, server: Server) -> list[bool]:
    """Reads on and on; each must show what was written before it asked. Tells who shared.

    The pauses bring readers to every moment of each other's requests: those that share an answer
    would all ask again together.
    """
    shared = []
    with Session(server) as session:
        while not done.is_set():
            time.sleep(random.random() * 0.1)
            before = register.written
            answer = session.ask("GET", register.target, headers=(LIVE,)).ok()
            assert before <= int(answer.json()["data"]["value"]) <= register.begun
            shared.append(is_collapsed(answer))
    return shared


def test_a_live_read_shows_all_that_was_written_before_it(
    apiserver: ApiServer, faults: FaultProxy, slow: Proxy, namespace: str
) -> None:
    register = Register(apiserver.server, namespace)
    done = threading.Event()
    with ThreadPoolExecutor(20) as pool:
        reading = [pool.submit(read_until, done, register, slow.read) for _ in range(20)]
        try:
            for up, down in ((0, 0), (0.02, 0), (0, 0.05), (0.05, 0.05), (0, 0.1)):
                faults.delay(up=up, down=down)
                for _ in range(40):
                    register.write()
                    time.sleep(0.005)
        finally:
            done.set()
        shared = [each for reader in reading for each in reader.result(60)]
    assert len(shared) > 200
    assert sum(shared) > len(shared) / 4


def test_a_list_shows_what_was_created_before_it(
    apiserver: ApiServer, slow: Proxy, namespace: str
) -> None:
    collection = f"/api/v1/namespaces/{namespace}/configmaps"

    def create_and_list(number: int) -> list[str]:
        name = f"c{number}"
        create(apiserver.server, collection, configmap(name))
        items = get(slow.read, collection, headers=(LIVE,)).ok().json()["items"]
        names = [item["metadata"]["name"] for item in items]
        assert name in names
        return names

    at_once(30, create_and_list)


# --- clients and servers that leave ----------------------------------------------------------


@contextmanager
def sent(server: Server, target: str, count: int = 1) -> Iterator[list[HTTPConnection]]:
    """Requests that have arrived, one after the other; their clients leave at the end."""
    connections = [server.connect() for _ in range(count)]
    try:
        for connection in connections:
            connection.request("GET", target, headers=dict([*server.headers, LIVE]))
            time.sleep(0.02)
        yield connections
    finally:
        for connection in connections:
            connection.close()


@pytest.mark.parametrize("leavers", [1, 2, 5])
def test_who_leaves_disturbs_nobody(slow: Proxy, leavers: int) -> None:
    """The first of them had asked for himself, the second for those that came after."""
    with ThreadPoolExecutor(10) as pool:
        with sent(slow.read, TEMPLATES, leavers):
            waiting = [pool.submit(get, slow.read, TEMPLATES, headers=(LIVE,)) for _ in range(10)]
            time.sleep(0.1)
        assert [each.result(10).status for each in waiting] == [200] * 10


def test_when_all_have_left_the_next_is_served(slow: Proxy) -> None:
    with sent(slow.read, TEMPLATES, 5):
        time.sleep(0.05)
    assert get(slow.read, TEMPLATES, headers=(LIVE,)).status == 200


def test_a_failure_is_everybodys_and_passes(faults: FaultProxy, slow: Proxy) -> None:
    faults.freeze()  # so that none has its answer before the cut
    with sent(slow.read, TEMPLATES, 20) as connections:
        faults.refuse()
        faults.cut()
        for each in connections:
            answer = each.getresponse()
            assert (answer.status, answer.headers["Retry-After"]) == (503, "1")
            assert json.load(answer)["reason"] == "ServiceUnavailable"
    faults.resume()
    answers = at_once(20, lambda _: get(slow.read, TEMPLATES, headers=(LIVE,)))
    assert {answer.status for answer in answers} == {200}


def test_a_silence_is_waited_out(faults: FaultProxy, slow: Proxy) -> None:
    with sent(slow.read, TEMPLATES), ThreadPoolExecutor(5) as pool:
        faults.freeze()
        waiting = [pool.submit(get, slow.read, TEMPLATES, headers=(LIVE,)) for _ in range(5)]
        time.sleep(1)
        assert not any(each.done() for each in waiting)
        faults.resume()
        assert [each.result(20).status for each in waiting] == [200] * 5


# --- the limit -------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def limited(apiserver: ApiServer) -> Iterator[Proxy]:
    """A proxy that lets each kind of client read live every other second."""
    with Proxy(apiserver.kubeconfig(), "--live-rate", "0.5") as running:
        yield running


def named(proxy: Proxy, agent: str) -> Server:
    return proxy.read.adding(("User-Agent", agent), LIVE)


def test_who_reads_live_too_often_is_told_to_wait(limited: Proxy) -> None:
    server = named(limited, "greedy/1.0 (linux)")
    assert get(server, TEMPLATES).status == 200
    refused = get(server, TEMPLATES)
    assert (refused.status, refused.header("Retry-After")) == (429, "2")
    assert refused.header("Content-Type") == "application/json"
    status = refused.json()
    assert (status["kind"], status["reason"], status["code"]) == ("Status", "TooManyRequests", 429)
    assert status["details"] == {"retryAfterSeconds": 2}
    assert "greedy" in status["message"]
    assert get(named(limited, "greedy/2.0"), TEMPLATES).status == 429
    assert get(named(limited, "modest/1.0"), TEMPLATES).status == 200
    time.sleep(2)
    assert get(server, TEMPLATES).status == 200


FREE: Sequence[str] = (
    "/api",
    "/apis/apps/v1",
    "/openapi/v3",
    "/version",
    f"{TEMPLATES}?watch=1&timeoutSeconds=1",
)


@pytest.mark.parametrize("target", FREE)
def test_discovery_and_watches_are_free(limited: Proxy, target: str) -> None:
    agent = f"free-{FREE.index(target)}/1"
    server = limited.read.adding(("User-Agent", agent), LIVE)
    assert get(server, TEMPLATES).status == 200
    assert get(server, TEMPLATES).status == 429
    etag = (("If-None-Match", '"x"'),)
    assert {get(server, target, headers=headers).status for headers in ((), (), etag)} == {200}


def test_cached_reads_and_writes_are_free(
    apiserver: ApiServer, limited: Proxy, namespace: str
) -> None:
    collection = f"/api/v1/namespaces/{namespace}/configmaps"
    cached(limited.read, collection)
    server = limited.read.adding(("User-Agent", "busy/1"))
    assert {get(server, collection).status for _ in range(20)} == {200}
    written = [ask(server, "POST", collection, body=configmap(f"c{i}")).status for i in range(5)]
    assert written == [201] * 5


def test_who_shares_needs_no_allowance(apiserver: ApiServer, faults: FaultProxy) -> None:
    """Two requests may be sent, of which the second serves all the rest."""
    kubeconfig = apiserver.kubeconfig(port=faults.port)
    with Proxy(kubeconfig, "--live-rate", "2") as proxy:
        faults.delay(up=0.2)
        server = named(proxy, "team/1")
        statuses = Counter(at_once(30, lambda _: get(server, TEMPLATES).status))
    assert statuses == {200: 30}
