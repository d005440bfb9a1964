"""Which resource a name in the settings means."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from proxy.kube.errors import ApiError, Forbidden, NotFound, ServiceUnavailable
from proxy.kube.resources import Resource
from proxy.upstream.discovery import resolve
from tests.unit.upstream.routes import Routes, refused, serving_routes
from tests.unit.upstream.servers import client_of

Write = Callable[..., str]

GROUPS: Routes = {
    "/apis/apps": b'{"kind":"APIGroup","name":"apps","versions":[{"groupVersion":"apps/v1",'
    b'"version":"v1"}],"preferredVersion":{"groupVersion":"apps/v1","version":"v1"}}',
    "/apis/example.com": b'{"preferredVersion":{"version":"v2"}}',
    "/apis/vendor.example": b'{"preferredVersion":{"version":"v1"}}',
    "/apis/v1.example.com": b'{"preferredVersion":{"version":"v3"}}',
}


def resolved(kubeconfig: Write, name: str, routes: Routes = GROUPS) -> tuple[Resource, list[str]]:
    """Resolve a name; returns the resource and what was asked."""

    async def run() -> tuple[Resource, list[str]]:
        async with serving_routes(routes) as server, client_of(kubeconfig(server.url)) as client:
            resource = await resolve(client, name)
            return resource, [line.split()[1] for line in server.first_lines]

    return asyncio.run(run())


@pytest.mark.parametrize(
    ("name", "resource", "asked"),
    [
        ("pods", Resource("", "v1", "pods"), []),
        ("pods.v1", Resource("", "v1", "pods"), []),
        ("deployments.apps", Resource("apps", "v1", "deployments"), ["/apis/apps"]),
        ("deployments.v1.apps", Resource("apps", "v1", "deployments"), []),
        ("deployments.v1beta2.apps", Resource("apps", "v1beta2", "deployments"), []),
        ("foos.v1alpha1.example.com", Resource("example.com", "v1alpha1", "foos"), []),
        ("foos.example.com", Resource("example.com", "v2", "foos"), ["/apis/example.com"]),
        ("foos.vendor.example", Resource("vendor.example", "v1", "foos"), ["/apis/vendor.example"]),
        ("foos.v1.v1.example.com", Resource("v1.example.com", "v1", "foos"), []),
    ],
)
def test_names(kubeconfig: Write, name: str, resource: Resource, asked: list[str]) -> None:
    assert resolved(kubeconfig, name) == (resource, asked)


@pytest.mark.parametrize(
    ("routes", "error"),
    [
        ({}, NotFound),
        ({"/apis/apps": refused(403)}, Forbidden),
        ({"/apis/apps": refused(503)}, ServiceUnavailable),
    ],
)
def test_groups_that_cannot_be_asked(
    kubeconfig: Write, routes: Routes, error: type[ApiError]
) -> None:
    with pytest.raises(error):
        resolved(kubeconfig, "deployments.apps", routes)
