"""Reads of every kind, to the proxy and to kube-apiserver: equal bytes, and a known source."""

from __future__ import annotations

from typing import NamedTuple
from urllib.parse import quote

import pytest

from tests.harness.apiserver import ApiServer
from tests.harness.caching import cached, caught_up
from tests.harness.differential import assert_source, compare, exact_target
from tests.harness.http import Headers, Server, get
from tests.harness.objects import (
    Object,
    configmap,
    crd,
    create,
    define,
    node,
    patch,
    pod,
    pod_status,
)
from tests.harness.proxy import Proxy

CONFIGMAPS = "/api/v1/namespaces/{ns}/configmaps"
DEPLOYMENTS = "/apis/apps/v1/namespaces/{ns}/deployments"
EVENTS = "/api/v1/namespaces/{ns}/events"
PODS = "/api/v1/namespaces/{ns}/pods"
READERS = "/apis/test.kubecache.dev/v1/namespaces/{ns}/readers"
SECRETS = "/api/v1/namespaces/{ns}/secrets"
SHELVES = "/apis/test.kubecache.dev/v1/shelfs"

CACHED = [
    "/api/v1/configmaps",
    "/api/v1/events",
    "/api/v1/namespaces",
    "/api/v1/nodes",
    "/api/v1/pods",
    "/apis/apps/v1/deployments",
    "/apis/test.kubecache.dev/v1/readers",
    SHELVES,
]


class World(NamedTuple):
    """Two servers to ask, and the names that stand in targets."""

    apiserver: Server
    proxy: Server
    names: dict[str, str]

    def compare(
        self, target: str, source: str, *, headers: Headers = (), exact: bool = False
    ) -> None:
        asked = target.format_map(self.names)
        compare(
            self.apiserver, self.proxy, "GET", asked, headers=headers, exact=exact, source=source
        )


@pytest.fixture(scope="module")
def world(apiserver: ApiServer, proxy: Proxy) -> World:
    server, namespace = apiserver.server, apiserver.new_namespace()
    beside = apiserver.new_namespace(f"{namespace}-b")  # sorts before `namespace/…`
    define(server, crd("Reader"))
    define(server, crd("Shelf", scope="Cluster"))
    for name in (beside, namespace):
        _fill(server, name)
    _fill_cluster(server, namespace)
    for collection in CACHED:
        cached(proxy.read, collection)
    version = _mark_end(server, proxy.read, namespace)
    names = {"ns": namespace, "other": beside, "rv": str(version), "old": str(version - 1)}
    return World(server, proxy.read, {**names, "node": f"node-{namespace}"})


def _fill(server: Server, namespace: str) -> None:
    names = {"ns": namespace}
    for number, tier in enumerate(("web", "web", "db", "batch")):
        labels = {"tier": tier, "rank": str(number), "empty": ""}
        data = {"text": f"<{number}> & “ä”\u2028\t", "url": "http://x/?a=b&c=<d>"}
        create(server, CONFIGMAPS.format_map(names), configmap(f"c{number}", data, **labels))
        created = pod(f"app-{number}-x", node_name=f"node-{number}", **labels)
        create(server, PODS.format_map(names), created)
        reader = _reader(f"r{number}", ("red", "blue")[number % 2], labels)
        create(server, READERS.format_map(names), reader)
    patch(server, f"{PODS.format_map(names)}/app-0-x/status", pod_status())
    create(server, CONFIGMAPS.format_map(names), configmap("bare"))
    create(server, DEPLOYMENTS.format_map(names), _deployment("web"))
    create(server, SECRETS.format_map(names), {"metadata": {"name": "s"}, "stringData": {"a": "b"}})
    create(server, EVENTS.format_map(names), _event("e", namespace))


def _fill_cluster(server: Server, namespace: str) -> None:
    create(server, "/api/v1/nodes", node(f"node-{namespace}", pool="a"))
    shelf = {"apiVersion": "test.kubecache.dev/v1", "kind": "Shelf"}
    create(server, SHELVES, {**shelf, "metadata": {"name": f"shelf-{namespace}"}})


def _mark_end(server: Server, proxy: Server, namespace: str) -> int:
    """A last write to configmaps, whose version is one that the cache has."""
    target = CONFIGMAPS.format(ns=namespace)
    version = int(create(server, target, configmap("last"))["metadata"]["resourceVersion"])
    caught_up(proxy, "/api/v1/configmaps", version)
    return version


def _reader(name: str, color: str, labels: dict[str, str]) -> Object:
    metadata = {"name": name, "labels": labels}
    spec = {"color": color, "size": 1}
    kind = {"apiVersion": "test.kubecache.dev/v1", "kind": "Reader"}
    return {**kind, "metadata": metadata, "spec": spec}


