"""Conflicts of what can't be understood: they stay the API server's own 409."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from typing import Any, cast

import pytest

from proxy.cache.expectations import Expectation
from proxy.kube.envelope import encode_status
from proxy.kube.errors import ServiceUnavailable, conflict
from proxy.kube.negotiation import JSON
from proxy.kube.requests import Headers, parse_request
from proxy.kube.resources import Resource
from proxy.upstream.client import Response
from proxy.writes.attempt import read_attempt
from proxy.writes.conflicts import Conflicts
from proxy.writes.written import Written, whole

SHELVES = Resource("a.b", "v1", "shelves")
REFUSAL = encode_status(conflict(SHELVES, "x"), JSON)
HEADERS: Headers = [(b"content-type", JSON.encode())]


def shelf(version: int, books: bytes) -> bytes:
    metadata = b'"metadata":{"name":"x","resourceVersion":"%d"}' % version
    return b'{"apiVersion":"a.b/v1","kind":"Shelf",%s,"books":%s}' % (metadata, books)


def nested(depth: int, innermost: bytes) -> bytes:
    return b'{"a":' * depth + innermost + b"}" * depth


class ApiServer:
    """Shows the object at version 2, and in a list as it was at version 1; no informer has it.

    ``shown`` are the versions that a client was told of.
    """

    def __init__(self, base: bytes, theirs: bytes, *, is_away: bool = False) -> None:
        self._base, self._theirs, self._is_away = base, theirs, is_away
        self.shown: list[Expectation] = []
        self.answer = 200
        self.sent = 0
        self.status = 0

    @asynccontextmanager
    async def open(self, method: str, target: str, headers: Headers) -> AsyncIterator[Response]:
        if self._is_away:
            raise ServiceUnavailable("away")
        body = b'{"items":[%s]}' % self._base if "resourceVersion=1&" in target else self._theirs
        yield Response(200, HEADERS, whole(body))

    def find(self, *_: Any) -> None:
        return None

    def acknowledge(self, _: Resource, shown: Expectation) -> None:
        self.shown.append(shown)

    async def get(self, target: str) -> bytes:
        raise ServiceUnavailable("away")

    def send(self, *_: Any) -> AbstractAsyncContextManager[Written]:
        """Answer to a write of what is merged."""
        self.sent += 1
        return nullcontext(Written(self.answer, HEADERS, whole(b'{"merged":true}')))

    async def put(
        self, body: bytes, *headers: tuple[bytes, bytes], is_local: bool = False
    ) -> tuple[Any, Conflicts]:
        """Refuse an update; returns the Status that its client gets, or what came of a merge."""
        own = cast(Any, self)
        conflicts = Conflicts(own, own, lambda: "", clock=lambda: 7.0)
        path = SHELVES.path("default").encode() + b"/x"
        asked = [*HEADERS, *headers]
        attempt = read_attempt(parse_request("PUT", path, b"", asked), asked, body)
        assert attempt
        refusal = Written(409, HEADERS, whole(REFUSAL), is_local)
        written = await conflicts.resolve(attempt, refusal, self.send)
        self.status = written.status
        return json.loads(b"".join([chunk async for chunk in written.chunks])), conflicts


MERGES = (b"x-kubecache-on-conflict", b"merge")


@pytest.mark.parametrize("depth", [1, 1200])
def test_an_object_is_explained_unless_it_is_nested_too_deeply(depth: int) -> None:
    server = ApiServer(shelf(1, nested(depth, b"1")), shelf(2, nested(depth, b"2")))
    status, _ = asyncio.run(server.put(shelf(1, b"3")))
    assert bool(status["details"].get("causes")) is (depth == 1)
    assert status["message"] == json.loads(REFUSAL)["message"]


@pytest.mark.parametrize("headers", [(), (MERGES,)], ids=["explain", "merge"])
def test_no_depth_makes_a_conflict_an_error(headers: tuple[tuple[bytes, bytes], ...]) -> None:
    """What is just not too deep to be decoded may be too deep to be compared."""

    async def story() -> None:
        for depth in range(800, 1010, 3):
            server = ApiServer(shelf(1, nested(depth, b"1")), shelf(2, nested(depth, b"2")))
            await server.put(shelf(1, b"3"), *headers)

    asyncio.run(story())


def test_a_body_that_is_not_text_is_not_merged() -> None:
    server = ApiServer(shelf(1, b"1"), shelf(2, b"2"))
    body = shelf(1, b'"\xff"')
    _, conflicts = asyncio.run(server.put(body, MERGES))
    assert +conflicts.merges == Counter(unknown=1)


@pytest.mark.parametrize("headers", [(), (MERGES,)], ids=["explain", "merge"])
@pytest.mark.parametrize(
    ("is_local", "is_away", "shown"),
    [(False, False, [2]), (False, True, [0]), (True, False, [2]), (True, True, [])],
)
def test_what_a_client_was_told_is_what_its_reads_wait_for(
    headers: tuple[tuple[bytes, bytes], ...], *, is_local: bool, is_away: bool, shown: list[int]
) -> None:
    """Version 0 takes a proof, so nothing is shown to reads while the API server is away."""
    server = ApiServer(shelf(1, b"1"), shelf(2, b"2"), is_away=is_away)
    asyncio.run(server.put(shelf(1, b"3"), *headers, is_local=is_local))
    assert server.shown == [Expectation("default/x", 7.0, "-", version) for version in shown]


@pytest.mark.parametrize(
    ("answer", "status", "result"),
    [
        (200, 200, "merged"),
        (409, 409, "lost"),
        # What is invalid as merged nobody has written.
        (422, 409, "failed"),
        (413, 409, "failed"),
        # The rest is about the client, what he wrote, or whether the object is there.
        (400, 400, "failed"),
        (403, 403, "failed"),
        (404, 404, "failed"),
        (504, 504, "failed"),
    ],
)
def test_what_the_api_server_says_to_a_merge(answer: int, status: int, result: str) -> None:
    server = ApiServer(shelf(1, b"1"), shelf(2, b'1,"full":true'))
    server.answer = answer
    body, conflicts = asyncio.run(server.put(shelf(1, b"3"), MERGES))
    assert (server.status, server.sent) == (status, 1)
    assert +conflicts.merges == Counter({result: 1})
    assert bool(status == 409) is ("details" in body and bool(body["details"]["causes"]))


def test_a_status_of_which_nothing_is_known_is_not_merged() -> None:
    """Discovery fails: whether an update that leaves it out removes it, can't be said."""
    server = ApiServer(shelf(1, b'1,"status":{}'), shelf(2, b'1,"status":{}'))
    _, conflicts = asyncio.run(server.put(shelf(1, b"3"), MERGES))
    assert (server.status, server.sent) == (409, 0)
    assert +conflicts.merges == Counter(unknown=1)
