"""Every kind of write through the proxy is seen by the reads after it, however late its events."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple
from urllib.parse import quote

import pytest

from proxy.kube.negotiation import PROTOBUF
from proxy.kube.protobuf import CLASSES, MAGIC
from tests.harness.apiserver import ApiServer
from tests.harness.caching import caught_up
from tests.harness.differential import cache_status
from tests.harness.http import Answer, Server, Watch, ask, get
from tests.harness.objects import Object, crd, define
from tests.harness.proxy import Proxy, metrics
from tests.harness.watch_delay import WatchDelay

LATE = 0.15
"""Seconds by which events are late."""

MERGE = ("Content-Type", "application/merge-patch+json")
STRATEGIC = ("Content-Type", "application/strategic-merge-patch+json")
JSON_PATCH = ("Content-Type", "application/json-patch+json")
APPLY = ("Content-Type", "application/apply-patch+yaml")

NAMED = [
    "configmaps",
    "pods",
    "deployments.apps",
    "diaries.v1.session.kubecache.dev",
    "ipaddresses.networking.k8s.io",
    "clusterroles.rbac.authorization.k8s.io",
    "namespaces",
]


class Place(NamedTuple):
    """A namespace, as it's seen through a proxy and beside it."""

    proxy: Proxy
    direct: Server
    namespace: str

    @property
    def reader(self) -> Server:
        return self.proxy.read.adding(("User-Agent", "reader"))

    def path(self, collection: str) -> str:
        root, _, plural = collection.rpartition("/")
        return f"{root}/namespaces/{self.namespace}/{plural}"

    def ask(self, method: str, target: str, body: Any = None, *headers: tuple[str, str]) -> Answer:
        """Writes through the proxy, as another client than the reader."""
        writer = self.proxy.read.adding(("User-Agent", "writer"))
        return ask(writer, method, target, body=body, headers=headers)


@pytest.fixture(scope="module")
def line(apiserver: ApiServer) -> Iterator[WatchDelay]:
    with WatchDelay(apiserver.port, LATE) as line:
        yield line


def _proxy(apiserver: ApiServer, line: WatchDelay, *flags: str) -> Proxy:
    define(apiserver.server, _diaries())
    config = {"cache": {"resources": [{"resource": each} for each in NAMED]}}
    return Proxy(apiserver.kubeconfig(port=line.port), *flags, config=config)


@pytest.fixture(scope="module")
def proxy(apiserver: ApiServer, line: WatchDelay) -> Iterator[Proxy]:
    with _proxy(apiserver, line) as running:
        yield running


@pytest.fixture(scope="module")
def eventual(apiserver: ApiServer, line: WatchDelay) -> Iterator[Proxy]:
    with _proxy(apiserver, line, "--consistency", "eventual") as running:
        yield running


@pytest.fixture
def place(proxy: Proxy, apiserver: ApiServer, namespace: str) -> Place:
    return Place(proxy, apiserver.server, namespace)


def _diaries() -> Object:
    """A custom resource in two versions, with status and scale."""
    found = crd("Diary", group="session.kubecache.dev")
    found["metadata"]["name"] = "diaries.session.kubecache.dev"
    found["spec"]["names"]["plural"] = "diaries"
    [version] = found["spec"]["versions"]
    version["subresources"]["scale"] = {
        "specReplicasPath": ".spec.size",
        "statusReplicasPath": ".status.observedGeneration",
    }
    found["spec"]["versions"] = [version, {**version, "name": "v2", "storage": False}]
    return found


CONFIGMAPS, PODS = "/api/v1/configmaps", "/api/v1/pods"
ADDRESSES = "/apis/networking.k8s.io/v1/ipaddresses"
DEPLOYMENTS = "/apis/apps/v1/deployments"
DIARIES = "/apis/session.kubecache.dev/v1/diaries"
DIARIES_V2 = "/apis/session.kubecache.dev/v2/diaries"

