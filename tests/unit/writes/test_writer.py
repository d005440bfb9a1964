"""Writes on their way: what is held of them, and what is known of one that isn't."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, cast

import pytest

from proxy.kube.requests import Headers, parse_request
from proxy.upstream.budget import Budget
from proxy.upstream.client import Response
from proxy.writes.attempt import Attempt
from proxy.writes.writer import MAX_BODY, Writer
from proxy.writes.written import read_whole

PATH = "/api/v1/namespaces/a/pods/x"
POD = b'{"kind":"Pod","apiVersion":"v1","metadata":{"name":"x","resourceVersion":"7"}}'
JSON: Headers = [(b"content-type", b"application/json")]


class Everybody:
    """The API server, which shows the pod; and those who are asked, and told, of a write."""

    def __init__(self, room: int, status: int = 200) -> None:
        self.bodies = Budget(room)
        self.sent: list[bytes] = []
        self.held: list[int] = []
        self.attempts: list[Attempt] = []
        self.acknowledged = 0
        self.resolved = 0
        self._status = status
        own = cast(Any, self)
        self.writer = Writer(own, own, own, self.bodies)

    @asynccontextmanager
    async def open(
        self, method: str, target: str, headers: Headers, body: AsyncIterator[bytes]
    ) -> AsyncIterator[Response]:
        self.held.append(self.bodies.held)
        self.sent.append(b"".join([chunk async for chunk in body]))
        yield Response(self._status, JSON, chunks_of(POD))

    def refuse(self, attempt: Attempt) -> None:
        self.attempts.append(attempt)

    async def resolve(self, attempt: Attempt, refusal: Any, send: Any) -> Any:
        self.resolved += 1
        return refusal

    def acknowledge(self, resource: object, expected: Any, write: object) -> None:
        assert expected.version == 7
        self.acknowledged += 1

    async def put(self, *parts: bytes) -> bytes:
        request = parse_request("PUT", PATH.encode(), b"", JSON)
        async with self.writer.open(request, JSON, chunks_of(*parts)) as written:
            return b"".join([chunk async for chunk in written.chunks])


async def chunks_of(*parts: bytes) -> AsyncIterator[bytes]:
    for part in parts:
        yield part


@pytest.mark.parametrize(
    ("room", "held", "is_asked"),
    [
        (1000, len(POD), True),
        (len(POD), len(POD), True),
        (len(POD) - 1, 40, False),
        (39, 0, False),
        (0, 0, False),
    ],
)
def test_a_write_that_finds_no_room_is_passed_on(room: int, held: int, *, is_asked: bool) -> None:
    """Nobody asks whether it conflicts, but what it has changed is known."""
    everybody = Everybody(room)
    assert asyncio.run(everybody.put(POD[:40], POD[40:])) == POD
    assert (everybody.sent, everybody.held) == ([POD], [held])
    assert [attempt.body for attempt in everybody.attempts] == [POD] * is_asked
    assert (everybody.acknowledged, everybody.bodies.held) == (1, 0)


@pytest.mark.parametrize(("room", "resolved"), [(1000, 1), (0, 0)])
def test_a_conflict_of_a_write_that_was_not_held_is_the_apiservers(
    room: int, resolved: int
) -> None:
    everybody = Everybody(room, status=409)
    assert asyncio.run(everybody.put(POD)) == POD
    assert everybody.resolved == resolved


def test_what_a_write_has_held_is_given_back_when_its_client_leaves() -> None:
    async def breaks_off() -> AsyncIterator[bytes]:
        yield POD
        assert everybody.bodies.held == len(POD)
        raise ConnectionError

    async def put() -> None:
        request = parse_request("PUT", PATH.encode(), b"", JSON)
        async with everybody.writer.open(request, JSON, breaks_off()):
            pass

    everybody = Everybody(1000)
    with pytest.raises(ConnectionError):
        asyncio.run(put())
    assert (everybody.sent, everybody.bodies.held) == ([], 0)


def test_many_writes_together_hold_no_more_than_there_is_room_for() -> None:
    async def story() -> None:
        stalled = asyncio.Event()

        async def stalls() -> AsyncIterator[bytes]:
            yield b"x" * 100
            await stalled.wait()

        async def put() -> None:
            request = parse_request("PUT", PATH.encode(), b"", JSON)
            async with everybody.writer.open(request, JSON, stalls()):
                pass

        tasks = [asyncio.create_task(put()) for _ in range(20)]
        await asyncio.sleep(0)
        assert (everybody.bodies.held, everybody.bodies.refusals) == (1000, 10)
        assert await everybody.put(POD) == POD
        stalled.set()
        await asyncio.gather(*tasks)

    everybody = Everybody(1050)
    asyncio.run(story())
    assert everybody.bodies.held == 0


@pytest.mark.parametrize(
    ("sizes", "read", "ended"),
    [
        ([], 0, True),
        ([MAX_BODY], MAX_BODY, True),
        ([MAX_BODY, 1, 1], MAX_BODY + 1, False),
        ([1] * 1000, 1000, True),
    ],
)
def test_bodies_are_read_up_to_a_limit(sizes: list[int], read: int, *, ended: bool) -> None:
    body, whole = asyncio.run(read_whole(chunks_of(*(b"x" * size for size in sizes)), MAX_BODY))
    assert (len(body), whole) == (read, ended)
