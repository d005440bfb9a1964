"""Tables from the cache are those of kube-apiserver, byte for byte, and age as its do."""

from __future__ import annotations

import copy
import json
import re
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.harness.apiserver import ApiServer
from tests.harness.caching import eventually
from tests.harness.differential import assert_source, compare_in_time
from tests.harness.http import Answer, Headers, Server, Session, Watch, ask, get, watch
from tests.harness.kubectl import BINARIES, Kubectl, Output, kubeconfig_for
from tests.harness.objects import create, define, patch
from tests.harness.proxy import Proxy, metrics
from tests.harness.tables import CLUSTER, CRDS, NAMESPACED, STATUSES, column

META = "application/json;as=Table;g=meta.k8s.io;v="
V1: Headers = (("Accept", META + "v1"),)
V1BETA1: Headers = (("Accept", META + "v1beta1"),)
KUBECTL: Headers = (("Accept", f"{META}v1,{META}v1beta1,application/json"),)
INITIAL = "watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan"
MARKED = f"{INITIAL}&allowWatchBookmarks=true"
NAMES = ("a", "b")
LIVE = "/apis/flowcontrol.apiserver.k8s.io/v1/flowschemas"

Object = dict[str, Any]


class World(NamedTuple):
    """Both servers, and the collections that hold objects called `NAMES`."""

    apiserver: ApiServer
    proxy: Proxy
    collections: dict[str, str]
    namespace: str


def _resource(collection: str) -> str:
    """The resource of a collection, as the settings name it."""
    parts = collection.split("/")
    return ".".join([parts[-1], *reversed(parts[2:-1])] if parts[1] == "apis" else parts[:2:-1])


def _within(collection: str, namespace: str) -> str:
    parent, _, plural = collection.rpartition("/")
    return f"{parent}/namespaces/{namespace}/{plural}"


def _create(apiserver: ApiServer, path: str, template: Object, namespace: str, status: str) -> None:
    for name in NAMES:
        body = copy.deepcopy(json.loads(json.dumps(template).replace("{ns}", namespace)))
        body.setdefault("metadata", {})["name"] = name
        create(apiserver.server, path, body)
    if status in STATUSES:
        patch(apiserver.server, f"{path}/b/status", {"status": STATUSES[status]})


@pytest.fixture(scope="module")
def world(apiserver: ApiServer) -> Iterator[World]:
    namespace = apiserver.new_namespace()
    collections = {}
    for collection, template in NAMESPACED.items():
        collections[collection] = _within(collection, namespace)
        # Events of both groups are the same ones.
        place = f"{namespace}-e" if collection.startswith("/apis/events") else namespace
        if place != namespace:
            apiserver.new_namespace(place)
            collections[collection] = _within(collection, place)
        _create(apiserver, collections[collection], template, place, collection)
    for collection, template in CLUSTER.items():
        collections[collection] = collection
        _create(apiserver, collection, template, "", collection)
    for name, definition in CRDS.items():
        custom = define(apiserver.server, definition)
        place = "" if definition["spec"]["scope"] == "Cluster" else namespace
        collections[custom.path()] = path = custom.path(place)
        for each in NAMES:
            create(apiserver.server, path, custom.object(each, app="x"))
        status = {"status": {"lastRun": "2026-11-01T08:00:00.5+01:00"}}
        if name == "timely":
            patch(apiserver.server, f"{path}/b/status", status)
            patch(apiserver.server, f"{path}/b", _owned(apiserver, path))
    collections["/api/v1/namespaces"] = "/api/v1/namespaces"
    named = [*collections, LIVE, "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"]
    config = {
        "cache": {"resources": [{"resource": _resource(c), "forms": ["table"]} for c in named]}
    }
    with Proxy(apiserver.kubeconfig(), config=config) as proxy:
        yield World(apiserver, proxy, collections, namespace)


def _owned(apiserver: ApiServer, path: str) -> Object:
    """All that an object's metadata can hold."""
    uid = get(apiserver.server, f"{path}/a").json()["metadata"]["uid"]
    owner = {"apiVersion": "v1", "kind": "Pod", "name": "o", "uid": uid, "controller": True}
    return {
        "metadata": {
            "annotations": {"example.com/a": "<\u2028>"},
            "finalizers": ["example.com/f"],
            "ownerReferences": [{**owner, "blockOwnerDeletion": False}],
        }
    }


def _same(world: World, target: str, headers: Headers = V1, *, exact: bool = True) -> Answer:
    with Session(world.proxy.read) as ours, Session(world.apiserver.server) as theirs:
        return compare_in_time(theirs, ours, target, headers, exact=exact, source="hit")


def _resources() -> list[str]:
    custom = (f"/apis/test.kubecache.dev/v1/{d['spec']['names']['plural']}" for d in CRDS.values())
    return [*NAMESPACED, *CLUSTER, *custom, "/api/v1/namespaces"]


