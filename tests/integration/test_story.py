"""Read, change, update, read again: under a watch that is late, and with another who writes too."""

from __future__ import annotations

import json
from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.harness.apiserver import ApiServer
from tests.harness.caching import cached, caught_up
from tests.harness.differential import cache_status, relevant_headers
from tests.harness.http import Answer, Server, ask, get
from tests.harness.kubectl import kubeconfig_for
from tests.harness.objects import CustomResource, Object, crd, create, define
from tests.harness.proxy import Proxy, metrics
from tests.harness.watch_delay import WatchDelay

DELAY = 0.5
"""Seconds by which events are late."""

MERGE = ("X-Kubecache-On-Conflict", "merge")


class Story(NamedTuple):
    """An object, and two fields of its spec that clients change."""

    proxy: Proxy
    apiserver: Server
    target: str
    contested: str
    free: tuple[str, Any]

    @property
    def reader(self) -> Server:
        return self.proxy.read

    def change(
        self, server: Server, seen: Object, manager: str, *headers: tuple[str, str], **fields: Any
    ) -> Answer:
        """Updates what a client has seen with other values in its spec."""
        body = deepcopy(seen)
        body["spec"] |= fields
        target = f"{self.target}?fieldManager={manager}"
        return ask(server, "PUT", target, headers=headers, body=body)

    def wait_caught_up(self, version: str) -> None:
        caught_up(self.reader, self.target.rpartition("/")[0], version)


@pytest.fixture(scope="module")
def tales(apiserver: ApiServer) -> CustomResource:
    return define(apiserver.server, crd("Tale"))


@pytest.fixture(scope="module")
def proxy(apiserver: ApiServer, tales: CustomResource) -> Iterator[Proxy]:
    """One that has Deployments and a custom resource in its cache, and learns late of changes."""
    named = ["deployments.apps", f"{tales.plural}.{tales.group}"]
    config = {"cache": {"resources": [{"resource": each} for each in named]}}
    with (
        WatchDelay(apiserver.port, DELAY) as line,
        Proxy(apiserver.kubeconfig(port=line.port), config=config) as running,
    ):
        yield running


@pytest.fixture(params=["built-in", "custom"])
def story(
    request: pytest.FixtureRequest,
    apiserver: ApiServer,
    proxy: Proxy,
    tales: CustomResource,
    namespace: str,
) -> Story:
    """An object that the cache has, with 1 in the contested field."""
    free: tuple[str, Any]
    if request.param == "custom":
        collection, body = tales.path(namespace), tales.object("a")
        contested, free = "size", ("color", "blue")
    else:
        collection, body = f"/apis/apps/v1/namespaces/{namespace}/deployments", deployment("a")
        contested, free = "replicas", ("paused", True)
    created = create(apiserver.server, collection, body)
    story = Story(proxy, apiserver.server, f"{collection}/a", contested, free)
    story.wait_caught_up(created["metadata"]["resourceVersion"])
    return story


def deployment(name: str) -> Object:
    labels = {"app": name}
    template = {
        "metadata": {"labels": labels},
        "spec": {"containers": [{"name": "app", "image": "registry.example.com/app:v1"}]},
    }
    spec = {"replicas": 1, "selector": {"matchLabels": labels}, "template": template}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name}, "spec": spec}


def test_an_update_is_seen_by_the_next_read(story: Story) -> None:
    seen = get(story.reader, story.target).ok()
    assert cache_status(seen).hit
    for number in (2, 3):
        written = story.change(story.reader, seen.json(), "me", **{story.contested: number}).ok()
        seen = get(story.reader, story.target).ok()
        assert seen.version == written.version
        assert seen.json()["spec"][story.contested] == number
        status = cache_status(seen)
        assert status.hit or status.detail == "unseen-write"


