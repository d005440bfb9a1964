"""An aggregated API: kube-apiserver passes its group on to another server, here another one of its.

The proxy reads no definition of such resources, as there's none where it asks.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

import pytest

from proxy.kube.negotiation import JSON, PROTOBUF
from tests.harness.apiserver import ApiServer
from tests.harness.caching import eventually, hit
from tests.harness.differential import compare_in_time
from tests.harness.forms import CLIENT_GO, METADATA, plain, table
from tests.harness.http import Answer, Server, ask, get, watch
from tests.harness.objects import Object, crd, create, define, patch
from tests.harness.proxy import Proxy, forms_held
from tests.harness.tables import column

GROUP = "aggregated.kubecache.dev"
ROOT = f"/apis/{GROUP}/v1"
ASKED = {
    "json": plain(JSON),
    "client-go": CLIENT_GO,
    "table": table(),
    "metadata": METADATA["metadata"],
    "metadata-protobuf": METADATA["metadata-protobuf"],
    "metadata-client": METADATA["metadata-client"],
}
INITIAL = "watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan"


class World(NamedTuple):
    """The server that passes on, and the proxy before it; *path* are the objects."""

    apiserver: Server
    proxy: Proxy
    path: str


@pytest.fixture(scope="module")
def world(apiserver: ApiServer) -> Iterator[World]:
    with ApiServer() as other, Proxy(apiserver.kubeconfig()) as proxy:
        _admit_everybody(other.server)
        define(other.server, _definition())
        _aggregate(apiserver, other)
        namespace = apiserver.new_namespace()
        other.new_namespace(namespace)
        path = f"{ROOT}/namespaces/{namespace}/gadgets"
        eventually(lambda: get(apiserver.server, path).status == 200, "the API is passed on")
        for name in ("a", "b", "c"):
            create(apiserver.server, path, _gadget(name))
        yield World(apiserver.server, proxy, path)


def _definition() -> Object:
    definition = crd("Gadget", group=GROUP)
    [version] = definition["spec"]["versions"]
    version["additionalPrinterColumns"] = [
        column("Color", "string", ".spec.color"),
        column("Age", "date", ".metadata.creationTimestamp"),
    ]
    return definition


def _gadget(name: str) -> Object:
    metadata = {"name": name, "labels": {"name": name}}
    return {"apiVersion": f"{GROUP}/v1", "kind": "Gadget", "metadata": metadata}


def _admit_everybody(server: Server) -> None:
    """Without certificates of its own, kube-apiserver passes requests on as nobody's."""
    anonymous = {"kind": "User", "name": "system:anonymous"}
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"}
    binding = {"metadata": {"name": "anybody"}, "roleRef": role, "subjects": [anonymous]}
    create(server, "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", binding)


def _aggregate(apiserver: ApiServer, other: ApiServer) -> None:
    """Register the other's group, by a service that is but a name of this host."""
    service = {"type": "ExternalName", "externalName": "localhost"}
    create(
        apiserver.server,
        "/api/v1/namespaces/default/services",
        {"metadata": {"name": "aggregated"}, "spec": service},
    )
    spec = {
        "group": GROUP,
        "version": "v1",
        "service": {"namespace": "default", "name": "aggregated", "port": other.port},
        "insecureSkipTLSVerify": True,
        "groupPriorityMinimum": 1000,
        "versionPriority": 10,
    }
    body = {"metadata": {"name": f"v1.{GROUP}"}, "spec": spec}
    create(apiserver.server, "/apis/apiregistration.k8s.io/v1/apiservices", body)


def _same(world: World, target: str, accept: str, *, exact: bool = False) -> None:
    headers = [("Accept", accept)]
    both = world.apiserver, world.proxy.read
    compare_in_time(*both, target, headers, exact=exact, source="hit", adapt=_once)


def _once(answer: Answer) -> Answer:
    """Headers without repetition: an answer that has been passed on has its Cache-Control twice."""
    return replace(answer, headers=tuple(dict.fromkeys(answer.headers)))


@pytest.mark.parametrize("name", ASKED)
def test_every_form(world: World, name: str) -> None:
    asked, path = ASKED[name], world.path
    headers = asked.headers(listing=True)
    eventually(lambda: hit(world.proxy.read, path, headers=headers), f"{name} is cached")
    for query in ("", "?limit=2", "?labelSelector=name+in+(a,c)", "?labelSelector=none"):
        _same(world, path + query, asked.listing, exact=True)
    _same(world, f"{path}/b", asked.other)
    _same_events(world, asked.other)


def _same_events(world: World, accept: str) -> None:
    """The objects there are, and a change."""
    headers = [("Accept", accept)]
    target = f"{world.path}?watch=1&labelSelector=name%3Db&resourceVersion=0"
    with (
        watch(world.apiserver, target, headers=headers) as theirs,
        watch(world.proxy.read, target, headers=headers) as ours,
    ):
        for value in ("<one>", "<two>"):
            patch(world.proxy.read, f"{world.path}/b", {"spec": {"color": value}})
        for _ in range(3):
            assert _ageless(ours.line()) == _ageless(theirs.line())


def _ageless(line: bytes | None) -> bytes:
    """An event of a Table, or another, that is compared across a second's end."""
    assert line
    return re.sub(rb'"\d+s"', b'"AGE"', line)


def test_protobuf_alone_is_refused(world: World) -> None:
    headers = [("Accept", PROTOBUF)]
    for server in (world.apiserver, world.proxy.read):
        assert get(server, world.path, headers=headers).status == 406


def test_writes_are_seen_in_every_form(world: World) -> None:
    for number, (name, asked) in enumerate(ASKED.items()):
        ask(world.proxy.read, "POST", world.path, body=_gadget(f"new-{number}")).ok()
        target = f"{world.path}/new-{number}"
        answer = get(world.proxy.read, target, headers=asked.headers())
        assert answer.status == 200, name
        ask(world.proxy.read, "DELETE", target).ok()


def test_forms_that_are_held(world: World) -> None:
    assert forms_held(world.proxy, "gadgets") == {"json", "table", "metadata-protobuf"}