@pytest.mark.parametrize("binary", BINARIES)
@pytest.mark.parametrize("flags", [[], ["-o", "wide", "--show-labels"]], ids=["plain", "wide"])
def test_kubectl_prints_every_kind(
    world: World, tmp_path: Path, flags: list[str], binary: Callable[[], Path]
) -> None:
    """To the second, as ages may grow meanwhile: as before or after. And all are read here."""
    direct = Kubectl(world.apiserver.kubeconfig(), tmp_path, binary=binary())
    cached = Kubectl(kubeconfig_for(world.proxy.read, tmp_path), tmp_path, binary=binary())
    resources = [_kubectl_name(each) for each in _resources() if "events" not in each]
    assert len(resources) >= 40
    assert sum(each.endswith(".test.kubecache.dev") for each in resources) >= 3

    def look(resource: str) -> None:
        line = ["get", resource, *flags, "--namespace", world.namespace]
        before, found, after = (_lines(each(*line)) for each in (direct, cached, direct))
        assert (before[0], found[0]) == ("0", "0")
        for each, *either in zip(found, before, after, strict=True):
            assert each in either

    live = metrics(world.proxy).total("kubecache_live_reads_total")
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(look, resources))
    assert metrics(world.proxy).total("kubecache_live_reads_total") == live


def _lines(output: Output) -> list[str]:
    """The exit code, and all that was printed."""
    return [str(output.code), *output.stderr.splitlines(), *output.stdout.splitlines()]


def _kubectl_name(collection: str) -> str:
    """``plural.version.group``, or ``plural`` of the core group."""
    _, root, *group, version, plural = collection.split("/")
    return f"{plural}.{version}.{group[0]}" if root == "apis" else plural


@pytest.mark.parametrize("collection", _resources())
def test_every_kind(world: World, collection: str) -> None:
    path = world.collections[collection]
    name = "default" if path.endswith("/namespaces") else "b"
    answer = _same(world, path)
    assert len(answer.json()["rows"]) >= len(NAMES)
    _same(world, f"{path}?includeObject=Object&resourceVersion=0")
    _same(world, f"{path}?includeObject=None", V1BETA1)
    _same(world, f"{path}?labelSelector=none%3Dsuch", KUBECTL)
    _same(world, f"{path}?fieldSelector=metadata.name%3Db", V1BETA1)
    _same(world, f"{path}/{name}", exact=False)
    _same(world, f"{path}/{name}?includeObject=None", exact=False)
    _same(world, f"{path}/absent", KUBECTL, exact=False)


@pytest.mark.parametrize("include", ["None", "Metadata", "Object", ""])
@pytest.mark.parametrize("collection", _resources())
def test_watches_of_every_kind(world: World, collection: str, include: str) -> None:
    path = f"{world.collections[collection]}?{MARKED}&includeObject={include}"
    for headers in (V1, V1BETA1) if include == "Metadata" else (V1,):
        found: list[tuple[list[bytes], list[bytes]]] = []
        for _ in range(6):
            with (
                watch(world.apiserver.server, path, headers=headers) as theirs,
                watch(world.proxy.read, path, headers=headers) as ours,
            ):
                assert_source(Answer(ours.status, ours.headers, b""), "hit")
                assert _type(ours) == _type(theirs)
                found.append((_until_marked(theirs), _until_marked(ours)))
            if found[-1][0] == found[-1][1]:
                break
        assert found[-1][0] == found[-1][1]


def _type(stream: Watch) -> str | None:
    return Answer(stream.status, stream.headers, b"").header("Content-Type")


def _until_marked(stream: Watch) -> list[bytes]:
    """The lines up to the end of initial events, which has whatever version."""
    lines = []
    while b'"BOOKMARK"' not in (line := stream.line()):
        lines.append(line)
    assert b"initial-events-end" in line
    return [*lines, re.sub(rb'"resourceVersion":"\d+"', b"", line)]


QUERIES = [
    "?limit=1",
    "?limit=1&includeObject=Object",
    "?limit=500",
    "?pretty=true",
    "?resourceVersion=0&limit=1",
    "?labelSelector=app%3Dx&limit=1",
    "?fieldSelector=metadata.name%3Da",
    "?fieldSelector=metadata.name!%3Da&includeObject=None",
]


@pytest.mark.parametrize("query", QUERIES)
@pytest.mark.parametrize("collection", ["/api/v1/pods", "/apis/test.kubecache.dev/v1/timelys"])
def test_queries(world: World, collection: str, query: str) -> None:
    if "resourceVersion=0" in query:  # which ignores the limit
        target = world.collections[collection]
        assert len(get(world.proxy.read, target + query, headers=V1).json()["rows"]) > 1
        return
    _same(world, world.collections[collection] + query, KUBECTL)


@pytest.mark.parametrize("collection", ["/api/v1/pods", "/apis/test.kubecache.dev/v1/timelys"])
def test_pages(world: World, collection: str) -> None:
    path = world.collections[collection]
    first = _same(world, f"{path}?limit=1").json()["metadata"]
    assert first["remainingItemCount"] == 1
    target = f"{path}?limit=1&continue={first['continue']}"
    last = _same(world, target, exact=False)
    assert [len(last.json()["rows"]), *last.json()["metadata"]] == [1, "resourceVersion"]


