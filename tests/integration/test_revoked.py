"""The proxy's own permission is taken away while it runs: its open watch doesn't tell."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from tests.harness.apiserver import ApiServer
from tests.harness.caching import eventually
from tests.harness.http import ask, get
from tests.harness.objects import create
from tests.harness.proxy import Proxy

RBAC = "/apis/rbac.authorization.k8s.io/v1"
NAME = "reads-limitranges"
NAMED = {"cache": {"resources": [{"resource": "limitranges"}]}}


def bind(apiserver: ApiServer) -> None:
    role = {"kind": "ClusterRole", "name": NAME, "apiGroup": "rbac.authorization.k8s.io"}
    subject = {"kind": "User", "name": "nobody", "apiGroup": "rbac.authorization.k8s.io"}
    body = {"metadata": {"name": NAME}, "roleRef": role, "subjects": [subject]}
    create(apiserver.server, f"{RBAC}/clusterrolebindings", body)


def unbind(apiserver: ApiServer) -> None:
    ask(apiserver.server, "DELETE", f"{RBAC}/clusterrolebindings/{NAME}").ok()


@contextmanager
def reading(apiserver: ApiServer) -> Iterator[Proxy]:
    """A proxy that may read limit ranges, and proves them current every second."""
    rule = {"apiGroups": [""], "resources": ["limitranges"], "verbs": ["get", "list", "watch"]}
    create(apiserver.server, f"{RBAC}/clusterroles", {"metadata": {"name": NAME}, "rules": [rule]})
    bind(apiserver)
    flags = ("--probe-interval", "1s")
    try:
        with Proxy(apiserver.kubeconfig("nobody"), *flags, config=NAMED, chain=False) as proxy:
            yield proxy
    finally:
        unbind(apiserver)
        ask(apiserver.server, "DELETE", f"{RBAC}/clusterroles/{NAME}").ok()


def test_a_permission_that_is_revoked_is_told(apiserver: ApiServer) -> None:
    with reading(apiserver) as proxy:
        time.sleep(2)
        unbind(apiserver)
        proxy.wait("readyz", status=500, timeout=10)
        assert 'is forbidden: User "nobody"' in get(proxy.admin, "/readyz").body.decode()
        [informer] = get(proxy.admin, "/status.json").ok().json()["informers"]
        assert "forbidden" in informer["last_error"]
        assert not informer["stalled"]
        assert proxy.log().count("refuses its probes") == 1
        bind(apiserver)
        proxy.wait("readyz", timeout=10)
        eventually(lambda: "are answered again" in proxy.log(), "the log tells")
