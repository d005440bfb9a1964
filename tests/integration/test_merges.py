"""Merges through the proxy, judged by a real kube-apiserver, and what each result costs it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest

from tests.harness.apiserver import ApiServer
from tests.harness.caching import cached, caught_up, hit
from tests.harness.faults import FaultProxy
from tests.harness.http import Answer, Server, ask
from tests.harness.objects import Object, configmap, crd, create, define, patch
from tests.harness.proxy import Proxy, metrics

CONFIGMAPS = "/api/v1/namespaces/{}/configmaps"
MERGE = ("X-Kubecache-On-Conflict", "merge")


@pytest.fixture(scope="module")
def line(apiserver: ApiServer) -> Iterator[FaultProxy]:
    with FaultProxy(apiserver.port) as running:
        yield running


@pytest.fixture(scope="module")
def proxy(apiserver: ApiServer, line: FaultProxy) -> Iterator[Proxy]:
    """One that has ConfigMaps in its cache, behind a line that may fail."""
    named = ["configmaps", "deployments.apps"]
    config = {"cache": {"resources": [{"resource": each} for each in named]}}
    with Proxy(apiserver.kubeconfig(port=line.port), config=config) as running:
        yield running


def merges(proxy: Proxy, result: str) -> float:
    return metrics(proxy).total("kubecache_conflict_merges_total", result=result)


class Conflict(NamedTuple):
    """An object as a client has read it, and which another has changed since."""

    target: str
    seen: Object
    now: Object


def conflict(apiserver: ApiServer, collection: str, body: Object, theirs: Object) -> Conflict:
    """Create an object, and let another change it by a merge patch."""
    seen = create(apiserver.server, collection, body)
    target = f"{collection}/{body['metadata']['name']}"
    return Conflict(target, seen, patch(apiserver.server, target, theirs))


def known(proxy: Proxy, found: Conflict) -> None:
    """Wait until the cache has the change."""
    collection = found.target.rpartition("/")[0]
    caught_up(proxy.read, collection, found.now["metadata"]["resourceVersion"])


def put(server: Server, found: Conflict, mine: Object, *headers: tuple[str, str]) -> Answer:
    """Update what was read: *mine* has members to replace."""
    return ask(server, "PUT", found.target, headers=headers, body={**found.seen, **mine})


def deployment(**variable: Any) -> Object:
    """A Deployment x with one variable in its container's environment."""
    labels = {"app": "x"}
    container = {"name": "app", "image": "app:1", "env": [{"name": "V", **variable}]}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [container]}}
    return {
        "metadata": {"name": "x"},
        "spec": {"replicas": 1, "selector": {"matchLabels": labels}, "template": template},
    }


EXCLUSIVE: list[tuple[str, Object, Object, Object]] = [
    (
        "/apis/apps/v1/namespaces/{}/deployments",
        deployment(),
        deployment(value="1"),
        {"spec": deployment(valueFrom={"fieldRef": {"fieldPath": "metadata.name"}})["spec"]},
    ),
    (
        CONFIGMAPS,
        configmap("x", {"a": "1"}),
        {"data": {"c": "1"}},
        {"binaryData": {"c": "MQ=="}},
    ),
    (
        CONFIGMAPS,
        configmap("x", {"a": "1"}),
        {"immutable": True},
        {"data": {"a": "1", "b": "1"}},
    ),
]
"""Changes that are each fine, and together invalid."""


@pytest.mark.parametrize(("collection", "body", "theirs", "mine"), EXCLUSIVE)
def test_a_merge_that_is_invalid_stays_the_conflict(
    apiserver: ApiServer,
    proxy: Proxy,
    namespace: str,
    collection: str,
    body: Object,
    theirs: Object,
    mine: Object,
) -> None:
    found = conflict(apiserver, collection.format(namespace), body, theirs)
    known(proxy, found)
    failed = merges(proxy, "failed")
    answer = put(proxy.read, found, mine, MERGE)
    expected = put(proxy.read, found, mine)
    assert (answer.status, answer.json()) == (409, expected.json())
    assert answer.json()["details"]["causes"]
    assert merges(proxy, "failed") == failed + 1


def widget_crd(kind: str, *, has_status: bool) -> Object:
    """A CustomResourceDefinition whose status is a subresource, or a field like any other."""
    definition = crd(kind, group="merges.kubecache.dev")
    if not has_status:
        [version] = definition["spec"]["versions"]
        version["subresources"] = {}
    return definition


@pytest.mark.parametrize("is_cached", [False, True], ids=["forwarded", "cached"])
@pytest.mark.parametrize("has_status", [False, True], ids=["field", "subresource"])
def test_a_status_that_is_left_out_is_removed_where_an_update_writes_it(
    apiserver: ApiServer, proxy: Proxy, namespace: str, *, has_status: bool, is_cached: bool
) -> None:
    """As an update without a conflict does, which comes first."""
    kind = f"Merge{'With' if has_status else 'Without'}{'Cached' if is_cached else 'Forwarded'}"
    defined = define(apiserver.server, widget_crd(kind, has_status=has_status))
    collection = defined.path(namespace)
    if is_cached:
        cached(proxy.read, defined.path())
    body = {**defined.object("x"), "status": {"phase": "old"}}
    for theirs in (None, {"spec": {"size": 2}}):
        seen = create(apiserver.server, collection, body)
        if has_status:
            seen = patch(apiserver.server, f"{collection}/x/status", {"status": body["status"]})
        assert seen["status"] == {"phase": "old"}
        found = Conflict(f"{collection}/x", seen, seen)
        if theirs is not None:
            found = found._replace(now=patch(apiserver.server, found.target, theirs))
            assert is_cached or not hit(proxy.read, collection)
        mine = {key: value for key, value in seen.items() if key != "status"}
        written = ask(proxy.read, "PUT", found.target, headers=(MERGE,), body=mine).ok().json()
        assert ("status" in written) is has_status
        assert written["spec"]["size"] == (1 if theirs is None else 2)
        ask(apiserver.server, "DELETE", found.target).ok()


def test_a_status_that_is_no_subresource_is_not_found(
    apiserver: ApiServer, proxy: Proxy, namespace: str
) -> None:
    collection = CONFIGMAPS.format(namespace)
    found = conflict(apiserver, collection, configmap("x"), {"data": {"a": "1"}})
    known(proxy, found)
    theirs, ours = (
        ask(server, "PUT", f"{found.target}/status", body=found.seen)
        for server in (apiserver.server, proxy.read)
    )
    assert (theirs.status, theirs.body) == (ours.status, ours.body)
    assert ours.status == 404