LABELS = {"app": "a"}
SPEC: dict[str, Object] = {
    CONFIGMAPS: {"data": {"k": "1"}},
    PODS: {"spec": {"containers": [{"name": "c", "image": "i"}]}},
    DEPLOYMENTS: {
        "spec": {
            "replicas": 1,
            "selector": {"matchLabels": LABELS},
            "template": {
                "metadata": {"labels": LABELS},
                "spec": {"containers": [{"name": "c", "image": "i"}]},
            },
        }
    },
    DIARIES: {"kind": "Diary", "apiVersion": "session.kubecache.dev/v1", "spec": {"size": 1}},
    DIARIES_V2: {"kind": "Diary", "apiVersion": "session.kubecache.dev/v2", "spec": {"size": 1}},
}
GRACE = {"gracePeriodSeconds": 0}
DRY = {"kind": "DeleteOptions", "apiVersion": "v1", "dryRun": ["All"]}
NO_DRY = {"kind": "DeleteOptions", "apiVersion": "v1"}  # the query counts for nothing beside it
EVICTION = {"kind": "Eviction", "apiVersion": "policy/v1", "metadata": {"name": "x"}}
BINDING = {
    "kind": "Binding",
    "apiVersion": "v1",
    "metadata": {"name": "x"},
    "target": {"kind": "Node", "name": "n"},
}


class Step(NamedTuple):
    """A write of the object x of a collection, and the collection that it's read from.

    A body may be made of the object, as kube-apiserver shows it to clients of the headers' Accept.
    """

    line: str
    collection: str
    body: Any = None
    headers: tuple[tuple[str, str], ...] = ()
    before: tuple[tuple[str, Any], ...] = ()
    read: str = ""
    finalizers: tuple[str, ...] = ()


def step(
    line: str, collection: str, body: Any = None, *headers: tuple[str, str], **more: Any
) -> Step:
    return Step(line, collection, body, headers, **more)


DATA = {"data": {"k": "2"}}
LABEL = {"metadata": {"labels": {"b": "c"}}}
THREE = {"spec": {"replicas": 3}}
SCALE = {"kind": "Scale", "apiVersion": "autoscaling/v1", "metadata": {"name": "x"}, **THREE}
RUNNING = {"status": {"phase": "Running"}}
DELETED = (("DELETE {x}", None),)
YAML = ("Accept", "application/yaml")
TABLE = ("Accept", "application/json;as=Table;g=meta.k8s.io;v=v1")
HELD = {"finalizers": ("a.b/c",)}
LET_GO = {"metadata": {"finalizers": None}}

PROTOBUF_BODY = (("Content-Type", PROTOBUF), ("Accept", PROTOBUF))


def held_by(*finalizers: str) -> Callable[[bytes], bytes]:
    """Changes an object in protobuf, of which little more than its metadata is known here."""

    def change(body: bytes) -> bytes:
        envelope = CLASSES["Unknown"].FromString(body.removeprefix(MAGIC))
        found = CLASSES["Object"].FromString(envelope.raw)
        found.metadata.finalizers[:] = finalizers
        envelope.raw = found.SerializeToString()
        sent: bytes = MAGIC + envelope.SerializeToString()
        return sent

    return change


