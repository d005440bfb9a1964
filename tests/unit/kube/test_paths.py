"""Which resource a path names; what could be read in two ways names none."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.kube.paths import ResourcePath, parse_path, split_live
from proxy.kube.resources import Resource


def core(plural: str, namespace: str = "", name: str = "", subresource: str = "") -> ResourcePath:
    return ResourcePath(Resource("", "v1", plural), namespace, name, subresource)


DEPLOYMENTS = Resource("apps", "v1", "deployments")


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/api/v1/pods", core("pods")),
        ("/api/v1/namespaces/a/pods", core("pods", "a")),
        ("/api/v1/namespaces/a/pods/x", core("pods", "a", "x")),
        ("/api/v1/namespaces/a/pods/x/log", core("pods", "a", "x", "log")),
        ("/api/v1/namespaces/a/services/x/proxy/p/q", core("services", "a", "x", "proxy/p/q")),
        ("/api/v1/nodes/n", core("nodes", "", "n")),
        ("/api/v1/nodes/n/status", core("nodes", "", "n", "status")),
        ("/apis/apps/v1/deployments", ResourcePath(DEPLOYMENTS, "", "", "")),
        ("/apis/apps/v1/namespaces/a/deployments/x", ResourcePath(DEPLOYMENTS, "a", "x", "")),
        # Namespaces are named by the segment that elsewhere scopes.
        ("/api/v1/namespaces", core("namespaces")),
        ("/api/v1/namespaces/a", core("namespaces", "", "a")),
        ("/api/v1/namespaces/a/status", core("namespaces", "", "a", "status")),
        ("/api/v1/namespaces/a/finalize", core("namespaces", "", "a", "finalize")),
        ("/api/v1/namespaces/a/statuses", core("statuses", "a")),
        # Trailing slashes are trimmed, and one leading slash.
        ("/api/v1/pods/", core("pods")),
        ("/api/v1/namespaces/a/pods/x///", core("pods", "a", "x")),
        # An escape of a plain character is that character.
        ("/api/v1/namespaces/%61/%70ods/x", core("pods", "a", "x")),
        ("/api/v1/namespaces/a/pods/x%3Fy", core("pods", "a", "x?y")),
        ("/apis/rbac.authorization.k8s.io/v1/clusterroles/system:node", ResourcePath(
            Resource("rbac.authorization.k8s.io", "v1", "clusterroles"), "", "system:node", ""
        )),
    ],
)  # fmt: skip
def test_paths_of_resources(path: str, expected: ResourcePath) -> None:
    assert parse_path(path) == expected


@pytest.mark.parametrize(
    "path",
    [
        "",
        "/",
        "/api",
        "/api/",
        "/api/v1",
        "/api/v1/",
        "/apis",
        "/apis/apps",
        "/apis/apps/v1",
        "/healthz",
        "/version",
        "/openapi/v3/apis/apps/v1",
        "/apix/v1/pods",
        "/API/v1/pods",
        # The deprecated prefix.
        "/api/v1/watch",
        "/api/v1/watch/pods",
        "/api/v1/watch/namespaces/a/pods/x",
        "/apis/apps/v1/watch/deployments",
        # Empty segments: kube-apiserver lists the whole cluster here.
        "/api/v1/namespaces//configmaps",
        "/api/v1//pods",
        "//api/v1/pods",
        "/apis//v1/pods",
        # Dots that a client or a proxy might resolve.
        "/api/v1/namespaces/./pods",
        "/api/v1/namespaces/a/../b/pods",
        "/api/v1/namespaces/a/pods/..",
        "/api/v1/namespaces/a/pods/%2e%2E",
        # Escapes that hide a separator, or are none.
        "/api/v1/namespaces/a/configmaps%2Fx",
        "/api/v1/namespaces/a/configmaps/%2f",
        "/api/v1/pods/%25",
        "/api/v1/pods/%2561",
        "/api/v1/pods/%zz",
        "/api/v1/pods/%",
        "/api/v1/pods/%4",
        # Characters that messages would escape.
        "/api/v1/pods/a b",
        "/api/v1/pods/a%20b",
        '/api/v1/pods/"',
        "/api/v1/pods/%22",
        "/api/v1/pods/%5C",
        "/api/v1/pods/%00",
        "/api/v1/pods/%7F",
        "/api/v1/pods/é",
        "/api/v1/pods/%C3%A9",
    ],
)
def test_paths_of_no_resource(path: str) -> None:
    assert parse_path(path) is None


segments = st.from_regex(r"[a-z0-9]([-a-z0-9.:]{0,6}[a-z0-9])?", fullmatch=True)
groups = st.sampled_from(["", "apps", "example.com"])
plurals = st.sampled_from(["pods", "statuses", "watches", "namespacesx", "api", "live"])


@given(groups, segments, plurals, segments, segments, st.lists(segments, max_size=3))
def test_paths_that_are_built_are_read_back(
    group: str, version: str, plural: str, namespace: str, name: str, subresource: list[str]
) -> None:
    resource = Resource(group, version, plural)
    assert parse_path(resource.path()) == ResourcePath(resource, "", "", "")
    assert parse_path(resource.path(namespace)) == ResourcePath(resource, namespace, "", "")
    path = "/".join([resource.path(namespace), name, *subresource])
    assert parse_path(path) == ResourcePath(resource, namespace, name, "/".join(subresource))


@given(st.text(max_size=20) | st.text("/%.2feE5api v1podsnamespaces", max_size=40))
def test_whatever_a_path_is_it_names_plain_segments_or_nothing(path: str) -> None:
    found = parse_path(path)
    if found is not None:
        (group, version, plural), namespace, name, subresource = found
        assert version
        assert plural
        parts = [group, version, plural, namespace, name, *subresource.split("/")]
        assert not {".", ".."} & set(parts)
        assert all("/" not in part and "%" not in part and part.isascii() for part in parts)


@pytest.mark.parametrize(
    ("path", "live", "rest"),
    [
        ("/live/api/v1/pods", True, "/api/v1/pods"),
        ("/live/", True, "/"),
        ("/live", True, "/"),
        ("/live/live/api", True, "/live/api"),
        ("/live//api", True, "//api"),
        ("/livez", False, "/livez"),
        ("/livez/ping", False, "/livez/ping"),
        ("/live-api", False, "/live-api"),
        ("/api/v1/namespaces/live/pods", False, "/api/v1/namespaces/live/pods"),
        ("/api/live", False, "/api/live"),
        ("/", False, "/"),
        ("", False, ""),
    ],
)
def test_the_live_prefix(path: str, rest: str, *, live: bool) -> None:
    assert split_live(path) == (live, rest)
