"""Resources that change under a running informer, and APIs that are down."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from tests.harness.apiserver import ApiServer
from tests.harness.caching import cached, eventually, hit
from tests.harness.differential import assert_source, compare
from tests.harness.http import ask, get
from tests.harness.objects import configmap, crd, create, define, patch
from tests.harness.proxy import Proxy, metrics

DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
GROUP = "changing.kubecache.dev"


@pytest.fixture
def proxy(apiserver: ApiServer) -> Iterator[Proxy]:
    """A proxy of one's own."""
    with Proxy(apiserver.kubeconfig()) as running:
        yield running


def _color(resource: str, color: str) -> str:
    return f"{resource}?fieldSelector=spec.color%3D{color}"


def test_fields_that_a_definition_takes_back(apiserver: ApiServer, proxy: Proxy) -> None:
    """The change ends the watch; the informer looks again and lists anew."""
    server = apiserver.server
    namespace = apiserver.new_namespace()
    things = define(server, crd("Thing", group=GROUP))
    collection = things.path(namespace)
    create(server, collection, things.object("red"))
    cached(proxy.read, collection)
    compare(server, proxy.read, "GET", _color(collection, "red"), exact=True, source="hit")
    change = [{"op": "remove", "path": "/spec/versions/0/selectableFields"}]
    content = (("Content-Type", "application/json-patch+json"),)
    changed = ask(
        server,
        "PATCH",
        f"{DEFINITIONS}/things.{GROUP}",
        headers=content,
        body=json.dumps(change).encode(),
    )
    assert changed.status == 200, changed
    eventually(
        lambda: get(proxy.read, _color(collection, "red")).status == 400,
        "the field is no longer selectable",
    )
    compare(server, proxy.read, "GET", _color(collection, "red"), source="fwd")
    eventually(lambda: hit(proxy.read, collection), "the list is cached again")
    compare(server, proxy.read, "GET", collection, exact=True)
    relists = "kubecache_informer_relists_total"
    eventually(lambda: metrics(proxy).total(relists, reason="layout") == 1, "one relist")


@pytest.mark.parametrize("scope", ["Cluster", "Namespaced"])
def test_a_definition_that_comes_back_with_another_scope(
    apiserver: ApiServer, proxy: Proxy, scope: str
) -> None:
    server = apiserver.server
    namespace = apiserver.new_namespace()
    other = {"Cluster": "Namespaced", "Namespaced": "Cluster"}[scope]
    kind = f"Scoped{scope}"
    for now in (scope, other):
        things = define(server, crd(kind, scope=now, group=GROUP))
        collection = things.path(namespace if now == "Namespaced" else "")
        eventually(
            lambda things=things, collection=collection: (
                ask(  # type: ignore[misc]
                    server, "POST", collection, body=things.object("x")
                ).status
                in {201, 409}
            ),
            "the new definition takes objects",
        )
        compare(server, proxy.read, "GET", f"{collection}/x", source="fwd")
        cached(proxy.read, collection)
        compare(server, proxy.read, "GET", collection, exact=True, source="hit")
        compare(server, proxy.read, "GET", f"{collection}/x", source="hit")
        gone = ask(server, "DELETE", f"{DEFINITIONS}/{things.plural}.{GROUP}")
        assert gone.status == 200
        eventually(
            lambda collection=collection: get(proxy.read, collection).status == 404,  # type: ignore[misc]
            "the resource is gone",
        )


def test_an_api_that_is_down_harms_nobody_else(apiserver: ApiServer, proxy: Proxy) -> None:
    server = apiserver.server
    services = "/apis/apiregistration.k8s.io/v1/apiservices"
    name = "v1.down.kubecache.dev"
    create(
        server,
        services,
        {
            "metadata": {"name": name},
            "spec": {
                "group": "down.kubecache.dev",
                "version": "v1",
                "service": {"name": "none", "namespace": "default"},
                "insecureSkipTLSVerify": True,
                "groupPriorityMinimum": 1000,
                "versionPriority": 15,
            },
        },
    )
    try:
        down = "/apis/down.kubecache.dev/v1/things"
        eventually(lambda: get(server, down).status == 503, "the API is down")
        for _ in range(3):
            assert get(proxy.read, down).status == 503
        namespace = apiserver.new_namespace()
        collection = f"/api/v1/namespaces/{namespace}/configmaps"
        cached(proxy.read, collection)
        compare(server, proxy.read, "GET", collection, exact=True, source="hit")
        compare(server, proxy.read, "GET", "/apis/apps/v1")
        assert get(proxy.read, "/apis").status == 200
    finally:
        ask(server, "DELETE", f"{services}/{name}")


def test_declared_indexes(apiserver: ApiServer) -> None:
    """IndexField and MatchingFields over HTTP; other paths stay the API server's 400."""
    namespace = apiserver.new_namespace()
    collection = f"/api/v1/namespaces/{namespace}/configmaps"
    owner = {"apiVersion": "v1", "kind": "Node", "name": "n"}
    for number in range(20):
        uids = [f"u{number % 3}", f"u{number % 5}x"]
        body = configmap(f"c{number}", {"color": "red" if number % 2 else "blue"})
        body["metadata"]["ownerReferences"] = [{**owner, "uid": uid} for uid in uids]
        create(apiserver.server, collection, body)
    indexes = ["data.color", "metadata.ownerReferences[*].uid"]
    # One resource may be named twice, and in two ways: what both declare adds up.
    resources = [
        {"resource": name, "indexes": [index]}
        for name, index in zip(("configmaps", "configmaps.v1"), indexes, strict=True)
    ]
    with Proxy(apiserver.kubeconfig(), config={"cache": {"resources": resources}}) as proxy:

        def names(selector: str) -> set[int]:
            answer = get(proxy.read, f"{collection}?fieldSelector={selector}").ok()
            assert_source(answer, "hit")
            return {int(each["metadata"]["name"][1:]) for each in answer.json()["items"]}

        uid = "metadata.ownerReferences%5B*%5D.uid"
        everything = set(range(20))
        assert names("data.color%3Dred") == {n for n in everything if n % 2}
        assert names("data.color%3D%3Dred,metadata.name!%3Dc1") == {
            n for n in everything if n % 2 and n != 1
        }
        assert names(f"{uid}%3Du1") == {n for n in everything if n % 3 == 1}
        assert names(f"{uid}!%3Du1") == {n for n in everything if n % 3 != 1}
        assert names(f"{uid}%3Du4x,data.color%3Dred") == {n for n in everything if n % 10 == 9}
        patch(apiserver.server, f"{collection}/c0", {"data": {"color": "red"}})
        eventually(lambda: 0 in names("data.color%3Dred"), "the index follows")
        seen = metrics(proxy)
        scanned = seen.total("kubecache_list_scanned_objects_total", resource="configmaps")
        returned = seen.total("kubecache_list_returned_objects_total", resource="configmaps")
        assert scanned < 3 * returned
        undeclared = f"{collection}?fieldSelector=data.shape%3Dround"
        compare(apiserver.server, proxy.read, "GET", undeclared, source="fwd")