WRITES = {
    "update": step("PUT {x}", CONFIGMAPS, {"metadata": {"labels": LABELS}, **DATA}),
    "merge patch": step("PATCH {x}", CONFIGMAPS, DATA, MERGE),
    "strategic merge patch": step("PATCH {x}", PODS, LABEL, STRATEGIC),
    "json patch": step(
        "PATCH {x}", CONFIGMAPS, b'[{"op":"add","path":"/data/j","value":"1"}]', JSON_PATCH
    ),
    "apply": step(
        "PATCH {x}?fieldManager=m",
        CONFIGMAPS,
        b"{apiVersion: v1, kind: ConfigMap, metadata: {name: x}, data: {j: '1'}}",
        APPLY,
    ),
    "protobuf answer": step("PATCH {x}", CONFIGMAPS, DATA, MERGE, ("Accept", PROTOBUF)),
    "protobuf": step("PUT {x}", CONFIGMAPS, held_by("a.b/c"), *PROTOBUF_BODY),
    "protobuf of the last finalizer": step(
        "PUT {x}", CONFIGMAPS, held_by(), *PROTOBUF_BODY, before=DELETED, **HELD
    ),
    "table answer": step("PATCH {x}", CONFIGMAPS, DATA, MERGE, TABLE),
    "encoded slash": step("PATCH {all}%2Fx", CONFIGMAPS, DATA, MERGE),
    "many slashes": step("PATCH {x}" + 4200 * "/", CONFIGMAPS, DATA, MERGE),
    "yaml answer": step("PATCH {x}", CONFIGMAPS, DATA, MERGE, YAML),
    "status": step("PATCH {x}/status", DIARIES, {"status": {"phase": "b"}}, MERGE),
    "pod status": step("PATCH {x}/status", PODS, {"status": {"phase": "Failed"}}, MERGE),
    "scale": step("PATCH {x}/scale", DEPLOYMENTS, THREE, MERGE),
    "update of scale": step("PUT {x}/scale", DEPLOYMENTS, SCALE),
    "scale of a custom resource": step("PATCH {x}/scale", DIARIES, THREE, MERGE),
    "binding": step("POST {x}/binding", PODS, BINDING),
    "bindings": step("POST {bindings}", PODS, BINDING),
    "eviction": step("POST {x}/eviction", PODS, EVICTION),
    "delete": step("DELETE {x}", CONFIGMAPS),
    "delete of a custom resource": step("DELETE {x}", DIARIES),
    "delete with grace": step("DELETE {x}", PODS, before=(("{x}/binding", BINDING),)),
    "eviction with grace": step(
        "POST {x}/eviction",
        PODS,
        EVICTION,
        before=(("{x}/binding", BINDING), ("PATCH {x}/status", RUNNING)),
    ),
    "delete that is no dry run": step("DELETE {x}?dryRun=All", CONFIGMAPS, NO_DRY),
    "delete answered in protobuf": step("DELETE {x}", PODS, None, *PROTOBUF_BODY[1:]),
    "delete at once": step("DELETE {x}", PODS, GRACE),
    "delete with a finalizer": step("DELETE {x}", CONFIGMAPS, **HELD),
    "foreground delete": step("DELETE {x}?propagationPolicy=Foreground", DEPLOYMENTS),
    "last finalizer": step("PATCH {x}", CONFIGMAPS, LET_GO, MERGE, before=DELETED, **HELD),
    "last finalizer in a table": step(
        "PATCH {x}", CONFIGMAPS, LET_GO, MERGE, TABLE, before=DELETED, **HELD
    ),
    "last finalizer of a custom resource": step(
        "PATCH {x}", DIARIES, LET_GO, MERGE, before=DELETED, **HELD
    ),
    "delete collection": step("DELETE {all}", CONFIGMAPS),
    "delete collection by label": step("DELETE {all}?labelSelector=app%3Da", PODS, GRACE),
    "another version": step("PATCH {x}", DIARIES_V2, {"spec": {"size": 7}}, MERGE, read=DIARIES),
    "delete in another version": step("DELETE {x}", DIARIES_V2, read=DIARIES),
}
FAILED = {
    "dry run": step("PATCH {x}?dryRun=All", CONFIGMAPS, DATA, MERGE),
    "dry run of a delete": step("DELETE {x}?dryRun=All", CONFIGMAPS),
    "dry run by the options": step("DELETE {x}", CONFIGMAPS, DRY),
    "conflict": step("PUT {x}", CONFIGMAPS, {"metadata": {"resourceVersion": "1"}}),
    "not found": step("DELETE {x}-y", CONFIGMAPS),
    "already there": step("POST {all}", CONFIGMAPS, {}),
    "invalid": step("PATCH {x}", CONFIGMAPS, {"data": {"k k": "2"}}, MERGE),
}