def _deployment(name: str) -> Object:
    labels = {"app": name}
    template = {"metadata": {"labels": labels}, "spec": pod(f"{name}-1-1")["spec"]}
    spec = {"selector": {"matchLabels": labels}, "template": template, "replicas": 2}
    return {"metadata": {"name": name, "labels": labels}, "spec": spec}


def _event(name: str, namespace: str) -> Object:
    about = {"kind": "Pod", "namespace": namespace, "name": "app-0-x", "uid": "u"}
    said = {"reason": "Started", "type": "Normal", "source": {"component": "kubelet"}}
    return {"metadata": {"name": name}, "involvedObject": about, **said}


GETS = [
    (f"{CONFIGMAPS}/c0", "hit"),
    (f"{CONFIGMAPS}/c0?resourceVersion=", "hit"),
    (f"{CONFIGMAPS}/c0?resourceVersion=0", "hit"),
    (f"{CONFIGMAPS}/c0?resourceVersion=00", "fwd=bypass"),
    (f"{CONFIGMAPS}/c0?resourceVersion=1", "hit"),
    (f"{CONFIGMAPS}/c0?resourceVersion={{rv}}", "hit"),
    (f"{CONFIGMAPS}/c0?watch=1", "hit"),
    (f"{CONFIGMAPS}/c0?timeout=32s&unknown=1", "hit"),
    (f"{CONFIGMAPS}/c0?labelSelector=tier%3Ddb", "hit"),
    (f"{CONFIGMAPS}/c0/", "hit"),
    (f"{CONFIGMAPS}/%63%30", "hit"),
    (f"{CONFIGMAPS}/none", "hit"),
    (f"{CONFIGMAPS}/none?resourceVersion=0", "hit"),
    ("/api/v1/namespaces/nowhere/configmaps/c0", "hit"),
    (f"{PODS}/app-0-x", "hit"),
    (f"{PODS}/app-1-x", "hit"),
    (f"{PODS}/none", "hit"),
    (f"{PODS}/app-0-x/status", "fwd=bypass"),
    (f"{DEPLOYMENTS}/web", "hit"),
    (f"{DEPLOYMENTS}/none", "hit"),
    (f"{DEPLOYMENTS}/web/scale", "fwd=bypass"),
    (f"{EVENTS}/e", "hit"),
    (f"{EVENTS}/none", "hit"),
    (f"{READERS}/r0", "hit"),
    (f"{READERS}/none", "hit"),
    (f"{SECRETS}/s", "fwd=uri-miss"),
    ("/api/v1/namespaces/{ns}", "hit"),
    ("/api/v1/namespaces/nowhere", "hit"),
    ("/api/v1/namespaces/{ns}/status", "fwd=bypass"),
    ("/api/v1/nodes/{node}", "hit"),
    ("/api/v1/nodes/none", "hit"),
    (f"{SHELVES}/shelf-{{ns}}", "hit"),
    (f"{SHELVES}/none", "hit"),
    ("/api/v1/configmaps/c0", "fwd=uri-miss"),  # namespaced, but without a namespace
    ("/api/v1/namespaces/{ns}/nodes/{node}", "fwd=uri-miss"),  # the other way round
    ("/api/v1/namespaces/{ns}/unknowns/x", "fwd=uri-miss"),
    ("/apis/unknown.dev/v1/namespaces/{ns}/unknowns/x", "fwd=uri-miss"),
]

