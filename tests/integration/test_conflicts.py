"""Causes and merges of what a real kube-apiserver stores: its managedFields, and its judgement."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

import pytest

from proxy.kube.envelope import MERGE_PATCH, STRATEGIC_PATCH
from proxy.kube.resources import Resource
from proxy.writes.causes import conflict_causes
from proxy.writes.changes import Json, OverlapError, merge, retarget_patch
from tests.harness.apiserver import ApiServer
from tests.harness.caching import cached, caught_up
from tests.harness.differential import cache_status
from tests.harness.http import Answer, ask, get
from tests.harness.objects import create, patch
from tests.harness.proxy import Proxy

DEPLOYMENTS = Resource("apps", "v1", "deployments")
SERVICES = Resource("", "v1", "services")
ROLES = "/apis/rbac.authorization.k8s.io/v1/clusterroles"


def _deployment() -> Json:
    ports = [{"containerPort": 53, "protocol": protocol} for protocol in ("TCP", "UDP")]
    env = [{"name": "A", "value": "1"}]
    container = {"name": "app", "image": "app:1", "ports": ports, "env": env}
    labels = {"app": "x"}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "x", "labels": labels},
        "spec": {
            "replicas": 1,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {"containers": [container]}},
        },
    }


ODD_NAMES = ('a"b', "a\\b", "a b", "\xe9", "\x07", "\ufffd")


def test_conflicts_of_names_that_messages_quote(apiserver: ApiServer, proxy: Proxy) -> None:
    """Seen here or, where the name may stand for bytes that are no text, by the API server."""
    cached(proxy.read, ROLES)
    for name in ODD_NAMES:
        path = f"{ROLES}/{quote(name)}"
        old = create(apiserver.server, ROLES, {"metadata": {"name": name}})
        new = patch(apiserver.server, path, {"metadata": {"labels": {"a": "b"}}})
        caught_up(proxy.read, ROLES, new["metadata"]["resourceVersion"])
        theirs, ours = (
            ask(server, "PUT", path, body=old) for server in (apiserver.server, proxy.read)
        )
        ask(apiserver.server, "DELETE", path).ok()  # others try the same names
        assert cache_status(ours).hit is (name != "\ufffd")
        plain = ours.json()
        assert plain["details"].pop("causes")
        assert (ours.status, plain) == (409, theirs.json())


class Written:
    """An object and its writers; each write names its manager."""

    def __init__(self, apiserver: ApiServer, collection: str, body: Json) -> None:
        self._server = apiserver.server
        self._path = f"{collection}/{body['metadata']['name']}"
        self.base: Json = ask(
            self._server, "POST", f"{collection}?fieldManager=creator", body=body
        ).ok().json()  # fmt: skip

    @property
    def now(self) -> Json:
        found: Json = get(self._server, self._path).ok().json()
        return found

    def put(self, manager: str, body: Json) -> Answer:
        return ask(self._server, "PUT", f"{self._path}?fieldManager={manager}", body=body)

    def patch(self, manager: str, body: Any, content_type: str = STRATEGIC_PATCH) -> Answer:
        headers = (("Content-Type", content_type),)
        target = f"{self._path}?fieldManager={manager}"
        return ask(self._server, "PATCH", target, headers=headers, body=body)


@pytest.fixture
def deployment(apiserver: ApiServer, namespace: str) -> Written:
    return Written(apiserver, DEPLOYMENTS.path(namespace), _deployment())


def _template(**container: Any) -> Json:
    return {"spec": {"template": {"spec": {"containers": [{"name": "app", **container}]}}}}


def _copy(found: Json) -> Json:
    """One's own state, to change: what is changed below is new."""
    [container] = found["spec"]["template"]["spec"]["containers"]
    template = {**found["spec"]["template"], "spec": {**found["spec"]["template"]["spec"]}}
    template["spec"]["containers"] = [dict(container)]
    return {**found, "spec": {**found["spec"], "template": template}}


def _explain(written: Written, resource: Resource = DEPLOYMENTS) -> dict[str, str]:
    causes = conflict_causes(resource, written.base, written.now, 1)
    return {cause["field"]: cause["message"] for cause in causes}


