"""Discovery documents that change."""

from __future__ import annotations

import pytest

from tests.harness.apiserver import ApiServer
from tests.harness.caching import eventually
from tests.harness.differential import compare, differences
from tests.harness.http import Headers, Server, ask, get
from tests.harness.objects import Object, create
from tests.harness.proxy import Proxy

SERVICES = "/apis/apiregistration.k8s.io/v1/apiservices"
PLAIN: Headers = (("Accept", "application/json"),)
AGGREGATED: Headers = (
    ("Accept", "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"),
)


def _api_service(group: str) -> Object:
    """An API whose server there isn't."""
    spec = {
        "group": group,
        "version": "v1",
        "service": {"name": "none", "namespace": "default"},
        "insecureSkipTLSVerify": True,
        "groupPriorityMinimum": 1000,
        "versionPriority": 15,
    }
    return {"metadata": {"name": f"v1.{group}"}, "spec": spec}


@pytest.mark.parametrize("headers", [PLAIN, AGGREGATED], ids=["plain", "aggregated"])
def test_an_api_service_is_seen_as_soon_as_at_the_apiserver(
    apiserver: ApiServer, proxy: Proxy, headers: Headers
) -> None:
    servers = apiserver.server, proxy.read
    group = f"aggregated{len(headers[0][1])}.kubecache.dev"
    before = get(proxy.read, "/apis", headers=headers).ok()
    assert group.encode() not in before.body
    create(apiserver.server, SERVICES, _api_service(group))
    try:
        eventually(lambda: _lists(apiserver.server, headers, group), f"{group} is there")
        assert _lists(proxy.read, headers, group)
        _compare_soon(*servers, headers)
        compare(*servers, "GET", f"/apis/{group}")
    finally:
        ask(apiserver.server, "DELETE", f"{SERVICES}/v1.{group}").ok()
    eventually(lambda: not _lists(apiserver.server, headers, group), f"{group} is gone")
    assert not _lists(proxy.read, headers, group)
    _compare_soon(*servers, headers)


def _lists(server: Server, headers: Headers, group: str) -> bool:
    return group.encode() in get(server, "/apis", headers=headers).ok().body


def _compare_soon(apiserver: Server, proxy: Server, headers: Headers) -> None:
    """The API server learns of an API and of its state one after the other."""

    def same() -> bool:
        answers = [get(server, "/apis", headers=headers) for server in (apiserver, proxy)]
        return not differences(*answers)

    eventually(same, "both say the same of /apis")
