"""A list at version r is kube-apiserver's list at exactly r: random lists amid random writes."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Sequence
from random import Random
from typing import Any, NamedTuple
from urllib.parse import quote

import pytest

from proxy.kube.negotiation import FormName
from tests.harness.apiserver import ApiServer
from tests.harness.caching import caught_up
from tests.harness.differential import Compared, compare
from tests.harness.forms import CLIENTS, list_meta, settled
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
"""Writes and comparisons of each test, however long they take; a third at least are comparisons."""

FEWER = int(os.environ.get("KUBECACHE_TEST_OPERATIONS", "200"))
"""The same for each form that isn't JSON."""

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
INCLUDED = ["None", "Metadata", "Object"]


class Question(NamedTuple):
    """A list's target, what asks kube-apiserver for the same, and the form that's asked for."""

    target: str
    judged: str
    form: FormName

    def page(self, token: str) -> Question:
        return self._replace(target=_page(self.target, token), judged=_page(self.judged, token))


def _page(target: str, token: str) -> str:
    path, _, query = target.partition("?")
    kept = [option for option in query.split("&") if not option.startswith("resourceVersion")]
    return f"{path}?{'&'.join([*kept, f'continue={token}'])}"


class Lists:
    """Random lists of some kinds in some namespaces and forms, whole or in pages."""

    def __init__(
        self,
        kinds: dict[str, Kind],
        namespaces: list[str],
        forms: Sequence[FormName],
        random: Random,
    ) -> None:
        self._kinds = kinds
        self._namespaces = namespaces
        self._forms = forms
        self._random = random
        self._seen: dict[str, int] = {}

    def next(self) -> Question:
        plural = self._random.choice(list(self._kinds))
        namespace = self._random.choice(self._namespaces)
        collection = self._kinds[plural].collection(namespace)
        if self._random.random() < 0.4:
            collection = collection.replace(f"/namespaces/{namespace}", "")
        labels, fields = self._labels(), self._fields(plural, namespace)
        form = self._random.choice(self._forms)
        options = list(self._other_options(form))
        if "resourceVersion=0" in options:  # it has no limit
            options = [option for option in options if not option.startswith("limit")]
        path, label = self._random.choice(list(DECLARED.items()))
        term = self._random.choice(DECLARED_TERMS) if self._random.random() < 0.2 else ""
        sides = [
            ([*labels], [*fields, *_terms(term, path)]),
            ([*labels, *_terms(term, label)], [*fields]),
        ]
        target, judged = (_target(collection, *side, options) for side in sides)
        return Question(target, judged, form)

    def _labels(self) -> list[str]:
        return [self._random.choice(LABELS)] if self._random.random() < 0.5 else []

    def _fields(self, plural: str, namespace: str) -> list[str]:
        chosen = self._random.choice(FIELDS + MORE_FIELDS.get(plural, []))
        return [chosen.format(namespace=namespace)] if self._random.random() < 0.4 else []

    def _other_options(self, form: FormName) -> Iterator[str]:
        if self._random.random() < 0.4:
            yield self._random.choice(LIMITS)
        if self._random.random() < 0.2:
            yield "pretty=1"
        if form is FormName.TABLE and self._random.random() < 0.6:
            yield "includeObject=" + self._random.choice(INCLUDED)
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
    sources = compare_lists(apiserver, scope, [FormName.JSON], OPERATIONS)
    assert sources["hit"] > sources.total() * (0.3 if scope == "namespaces" else 0.75), sources


FORMS: dict[str, tuple[Sequence[FormName], float]] = {
    "table": ([FormName.TABLE], 0.75),
    "metadata": ([FormName.METADATA], 0.65),
    "protobuf": ([FormName.PROTOBUF], 0.5),
    "metadata-protobuf": ([FormName.METADATA_PROTOBUF], 0.5),
    "all": ([*FormName], 0.5),
}
"""And the least share of hits: not all forms know all fields, and custom resources no protobuf."""


@pytest.mark.parametrize(("forms", "hits"), FORMS.values(), ids=FORMS)
def test_in_other_forms_too(apiserver: ApiServer, forms: Sequence[FormName], hits: float) -> None:
    sources = compare_lists(apiserver, "resources", forms, FEWER)
    assert sources["hit"] > sources.total() * hits, sources


