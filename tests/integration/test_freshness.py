"""How old an answer may be, who says so, and what it takes to be sure of it."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from typing import Any

import pytest

from tests.harness.apiserver import ApiServer
from tests.harness.caching import eventually
from tests.harness.differential import cache_status
from tests.harness.faults import FaultProxy
from tests.harness.http import Answer, Server, Session, ask, get, watch
from tests.harness.objects import configmap, create
from tests.harness.proxy import Proxy, metrics
from tests.harness.watch_delay import WatchDelay

NAMED = {"cache": {"resources": [{"resource": "configmaps"}, {"resource": "limitranges"}]}}
CONFIGMAPS = "/api/v1/namespaces/{ns}/configmaps"
LIMITS = "/api/v1/namespaces/{ns}/limitranges"
LATE = 0.2
"""Seconds by which events are late."""

TOO_LATE = 1.5
"""More than a read waits for."""

_BEGUN = 0.1
"""Seconds after which what comes on a watch isn't taken for the answer to it any more."""


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
def late(
    apiserver: ApiServer, *flags: str, config: Any = NAMED, seconds: float = LATE
) -> Iterator[Proxy]:
    """A proxy whose events come late."""
    with (
        WatchDelay(apiserver.port, seconds) as line,
        Proxy(apiserver.kubeconfig(port=line.port), *flags, config=config) as running,
    ):
        time.sleep(_BEGUN)
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


def wait_known(proxy: Proxy, version: str) -> None:
    """Waits for an event without a read, which strict might send to the API server each time."""

    def is_known() -> bool:
        name = "kubecache_informer_resource_version"
        return metrics(proxy).total(name, resource="configmaps") >= int(version)

    eventually(is_known, f"the ConfigMaps of {version} are cached")


# --- what others write -------------------------------------------------------------------------


TARGETS = ("{all}/a", "{all}", "{all}?fieldSelector=metadata.name%3Da")


@pytest.mark.parametrize(
    ("kind", "cache_control", "seen"),
    [
        ("session", "", False),
        ("session", "max-age=60", False),
        ("session", "max-age=0", True),
        ("session", "max-age", True),
        ("session", "max-age=abc", True),
        ("session", "max-age=-1", True),
        ("session", "max-age=1.5", True),
        ("session", "max-age=junk, max-age=60", True),
        ("session", "no-cache", True),
        ("strict", "", True),
        ("strict", "max-age=60", True),
    ],
)
def test_writes_of_others(
    request: pytest.FixtureRequest,
    apiserver: ApiServer,
    collection: str,
    kind: str,
    cache_control: str,
    seen: bool,
) -> None:
    """Are they seen right after the write, whose event is late? A live read is who else's."""
    proxy: Proxy = request.getfixturevalue(kind)
    wait_known(proxy, get(apiserver.server, f"{collection}/a").version)
    with ThreadPoolExecutor(len(TARGETS)) as pool:
        for number in range(1, 4):
            read(proxy.read, collection, "max-age=60").ok()  # so that there is a proof
            version = write(apiserver, collection, str(number))
            targets = [target.format(all=collection) for target in TARGETS]
            servers = [proxy.read.adding(("User-Agent", target)) for target in targets]
            for answer in pool.map(read, servers, targets, [cache_control] * len(targets)):
                assert (_version(answer) == version) is seen, how(answer)
                assert how(answer) in _sources(cache_control, seen)
                assert answer.header("Age") in ({"0"} if how(answer) == "hit" else {None})
            wait_known(proxy, version)


def _version(answer: Answer) -> str:
    """The version of the object, or of the one object in a list."""
    found = answer.ok().json()
    found = found["items"][0] if "items" in found else found
    version: str = found["metadata"]["resourceVersion"]
    return version


def _sources(cache_control: str, seen: bool) -> set[str]:
    if cache_control == "no-cache":
        return {"live"}
    # A turn before, a list may have been shown live at a version that the informer has to reach.
    return {"hit", "unproven", "unseen-write", "version-ahead"} if seen else {"hit"}


def test_a_write_of_others_is_seen_within_the_age(apiserver: ApiServer, collection: str) -> None:
    """With events that are later than that."""
    with late(apiserver, seconds=3.0) as proxy, Session(proxy.read) as client:
        assert _version(read(client, f"{collection}/a", "max-age=1"))
        written = write(apiserver, collection, "1")
        answered = time.monotonic()
        seen = []
        while (asked := time.monotonic()) < answered + 2:
            answer = read(client, f"{collection}/a", "max-age=1")
            seen.append((asked - answered, how(answer), _version(answer) == written))
            time.sleep(0.02)
    assert all(is_new for after, _, is_new in seen if after > 1)
    assert {who for _, who, is_new in seen if not is_new} == {"hit"}


def test_a_bound_of_the_proxy_holds_for_all(
    bounded: Proxy, apiserver: ApiServer, collection: str
) -> None:
    wait_known(bounded, get(apiserver.server, f"{collection}/a").version)
    version = write(apiserver, collection, "1")
    time.sleep(0.12)
    answer = get(bounded.read, f"{collection}/a").ok()
    assert answer.version == version
    assert how(answer) in ("hit", "unproven")
    assert answer.header("Age") in (None, "0")
    assert get(bounded.read, f"{collection}?resourceVersion=0").status == 200


@pytest.mark.parametrize("kind", ["strict", "session"])
def test_watches_begin_as_fresh_as_reads(
    request: pytest.FixtureRequest, apiserver: ApiServer, collection: str, kind: str
) -> None:
    proxy: Proxy = request.getfixturevalue(kind)
    wait_known(proxy, get(apiserver.server, f"{collection}/a").version)
    version = write(apiserver, collection, "1")
    cache_control = "" if kind == "strict" else "max-age=0"
    headers = (("Cache-Control", cache_control),) if cache_control else ()
    target = f"{collection}?watch=1&fieldSelector=metadata.name%3Da"
    with watch(proxy.read, target, headers=headers) as stream:
        assert stream.event()["object"]["metadata"]["resourceVersion"] == version