def prepare(place: Place, case: Step) -> None:
    """Creates x, and waits until it's cached."""
    caught_up(place.reader, place.path(case.read or case.collection), _create(place, case))


def _create(place: Place, case: Step) -> str:
    """Creates x; returns its version."""
    collection = place.path(case.collection)
    body = {"metadata": {"name": "x", "labels": LABELS}, **SPEC[case.collection]}
    body["metadata"]["finalizers"] = list(case.finalizers)
    ask(
        place.direct,
        "POST",
        place.path("/api/v1/serviceaccounts"),
        body={"metadata": {"name": "default"}},
    )
    created = ask(place.direct, "POST", collection, body=body).ok()
    version = created.version
    for line, content in case.before:
        method, _, target = line.rpartition(" ")
        headers = (MERGE,) if method == "PATCH" else ()
        target = _target(target, place, case)
        done = ask(place.direct, method or "POST", target, headers=headers, body=content).ok()
        found = done.json().get("metadata", {}).get("resourceVersion")
        version = found or get(place.direct, f"{collection}/x").version
    return version


def _target(text: str, place: Place, case: Step) -> str:
    collection = place.path(case.collection)
    return text.format(x=f"{collection}/x", all=collection, bindings=place.path("/api/v1/bindings"))


def write(place: Place, case: Step) -> Answer:
    method, _, target = case.line.partition(" ")
    body = case.body
    if isinstance(body, dict) and method in ("PUT", "POST") and not body.get("kind"):
        body = {**SPEC[case.collection], **body}
        body["metadata"] = {"name": "x", **body.get("metadata", {})}
    headers = case.headers
    if callable(body):
        body = body(get(place.direct, _target(target, place, case), headers=headers[1:]).ok().body)
    if isinstance(body, dict) and headers:
        body = json.dumps(body).encode()
    return place.ask(method, _target(target, place, case), body, *headers)


Reading = Callable[[Place, str], Object]


def _get(place: Place, collection: str) -> Object:
    answer = get(place.reader, f"{collection}/x")
    return _known(answer) if answer.status == 200 else {}


def _list(query: str) -> Reading:
    def read(place: Place, collection: str) -> Object:
        items = get(place.reader, f"{collection}{query}").ok().json()["items"]
        found = [each for each in items if each["metadata"]["name"] == "x"]
        return _body(found[0]) if found else {}

    return read


def _list_everywhere(place: Place, collection: str) -> Object:
    whole = collection.replace(f"/namespaces/{place.namespace}", "")
    items = get(place.reader, whole).ok().json()["items"]
    key = (place.namespace, "x")
    found = [
        each for each in items if (each["metadata"]["namespace"], each["metadata"]["name"]) == key
    ]
    return _body(found[0]) if found else {}


def _watch(place: Place, collection: str) -> Object:
    """The objects that a watch begins with."""
    query = "watch=1&allowWatchBookmarks=true&sendInitialEvents=true"
    with Watch(
        place.reader, f"{collection}?{query}&resourceVersionMatch=NotOlderThan&timeoutSeconds=5"
    ) as watch:
        found: Object = {}
        while (event := watch.event())["type"] != "BOOKMARK":
            if event["object"]["metadata"]["name"] == "x":
                found = _body(event["object"])
        return found


def _known(answer: Answer) -> Object:
    return _body(answer.json())


def _body(found: Object) -> Object:
    return {key: value for key, value in found.items() if key not in ("kind", "apiVersion")}


READS: dict[str, Reading] = {
    "get": _get,
    "list": _list(""),
    "list by label": _list("?labelSelector=app%3Da"),
    "list at 0": _list("?resourceVersion=0"),
    "list everywhere": _list_everywhere,
    "watch": _watch,
}