def compare_lists(
    apiserver: ApiServer, scope: str, forms: Sequence[FormName], operations: int
) -> Counter[str]:
    """So many writes and comparisons; returns who answered."""
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
    config = _config(widgets, namespaces if scope == "namespaces" else [], forms)
    with Proxy(apiserver.kubeconfig(), config=config, chain=CHAINED or scope == "chain") as proxy:
        writes = Traffic(
            apiserver.server, list(kinds.values()), namespaces, Random(random.random())
        )
        lists = Lists(kinds, namespaces, forms, random)
        with Session(apiserver.server) as direct, Session(proxy.read) as through:
            sources = _compare_amid(writes, direct, through, lists, operations)
        _compare_at_the_end(apiserver.server, proxy.read, kinds, base, forms)
    return sources


def _compare_amid(
    traffic: Traffic, apiserver: Session, proxy: Session, lists: Lists, operations: int
) -> Counter[str]:
    """Compares lists until there are enough of them and of writes; returns who answered."""
    sources: Counter[str] = Counter()
    with traffic:
        while sources.total() < operations // 3 or sources.total() + traffic.count < operations:
            _compare_one(apiserver, proxy, lists, sources)
    print(f"{traffic.count} writes, {sources}")
    assert traffic.count + sources.total() >= operations
    assert traffic.count > sources.total() / 4
    return sources


def _config(
    widgets: CustomResource, namespaces: list[str], forms: Sequence[FormName]
) -> dict[str, Any]:
    """Named informers only: nothing is earned meanwhile."""
    custom = f"{widgets.plural}.v1.{widgets.group}"
    names = ("configmaps", "pods", "serviceaccounts", "leases.coordination.k8s.io")
    rest = {"namespaces": namespaces, "indexes": list(DECLARED)}
    forms_of = {name: [*map(str, forms)] for name in names}
    forms_of[custom] = [str(form) for form in forms if form is not FormName.PROTOBUF]
    resources = [
        {"resource": name, "forms": each, **rest} for name, each in forms_of.items() if each
    ]
    on_demand = {"watch": 0, "list": 0, "get": 0}
    return {"cache": {"resources": resources, "on_demand": on_demand}}


def _compare_one(apiserver: Session, proxy: Session, lists: Lists, sources: Counter[str]) -> None:
    """A list, and the next two pages if it has any; their token says the version."""
    asked = lists.next()
    compared = _compare(apiserver, proxy, asked, exact=True)
    sources[compared.cache_status.source] += 1
    if compared.cache_status.hit:
        lists.saw(asked.target, int(list_meta(compared.proxy)[0]))
    for _ in range(2):
        token = list_meta(compared.proxy)[1] if compared.proxy.status == 200 else ""
        if not token:
            return
        asked = asked.page(token)
        compared = _compare(apiserver, proxy, asked)
        sources[compared.cache_status.source] += 1


def _compare(
    apiserver: Session, proxy: Session, asked: Question, *, exact: bool = False
) -> Compared:
    return compare(
        apiserver,
        proxy,
        "GET",
        asked.target,
        headers=CLIENTS[asked.form].headers(listing=True),
        judged=asked.judged,
        exact=exact,
        settle=settled,
    )


def _compare_at_the_end(
    apiserver: Server,
    proxy: Server,
    kinds: dict[str, Kind],
    namespace: str,
    forms: Sequence[FormName],
) -> None:
    """The cache gets there: after a last write the states are the same."""
    for plural, kind in kinds.items():
        collection = kind.collection(namespace)
        end = create(apiserver, collection, kind.object("the-end-0"))
        for form in forms:
            if form is FormName.PROTOBUF and plural == "widgets":
                continue
            headers = CLIENTS[form].headers(listing=True)
            caught_up(proxy, collection, end["metadata"]["resourceVersion"], headers=headers)
            compare(
                apiserver,
                proxy,
                "GET",
                collection,
                headers=headers,
                exact=True,
                source="hit",
                settle=settled,
            )
