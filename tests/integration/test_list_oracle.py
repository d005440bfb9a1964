"""A list at version r is kube-apiserver's list at exactly r: random lists amid random writes."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from random import Random
from typing import Any, NamedTuple
from urllib.parse import quote

import pytest

from tests.harness.apiserver import ApiServer
from tests.harness.caching import caught_up
from tests.harness.differential import compare
from tests.harness.http import Server, Session
from tests.harness.objects import CustomResource, crd, create, define
from tests.harness.proxy import CHAINED, Proxy
from tests.harness.traffic import (
    Kind,
    Traffic,
    bare,
    configmaps,
    customs,
    pods,
    random_of_test,
)

OPERATIONS = int(os.environ.get("KUBECACHE_TEST_OPERATIONS", "900"))
"""Writes and comparisons of each test, however long they take."""

COMPARISONS = OPERATIONS // 3
"""The fewest of them that are comparisons."""

LABELS = ["tier=web", "tier!=web", "tier in (web,db)", "!tier", "tier", "tier=web,rank=1", "rank>2"]
LABELS += ["tier notin (db)", "none", "rank<2,tier=db", "tier notin (web,batch),rank!=3"]
FIELDS = ["metadata.name=app-1-1", "metadata.name!=app-1-1", "metadata.namespace={namespace}"]
MORE_FIELDS = {
    "pods": ["status.phase=Running", "status.phase!=Running", "spec.nodeName=node-0"],
    "widgets": ["spec.color=red", "spec.color!=blue", "spec.color=green,metadata.name!=app-1-1"],
}
# Settings declare these paths; to kube-apiserver the labels say the same.
DECLARED = {f"metadata.annotations['{name}']": f"mirrored-{name}" for name in ("tier", "rank")}
DECLARED_TERMS = ["{}=web", "{}==db", "{}!=web", "{}!=2", "{}=1", "{}=none"]

LIMITS = ["limit=1", "limit=3", "limit=8", "limit=500"]


class Question(NamedTuple):
    """A list's target, and what asks kube-apiserver for the same."""

    target: str
    judged: str

    def page(self, token: str) -> Question:
        return Question(*(_page(target, token) for target in self))


def _page(target: str, token: str) -> str:
    path, _, query = target.partition("?")
    kept = [option for option in query.split("&") if not option.startswith("resourceVersion")]
    return f"{path}?{'&'.join([*kept, f'continue={token}'])}"


class Lists:
    """Random lists of some kinds in some namespaces, whole or in pages."""

    def __init__(self, kinds: dict[str, Kind], namespaces: list[str], random: Random) -> None:
        self._kinds = kinds
        self._namespaces = namespaces
        self._random = random
        self._seen: dict[str, int] = {}

    def next(self) -> Question:
        plural = self._random.choice(list(self._kinds))
        namespace = self._random.choice(self._namespaces)
        collection = self._kinds[plural].collection(namespace)
        if self._random.random() < 0.4:
            collection = collection.replace(f"/namespaces/{namespace}", "")
        labels, fields = self._labels(), self._fields(plural, namespace)
        options = list(self._other_options())
        if "resourceVersion=0" in options:  # it has no limit
            options = [option for option in options if not option.startswith("limit")]
        path, label = self._random.choice(list(DECLARED.items()))
        term = self._random.choice(DECLARED_TERMS) if self._random.random() < 0.2 else ""
        sides = [
            ([*labels], [*fields, *_terms(term, path)]),
            ([*labels, *_terms(term, label)], [*fields]),
        ]
        return Question(*(_target(collection, *side, options) for side in sides))

    def _labels(self) -> list[str]:
        return [self._random.choice(LABELS)] if self._random.random() < 0.5 else []

    def _fields(self, plural: str, namespace: str) -> list[str]:
        chosen = self._random.choice(FIELDS + MORE_FIELDS.get(plural, []))
        return [chosen.format(namespace=namespace)] if self._random.random() < 0.4 else []

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


def _terms(term: str, path: str) -> list[str]:
    return [term.format(path)] if term else []


def _target(collection: str, labels: list[str], fields: list[str], options: list[str]) -> str:
    selectors = {"labelSelector": ",".join(labels), "fieldSelector": ",".join(fields)}
    given = [f"{name}={quote(value)}" for name, value in selectors.items() if value]
    return f"{collection}?{'&'.join([*given, *options])}"


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
    with Proxy(apiserver.kubeconfig(), config=config, chain=CHAINED or scope == "chain") as proxy:
        writes = Traffic(
            apiserver.server, list(kinds.values()), namespaces, Random(random.random())
        )
        sources = _compare_amid(
            writes, apiserver.server, proxy.read, Lists(kinds, namespaces, random)
        )
        _compare_at_the_end(apiserver.server, proxy.read, kinds, base)
    assert sources["hit"] > sources.total() * (0.4 if scope == "namespaces" else 0.75), sources


def _compare_amid(traffic: Traffic, apiserver: Server, proxy: Server, lists: Lists) -> Counter[str]:
    """Compares lists until there are enough of them and of writes; returns who answered."""
    sources: Counter[str] = Counter()
    with traffic, Session(apiserver) as direct, Session(proxy) as through:
        while sources.total() < COMPARISONS or sources.total() + traffic.count < OPERATIONS:
            _compare_one(direct, through, lists, sources)
    print(f"{traffic.count} writes, {sources}")
    assert traffic.count + sources.total() >= OPERATIONS
    assert traffic.count > sources.total() / 4
    return sources


def _config(widgets: CustomResource, namespaces: list[str]) -> dict[str, Any]:
    """Named informers only: nothing is earned meanwhile."""
    names = (
        "configmaps",
        "pods",
        f"{widgets.plural}.v1.{widgets.group}",
        "serviceaccounts",
        "leases.coordination.k8s.io",
    )
    rest = {"namespaces": namespaces, "indexes": list(DECLARED)}
    resources = [{"resource": name, **rest} for name in names]
    on_demand = {"watch": 0, "list": 0, "get": 0}
    return {"cache": {"resources": resources, "on_demand": on_demand}}


def _compare_one(apiserver: Session, proxy: Session, lists: Lists, sources: Counter[str]) -> None:
    """A list, and the next two pages if it has any; their token says the version."""
    asked = lists.next()
    compared = compare(apiserver, proxy, "GET", asked.target, judged=asked.judged, exact=True)
    sources[compared.cache_status.source] += 1
    if compared.cache_status.hit:
        lists.saw(asked.target, int(compared.proxy.version))
    for _ in range(2):
        token = compared.proxy.json()["metadata"].get("continue")
        if not token:
            return
        asked = asked.page(token)
        compared = compare(apiserver, proxy, "GET", asked.target, judged=asked.judged)
        sources[compared.cache_status.source] += 1


def _compare_at_the_end(
    apiserver: Server, proxy: Server, kinds: dict[str, Kind], namespace: str
) -> None:
    """The cache gets there: after a last write the states are the same."""
    for kind in kinds.values():
        collection = kind.collection(namespace)
        end = create(apiserver, collection, kind.object("the-end-0"))
        caught_up(proxy, collection, end["metadata"]["resourceVersion"])
        compare(apiserver, proxy, "GET", collection, exact=True, source="hit")