LISTS = [
    ("/api/v1/configmaps", "hit"),
    (CONFIGMAPS, "hit"),
    (f"{CONFIGMAPS}/", "hit"),
    ("/api/v1/namespaces/{other}/configmaps", "hit"),
    ("/api/v1/namespaces/nowhere/configmaps", "hit"),
    (f"{CONFIGMAPS}?resourceVersion=", "hit"),
    (f"{CONFIGMAPS}?resourceVersion=0", "hit"),
    (f"{CONFIGMAPS}?resourceVersion=0&resourceVersionMatch=NotOlderThan", "hit"),
    (f"{CONFIGMAPS}?resourceVersion={{old}}", "hit"),
    (f"{CONFIGMAPS}?resourceVersion={{rv}}", "hit"),
    (f"{CONFIGMAPS}?resourceVersion={{rv}}&resourceVersionMatch=NotOlderThan", "hit"),
    (f"{CONFIGMAPS}?resourceVersion={{rv}}&resourceVersionMatch=NotOlderThan&limit=500", "hit"),
    (f"{CONFIGMAPS}?resourceVersion={{rv}}&limit=500", "hit"),
    (f"{CONFIGMAPS}?resourceVersion={{rv}}&resourceVersionMatch=Exact", "hit"),
    (f"{CONFIGMAPS}?limit=500", "hit"),
    (f"{CONFIGMAPS}?limit=0", "hit"),
    (f"{CONFIGMAPS}?limit=2", "hit"),
    (f"{CONFIGMAPS}?limit=-1", "hit"),
    (f"{CONFIGMAPS}?limit=1&labelSelector=tier%3Dweb", "hit"),
    (f"{CONFIGMAPS}?limit=2&labelSelector=tier%3Dweb", "hit"),
    (f"{CONFIGMAPS}?limit=3&labelSelector=tier%3Dweb", "hit"),
    (f"{CONFIGMAPS}?watch=0", "hit"),
    (f"{CONFIGMAPS}?watch=False&timeoutSeconds=5&allowWatchBookmarks=1", "hit"),
    (f"{CONFIGMAPS}?pretty=true", "hit"),
    (f"{CONFIGMAPS}?pretty=0", "hit"),
    ("/api/v1/events", "hit"),
    (EVENTS, "hit"),
    ("/api/v1/namespaces", "hit"),
    ("/api/v1/nodes", "hit"),
    ("/api/v1/nodes?labelSelector=pool%3Da", "hit"),
    ("/api/v1/namespaces/{ns}/nodes", "fwd=uri-miss"),
    (PODS, "hit"),
    ("/api/v1/pods?pretty=1&labelSelector=tier%3Dweb", "hit"),
    ("/apis/apps/v1/deployments", "hit"),
    (DEPLOYMENTS, "hit"),
    (READERS, "hit"),
    (f"{READERS}?pretty=true", "hit"),
    ("/apis/test.kubecache.dev/v1/namespaces/nowhere/readers", "hit"),
    (SHELVES, "hit"),
    ("/api/v1/secrets", "fwd=uri-miss"),
    ("/api/v1/unknowns", "fwd=uri-miss"),
    ("/apis/unknown.dev/v1/unknowns", "fwd=uri-miss"),
]

LABEL_SELECTORS = """
tier=web|tier==web|tier!=web|tier in (web,db)|tier notin (web, db)|tier|!tier|none|!none
rank>1|rank<2|rank>0,rank<3|empty=|empty==|empty in ()|none=|none!=x|none notin (x)
tier=web,rank!=0|  tier = web , rank != 0  |tier in(web),!none|in=x|tier=in|notin in (notin)|
""".strip().replace("\n", "|")

# Those of a list of pods, then of configmaps, readers, events, nodes and namespaces.
FIELD_SELECTORS = {
    PODS: "metadata.name=app-0-x|metadata.name!=app-0-x|metadata.namespace={ns}|"
    "metadata.namespace!={ns}|spec.nodeName=node-1|spec.nodeName!=node-1|spec.host=node-1|"
    "status.phase=Running|status.phase!=Running,spec.nodeName=node-2|status.podIP=10.1.0.7|"
    "status.podIP=|status.podIPs=|status.podIPs=10.1.0.7|spec.hostNetwork=false|"
    "spec.hostNetwork=true|spec.restartPolicy=Always|spec.schedulerName==default-scheduler|"
    "spec.serviceAccountName=app-0|status.nominatedNodeName=|metadata.name=none",
    "/api/v1/pods": "metadata.name=app-0-x|metadata.namespace={ns},metadata.name=app-0-x",
    CONFIGMAPS: "metadata.name=c0|metadata.name=|metadata.namespace={other}|metadata.name=c\\,0",
    DEPLOYMENTS: "metadata.name=web|metadata.namespace={ns}",
    READERS: "metadata.name=r0",
    EVENTS: "involvedObject.name=app-0-x|involvedObject.kind!=Pod|reason=Started|type=Warning|"
    "source=kubelet|involvedObject.namespace={ns},involvedObject.uid=u",
    "/api/v1/nodes": "metadata.name={node}|spec.unschedulable=false|spec.unschedulable=true",
    "/api/v1/namespaces": "metadata.name={ns}|status.phase=Active|status.phase!=Active",
    SHELVES: "metadata.name=shelf-{ns}",
}

REFUSED = [
    ("labelSelector", "a b"),
    ("labelSelector", "tier=web,"),
    ("labelSelector", ",tier=web"),
    ("labelSelector", "tier in web"),
    ("labelSelector", "tier in (web"),
    ("labelSelector", "-tier=web"),
    ("labelSelector", "tier=we/b"),
    ("labelSelector", "rank>x"),
    ("labelSelector", "é=1"),
    ("fieldSelector", "a"),
    ("fieldSelector", "spec.nodeName=node-1"),  # configmaps have none
    ("fieldSelector", "data.text=x"),
    ("fieldSelector", "metadata.name=a=b"),
    ("fieldSelector", "metadata.name=a\\b"),
    ("resourceVersion", "abc"),
    ("resourceVersion", "-1"),
    ("resourceVersion", "1.5"),
    ("resourceVersion", "99999999999999999999"),
    ("resourceVersionMatch", "Exact"),
    ("resourceVersionMatch", "Newest"),
    ("limit", "x"),
    ("limit", "+1"),
    ("limit", "99999999999999999999"),
    ("continue", "junk"),
    ("timeoutSeconds", "soon"),
    ("sendInitialEvents", "false"),
]


