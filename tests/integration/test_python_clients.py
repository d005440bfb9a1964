"""Python's clients, unmodified, follow resources through the proxy, and miss nothing.

Each is a program of its own, which does as its library's users do: see tests/clients/python.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from itertools import product
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import pytest

from tests.clients.python.program import GADGETS, key
from tests.harness.apiserver import ApiServer
from tests.harness.caching import cached, eventually
from tests.harness.faults import FaultProxy
from tests.harness.http import Server, ask, get
from tests.harness.kubectl import kubeconfig_for
from tests.harness.objects import Write, configmap, crd, create_pods, define, write_all
from tests.harness.program import Program
from tests.harness.proxy import Metrics, Proxy, metrics
from tests.harness.traffic import Traffic, configmaps, customs, pods, random_of_test

COLLECTIONS = {
    "configmaps": "/api/v1/configmaps",
    "pods": "/api/v1/pods",
    GADGETS.plural: GADGETS.path(),
}
Objects = dict[str, Any]

BUILTIN = ("configmaps", "pods")
CROWD = 110  # kr8s asks for 100 at once

OTHERS = [f"other-{number}" for number in range(16)]
"""Names of objects that are written through the proxy."""

FINALIZER = "kopf.zalando.org/KopfFinalizerMarker"
HANDLED = f"{GADGETS.group}/handled"


class Case(NamedTuple):
    """A program's name and arguments, and what it follows."""

    words: Sequence[str]
    follows: Sequence[str] = tuple(COLLECTIONS)
    lists: bool = True


CASES = {
    "kubernetes": Case(["kubernetes", "typed"]),
    "kubernetes-dynamic": Case(["kubernetes", "dynamic"]),
    "kubernetes-informer": Case(["kubernetes", "informer"], BUILTIN),
    "kubernetes-aio": Case(["kubernetes_asyncio", "kubernetes.aio", "dynamic"]),
    "kubernetes_asyncio": Case(["kubernetes_asyncio", "kubernetes_asyncio", "typed"]),
    "kubernetes_asyncio-dynamic": Case(["kubernetes_asyncio", "kubernetes_asyncio", "dynamic"]),
    "kr8s": Case(["kr8s"]),
    "lightkube": Case(["lightkube"]),
    "kopf": Case(["kopf", "listing"]),
    "kopf-streaming": Case(["kopf", "streaming"], lists=False),
}


class Cluster(NamedTuple):
    """An API server, the proxy before it, and a line to that which can be cut.

    crowded: a namespace with more ConfigMaps than some clients have in one page.
    """

    apiserver: ApiServer
    crowded: str
    proxy: Proxy
    line: FaultProxy


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """One of its own: some follow all that there is."""
    with ExitStack() as stack:
        apiserver = stack.enter_context(ApiServer())
        define(apiserver.server, crd(GADGETS.kind, group=GADGETS.group))
        proxy = stack.enter_context(Proxy(apiserver.kubeconfig()))
        for collection in COLLECTIONS.values():
            cached(proxy.read, collection)
        crowded = apiserver.new_namespace()
        collection = configmaps().collection(crowded)
        many = ([Write("POST", collection, configmap(f"c-{i}"))] for i in range(CROWD))
        write_all(apiserver.server, many)
        yield Cluster(apiserver, crowded, proxy, stack.enter_context(FaultProxy(proxy.read.port)))


@pytest.fixture
def namespaces(cluster: Cluster) -> list[str]:
    """New ones, with pods."""
    found = [cluster.apiserver.new_namespace() for _ in range(3)]
    create_pods(cluster.apiserver.server, found, 20)
    return found


@pytest.mark.parametrize("name", CASES)
def test_it_ends_with_what_the_api_server_has(
    name: str, cluster: Cluster, namespaces: list[str], tmp_path: Path
) -> None:
    case = CASES[name]
    apiserver, proxy, line = cluster.apiserver, cluster.proxy, cluster.line
    module, *words = case.words
    kubeconfig = kubeconfig_for(Server("127.0.0.1", line.port), tmp_path)
    before = metrics(proxy)
    with Program(module, *words, kubeconfig=kubeconfig, folder=tmp_path) as program:
        wait_in_step(program, apiserver.server, case)
        listed = metrics(proxy)
        written = [each for each in case.follows if each != "pods"]
        if module != "kopf":  # whose users have no reads
            assert program.ask("write", cluster.crowded) == written
        with writers(cluster, namespaces) as traffic:
            traffic.progress(60)
            line.cut()
            traffic.progress(60)
        found = wait_in_step(program, apiserver.server, case)
        assert all(len(found[plural]) > len(namespaces) for plural in case.follows)
        if module == "kopf":
            eventually(lambda: _all_handled(apiserver.server), "all are handled", timeout=60)
        delete_all(apiserver.server, namespaces)
        wait_in_step(program, apiserver.server, case)
    for plural in case.follows:
        assert_cached(plural, before, listed, metrics(proxy), lists=case.lists)


