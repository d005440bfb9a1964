"""How old an answer may be, who says so, and what it takes to be sure of it."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import pytest

from tests.harness.apiserver import ApiServer
from tests.harness.caching import caught_up
from tests.harness.differential import cache_status
from tests.harness.faults import FaultProxy
from tests.harness.http import Answer, Server, Session, ask, get
from tests.harness.objects import configmap, create
from tests.harness.proxy import Proxy, metrics
from tests.harness.watch_delay import WatchDelay

NAMED = {"cache": {"resources": [{"resource": "configmaps"}, {"resource": "limitranges"}]}}
CONFIGMAPS = "/api/v1/namespaces/{ns}/configmaps"
LIMITS = "/api/v1/namespaces/{ns}/limitranges"
LATE = 0.3


def read(server: Server | Session, target: str, cache_control: str = "") -> Answer:
    headers = (("Cache-Control", cache_control),) if cache_control else ()
    if isinstance(server, Session):
        return server.ask("GET", target, headers=headers)
    return get(server, target, headers=headers)


def how(answer: Answer) -> str:
    """Who answered: `hit`, or the reason of a forward."""
    status = cache_status(answer)
    return "hit" if status.hit else str(status.detail)


@contextmanager
def late(apiserver: ApiServer, *flags: str, config: Any = NAMED) -> Iterator[Proxy]:
    """A proxy whose events come late."""
    with (
        WatchDelay(apiserver.port, LATE) as line,
        Proxy(apiserver.kubeconfig(port=line.port), *flags, config=config) as running,
    ):
        yield running


@pytest.fixture(scope="module")
def session(apiserver: ApiServer) -> Iterator[Proxy]:
    with late(apiserver) as running:
        yield running


@pytest.fixture(scope="module")
def strict(apiserver: ApiServer) -> Iterator[Proxy]:
    with late(apiserver, "--consistency", "strict") as running:
        yield running


@pytest.fixture(scope="module")
def bounded(apiserver: ApiServer) -> Iterator[Proxy]:
    with late(apiserver, "--consistency", "eventual", "--max-staleness", "100ms") as running:
        yield running


@pytest.fixture
def collection(apiserver: ApiServer, namespace: str) -> str:
    """The ConfigMaps of a namespace, of which there's one, a."""
    collection = CONFIGMAPS.format(ns=namespace)
    create(apiserver.server, collection, configmap("a", {"k": "0"}))
    return collection


def write(apiserver: ApiServer, collection: str, value: str) -> str:
    """Changes a beside the proxy; returns its new version."""
    body = configmap("a", {"k": value})
    return ask(apiserver.server, "PUT", f"{collection}/a", body=body).ok().version


# --- what others write -------------------------------------------------------------------------


@pytest.mark.parametrize("target", ["{all}/a", "{all}", "{all}?fieldSelector=metadata.name%3Da"])
@pytest.mark.parametrize(
    ("kind", "cache_control", "seen"),
    [
        ("session", "", False),
        ("session", "max-age=60", False),
        ("session", "max-age=0", True),
        ("session", "no-cache", True),
        ("strict", "", True),
        ("strict", "max-age=60", True),
        ("bounded", "max-age=60", None),
    ],
)
def test_writes_of_others(
    request: pytest.FixtureRequest,
    apiserver: ApiServer,
    collection: str,
    target: str,
    kind: str,
    cache_control: str,
    seen: bool | None,
) -> None:
    """Three times, right after the write, whose event is late."""
    proxy: Proxy = request.getfixturevalue(kind)
    target = target.format(all=collection)
    caught_up(proxy.read, collection, get(apiserver.server, f"{collection}/a").version)
    read(proxy.read, target, "max-age=60")  # so that there is a proof
    for number in range(3):
        version = write(apiserver, collection, str(number))
        answer = read(proxy.read, target, cache_control).ok()
        found = answer.json()
        found = found["items"][0] if "items" in found else found
        if seen is not None:
            assert (found["metadata"]["resourceVersion"] == version) is seen, how(answer)
        caught_up(proxy.read, collection, version)