def test_a_late_update_of_the_same_version_learns_why(story: Story) -> None:
    """The first 409 is the API server's, as the cache doesn't know yet; the second is local."""
    seen = get(story.reader, story.target).ok().json()
    first = story.change(story.reader, seen, "alice", **{story.contested: 3}).ok()
    for detected in ("upstream", "local"):
        before = metrics(story.proxy).total("kubecache_conflicts_total", detected=detected)
        answer = story.change(story.reader, seen, "bob", **{story.contested: 5})
        _assert_explained(answer, story, 'changed from 1 to 3 by "alice"')
        _assert_otherwise_the_apiservers(answer, story, seen)
        status = cache_status(answer)
        assert (status.hit, status.detail) == (
            (True, "conflict") if detected == "local" else (False, "write")
        )
        after = metrics(story.proxy).total("kubecache_conflicts_total", detected=detected)
        assert after == before + 1
        story.wait_caught_up(first.version)


def _assert_explained(answer: Answer, story: Story, message: str) -> None:
    assert answer.status == 409, answer
    causes = answer.json()["details"]["causes"]
    field = f"spec.{story.contested}"
    assert causes == [{"reason": "FieldValueChanged", "message": message, "field": field}]


def _assert_otherwise_the_apiservers(answer: Answer, story: Story, seen: Object) -> None:
    expected = story.change(story.apiserver, seen, "bob", **{story.contested: 5})
    assert expected.status == answer.status
    plain = json.loads(answer.body)
    del plain["details"]["causes"]
    assert plain == expected.json()
    kinds = [_without_length(each) for each in (answer, expected)]
    assert kinds[0] == kinds[1]


def _without_length(answer: Answer) -> list[tuple[str, str]]:
    return [pair for pair in relevant_headers(answer) if pair[0] != "content-length"]


@pytest.mark.parametrize("is_known", [False, True], ids=["unseen", "seen"])
def test_changes_of_other_fields_are_merged(story: Story, is_known: bool) -> None:
    """Whether the cache has seen the other change by then or not."""
    seen = get(story.reader, story.target).ok().json()
    first = story.change(story.reader, seen, "alice", **{story.contested: 3}).ok()
    if is_known:
        story.wait_caught_up(first.version)
    field, value = story.free
    merged = story.change(story.reader, seen, "bob", MERGE, **{field: value}).ok().json()
    assert (merged["spec"][story.contested], merged["spec"][field]) == (3, value)
    again = get(story.reader, story.target).ok().json()
    assert again == merged == get(story.apiserver, story.target).json()
    managers = {each["manager"] for each in merged["metadata"]["managedFields"]}
    assert {"alice", "bob"} <= managers


@pytest.mark.parametrize("is_known", [False, True], ids=["unseen", "seen"])
def test_changes_of_the_same_field_stay_a_conflict(story: Story, is_known: bool) -> None:
    seen = get(story.reader, story.target).ok().json()
    field, value = story.free
    first = story.change(story.reader, seen, "alice", **{story.contested: 3, field: value}).ok()
    if is_known:
        story.wait_caught_up(first.version)
    answer = story.change(story.reader, seen, "bob", MERGE, **{story.contested: 5})
    _assert_explained(answer, story, 'changed from 1 to 3 by "alice"')
    assert get(story.reader, story.target).json() == first.json()


def test_two_proxies_in_a_row_merge_too(story: Story, tmp_path: Path) -> None:
    """The one in front does it, though the other has explained the conflict already."""
    collection = story.target.rpartition("/")[0]
    kubeconfig = kubeconfig_for(story.reader, tmp_path)
    with Proxy(kubeconfig, chain=False) as front:
        cached(front.read, collection)
        seen = get(front.read, story.target).ok().json()
        story.change(story.apiserver, seen, "alice", **{story.contested: 3}).ok()
        answer = story.change(front.read, seen, "bob", **{story.contested: 5})
        _assert_explained(answer, story, 'changed from 1 to 3 by "alice"')
        field, value = story.free
        merged = story.change(front.read, seen, "bob", MERGE, **{field: value}).ok().json()
    assert (merged["spec"][story.contested], merged["spec"][field]) == (3, value)
