"""Lists and watches with every combination of their options, to both servers: equal answers."""

from __future__ import annotations

import itertools
import re
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from typing import NamedTuple, Self
from urllib.parse import urlencode

import pytest

from proxy.kube.continuation import LATEST, decode_token, encode_token
from tests.harness.apiserver import ApiServer
from tests.harness.caching import cached, caught_up
from tests.harness.differential import cache_status, differences
from tests.harness.http import Answer, Server, Session, ask, get
from tests.harness.objects import Object, configmap, crd, create, define, node, patch
from tests.harness.proxy import Proxy
from tests.harness.traffic import random_of_test

FUTURE = "999999999"
BOOKMARK = b'{"type":"BOOKMARK"'

# None is an option that isn't given; some values are the names of those of a `Place`.
Table = Mapping[str, Sequence[str | None]]
VERSIONS = (None, "0", "compacted", "unkept", "paged", "current", "future", "junk", "-1")
MATCHES = (None, "Exact", "NotOlderThan", "Newest")
LISTS: Table = {
    "resourceVersion": VERSIONS,
    "resourceVersionMatch": MATCHES,
    "limit": (None, "0", "2", "-1", "junk"),
    "continue": (None, "page", "expired", "latest", "junk"),
    "labelSelector": (None, "tier=web"),
}
WATCHES: Table = {
    "watch": ("1",),
    "resourceVersion": VERSIONS,
    "resourceVersionMatch": MATCHES,
    "sendInitialEvents": (None, "true", "false"),
    "allowWatchBookmarks": (None, "true"),
    "timeoutSeconds": ("3", "-1", "junk"),
    "labelSelector": (None, "tier=web"),
}
Options = dict[str, str]


class Place(NamedTuple):
    """A collection, and the versions and tokens that options name."""

    collection: str
    object: Callable[..., Object]
    values: dict[str, str]

    def write(self, server: Server, name: str, tier: str) -> str:
        """Creates or changes an object; returns its version."""
        body = self.object(name, tier=tier)
        target = f"{self.collection}/{name}"
        if get(server, target).status == 404:
            written = create(server, self.collection, body)
        else:
            written = patch(server, target, body)
        version: str = written["metadata"]["resourceVersion"]
        return version

    def page(self, server: Server) -> tuple[str, str]:
        """The version and the token of a first page."""
        metadata = get(server, f"{self.collection}?limit=2").ok().json()["metadata"]
        return metadata["resourceVersion"], metadata["continue"]

    def target(self, options: Options) -> str:
        named = {name: self.values.get(value, value) for name, value in options.items()}
        return f"{self.collection}?{urlencode(named)}"


class World(NamedTuple):
    apiserver: Server
    proxy: Server
    places: list[Place]


@pytest.fixture(scope="module")
def world() -> Iterator[World]:
    """Collections that had states which are compacted, which only the API server has, which the
    proxy keeps for a token, and which are theirs now."""
    with ApiServer() as own:
        server = own.server
        places = [*_places(server)]
        for place in places:
            for name, tier in (("a", "web"), ("b", "db"), ("c", "web"), ("d", "web")):
                place.write(server, name, tier)
            place.values["compacted"], place.values["expired"] = place.page(server)
            place.write(server, "b", "web")
        own.restart()
        own.compact()
        for place in places:
            place.values["unkept"] = place.write(server, "e", "db")
            place.write(server, "a", "db")
        with Proxy(own.kubeconfig()) as proxy:
            for place in places:
                _make_history(server, proxy.read, place)
            yield World(server, proxy.read, places)


def _places(server: Server) -> Iterator[Place]:
    """Of a built-in, a custom and a cluster-scoped resource, and of one without watch cache."""
    yield Place("/api/v1/namespaces/default/configmaps", _configmap, {"future": FUTURE})
    readers = define(server, crd("Reader"))
    yield Place(readers.path("default"), readers.object, {"future": FUTURE})
    yield Place("/api/v1/nodes", node, {"future": FUTURE})
    yield Place("/api/v1/namespaces/default/events", _event, {"future": FUTURE})


def _configmap(name: str, **labels: str) -> Object:
    return configmap(name, {"text": "<ä> &"}, **labels)


def _event(name: str, **labels: str) -> Object:
    about = {"kind": "Pod", "namespace": "default", "name": "p"}
    return {"metadata": {"name": name, "labels": labels}, "involvedObject": about}


def _make_history(server: Server, proxy: Server, place: Place) -> None:
    cached(proxy, place.collection)
    values = place.values
    values["paged"], values["page"] = place.page(proxy)
    latest = decode_token(values["page"])._replace(version=LATEST)
    values["latest"] = encode_token(latest, slash=True)
    place.write(server, "a", "web")
    ask(server, "DELETE", f"{place.collection}/c").ok()
    values["current"] = place.write(server, "f", "web")
    caught_up(proxy, place.collection, values["current"])


def combinations(table: Table) -> list[Options]:
    return [
        {name: value for name, value in zip(table, values, strict=True) if value is not None}
        for values in itertools.product(*table.values())
    ]


Case = tuple[Place, Options]
Settle = Callable[[Options, Answer], Answer]