def test_a_bound_of_the_proxy_holds_for_all(
    bounded: Proxy, apiserver: ApiServer, collection: str
) -> None:
    caught_up(bounded.read, collection, get(apiserver.server, f"{collection}/a").version)
    version = write(apiserver, collection, "1")
    time.sleep(0.12)
    answer = get(bounded.read, f"{collection}/a").ok()
    assert answer.version == version
    assert how(answer) in ("hit", "unproven")
    assert answer.header("Age") in (None, "0")
    assert get(bounded.read, f"{collection}?resourceVersion=0").ok()


@pytest.mark.parametrize("kind", ["strict", "session"])
def test_watches_begin_as_fresh_as_reads(
    request: pytest.FixtureRequest, apiserver: ApiServer, collection: str, kind: str
) -> None:
    proxy: Proxy = request.getfixturevalue(kind)
    caught_up(proxy.read, collection, get(apiserver.server, f"{collection}/a").version)
    version = write(apiserver, collection, "1")
    cache_control = "" if kind == "strict" else "max-age=0"
    target = f"{collection}?watch=1&timeoutSeconds=2&fieldSelector=metadata.name%3Da"
    headers = (("Cache-Control", cache_control),) if cache_control else ()
    first = get(proxy.read, target, headers=headers).body.partition(b"\n")[0]
    assert f'"resourceVersion":"{version}"'.encode() in first


# --- what is answered without the API server ----------------------------------------------------


@pytest.mark.parametrize(
    ("cache_control", "status", "reason"),
    [
        ("only-if-cached", 200, "hit"),
        ("only-if-cached, max-age=60", 200, "hit"),
        ("only-if-cached, max-age=0", 504, "unproven"),
        ("only-if-cached, max-age=0, max-stale", 200, "hit"),
    ],
)
def test_only_if_cached(
    session: Proxy,
    apiserver: ApiServer,
    collection: str,
    cache_control: str,
    status: int,
    reason: str,
) -> None:
    """Of a state that is known to be old: the event of a write is missing."""
    caught_up(session.read, collection, get(apiserver.server, f"{collection}/a").version)
    read(session.read, collection, "max-age=0")
    write(apiserver, collection, "1")
    answer = read(session.read, f"{collection}/a", cache_control)
    assert answer.status == status
    if status == 504:
        assert reason in answer.json()["message"]
        assert answer.json()["reason"] == "Timeout"
    else:
        assert (how(answer), answer.json()["data"]) == (reason, {"k": "0"})


def test_misses_are_confirmed_on_request(apiserver: ApiServer, namespace: str) -> None:
    config = {"cache": {**NAMED["cache"], "on_miss": "confirm"}}
    collection = CONFIGMAPS.format(ns=namespace)
    with late(apiserver, config=config) as proxy:
        create(apiserver.server, collection, configmap("new"))
        found = get(proxy.read, f"{collection}/new").ok()
        assert how(found) == "unconfirmed-miss"
        missing = get(proxy.read, f"{collection}/none")
        assert (missing.status, how(missing)) == (404, "unconfirmed-miss")
        caught_up(proxy.read, collection, found.version)
        assert how(get(proxy.read, f"{collection}/new").ok()) == "hit"


# --- proofs --------------------------------------------------------------------------------------


@contextmanager
def busy(apiserver: ApiServer, collection: str) -> Iterator[None]:
    """Something else is written all the time, as it is in any cluster."""
    ended = threading.Event()

    def work() -> None:
        with Session(apiserver.server) as client:
            for number in range(10_000):
                if ended.wait(0.02):
                    return
                body = configmap("a", {"k": str(number)})
                client.ask("PUT", f"{collection}/a", body=body).ok()

    with ThreadPoolExecutor(1) as pool:
        working = pool.submit(work)
        try:
            yield
        finally:
            ended.set()
            working.result(10)