def test_causes_name_the_managers(deployment: Written) -> None:
    image = {"image": "app:2", "env": [{"name": "B", "value": "2"}]}
    deployment.patch("painter", _template(**image)).ok()
    deployment.patch("scaler", {"spec": {"replicas": 3}}).ok()
    ports = [{"containerPort": 53, "protocol": "UDP", "name": "dns"}]
    deployment.patch("porter", {"metadata": {"finalizers": ["x.dev/a"]}}).ok()
    deployment.patch("porter", {"metadata": {"labels": {"x.dev/b": "c"}}}).ok()
    container = "spec.template.spec.containers[0]"
    expected = {
        "metadata.labels[x.dev/b]": 'set to "c" by "porter"',
        "metadata.finalizers[0]": 'set to "x.dev/a" by "porter"',
        "spec.replicas": 'changed from 1 to 3 by "scaler"',
        f"{container}.image": 'changed from "app:1" to "app:2" by "painter"',
        f"{container}.env[0]": 'set to {"name":"B","value":"2"} by "painter"',
    }
    assert _explain(deployment) == expected
    mine = _copy(deployment.now)
    mine["spec"]["template"]["spec"]["containers"][0]["ports"] = [
        {"containerPort": 53, "protocol": "TCP"}, *ports
    ]  # fmt: skip
    deployment.put("porter", mine).ok()
    named = {f"{container}.ports[1].name": 'set to "dns" by "porter"'}
    assert _explain(deployment) == expected | named


def test_causes_of_a_service(apiserver: ApiServer, namespace: str) -> None:
    ports = [{"name": p.lower(), "port": 53, "protocol": p} for p in ("TCP", "UDP")]
    body = {"metadata": {"name": "x"}, "spec": {"ports": ports, "selector": {"app": "x"}}}
    service = Written(apiserver, SERVICES.path(namespace), body)
    ports[1]["targetPort"] = "dns"
    service.patch("porter", {"spec": {"ports": ports}}, MERGE_PATCH).ok()
    message = 'changed from 53 to "dns" by "porter"'
    assert _explain(service, SERVICES) == {"spec.ports[1].targetPort": message}


def test_disjoint_updates_merge(deployment: Written) -> None:
    mine = _copy(deployment.base)
    mine["spec"]["template"]["spec"]["containers"][0]["image"] = "app:2"
    deployment.patch("scaler", {"spec": {"replicas": 3}}).ok()
    assert deployment.put("painter", mine).status == 409
    merged = merge(deployment.base, deployment.now, mine)
    deployment.put("painter", merged).ok()
    assert _explain(deployment) == {
        "spec.replicas": 'changed from 1 to 3 by "scaler"',
        "spec.template.spec.containers[0].image": 'changed from "app:1" to "app:2" by "painter"',
    }


def test_overlapping_updates_do_not(deployment: Written) -> None:
    mine = {**deployment.base, "spec": {**deployment.base["spec"], "replicas": 2}}
    deployment.patch("scaler", {"spec": {"replicas": 3}}).ok()
    with pytest.raises(OverlapError) as caught:
        merge(deployment.base, deployment.now, mine)
    assert [change[:] for change in caught.value.changes] == [(("spec", "replicas"), 1, 3)]


@pytest.mark.parametrize("content_type", [MERGE_PATCH, STRATEGIC_PATCH])
def test_patches_are_made_for_the_newer_state(deployment: Written, content_type: str) -> None:
    version = deployment.base["metadata"]["resourceVersion"]
    mine = {"metadata": {"resourceVersion": version}, "spec": {"replicas": 3}}
    deployment.patch("painter", _template(image="app:2")).ok()
    assert deployment.patch("scaler", mine, content_type).status == 409
    retargeted = retarget_patch(content_type, mine, deployment.base, deployment.now)
    deployment.patch("scaler", retargeted, content_type).ok()
    assert deployment.now["spec"]["replicas"] == 3
    with pytest.raises(OverlapError):
        retarget_patch(content_type, mine, deployment.base, deployment.now)