@pytest.fixture(scope="module")
def prepared(proxy: Proxy, apiserver: ApiServer) -> dict[str, Place]:
    """A place for each kind of write, where x is there and cached: all wait at once for that."""

    def prepare_one(case: Step) -> tuple[Place, str]:
        place = Place(proxy, apiserver.server, apiserver.new_namespace())
        return place, _create(place, case)

    with ThreadPoolExecutor(4) as pool:
        done = list(pool.map(prepare_one, WRITES.values()))
    for case, (place, version) in zip(WRITES.values(), done, strict=True):
        caught_up(place.reader, place.path(case.read or case.collection), version)
    return {name: place for name, (place, _) in zip(WRITES, done, strict=True)}


@pytest.mark.parametrize("name", WRITES)
def test_the_next_reads_see_it(prepared: dict[str, Place], name: str) -> None:
    """What they see is what kube-apiserver says now, as nobody else writes."""
    case, place = WRITES[name], prepared[name]
    collection = place.path(case.read or case.collection)
    before = _get(place, collection)
    with ThreadPoolExecutor(len(READS)) as pool:
        write(place, case).ok()
        reading = {read: pool.submit(READS[read], place, collection) for read in READS}
        seen = {read: each.result() for read, each in reading.items()}
    truth = _truth(place, collection)
    assert truth != before
    assert seen == dict.fromkeys(READS, truth)


def _truth(place: Place, collection: str) -> Object:
    answer = get(place.direct, f"{collection}/x")
    return _known(answer) if answer.status == 200 else {}


def test_creations_are_seen(place: Place) -> None:
    collection = place.path(CONFIGMAPS)
    for metadata in ({"name": "x"}, {"generateName": "x-"}):
        created = place.ask("POST", collection, {"metadata": metadata}).ok().json()
        name = created["metadata"]["name"]
        assert get(place.reader, f"{collection}/{name}").ok().version
        listed = get(place.reader, collection).ok().json()["items"]
        assert name in {each["metadata"]["name"] for each in listed}


def test_what_the_apiserver_creates_along_with_it_is_seen(place: Place) -> None:
    """A Service takes an address, which is an object too, before it's answered."""
    spec = {"ports": [{"port": 80}]}
    place.ask(
        "POST", place.path("/api/v1/services"), {"metadata": {"name": "x"}, "spec": spec}
    ).ok()
    owners = [
        each["spec"]["parentRef"] for each in get(place.reader, ADDRESSES).ok().json()["items"]
    ]
    assert (place.namespace, "x") in {(each["namespace"], each["name"]) for each in owners}


def test_creations_in_protobuf_are_seen(place: Place) -> None:
    collection = place.path(CONFIGMAPS)
    ask(place.direct, "POST", collection, body={"metadata": {"name": "y"}}).ok()
    body = get(place.direct, f"{collection}/y", headers=PROTOBUF_BODY[1:]).ok().body
    envelope = CLASSES["Unknown"].FromString(body.removeprefix(MAGIC))
    found = CLASSES["Object"].FromString(envelope.raw)
    found.metadata.name = "x"
    for field in ("uid", "resourceVersion"):
        found.metadata.ClearField(field)
    envelope.raw = found.SerializeToString()
    place.ask("POST", collection, MAGIC + envelope.SerializeToString(), *PROTOBUF_BODY).ok()
    assert (
        _get(place, collection) == _list("")(place, collection) == _truth(place, collection) != {}
    )


@pytest.fixture(scope="module")
def settled(proxy: Proxy, apiserver: ApiServer) -> Place:
    """A place where x is cached, and no event is on its way."""
    place = Place(proxy, apiserver.server, apiserver.new_namespace())
    prepare(place, WRITES["update"])
    time.sleep(2 * LATE)
    return place


@pytest.mark.parametrize("case", FAILED.values(), ids=FAILED)
def test_what_changes_nothing_is_waited_for_by_nobody(settled: Place, case: Step) -> None:
    collection = settled.path(case.collection)
    counted = metrics(settled.proxy).total("kubecache_read_your_writes_wait_seconds_count")
    write(settled, case)
    assert cache_status(get(settled.reader, f"{collection}/x").ok()).hit
    assert cache_status(get(settled.reader, collection).ok()).hit
    after = metrics(settled.proxy).total("kubecache_read_your_writes_wait_seconds_count")
    assert after == counted


