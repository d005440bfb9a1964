"""Lists in pages while objects come, change and go: one state, no object lost or doubled."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from itertools import cycle
from typing import Any, NamedTuple

from tests.harness.apiserver import ApiServer
from tests.harness.caching import cached
from tests.harness.differential import cache_status, exact_target
from tests.harness.http import Server, Session, get
from tests.harness.objects import Write, write_all
from tests.harness.proxy import Proxy
from tests.harness.traffic import Traffic, configmaps, random_of_test

NAMES = [f"{start}{number:03}" for start in ("a-", "a.", "b") for number in range(250)]


class Walk(NamedTuple):
    """The list that the pages are of, and all that they said."""

    target: str
    version: str
    items: list[Any]
    sources: set[str]


def test_pages_are_of_one_state(apiserver: ApiServer, proxy: Proxy, namespace: str) -> None:
    collection = _fill(apiserver.server, namespace)
    cached(proxy.read, collection)
    random = random_of_test()
    direct, through = apiserver.server, proxy.read
    plans = [
        (f"{collection}?limit=20", (through,)),
        (f"{collection}?limit=20", (through,)),
        (f"{collection}?limit=7&labelSelector=tier!%3Ddb", (through,)),
        (f"{collection}?limit=31&fieldSelector=metadata.name!%3Da-001", (through,)),
        (f"{collection}?limit=20", (through, direct)),
        (f"{collection}?limit=20", (direct, through)),
    ]
    with Traffic(direct, [configmaps()], [namespace], random, names=NAMES) as traffic:
        for _ in range(4):
            traffic.progress(50)
            before = traffic.count
            with ThreadPoolExecutor(len(plans)) as pool:
                walks = list(pool.map(lambda plan: _walk(*plan), plans))
            assert traffic.count > before + 10
            for walk in walks:
                _assert_whole(direct, walk)
            assert set.union(*(walk.sources for walk in walks[:4])) == {"hit"}


def _fill(server: Server, namespace: str) -> str:
    kind = configmaps()
    collection = kind.collection(namespace)
    write_all(server, ([Write("POST", collection, kind.object(name))] for name in NAMES))
    return collection


def _walk(target: str, servers: Sequence[Server]) -> Walk:
    """All pages, from the servers in turn."""
    items: list[Any] = []
    versions, sources, more = set(), set(), ""
    with ExitStack() as stack:
        sessions = [stack.enter_context(Session(server)) for server in servers]
        for session in cycle(sessions):
            answer = session.ask("GET", target + more).ok()
            if answer.header("Cache-Status"):
                sources.add(cache_status(answer).source)
            page = answer.json()
            items += page["items"]
            versions.add(page["metadata"]["resourceVersion"])
            if not (token := page["metadata"].get("continue")):
                break
            more = f"&continue={token}"
    assert len(versions) == 1, f"{target} is of versions {versions}"
    return Walk(target, versions.pop(), items, sources)


def _assert_whole(server: Server, walk: Walk) -> None:
    """The pages together are kube-apiserver's list at their version."""
    path, _, query = walk.target.partition("?")
    unlimited = "&".join(pair for pair in query.split("&") if not pair.startswith("limit"))
    whole = get(server, exact_target(f"{path}?{unlimited}", walk.version)).ok().json()
    names = [each["metadata"]["name"] for each in walk.items]
    assert len(set(names)) == len(names) > 100
    assert walk.items == whole["items"], walk.target