@pytest.mark.parametrize(("target", "source"), GETS)
def test_get(world: World, target: str, source: str) -> None:
    world.compare(target, source)


@pytest.mark.parametrize(("target", "source"), LISTS)
def test_list(world: World, target: str, source: str) -> None:
    world.compare(target, source, exact=True)


def test_a_list_at_version_0_has_no_limit(world: World) -> None:
    """As in kube-apiserver's own cache."""
    target = CONFIGMAPS.format_map(world.names)
    answer = get(world.proxy, f"{target}?limit=2&resourceVersion=0")
    assert_source(answer, "hit")
    whole = get(world.apiserver, exact_target(target, answer.version))
    assert answer.body == whole.body
    assert len(answer.json()["items"]) > 2


@pytest.mark.parametrize("selector", LABEL_SELECTORS.split("|"))
def test_label_selectors(world: World, selector: str) -> None:
    for collection in (CONFIGMAPS, "/api/v1/pods", READERS):
        world.compare(f"{collection}?labelSelector={quote(selector)}", "hit", exact=True)


@pytest.mark.parametrize("collection", FIELD_SELECTORS)
def test_field_selectors(world: World, collection: str) -> None:
    for selector in FIELD_SELECTORS[collection].split("|"):
        named = selector.format_map(world.names)
        world.compare(f"{collection}?fieldSelector={quote(named)}", "hit", exact=True)


def test_fields_of_a_custom_resource_are_those_of_its_definition(world: World) -> None:
    world.compare(f"{READERS}?fieldSelector=spec.color%3Dblue", "hit", exact=True)
    world.compare(f"{READERS}?fieldSelector=spec.size%3D1", "fwd=uri-miss")


@pytest.mark.parametrize(("parameter", "value"), REFUSED)
def test_options_that_are_refused(world: World, parameter: str, value: str) -> None:
    world.compare(f"{CONFIGMAPS}?{parameter}={quote(value, safe='+')}", "fwd")


@pytest.mark.parametrize("target", [CONFIGMAPS, f"{CONFIGMAPS}/c0"])
def test_a_version_to_come_is_the_apiservers_to_refuse(world: World, target: str) -> None:
    asked = target.format_map(world.names) + "?resourceVersion=999999999"
    answer = get(world.proxy, asked)
    assert_source(answer, "fwd=stale")
    assert (answer.status, answer.header("Retry-After")) == (504, "1")
    assert answer.json()["details"]["causes"][0]["reason"] == "ResourceVersionTooLarge"


@pytest.mark.parametrize("value", ["abc", "-1", "1.5"])
def test_a_get_at_a_junk_version(world: World, value: str) -> None:
    world.compare(f"{CONFIGMAPS}/c0?resourceVersion={value}", "fwd=bypass")


@pytest.mark.parametrize(
    ("accept", "source"),
    [
        ("application/json", "hit"),
        ("*/*", "hit"),
        ("application/json;q=0.9,*/*;q=0.8", "hit"),
        ("application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io", "hit"),
        # What is forwarded shows newer states, after which others may be, for a while.
        ("application/yaml", "fwd=vary-miss"),
        ("application/vnd.kubernetes.protobuf,application/json", "fwd=uri-miss"),
        ("application/json;as=Table;v=v1;g=meta.k8s.io,application/json", "fwd=uri-miss"),
        ("text/html", "fwd=vary-miss"),
        ("junk", "fwd=vary-miss"),
    ],
)
def test_representations(world: World, accept: str, source: str) -> None:
    world.compare(f"{CONFIGMAPS}/c0", source, headers=(("Accept", accept),))
    world.compare(f"{READERS}/r0", source, headers=(("Accept", accept),))


@pytest.mark.parametrize("agent", ["curl/8.5.0", "Wget/1.21", "Mozilla/5.0 (X11)", "kubectl/v1.37"])
def test_people_get_indented_bodies(world: World, agent: str) -> None:
    headers = (("User-Agent", agent),)
    for target in (f"{CONFIGMAPS}/c0", f"{CONFIGMAPS}/none", f"{READERS}/r0"):
        world.compare(target, "hit", headers=headers)
        world.compare(f"{target}?pretty=false", "hit", headers=headers)
    for target in (CONFIGMAPS, READERS):
        world.compare(target, "hit", headers=headers, exact=True)