class Judge:
    """Sends requests to both, on connections that are kept; use it in a `with`.

    settle: takes from an answer what may differ between the two.
    """

    def __init__(self, world: World, settle: Settle) -> None:
        self.found: list[str] = []
        self.sources: Counter[str] = Counter()
        self.forwarded: list[Options] = []  # … which the API server did not refuse
        self._servers = world.apiserver, world.proxy
        self._settle = settle
        self._local = threading.local()
        self._open = ExitStack()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    def judge(self, place: Place, options: Options) -> None:
        """Notes what differs, and who answered."""
        target = place.target(options)
        expected, actual = (session.ask("GET", target) for session in self._sessions())
        settled = (self._settle(options, answer) for answer in (expected, actual))
        if found := differences(*settled):
            self.found.append("\n".join((f"{options} {target}", *found)))
        source = cache_status(actual)
        self.sources[f"{actual.status} {source.source}"] += 1
        if actual.status == 200 and not source.hit:
            self.forwarded.append(options)

    def judge_all(self, cases: Iterable[Case], *, threads: int) -> None:
        with ThreadPoolExecutor(threads) as pool:
            list(pool.map(lambda case: self.judge(*case), cases))

    def assert_equal(self) -> None:
        print(self.sources)
        assert not self.found, "\n\n".join((f"{len(self.found)} differ", *self.found[:10]))

    def _sessions(self) -> list[Session]:
        """Those of this thread."""
        if not hasattr(self._local, "sessions"):
            opened = [self._open.enter_context(Session(server)) for server in self._servers]
            self._local.sessions = opened
        sessions: list[Session] = self._local.sessions
        return sessions


def settled_list(options: Options, answer: Answer) -> Answer:
    """Without the version of a list that may be of any: caches may be at different ones."""
    content = re.sub(rb"current: \d+", b"current: N", answer.content)
    if answer.status == 200 and not _is_exact(options):
        own = b'"resourceVersion":"%s"' % answer.version.encode()
        before = rb'("metadata":{(?:"continue":"[^"]*",|"remainingItemCount":\d+,)*)'
        content = re.sub(before + own, rb"\1", content)
        content = re.sub(rb'(?<="continue":")[^"]+', partial(_placed, answer), content)
    return replace(answer, body=content)


def _is_exact(options: Options) -> bool:
    """Whether the options say of which version the answer is."""
    token, version = options.get("continue"), options.get("resourceVersion", "0")
    if token:
        return token != "latest"
    limited = options.get("limit") == "2" and "resourceVersionMatch" not in options
    return version != "0" and (limited or options.get("resourceVersionMatch") == "Exact")


def _placed(answer: Answer, found: re.Match[bytes]) -> bytes:
    """Where a token goes on, once it is one of the list's own version."""
    token = decode_token(found[0].decode())
    assert token.version == int(answer.version)
    return token.start.encode()


def settled_watch(options: Options, answer: Answer) -> Answer:
    """Without the bookmarks that kube-apiserver sends when its timer says so."""
    if answer.status == 200 and options["timeoutSeconds"] == "-1":
        return replace(answer, body=b"")  # it has ended before it began, or a little later
    content = re.sub(rb"current: \d+", b"current: N", answer.content)
    content = re.sub(rb'"retryAfterSeconds":[1-3]', b"", content)  # of events: a random number
    lines = [line for line in content.splitlines(keepends=True) if _counts(line)]
    return replace(answer, body=b"".join(map(_unversioned, lines)))


def _counts(line: bytes) -> bool:
    return not line.startswith(BOOKMARK) or b"k8s.io/initial-events-end" in line


def _unversioned(line: bytes) -> bytes:
    """A bookmark is of the version that a cache is at."""
    if not line.startswith(BOOKMARK):
        return line
    return re.sub(rb'"resourceVersion":"\d+"', b"", line)


def test_lists(world: World) -> None:
    """Those first that the API server may wait with: three seconds for a version to come."""
    cases = _cases(world.places, LISTS, 120)
    cases.sort(key=lambda case: case[1].get("resourceVersion") != "future")
    with Judge(world, settled_list) as judge:
        judge.judge_all(cases, threads=40)
        judge.assert_equal()
    assert {options["resourceVersion"] for options in judge.forwarded} == {"unkept"}


def _cases(places: Sequence[Place], table: Table, others: int) -> list[Case]:
    """All combinations for ConfigMaps, and some for each of the others."""
    random = random_of_test()
    whole = combinations(table)
    first, *rest = places
    chosen = [(place, options) for place in rest for options in random.sample(whole, others)]
    return [(first, options) for options in whole] + chosen


def test_watches(world: World) -> None:
    """Each to its end, after what a history may take to be caught up with on a busy machine."""
    with Judge(world, settled_watch) as judge:
        judge.judge_all(_cases(world.places, WATCHES, 100), threads=150)
        judge.assert_equal()
    in_time = [options for options in judge.forwarded if options["timeoutSeconds"] == "3"]
    versions = {options["resourceVersion"] for options in in_time}
    assert versions == {"compacted", "unkept", "future"}
