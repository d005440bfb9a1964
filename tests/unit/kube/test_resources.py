"""Resources and the keys of their objects."""

from __future__ import annotations

import pytest

from proxy.kube.resources import Resource, has_no_watch_cache, object_key


@pytest.mark.parametrize(
    ("resource", "text", "group_version", "path", "in_namespace"),
    [
        (
            Resource("", "v1", "pods"),
            "pods.v1",
            "v1",
            "/api/v1/pods",
            "/api/v1/namespaces/a/pods",
        ),
        (
            Resource("apps", "v1", "deployments"),
            "deployments.v1.apps",
            "apps/v1",
            "/apis/apps/v1/deployments",
            "/apis/apps/v1/namespaces/a/deployments",
        ),
        (
            Resource("rbac.authorization.k8s.io", "v1beta1", "roles"),
            "roles.v1beta1.rbac.authorization.k8s.io",
            "rbac.authorization.k8s.io/v1beta1",
            "/apis/rbac.authorization.k8s.io/v1beta1/roles",
            "/apis/rbac.authorization.k8s.io/v1beta1/namespaces/a/roles",
        ),
    ],
)
def test_how_a_resource_is_spelled(
    resource: Resource, text: str, group_version: str, path: str, in_namespace: str
) -> None:
    assert str(resource) == text
    assert resource.group_version == group_version
    assert resource.path() == path
    assert resource.path("a") == in_namespace


@pytest.mark.parametrize(
    ("group", "plural", "expected"),
    [
        ("", "events", True),
        ("events.k8s.io", "events", True),
        ("example.com", "events", False),
        ("", "pods", False),
    ],
)
def test_events_have_no_watch_cache(group: str, plural: str, expected: bool) -> None:
    assert has_no_watch_cache(Resource(group, "v1", plural)) is expected


def test_keys_are_what_lists_are_sorted_by() -> None:
    keys = [object_key("foo", "x"), object_key("foo-bar", "x"), object_key("", "node")]
    assert keys == ["foo/x", "foo-bar/x", "node"]
    assert sorted(keys) == ["foo-bar/x", "foo/x", "node"]
