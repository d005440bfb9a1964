"""Definitions whose versions and schemas change under informers and open watches."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from typing import Any, NamedTuple

import pytest

from tests.harness.apiserver import ApiServer
from tests.harness.caching import cached, eventually
from tests.harness.differential import cache_status, differences, exact_target
from tests.harness.follower import Follower, items, patient_list
from tests.harness.http import Server, ask, get, watch
from tests.harness.objects import CustomResource, Object, crd, create, define
from tests.harness.proxy import Proxy

DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
GROUP = "versions.kubecache.dev"
TESTS = 5
_JSON_PATCH = (("Content-Type", "application/json-patch+json"),)

Change = dict[str, Any]


class Rig(NamedTuple):
    """A resource in a namespace, whose definition may change."""

    apiserver: Server
    proxy: Proxy
    resource: CustomResource
    namespace: str

    def path(self, version: str = "v1") -> str:
        return self.resource.path(self.namespace).replace("/v1/", f"/{version}/")

    def write(self, name: str, version: str = "v1") -> int:
        body = self.resource.object(name) | {"apiVersion": f"{GROUP}/{version}"}
        written = create(self.apiserver, self.path(version), body)
        return int(written["metadata"]["resourceVersion"])

    def change(self, *changes: Change, version: str = "v1") -> None:
        """Changes the definition, and waits until the API server has ended all watches for it."""
        with watch(self.apiserver, f"{self.path(version)}?watch=1") as witness:
            self.begin_change(*changes)
            witness.wait_end()
        patient_list(self.apiserver, self.path(version))

    def begin_change(self, *changes: Change) -> None:
        target = f"{DEFINITIONS}/{self.resource.plural}.{GROUP}"
        body = json.dumps(changes).encode()
        ask(self.apiserver, "PATCH", target, headers=_JSON_PATCH, body=body).ok()

    def assert_agree(self, version: str = "v1") -> None:
        """Soon a list from the cache is kube-apiserver's at the same version."""

        def agree() -> bool:
            answer = get(self.proxy.read, self.path(version))
            if answer.status != 200 or not cache_status(answer).hit:
                return False
            judged = exact_target(self.path(version), answer.version)
            found.append(differences(get(self.apiserver, judged), answer))
            return not found[-1]

        found: list[list[str]] = []
        try:
            eventually(agree, f"both say the same of {version}")
        except AssertionError as error:
            raise AssertionError("\n".join(found[-1] if found else ["never cached"])) from error


@pytest.fixture(scope="module")
def models(apiserver: ApiServer) -> list[CustomResource]:
    """A new resource for each test: to define them at once takes no longer than to define one."""
    definitions = [crd(f"Model{number}", group=GROUP) for number in range(TESTS)]
    with ThreadPoolExecutor(TESTS) as pool:
        return list(pool.map(partial(define, apiserver.server), definitions))


@pytest.fixture
def rig(apiserver: ApiServer, models: list[CustomResource]) -> Iterator[Rig]:
    """A resource with two objects, which the proxy has cached; both are the test's own."""
    namespace = apiserver.new_namespace()
    resource = models.pop()
    with Proxy(apiserver.kubeconfig()) as proxy:
        rig = Rig(apiserver.server, proxy, resource, namespace)
        for name in ("a", "b"):
            rig.write(name)
        cached(proxy.read, rig.path())
        rig.assert_agree()
        yield rig
        assert "Traceback" not in proxy.log()


def _second(rig: Rig, *, storage: bool = False) -> Object:
    definition = crd(rig.resource.kind, group=GROUP)
    version: Object = definition["spec"]["versions"][0]
    return version | {"name": "v2", "storage": storage}


