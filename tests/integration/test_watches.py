"""The same watch at the proxy and at kube-apiserver, the same writes: equal frames."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any, NamedTuple

import pytest

from tests.harness.apiserver import ApiServer
from tests.harness.caching import cached, caught_up
from tests.harness.differential import cache_status, compare
from tests.harness.http import Answer, Server, Watch, ask, watch
from tests.harness.objects import (
    CustomResource,
    Object,
    configmap,
    crd,
    create,
    define,
    patch,
    pod,
    pod_status,
)
from tests.harness.proxy import Proxy, metrics

CONFIGMAPS = "/api/v1/configmaps"
BOOKMARK = b'{"type":"BOOKMARK"'
WATCHERS = CustomResource("test.kubecache.dev", "watchers", "Watcher")

SELECTORS = [
    "",
    "labelSelector=tier%3Dweb",
    "labelSelector=tier!%3Dweb",
    "labelSelector=tier+in+(web,db)",
    "labelSelector=tier+notin+(db)",
    "labelSelector=!tier",
    "labelSelector=tier",
    "fieldSelector=metadata.name%3Dmoving",
    "fieldSelector=metadata.name!%3Dmoving",
    "fieldSelector=metadata.name%3Dmoving&labelSelector=tier%3Dweb",
    "labelSelector=none",
]


class Pair(NamedTuple):
    """One watch at kube-apiserver, and the same one through the proxy."""

    apiserver: Watch
    proxy: Watch


class Both(NamedTuple):
    """Both servers, and the collection of a namespace whose resource the proxy has cached."""

    apiserver: Server
    proxy: Server
    collection: str

    def version(self) -> str:
        """The API server's version now, once the proxy's cache has it too."""
        created = create(self.apiserver, self.collection, self.object("mark"))
        version: str = created["metadata"]["resourceVersion"]
        caught_up(self.proxy, self.collection, version)
        return version

    def elsewhere(self, namespace: str) -> str:
        """The collection of another namespace, or with "" that of the cluster."""
        before, _, rest = self.collection.partition("/namespaces/")
        plural = rest.partition("/")[2]
        return f"{before}/namespaces/{namespace}/{plural}" if namespace else f"{before}/{plural}"

    def object(self, name: str, **labels: str) -> Object:
        if self.collection.endswith("watchers"):
            return WATCHERS.object(name, **labels)
        return configmap(name, {"text": "<ä>"}, **labels)

    def watch(self, stack: ExitStack, target: str) -> Pair:
        servers = self.apiserver, self.proxy
        pair = Pair(*(stack.enter_context(watch(each, target)) for each in servers))
        assert_cached(pair.proxy)
        return pair


@pytest.fixture(params=["configmaps", "watchers"])
def both(
    request: pytest.FixtureRequest, apiserver: ApiServer, proxy: Proxy, namespace: str
) -> Both:
    if request.param == "configmaps":
        collection, everywhere = f"/api/v1/namespaces/{namespace}/configmaps", CONFIGMAPS
    else:
        define(apiserver.server, crd("Watcher"))
        collection, everywhere = WATCHERS.path(namespace), WATCHERS.path()
    cached(proxy.read, everywhere)
    return Both(apiserver.server, proxy.read, collection)


def assert_cached(stream: Watch) -> None:
    answer = Answer(stream.status, stream.headers, b"")
    assert answer.status == 200
    assert cache_status(answer).hit, answer.headers


def all_lines(stream: Watch) -> list[bytes]:
    """The frames of a watch that ends by itself, cleanly."""
    lines = []
    while line := stream.line():
        lines.append(line)
    return lines


def lines_until(stream: Watch, version: str) -> list[bytes]:
    """The frames up to one with an object of this version."""
    lines = [stream.line()]
    while json.loads(lines[-1])["object"]["metadata"]["resourceVersion"] != version:
        lines.append(stream.line())
    return lines


def make_history(server: Server, collection: str, both: Both) -> str:
    """Objects appear, change, enter and leave selections, and go; returns the last version."""
    moving, other = f"{collection}/moving", f"{collection}/other"
    create(server, collection, both.object("moving", tier="web"))
    create(server, collection, both.object("other"))
    for tier in ("db", "web", "web", None, "batch", "web"):
        patch(server, moving, {"metadata": {"labels": {"tier": tier, "turn": str(tier)}}})
        patch(server, other, {"metadata": {"annotations": {"saw": str(tier)}}})
    patch(server, other, {"metadata": {"labels": {"tier": "web"}}})
    ask(server, "DELETE", moving).ok()
    create(server, collection, both.object("moving", tier="db"))
    ask(server, "DELETE", other).ok()
    patch(server, moving, {"metadata": {"labels": {"tier": "web"}}})
    last = patch(server, moving, {"metadata": {"labels": {"end": "here"}}})
    version: str = last["metadata"]["resourceVersion"]
    return version


def test_watches_replay_history_from_a_version(both: Both) -> None:
    start = both.version()
    end = make_history(both.apiserver, both.collection, both)
    caught_up(both.proxy, both.collection, end)
    with ExitStack() as stack:
        pairs = [
            both.watch(
                stack, f"{both.collection}?watch=1&timeoutSeconds=1&resourceVersion={start}&{each}"
            )
            for each in SELECTORS
        ]
        seen = [(all_lines(pair.apiserver), all_lines(pair.proxy)) for pair in pairs]
    for selector, (expected, actual) in zip(SELECTORS, seen, strict=True):
        assert actual == expected, selector
    assert len(seen[0][0]) > 15
    assert seen[-1][0] == []


def test_watches_follow_writes(both: Both) -> None:
    start = both.version()
    followed = [each for each in SELECTORS if matches_end(each)]
    with ExitStack() as stack:
        pairs = [
            both.watch(stack, f"{both.collection}?watch=1&resourceVersion={start}&{each}")
            for each in followed
        ]
        end = make_history(both.apiserver, both.collection, both)
        for selector, pair in zip(followed, pairs, strict=True):
            expected = lines_until(pair.apiserver, end)
            assert lines_until(pair.proxy, end) == expected, selector


def matches_end(selector: str) -> bool:
    """Whether a selection sees the last write of `make_history`."""
    unseen = ("tier!", "!tier", "name!", "none")
    return not any(part in selector for part in unseen)


def test_a_watch_is_of_its_namespace_alone(apiserver: ApiServer, both: Both) -> None:
    elsewhere = apiserver.new_namespace()
    other, everywhere = both.elsewhere(elsewhere), both.elsewhere("")
    start = both.version()
    with ExitStack() as stack:
        pairs = [
            both.watch(stack, f"{target}?watch=1&resourceVersion={start}{more}")
            for target, more in (
                (both.collection, ""),
                (other, ""),
                (everywhere, ""),
                (everywhere, f"&fieldSelector=metadata.namespace%3D{elsewhere}"),
                (other, "&labelSelector=tier%3Dweb"),
            )
        ]
        create(both.apiserver, both.collection, both.object("here", tier="web"))
        create(both.apiserver, other, both.object("there", tier="web"))
        ask(both.apiserver, "DELETE", f"{both.collection}/here").ok()
        ask(both.apiserver, "DELETE", f"{other}/there").ok()
        for pair, count in zip(pairs, (2, 2, 4, 2, 2), strict=True):
            expected = [pair.apiserver.line() for _ in range(count)]
            assert [pair.proxy.line() for _ in range(count)] == expected


STARTS = [
    "",
    "&resourceVersion=0",
    "&resourceVersion=",
    "&sendInitialEvents=true&resourceVersionMatch=NotOlderThan",
    "&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&resourceVersion=0",
    "&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&resourceVersion={version}",
    "&sendInitialEvents=false&resourceVersionMatch=NotOlderThan",
    "&sendInitialEvents=false&resourceVersionMatch=NotOlderThan&resourceVersion=0",
    "&sendInitialEvents=false&resourceVersionMatch=NotOlderThan&resourceVersion={version}",
    "&limit=1",
    "&limit=1&timeout=32s",
    "&labelSelector=tier%3Dweb",
    "&fieldSelector=metadata.name%3Dmoving",
    "&labelSelector=none",
]


@pytest.mark.parametrize("bookmarks", ["", "&allowWatchBookmarks=true"])
def test_watches_start_with_what_there_is(both: Both, bookmarks: str) -> None:
    """Initial events in the order of lists, then what follows."""
    make_history(both.apiserver, both.collection, both)
    version = both.version()
    opening = f"{both.collection}?watch=1{bookmarks}"
    with ExitStack() as stack:
        pairs = [both.watch(stack, f"{opening}{start.format(version=version)}") for start in STARTS]
        for start, pair in zip(STARTS, pairs, strict=True):
            end = write_end(both)
            if "none" not in start:
                expected = events_of(lines_until(pair.apiserver, end))
                assert events_of(lines_until(pair.proxy, end)) == expected, start


def test_initial_events_end_with_a_bookmark(both: Both) -> None:
    """Also those that nobody asked for by sendInitialEvents."""
    make_history(both.apiserver, both.collection, both)
    version = both.version()
    opening = f"{both.collection}?watch=1&allowWatchBookmarks=true"
    starts = [start for start in STARTS if "=false" not in start]
    with ExitStack() as stack:
        pairs = [both.watch(stack, f"{opening}{start.format(version=version)}") for start in starts]
        for start, pair in zip(starts, pairs, strict=True):
            expected, actual = (
                lines_until_bookmark(pair.apiserver),
                lines_until_bookmark(pair.proxy),
            )
            assert settled(actual) == settled(expected), start
            assert b"k8s.io/initial-events-end" in actual[-1]


def events_of(lines: list[bytes]) -> list[bytes]:
    """Without the bookmarks, which kube-apiserver sends when its timer says so."""
    return [line for line in lines if not line.startswith(BOOKMARK)]


def lines_until_bookmark(stream: Watch) -> list[bytes]:
    lines = [stream.line()]
    while not lines[-1].startswith(BOOKMARK):
        lines.append(stream.line())
    return lines


def write_end(both: Both) -> str:
    """A write to an object that all selections of `STARTS` but one have."""
    annotations = {"at": str(time.monotonic_ns())}
    written = patch(
        both.apiserver, f"{both.collection}/moving", {"metadata": {"annotations": annotations}}
    )
    version: str = written["metadata"]["resourceVersion"]
    return version


def settled(lines: list[bytes]) -> list[bytes]:
    """The frames, but for the version of a bookmark: caches may be at different ones."""
    return [
        re.sub(rb'"resourceVersion":"\d+"', b"", line) if line.startswith(BOOKMARK) else line
        for line in lines
    ]


def test_a_bookmark_comes_before_the_deadline(apiserver: ApiServer, both: Both) -> None:
    """Where there is news to tell: here a write in another namespace."""
    query = f"watch=1&allowWatchBookmarks=1&timeoutSeconds=4&resourceVersion={both.version()}"
    elsewhere = both._replace(collection=both.elsewhere(apiserver.new_namespace()))
    with ExitStack() as stack:
        pair = both.watch(stack, f"{both.collection}?{query}")
        news = elsewhere.version()
        expected, actual = all_lines(pair.apiserver), all_lines(pair.proxy)
    assert set(settled(actual)) == set(settled(expected))  # kube-apiserver may send another
    events = [json.loads(line) for line in actual]
    assert {event["type"] for event in events} == {"BOOKMARK"}
    assert int(events[-1]["object"]["metadata"]["resourceVersion"]) >= int(news)


def test_a_watch_ends_when_its_time_is_over(both: Both) -> None:
    started = time.monotonic()
    with watch(both.proxy, f"{both.collection}?watch=1&timeoutSeconds=1") as stream:
        assert_cached(stream)
        assert all_lines(stream) == []
    assert 0.9 < time.monotonic() - started < 5


def test_a_version_to_come_is_silent_until_it_has_passed(both: Both) -> None:
    future = int(both.version()) + 6
    with ExitStack() as stack:
        pair = both.watch(stack, f"{both.collection}?watch=1&resourceVersion={future}")
        end = make_history(both.apiserver, both.collection, both)
        expected = lines_until(pair.apiserver, end)
        assert lines_until(pair.proxy, end) == expected
    first = json.loads(expected[0])["object"]["metadata"]["resourceVersion"]
    assert int(first) > future


def test_pods_move_between_nodes_and_phases(
    apiserver: ApiServer, proxy: Proxy, namespace: str
) -> None:
    pods = f"/api/v1/namespaces/{namespace}/pods"
    cached(proxy.read, "/api/v1/pods")
    both = Both(apiserver.server, proxy.read, pods)
    selectors = ["spec.nodeName%3Dn1", "spec.nodeName%3D", "status.phase%3DRunning"]
    selectors += ["status.phase!%3DRunning,spec.nodeName%3Dn1", "status.podIP%3D10.1.0.7"]
    start = create(both.apiserver, pods, pod("app-0-0"))["metadata"]["resourceVersion"]
    caught_up(proxy.read, pods, start)
    with ExitStack() as stack:
        query = f"watch=1&timeoutSeconds=3&resourceVersion={start}"
        pairs = [both.watch(stack, f"{pods}?{query}&fieldSelector={each}") for each in selectors]
        end = _run_pods(apiserver.server, pods)
        caught_up(proxy.read, pods, end)
        for selector, pair in zip(selectors, pairs, strict=True):
            expected = all_lines(pair.apiserver)
            assert all_lines(pair.proxy) == expected, selector
            assert expected, selector


def _run_pods(server: Server, pods: str) -> str:
    unbound = pod("app-1-1")
    del unbound["spec"]["nodeName"]
    create(server, pods, unbound)
    target = {"kind": "Node", "name": "n1"}
    binding = {"metadata": {"name": "app-1-1"}, "target": target}
    ask(server, "POST", f"{pods}/app-1-1/binding", body=binding).ok()
    for phase in ("Running", "Succeeded"):
        patch(server, f"{pods}/app-1-1/status", pod_status(phase))
    ask(server, "DELETE", f"{pods}/app-1-1?gracePeriodSeconds=0").ok()
    return ask(server, "DELETE", f"{pods}/app-0-0?gracePeriodSeconds=0").ok().version


@pytest.mark.parametrize(
    "query",
    [
        "resourceVersion=abc",
        "resourceVersion=-1",
        "labelSelector=a,,b",
        "fieldSelector=data.x%3D1",
        "fieldSelector=x",
        "resourceVersionMatch=NotOlderThan",
        "resourceVersion=1&resourceVersionMatch=Exact",
        "sendInitialEvents=true",
        "sendInitialEvents=false",
        "sendInitialEvents=true&resourceVersionMatch=Exact",
        "sendInitialEvents=true&resourceVersionMatch=NotOlderThan&resourceVersion=x",
        "timeoutSeconds=x",
        "limit=1&continue=junk",
    ],
)
def test_watches_that_are_refused(both: Both, query: str) -> None:
    target = f"{both.collection}?watch=1&{query}"
    compared = compare(both.apiserver, both.proxy, "GET", target, source="fwd")
    assert compared.proxy.status >= 400


SPELLINGS = ["watch=true", "watch=", "watch", "watch=yes", "watch=FALSE", "watch=0", "Watch=1"]


def test_spellings_of_watch(both: Both) -> None:
    """Those that are not true ask for a list."""
    create(both.apiserver, both.collection, both.object("a"))
    both.version()
    with ExitStack() as stack:
        targets = [f"{both.collection}?{spelling}&timeoutSeconds=1" for spelling in SPELLINGS]
        pairs = [both.watch(stack, target) for target in targets]
        for spelling, pair in zip(SPELLINGS, pairs, strict=True):
            expected, actual = (b"".join(all_lines(each)) for each in pair)
            if spelling in {"watch=FALSE", "watch=0", "Watch=1"}:
                assert b'List"' in expected
                expected, actual = unversioned(expected), unversioned(actual)
            assert actual == expected, spelling


def unversioned(body: bytes) -> Any:
    """A list but for its own version, which moves with the whole store."""
    whole = json.loads(body)
    del whole["metadata"]["resourceVersion"]
    return whole


def test_the_watch_prefix_is_the_apiservers(both: Both) -> None:
    """Deprecated, and still served."""
    version = both.version()
    prefixed = both.collection.replace("/v1/", "/v1/watch/")
    end = make_history(both.apiserver, both.collection, both)
    with watch(both.proxy, f"{prefixed}?resourceVersion={version}") as stream:
        assert cache_status(Answer(200, stream.headers, b"")).source == "fwd=bypass"
        assert len(lines_until(stream, end)) > 15


@pytest.fixture
def own() -> Iterator[ApiServer]:
    with ApiServer() as server:
        yield server


def test_a_version_too_old_is_an_error_event(own: ApiServer) -> None:
    collection = "/api/v1/namespaces/default/configmaps"
    old = create(own.server, collection, configmap("old"))["metadata"]["resourceVersion"]
    create(own.server, collection, configmap("new"))
    own.restart()
    own.compact()
    with Proxy(own.kubeconfig()) as proxy:
        cached(proxy.read, CONFIGMAPS)
        both = Both(own.server, proxy.read, collection)
        for version in (old, "1"):
            expected, actual = _expired(both, version)
            assert actual == expected


def _expired(both: Both, version: str) -> list[Any]:
    answers = []
    for server in (both.apiserver, both.proxy):
        with watch(server, f"{both.collection}?watch=1&resourceVersion={version}") as stream:
            event = stream.event()
            assert (event["type"], event["object"]["code"]) == ("ERROR", 410)
            assert stream.line() == b""
            answers.append((stream.status, event))
    return answers


# --- objects that expire ---------------------------------------------------------------------

COUNT = 8
TTL = 20
"""Seconds; kube-apiserver puts what is created within a twentieth of it on one lease of etcd."""


@pytest.fixture(scope="session", autouse=True)
def expiry() -> Iterator[Future[None]]:
    """Events take their time to expire, which they do beside other tests: slow ones come last."""
    with ThreadPoolExecutor(1) as pool:
        yield pool.submit(let_events_expire)


def let_events_expire() -> None:
    """Many at a time, at one resourceVersion: an order of versions must not be asked for."""
    with ApiServer(flags=[f"--event-ttl={TTL}s"]) as own, Proxy(own.kubeconfig()) as proxy:
        namespace = own.new_namespace()
        collection = f"/api/v1/namespaces/{namespace}/events"
        cached(proxy.read, collection)
        target = f"{collection}?watch=1"
        with watch(own.server, target) as theirs, watch(proxy.read, target) as ours:
            about = {"namespace": namespace}
            for number in range(COUNT):
                body = {"metadata": {"name": f"e{number}"}, "involvedObject": about}
                create(own.server, collection, body)
            told = theirs.events(2 * COUNT, timeout=3 * TTL)
            assert ours.events(2 * COUNT, timeout=10) == told
        deleted = [each["object"]["metadata"] for each in told if each["type"] == "DELETED"]
        assert len(deleted) == COUNT
        assert len({each["resourceVersion"] for each in deleted}) < COUNT, "some went together"
        compare(own.server, proxy.read, "GET", collection, source="hit")
        assert metrics(proxy.nearest).total("kubecache_informer_relists_total") == 1


@pytest.mark.slow
def test_events_that_expire_together(expiry: Future[None]) -> None:
    expiry.result(100)