@pytest.mark.parametrize("name", ["update", "delete", "last finalizer", "eviction"])
def test_without_session_it_is_not_seen(
    eventual: Proxy, apiserver: ApiServer, namespace: str, name: str
) -> None:
    """So that the others can fail."""
    place = Place(eventual, apiserver.server, namespace)
    case = WRITES[name]
    prepare(place, case)
    collection = place.path(case.collection)
    before = _get(place, collection)
    write(place, case).ok()
    assert _get(place, collection) == before


LIVE = ("Cache-Control", "no-cache")
TABLE = ("Accept", "application/json;as=Table;g=meta.k8s.io;v=v1")


@pytest.mark.parametrize(
    ("target", "headers"),
    [("{x}", (LIVE,)), ("{all}", (LIVE,)), ("{all}", (TABLE,)), ("{x}", (LIVE, TABLE))],
)
def test_what_was_shown_live_is_not_undone(
    place: Place, target: str, headers: tuple[tuple[str, str], ...]
) -> None:
    case = WRITES["merge patch"]
    prepare(place, case)
    collection = place.path(case.collection)
    ask(place.direct, "PATCH", f"{collection}/x", headers=(MERGE,), body={"data": {"k": "9"}}).ok()
    truth = _truth(place, collection)
    get(place.reader, _target(target, place, case), headers=headers).ok()
    other = place.proxy.read.adding(("User-Agent", "other"))
    assert _body(get(other, f"{collection}/x").ok().json()) != truth
    assert _get(place, collection) == truth


def test_what_was_not_there_does_not_come_back(place: Place) -> None:
    case = WRITES["delete"]
    prepare(place, case)
    collection = place.path(case.collection)
    ask(place.direct, "DELETE", f"{collection}/x").ok()
    assert get(place.reader, f"{collection}/x", headers=(LIVE,)).status == 404
    assert _get(place, collection) == {}
    assert _list("")(place, collection) == {}


@pytest.mark.parametrize("name", ["a b", 'a"b', "a\\b", "\u00fc", "\x01"])
def test_names_that_paths_escape(place: Place, name: str) -> None:
    roles = "/apis/rbac.authorization.k8s.io/v1/clusterroles"
    path = f"{roles}/{quote(name)}"
    unique = place.namespace
    place.ask("POST", roles, {"metadata": {"name": name, "labels": {"made": unique}}}).ok()
    assert _names(place, f"{roles}?labelSelector=made%3D{unique}") == [name]
    place.ask("PATCH", path, b'{"metadata":{"labels":{"made":"b"}}}', MERGE).ok()
    assert _names(place, f"{roles}?labelSelector=made%3D{unique}") == []
    place.ask("DELETE", path).ok()
    assert name not in _names(place, roles)


@pytest.mark.parametrize("subresource", ["", "/finalize"])
def test_a_namespace_s_last_finalizer(place: Place, subresource: str) -> None:
    spaces, name = "/api/v1/namespaces", f"{place.namespace}-held"
    path = f"{spaces}/{name}"
    held = [] if subresource else ["a.b/c"]
    place.ask("POST", spaces, {"metadata": {"name": name, "finalizers": held}}).ok()
    place.ask("DELETE", path).ok()
    found = get(place.direct, path).ok().json()
    place.ask("PUT", f"{path}/finalize", {**found, "spec": {"finalizers": []}}).ok()
    if not subresource:
        assert get(place.reader, path).status == 200
        place.ask("PATCH", path, json.dumps(LET_GO).encode(), MERGE).ok()
    assert name not in _names(place, spaces)


def _names(place: Place, target: str) -> list[str]:
    items = get(place.reader, target).ok().json()["items"]
    return [each["metadata"]["name"] for each in items]