def test_an_idle_resource_is_proven_for_all_at_once(
    apiserver: ApiServer, collection: str, namespace: str
) -> None:
    """LimitRanges, on which nothing happens, for 20 clients and 6 seconds."""
    target = LIMITS.format(ns=namespace)
    seconds, clients = 6.0, 20
    with Proxy(apiserver.kubeconfig(), config=NAMED) as proxy, busy(apiserver, collection):
        read(proxy.read, target, "max-age=2")
        time.sleep(2)
        before = metrics(proxy)
        began = time.monotonic()

        def work() -> list[tuple[str, int]]:
            found = []
            with Session(proxy.read) as client:
                while time.monotonic() < began + seconds:
                    answer = read(client, target, "max-age=2").ok()
                    found.append((how(answer), int(answer.header("Age") or 0)))
                    time.sleep(0.02)
            return found

        with ThreadPoolExecutor(clients) as pool:
            answers = [
                each
                for work_done in [pool.submit(work) for _ in range(clients)]
                for each in work_done.result()
            ]
        after = metrics(proxy)
    hits = [age for who, age in answers if who == "hit"]
    assert len(hits) > 0.9 * len(answers)
    assert max(hits) <= 2
    for kind in ("probe", "barrier"):
        name = "kubecache_probes_total"
        count = after.total(name, kind=kind, resource="limitranges") - before.total(
            name, kind=kind, resource="limitranges"
        )
        assert 1 <= count <= seconds + 1


def test_many_strict_reads_share_their_probes(apiserver: ApiServer, collection: str) -> None:
    """Far fewer probes than reads, and each read sees what was written before it."""
    with Proxy(apiserver.kubeconfig(), "--consistency", "strict", config=NAMED) as proxy:
        caught_up(proxy.read, collection, get(apiserver.server, f"{collection}/a").version)

        def work(number: int) -> None:
            with Session(proxy.read) as client, Session(apiserver.server) as direct:
                for turn in range(10):
                    if number == 0:
                        body = configmap("a", {"k": str(turn)})
                        written = direct.ask("PUT", f"{collection}/a", body=body).ok().version
                        seen = client.ask("GET", f"{collection}/a").ok().version
                        assert int(seen) >= int(written)
                    else:
                        client.ask("GET", f"{collection}/a").ok()

        with ThreadPoolExecutor(20) as pool:
            for done in [pool.submit(work, number) for number in range(20)]:
                done.result()
        probes = metrics(proxy).total("kubecache_probes_total", kind="probe")
    assert 1 <= probes < 100


# --- an API server that is away --------------------------------------------------------------------


@pytest.mark.parametrize("fault", ["freeze", "refuse"])
def test_stale_answers_while_the_api_server_is_away(
    apiserver: ApiServer, collection: str, fault: str
) -> None:
    with (
        FaultProxy(apiserver.port) as line,
        Proxy(apiserver.kubeconfig(port=line.port), config=NAMED, chain=False) as proxy,
    ):
        caught_up(proxy.read, collection, get(apiserver.server, f"{collection}/a").version)
        getattr(line, fault)()
        if fault == "refuse":
            line.cut()
        began = time.monotonic()
        answer = read(proxy.read, f"{collection}/a", "max-age=0, max-stale=60").ok()
        assert (how(answer), time.monotonic() - began < 5) == ("hit", True)
        assert int(answer.header("Age") or 0) <= 5
        began = time.monotonic()
        read(proxy.read, f"{collection}/a", "max-age=0, max-stale=60").ok()
        assert time.monotonic() - began < 0.5
        assert how(get(proxy.read, f"{collection}/a").ok()) == "hit"
        too_old = read(proxy.read, f"{collection}/a", "max-age=0, max-stale=0, only-if-cached")
        assert too_old.status in (200, 504)
        assert get(proxy.admin, "/readyz").status == 500
        line.resume()
        proxy.wait("readyz", timeout=20)
        assert read(proxy.read, f"{collection}/a", "max-age=0").ok()