# --- what is answered without the API server ----------------------------------------------------


@pytest.fixture(scope="module")
def behind(apiserver: ApiServer) -> Iterator[tuple[Proxy, str]]:
    """A proxy, and an object of which it doesn't know the newest state for a long time."""
    collection = CONFIGMAPS.format(ns=apiserver.new_namespace())
    create(apiserver.server, collection, configmap("a", {"k": "0"}))
    with late(apiserver, seconds=60) as proxy:
        first = read(proxy.read, collection, "max-age=60").ok()
        assert how(first) == "hit"  # a live one would show what the cache may not go behind
        write(apiserver, collection, "1")
        yield proxy, f"{collection}/a"


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
    behind: tuple[Proxy, str], cache_control: str, status: int, reason: str
) -> None:
    """Of a state that is known to be old: the event of a write is missing."""
    proxy, target = behind
    answer = read(proxy.read, target, cache_control)
    assert answer.status == status
    if status == 504:
        assert reason in answer.json()["message"]
        assert answer.json()["reason"] == "Timeout"
    else:
        assert (how(answer), answer.json()["data"]) == (reason, {"k": "0"})


def test_misses_are_confirmed_on_request(apiserver: ApiServer, namespace: str) -> None:
    config = {"cache": {**NAMED["cache"], "on_miss": "confirm"}}
    collection = CONFIGMAPS.format(ns=namespace)
    with late(apiserver, config=config, seconds=TOO_LATE) as proxy:
        create(apiserver.server, collection, configmap("new"))
        found = get(proxy.read, f"{collection}/new").ok()
        assert how(found) == "unconfirmed-miss"
        missing = get(proxy.read, f"{collection}/none")
        assert (missing.status, how(missing)) == (404, "unconfirmed-miss")
        assert read(proxy.read, f"{collection}/none", "only-if-cached").status == 504
        wait_known(proxy, found.version)
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
    """LimitRanges, on which nothing happens, for 20 clients and 4 seconds."""
    target = LIMITS.format(ns=namespace)
    seconds, clients = 4.0, 20
    with Proxy(apiserver.kubeconfig(), config=NAMED) as proxy, busy(apiserver, collection):
        for _ in range(60):  # the first proof takes a barrier, and so does the first that is late
            read(proxy.read, target, "max-age=2")
            time.sleep(0.05)
        before = metrics(proxy)
        began = time.monotonic()

        def work() -> list[tuple[str, int]]:
            found = []
            with Session(proxy.read) as client:
                while time.monotonic() < began + seconds:
                    answer = read(client, target, "max-age=2").ok()
                    found.append((how(answer), int(answer.header("Age") or 0)))
                    time.sleep(0.05)
            return found

        with ThreadPoolExecutor(clients) as pool:
            answers = [
                each
                for work_done in [pool.submit(work) for _ in range(clients)]
                for each in work_done.result()
            ]
        after = metrics(proxy)
    hits = [age for who, age in answers if who == "hit"]
    # When a proof is late, whoever reads live meanwhile has seen what the next one is to show.
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
        wait_known(proxy, get(apiserver.server, f"{collection}/a").version)

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


# --- an API server that is away ------------------------------------------------------------------


FAULTS = ("silent", "refusing")


@pytest.fixture(scope="module", autouse=True)
def away(apiserver: ApiServer) -> Iterator[dict[str, Future[None]]]:
    """What takes some seconds, beside the other tests of this module."""
    with ThreadPoolExecutor() as pool:
        yield {fault: pool.submit(_read_while_away, apiserver, fault) for fault in FAULTS}


@pytest.mark.parametrize("fault", FAULTS)
def test_stale_answers_while_the_api_server_is_away(
    away: dict[str, Future[None]], fault: str
) -> None:
    """Whether it takes what is sent and stays silent, or nothing at all."""
    away[fault].result(60)


def _read_while_away(apiserver: ApiServer, fault: str) -> None:
    target = f"{CONFIGMAPS.format(ns=apiserver.new_namespace())}/a"
    create(apiserver.server, target.rpartition("/")[0], configmap("a"))
    with (
        FaultProxy(apiserver.port) as line,
        Proxy(apiserver.kubeconfig(port=line.port), config=NAMED, chain=False) as proxy,
    ):
        assert read(proxy.read, target, "max-age=0").status == 200
        if fault == "silent":
            line.freeze()
        else:
            line.refuse()
            line.cut()
        began = time.monotonic()
        for within in (5.0, 1.0):  # the second one knows already
            asked = time.monotonic()
            answer = read(proxy.read, target, "max-age=0, max-stale=60").ok()
            assert (how(answer), time.monotonic() - asked < within) == ("hit", True)
            assert int(answer.header("Age") or 9) <= time.monotonic() - began + 1
        assert how(read(proxy.read, target)) == "hit"  # in session others' writes don't matter
        proxy.wait("readyz", status=500, timeout=5)
        for bound in ("max-age=0", "max-age=0, max-stale=1"):
            eventually(partial(_is_refused, proxy, target, bound), f"it's too old for {bound}")
        line.resume()
        proxy.wait("readyz", timeout=20)
        assert read(proxy.read, target, "max-age=0").status == 200


def _is_refused(proxy: Proxy, target: str, bound: str) -> bool:
    return read(proxy.read, target, f"{bound}, only-if-cached").status == 504