def test_definitions_have_no_printer(world: World) -> None:
    """Without rows, these are null."""
    path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    _same(world, path)
    assert _same(world, f"{path}?labelSelector=none%3Dsuch").json()["rows"] is None


def test_what_is_left_to_the_api_server(world: World) -> None:
    wanted = {
        LIVE: 200,
        f"{LIVE}/exempt": 200,
        "/api/v1/pods?includeObject=All": 400,
        f"{world.collections['/api/v1/pods']}/absent": 404,  # a Status isn't what is accepted
    }
    for target, status in wanted.items():
        answer = get(world.proxy.read, target, headers=V1)
        assert_source(answer, "fwd")
        assert answer.status == status


@pytest.mark.parametrize("collection", ["/api/v1/configmaps", "/apis/test.kubecache.dev/v1/odds"])
def test_events(world: World, collection: str) -> None:
    """Changes, with selectors that an object leaves, look as at kube-apiserver."""
    path = world.collections[collection]
    version = get(world.apiserver.server, path).version
    query = f"?watch=1&resourceVersion={version}&labelSelector=on%3Dyes&includeObject="
    includes = ("None", "Metadata", "Object")
    streams = [
        [watch(server, f"{path}{query}{each}", headers=V1) for each in includes]
        for server in (world.apiserver.server, world.proxy.read)
    ]
    try:
        body: Object = {"metadata": {"name": "changing", "labels": {"on": "yes"}}}
        if "odds" in path:
            body |= {"apiVersion": "test.kubecache.dev/v1", "kind": "Odd"}
        create(world.apiserver.server, path, body)
        for value in ("yes", "no", "yes"):  # modified, deleted, added
            marks = {"labels": {"on": value}, "annotations": {"is": f"<{value}>"}}
            patch(world.apiserver.server, f"{path}/changing", {"metadata": marks})
        ask(world.apiserver.server, "DELETE", f"{path}/changing").ok()
        for theirs, ours in zip(*streams, strict=True):
            wanted = [_without_columns(theirs.line()) for _ in range(5)]
            actual = [ours.line() for _ in range(5)]
            assert b'"columnDefinitions":[{' in actual[0]
            assert all(b'"columnDefinitions":null' in each for each in actual[1:])
            assert [_ageless(_without_columns(each)) for each in actual] == list(
                map(_ageless, wanted)
            )
    finally:
        for stream in (each for pair in streams for each in pair):
            stream.close()


def _without_columns(line: bytes) -> bytes:
    """Several watches have them, or null, by chance."""
    return re.sub(rb'"columnDefinitions":(null|\[.*?\]),"rows"', b'"rows"', line)


def _ageless(line: bytes) -> bytes:
    return re.sub(rb'"\d+s"', b'"0s"', line)


def test_ages_grow_without_an_event(world: World) -> None:
    for collection in ("/api/v1/configmaps", "/apis/test.kubecache.dev/v1/plains"):
        path = world.collections[collection]
        made: Object = {"metadata": {"name": "young"}}
        if "plains" in path:
            made |= {"apiVersion": "test.kubecache.dev/v1", "kind": "Plain"}
        create(world.apiserver.server, path, made)
        young = f"{path}/young"
        eventually(partial(_is_there, world.proxy.read, young), "it is cached")
        seen = []
        for _ in range(2):
            table = _same(world, young, exact=False).json()
            names = [each["name"] for each in table["columnDefinitions"]]
            seen.append(dict(zip(names, table["rows"][0]["cells"], strict=True))["Age"])
            time.sleep(2)
        assert seen[0] != seen[1]


def _is_there(server: Server, target: str) -> bool:
    return get(server, target, headers=V1).status == 200


def test_columns_that_change(world: World) -> None:
    """A definition's new column is in the Tables soon, and what is cached goes on."""
    definition = copy.deepcopy(CRDS["odd"])
    definition["metadata"]["name"] = "changings.test.kubecache.dev"
    definition["spec"]["names"] = {"plural": "changings", "kind": "Changing"}
    definition["spec"]["scope"] = "Cluster"
    custom = define(world.apiserver.server, definition)
    create(world.apiserver.server, custom.path(), custom.object("a"))
    path = f"{custom.path()}?labelSelector=!none"

    def shown() -> list[str] | None:
        answer = get(world.proxy.read, path, headers=V1)
        if "hit" not in (answer.header("Cache-Status") or ""):
            return None
        return [each["name"] for each in answer.json()["columnDefinitions"]]

    eventually(shown, "it is cached", timeout=60)
    columns = [column("Hue", "string", ".spec.color"), column("Since", "date", ".status.lastRun")]
    changed = [{**definition["spec"]["versions"][0], "additionalPrinterColumns": columns}]
    target = (
        f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{custom.plural}.{custom.group}"
    )
    patch(world.apiserver.server, target, {"spec": {"versions": changed}})
    eventually(lambda: shown() == ["Name", "Hue", "Since"] or None, "its columns", timeout=60)
    _same(world, custom.path())
