"""`timeoutSeconds` holds wherever a watch is: before the history, or behind what happens."""

from __future__ import annotations

import http.client
import json
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing
from itertools import product
from typing import NamedTuple

import pytest

from tests.harness.apiserver import ApiServer
from tests.harness.caching import cached
from tests.harness.differential import assert_source
from tests.harness.http import Answer, Server, Session, watch
from tests.harness.objects import Object, configmap, create
from tests.harness.proxy import Proxy

LARGE = 100_000
WRITES = 200
"""Of large objects: more than sockets hold, and less than a history does."""


class Late(NamedTuple):
    """Two servers, of which the proxy started after `old`; a namespace and its versions."""

    apiserver: Server
    proxy: Server
    namespace: str
    old: str

    def path(self, plural: str) -> str:
        return f"/api/v1/namespaces/{self.namespace}/{plural}"


@pytest.fixture
def late(apiserver: ApiServer, namespace: str) -> Iterator[Late]:
    server = apiserver.server
    configmaps = f"/api/v1/namespaces/{namespace}/configmaps"
    old = create(server, configmaps, configmap("old"))["metadata"]["resourceVersion"]
    create(server, f"/api/v1/namespaces/{namespace}/events", _event(namespace))
    create(server, configmaps, configmap("older-than-the-proxy"))
    with Proxy(apiserver.kubeconfig()) as proxy:
        yield Late(server, proxy.read, namespace, old)


def _event(namespace: str) -> Object:
    about = {"kind": "Pod", "namespace": namespace, "name": "p"}
    return {"metadata": {"name": "e"}, "involvedObject": about, "reason": "R", "type": "Normal"}


OPTIONS = ["", "&allowWatchBookmarks=1", "&labelSelector=none"]


def test_watches_from_before_the_history_end_in_time(late: Late) -> None:
    """Events have no bookmarks: while their namespace is idle, nothing tells that all is told."""
    for plural in ("configmaps", "events"):
        cached(late.proxy, late.path(plural))
    targets = [
        f"{late.path(plural)}?watch=1&resourceVersion={late.old}&timeoutSeconds=2{options}"
        for plural, options in product(("configmaps", "events"), OPTIONS)
    ]
    with ExitStack() as stack:
        pairs = [
            [stack.enter_context(watch(server, target)) for server in (late.apiserver, late.proxy)]
            for target in targets
        ]
        for target, (direct, through) in zip(targets, pairs, strict=True):
            assert_source(Answer(200, through.headers, b""), "fwd=partial")
            expected, actual = ([*_told(iter(each.line, b""))] for each in (direct, through))
            assert actual == expected, target


def _told(lines: Iterator[bytes]) -> Iterator[bytes]:
    """What is told once: bookmarks come as timers say, of whatever version."""
    for line in lines:
        if not line.startswith(b'{"type":"BOOKMARK"'):
            yield line


def test_who_stays_behind_is_told_no_more_when_time_is_over(
    apiserver: ApiServer, proxy: Proxy, namespace: str
) -> None:
    """These clients don't read until then, and more has happened than sockets hold."""
    collection = f"/api/v1/namespaces/{namespace}/configmaps"
    start = create(apiserver.server, collection, configmap("large"))["metadata"]["resourceVersion"]
    cached(proxy.read, collection)
    target = f"{collection}?watch=1&resourceVersion={start}&timeoutSeconds=1"
    with ExitStack() as stack:
        responses = {
            server: _begin(stack, server, target) for server in (apiserver.server, proxy.read)
        }
        _write_large(apiserver.server, f"{collection}/large")
        time.sleep(1)
        for server, response in responses.items():
            lines = response.read().splitlines()
            assert 0 < len(lines) < WRITES, server
            assert {json.loads(line)["type"] for line in lines} == {"MODIFIED"}


def _begin(stack: ExitStack, server: Server, target: str) -> http.client.HTTPResponse:
    """A response of which nothing is read as yet, and not much is taken in advance."""
    connection = stack.enter_context(closing(server.connect()))
    connection.connect()
    connection.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65_536)
    connection.request("GET", target, headers=dict(server.headers))
    return connection.getresponse()


def _write_large(server: Server, target: str) -> None:
    with Session(server) as session:
        for number in range(WRITES):
            body = {"data": {"n": str(number), "text": "x" * LARGE}}
            content = ("Content-Type", "application/merge-patch+json")
            session.ask("PATCH", target, headers=(content,), body=body).ok()
