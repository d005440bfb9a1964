"""The harness itself: what the other integration tests take for granted."""

from __future__ import annotations

import http.client

import pytest

from tests.harness.apiserver import ApiServer
from tests.harness.http import ask, get, watch


def test_users_have_the_rights_that_their_names_say(apiserver: ApiServer) -> None:
    own, everywhere = "/api/v1/namespaces/limited/pods", "/api/v1/pods"
    statuses = {
        user: (
            get(apiserver.as_user(user), own).status,
            get(apiserver.as_user(user), everywhere).status,
        )
        for user in ("admin", "limited", "nobody")
    }
    assert statuses == {"admin": (200, 200), "limited": (200, 403), "nobody": (403, 403)}
    assert get(apiserver.anonymous(), own).status == 403


def test_the_revision_is_that_of_the_newest_write(apiserver: ApiServer, namespace: str) -> None:
    target = f"/api/v1/namespaces/{namespace}/configmaps"
    answer = ask(apiserver.server, "POST", target, body={"metadata": {"name": "a"}}).ok()
    assert apiserver.revision() >= int(answer.version)


def test_a_watch_gives_events_then_silence(apiserver: ApiServer, namespace: str) -> None:
    target = f"/api/v1/namespaces/{namespace}/configmaps"
    with watch(apiserver.server, f"{target}?watch=1") as stream:
        stream.quiet(0.2)
        ask(apiserver.server, "POST", target, body={"metadata": {"name": "a"}}).ok()
        event = stream.event()
        stream.quiet(0.2)
    assert (event["type"], event["object"]["metadata"]["name"]) == ("ADDED", "a")


def test_the_apiserver_can_be_restarted_compacted_and_killed() -> None:
    with ApiServer() as own:
        first = own.revision()
        own.new_namespace("a")
        own.restart()
        own.compact()
        _assert_expired(own, first)
        _assert_shutdown_ends_watches_cleanly(own)
        _assert_a_crash_cuts_watches(own)


def _assert_expired(own: ApiServer, version: int) -> None:
    exact = f"/api/v1/namespaces?resourceVersion={version}&resourceVersionMatch=Exact"
    assert get(own.server, exact).status == 410
    with watch(own.server, f"/api/v1/namespaces?watch=1&resourceVersion={version}") as stream:
        assert stream.event()["object"]["code"] == 410
        assert stream.line() == b""


def _assert_shutdown_ends_watches_cleanly(own: ApiServer) -> None:
    with watch(own.server, "/api/v1/secrets?watch=1") as stream:
        own.restart()
        assert stream.line() == b""


def _assert_a_crash_cuts_watches(own: ApiServer) -> None:
    with watch(own.server, "/api/v1/secrets?watch=1") as stream:
        own.kill()
        with pytest.raises((http.client.HTTPException, OSError)):
            stream.line()
