"""A list at version r is kube-apiserver's list at exactly r: random lists amid random writes."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import nullcontext
from random import Random
from typing import Any
from urllib.parse import quote

import pytest

from tests.harness.apiserver import ApiServer
from tests.harness.caching import caught_up
from tests.harness.differential import compare
from tests.harness.http import Answer, Server
from tests.harness.objects import CustomResource, crd, create, define
from tests.harness.proxy import Proxy, chained
from tests.harness.traffic import (
    Kind,
    Traffic,
    bare,
    configmaps,
    customs,
    pods,
    random_of_test,
)

COMPARISONS = 200
DEADLINE = 18  # seconds; a slow machine compares less
FEWEST = 60
OPERATIONS = int(os.environ.get("KUBECACHE_TEST_OPERATIONS", "0"))
"""Writes and comparisons of a nightly run, however long they take."""

LABELS = ["tier=web", "tier!=web", "tier in (web,db)", "!tier", "tier", "tier=web,rank=1", "rank>2"]
LABELS += ["tier notin (db)", "none", "rank<2,tier=db"]
FIELDS = ["metadata.name=app-1-1", "metadata.name!=app-1-1", "metadata.namespace={namespace}"]
POD_FIELDS = [*FIELDS, "status.phase=Running", "status.phase!=Running", "spec.nodeName=node-0"]


LIMITS = ["limit=1", "limit=3", "limit=8", "limit=500"]


class Lists:
    """Random lists of some kinds in some namespaces, whole or in pages."""

    def __init__(self, kinds: dict[str, Kind], namespaces: list[str], random: Random) -> None:
        self._kinds = kinds
        self._namespaces = namespaces
        self._random = random
        self._seen: dict[str, int] = {}

    def next(self) -> str:
        """The target of a list."""
        plural = self._random.choice(list(self._kinds))
        namespace = self._random.choice(self._namespaces)
        collection = self._kinds[plural].collection(namespace)
        if self._random.random() < 0.4:
            collection = collection.replace(f"/namespaces/{namespace}", "")
        options = [*self._selectors(collection, namespace), *self._other_options()]
        return f"{collection}?{'&'.join(options)}"

    def _selectors(self, collection: str, namespace: str) -> Iterator[str]:
        if self._random.random() < 0.5:
            yield f"labelSelector={quote(self._random.choice(LABELS))}"
        if self._random.random() < 0.3:
            fields = self._random.choice(POD_FIELDS if collection.endswith("pods") else FIELDS)
            yield f"fieldSelector={quote(fields.format(namespace=namespace))}"

    def _other_options(self) -> Iterator[str]:
        if self._random.random() < 0.4:
            yield self._random.choice(LIMITS)
        if self._random.random() < 0.2:
            yield "pretty=1"
        match self._random.randrange(6):
            case 0:
                yield "resourceVersion=0"
            case 1:
                yield f"resourceVersion={max(self._seen.values(), default=1)}"
                yield "resourceVersionMatch=" + self._random.choice(["NotOlderThan", "Exact"])

    def saw(self, target: str, version: int) -> None:
        """Versions that one client sees of one scope never go backwards, unless it asks for it."""
        collection = target.partition("?")[0]
        seen = self._seen.get(collection, 0)
        assert version >= seen or "Exact" in target, f"{collection} went back to {version}"
        self._seen[collection] = max(version, seen)


@pytest.mark.parametrize("scope", ["resources", "namespaces", "chain"])
def test_lists_are_those_of_the_apiserver_at_the_same_version(
    apiserver: ApiServer, scope: str
) -> None:
    random = random_of_test()
    widgets = define(apiserver.server, crd("Widget"))
    kinds = {
        "configmaps": configmaps(),
        "pods": pods(),
        "widgets": customs(widgets),
        "serviceaccounts": bare("v1", "serviceaccounts"),
        "leases": bare("coordination.k8s.io/v1", "leases"),
    }
    base = apiserver.new_namespace()
    namespaces = [base, *(apiserver.new_namespace(f"{base}{end}") for end in ("-b", "0", "b"))]
    for kind in kinds.values():  # the first write to a new resource takes seconds
        create(apiserver.server, kind.collection(base), kind.object("first-0-0"))
    config = _config(widgets, namespaces if scope == "namespaces" else [])
    direct = apiserver.kubeconfig()
    with (
        chained(direct) if scope == "chain" else nullcontext(direct) as kubeconfig,
        Proxy(kubeconfig, config=config) as proxy,
    ):
        lists = Lists(kinds, namespaces, random)
        writes = Random(random.random())
        with Traffic(apiserver.server, list(kinds.values()), namespaces, writes) as traffic:
            sources: Counter[str] = Counter()
            _compare_for_a_while(apiserver.server, proxy.read, lists, sources)
            while sources.total() + traffic.count < OPERATIONS:
                _compare_for_a_while(apiserver.server, proxy.read, lists, sources)
        _compare_at_the_end(apiserver.server, proxy.read, kinds, base)
    compared = sources.total()
    assert compared > FEWEST
    assert traffic.count > compared / 2
    assert sources["hit"] > compared * (0.4 if scope == "namespaces" else 0.75), sources


def _config(widgets: CustomResource, namespaces: list[str]) -> dict[str, Any]:
    """Named informers only: nothing is earned meanwhile."""
    names = (
        "configmaps",
        "pods",
        f"{widgets.plural}.v1.{widgets.group}",
        "serviceaccounts",
        "leases.coordination.k8s.io",
    )
    resources = [{"resource": name, "namespaces": namespaces} for name in names]
    on_demand = {"watch": 0, "list": 0, "get": 0}
    return {"cache": {"resources": resources, "on_demand": on_demand}}


def _compare_for_a_while(
    apiserver: Server, proxy: Server, lists: Lists, sources: Counter[str]
) -> None:
    deadline = time.monotonic() + DEADLINE
    enough = sources.total() + COMPARISONS
    while sources.total() < enough and time.monotonic() < deadline:
        target = lists.next()
        exact = not ("resourceVersion=0" in target and "limit" in target)
        if not exact:  # it has no limit
            target = target.replace("limit=", "unlimited=")
        compared = compare(apiserver, proxy, "GET", target, exact=True)
        sources[compared.cache_status.source] += 1
        if compared.cache_status.hit:
            lists.saw(target, int(compared.proxy.version))
        sources.update(_compare_pages(apiserver, proxy, target, compared.proxy))


def _compare_pages(apiserver: Server, proxy: Server, target: str, page: Answer) -> Iterator[str]:
    """The next two pages; their token says the version."""
    path, _, query = target.partition("?")
    kept = [option for option in query.split("&") if not option.startswith("resourceVersion")]
    for _ in range(2):
        token = page.json()["metadata"].get("continue")
        if not token:
            return
        more = f"{path}?{'&'.join([*kept, f'continue={token}'])}"
        compared = compare(apiserver, proxy, "GET", more)
        page = compared.proxy
        yield compared.cache_status.source


def _compare_at_the_end(
    apiserver: Server, proxy: Server, kinds: dict[str, Kind], namespace: str
) -> None:
    """The cache gets there: after a last write the states are the same."""
    for kind in kinds.values():
        collection = kind.collection(namespace)
        end = create(apiserver, collection, kind.object("the-end-0"))
        caught_up(proxy, collection, end["metadata"]["resourceVersion"])
        compare(apiserver, proxy, "GET", collection, exact=True, source="hit")