@contextmanager
def writers(cluster: Cluster, namespaces: Sequence[str]) -> Iterator[Traffic]:
    """Writes at the API server, of which the answer tells, and others through the proxy."""
    kinds = [configmaps(), pods(), customs(GADGETS)]
    random = random_of_test()
    direct = Traffic(cluster.apiserver.server, kinds, namespaces, random)
    through = Traffic(cluster.proxy.read, kinds, namespaces, Random(1), names=OTHERS)
    with direct, through:
        yield direct


def wait_in_step(program: Program, server: Server, case: Case) -> Mapping[str, Objects]:
    """Waits until the program has what the API server has; returns that."""

    def check() -> Mapping[str, Objects] | None:
        live = {plural: _live(server, plural) for plural in case.follows}
        stores = _plain(json.dumps(program.ask("stores")))
        assert stores.keys() == live.keys()
        return live if all(same(stores[plural], live[plural]) for plural in live) else None

    return eventually(check, f"{program.name} is in step", timeout=15)


def same(one: Objects, other: Objects) -> bool:
    """Whether two stores are equal; list items may lack kind and apiVersion."""
    return _untyped(one) == _untyped(other)


def _untyped(store: Objects) -> Objects:
    return {
        key: {name: value for name, value in found.items() if name not in {"kind", "apiVersion"}}
        for key, found in store.items()
    }


def _live(server: Server, plural: str) -> Objects:
    found = _plain(get(server, COLLECTIONS[plural]).ok().body.decode())
    return {key(each): each for each in found["items"]}


def _plain(text: str) -> Any:
    """JSON, but for what models don't keep: fields that are null, and how UTC is spelled."""

    def present(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        return {name: value for name, value in pairs if value is not None}

    return json.loads(text.replace("+00:00", "Z"), object_pairs_hook=present)


def _all_handled(server: Server) -> bool:
    """Whether kopf's handlers have written what they do, and hold each object."""
    found = _live(server, GADGETS.plural).values()
    return all(
        FINALIZER in each["metadata"].get("finalizers", ())
        and each["metadata"]["annotations"].get(HANDLED) == each["spec"]["color"]
        for each in found
    )


def delete_all(server: Server, namespaces: Sequence[str]) -> None:
    """Deletes what is in these namespaces, and waits until it is gone, finalizers or not."""
    for namespace, kind in product(namespaces, (configmaps(), pods(), customs(GADGETS))):
        target = f"{kind.collection(namespace)}?gracePeriodSeconds=0"
        ask(server, "DELETE", target).ok()
    for namespace, kind in product(namespaces, (configmaps(), pods(), customs(GADGETS))):
        target = kind.collection(namespace)
        eventually(partial(_is_empty, server, target), f"{target} is empty")


def _is_empty(server: Server, target: str) -> bool:
    return not get(server, target).ok().json()["items"]


def assert_cached(
    plural: str, before: Metrics, listed: Metrics, after: Metrics, *, lists: bool
) -> None:
    """Its lists and watches were served by the informer of JSON."""

    def counted(now: Metrics, verb: str, source: str) -> float:
        name = "kubecache_requests_total"
        labels = {"verb": verb, "source": source, "resource": plural}
        return now.total(name, **labels) - before.total(name, **labels)

    def told(**labels: str) -> float:
        name = "kubecache_watch_events_sent_total"
        return after.total(name, resource=plural, **labels) - before.total(
            name, resource=plural, **labels
        )

    assert counted(listed, "list", "cache") >= lists
    assert counted(listed, "list", "live") == 0
    assert counted(after, "watch", "cache") > 0
    assert counted(after, "watch", "live") == 0
    assert told(form="json") == told() > 0