def test_versions_come_are_stored_and_go(rig: Rig) -> None:
    rig.change({"op": "add", "path": "/spec/versions/-", "value": _second(rig)})
    eventually(lambda: get(rig.apiserver, rig.path("v2")).status == 200, "v2 is served")
    rig.write("c", "v2")
    cached(rig.proxy.read, rig.path("v2"))
    with ExitStack() as stack:
        followers = {version: _follow(stack, rig, version) for version in ("v1", "v2")}
        _assert_told(rig, followers, rig.write("d"))
        rig.change(
            {"op": "replace", "path": "/spec/versions/0/storage", "value": False},
            {"op": "replace", "path": "/spec/versions/1/storage", "value": True},
        )
        _assert_told(rig, followers, rig.write("e", "v2"))
        _assert_told(rig, followers, rig.write("f"))


def _follow(stack: ExitStack, rig: Rig, version: str) -> list[Follower]:
    """A client of the proxy and one of the API server."""
    servers = rig.proxy.read, rig.apiserver
    return [stack.enter_context(Follower(server, rig.path(version))) for server in servers]


def _assert_told(rig: Rig, followers: dict[str, list[Follower]], end: int) -> None:
    """Each client has the state of its version after a write, and so have lists."""
    for version, pair in followers.items():
        for follower in pair:
            follower.wait(end)
            assert follower.state == items(rig.apiserver, rig.path(version))
        rig.assert_agree(version)


def test_a_version_that_is_no_longer_served(rig: Rig) -> None:
    rig.change({"op": "add", "path": "/spec/versions/-", "value": _second(rig, storage=False)})
    eventually(lambda: get(rig.apiserver, rig.path("v2")).status == 200, "v2 is served")
    cached(rig.proxy.read, rig.path("v2"))
    with watch(rig.proxy.read, f"{rig.path()}?watch=1") as stream:
        stream.events(2)
        rig.change(
            {"op": "replace", "path": "/spec/versions/0/served", "value": False}, version="v2"
        )
        stream.wait_end()
    eventually(lambda: get(rig.apiserver, rig.path()).status == 404, "v1 is not served")
    eventually(lambda: get(rig.proxy.read, rig.path()).status == 404, "nor by the proxy")
    rig.write("c", "v2")
    rig.assert_agree("v2")
    rig.change(_served(True), version="v2")
    eventually(lambda: get(rig.apiserver, rig.path()).status == 200, "v1 is served again")
    eventually(lambda: get(rig.proxy.read, rig.path()).status == 200, "by the proxy too")


def _served(value: object) -> Change:
    return {"op": "replace", "path": "/spec/versions/0/served", "value": value}


def test_other_columns_change_nothing(rig: Rig) -> None:
    """For Table alone; but all watches end here too."""
    with ExitStack() as stack:
        pair = _follow(stack, rig, "v1")
        rig.change({"op": "remove", "path": "/spec/versions/0/additionalPrinterColumns"})
        _assert_told(rig, {"v1": pair}, rig.write("c"))


_VERSION = "/spec/versions/0"
_FIELDS = f"{_VERSION}/schema/openAPIV3Schema/properties/spec/properties"
_DEFAULTED = {"type": "string", "default": "x"}
CHANGES: dict[str, Change] = {
    "a default": {"op": "add", "path": f"{_FIELDS}/more", "value": _DEFAULTED},
    "a field less": {"op": "remove", "path": f"{_FIELDS}/size"},
    "a selectable field less": {"op": "remove", "path": f"{_VERSION}/selectableFields"},
}


def test_changes_under_an_open_watch(rig: Rig) -> None:
    """Objects are then read by the new schema, with defaults and without fields that are gone."""
    for number, (what, change) in enumerate(CHANGES.items()):
        print(what)
        with ExitStack() as stack:
            pair = _follow(stack, rig, "v1")
            rig.change(change)
            _assert_told(rig, {"v1": pair}, rig.write(f"new-{number}"))


def test_a_write_right_behind_a_change(rig: Rig) -> None:
    """It comes before the change takes effect: the informer's version is the newest then."""
    with watch(rig.apiserver, f"{rig.path()}?watch=1") as witness:
        rig.begin_change(CHANGES["a default"])
        rig.write("c")
        witness.wait_end()
    patient_list(rig.apiserver, rig.path())
    rig.assert_agree()
