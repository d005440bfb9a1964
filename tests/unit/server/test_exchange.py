"""One exchange, told as ASGI messages: bodies, answers, failures, and clients that leave."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import suppress
from typing import Any, TypeVar, cast

import pytest

from proxy.kube.errors import ApiError, Forbidden, NotFound, RequestTimeout, ServiceUnavailable
from proxy.server.door import CONNECTION
from proxy.server.exchange import (
    ClientGoneError,
    Exchange,
    SlowClientError,
    race,
)
from proxy.server.protocol import Protocol

T = TypeVar("T")
LAST = {"type": "http.request", "body": b"", "more_body": False}
GONE = {"type": "http.disconnect"}


def body(part: bytes, *, more: bool = True) -> dict[str, Any]:
    return {"type": "http.request", "body": part, "more_body": more}


class Peer:
    """The server's side: messages that were sent, and those to receive; then it stays connected.

    Each message takes it *pause* seconds to send.
    """

    def __init__(self, *messages: dict[str, Any], pause: float = 0.0) -> None:
        self.sent: list[Any] = []
        self.aborted = False
        self.is_closing = False
        self.is_slow = False
        self._left = asyncio.Event()
        self._messages = list(messages)
        self._pause = pause
        scope = {
            "headers": [],
            "http_version": "1.1",
            "extensions": {
                CONNECTION: {"protocol": cast(Protocol, self), "upgrade": False, "begun": None}
            },
        }
        self.exchange = Exchange(scope, self._receive, self._send)

    def abort(self) -> None:
        self.aborted = True

    def leave(self) -> None:
        self._left.set()

    async def _receive(self) -> dict[str, Any]:
        if self._messages:
            return self._messages.pop(0)
        await self._left.wait()
        return GONE

    async def _send(self, message: Any) -> None:
        await asyncio.sleep(self._pause)
        self.sent.append(message)

    @property
    def answer(self) -> bytes:
        return b"".join(message.get("body", b"") for message in self.sent)


def run(main: Coroutine[Any, Any, T]) -> T:
    async def limited() -> T:
        async with asyncio.timeout(5):
            return await main

    return asyncio.run(limited())


async def collected(parts: AsyncIterator[bytes]) -> list[bytes]:
    return [part async for part in parts]


# --- bodies ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("messages", "parts"),
    [
        ([LAST], []),
        ([body(b"a", more=False)], [b"a"]),
        ([body(b"a"), body(b""), body(b"b"), LAST], [b"a", b"b"]),
        ([{"type": "http.request"}], []),
        ([body(b"a"), {"type": "http.request", "body": b"b"}], [b"a", b"b"]),
    ],
)
def test_a_body_comes_in_its_parts(messages: list[dict[str, Any]], parts: list[bytes]) -> None:
    async def story() -> list[bytes]:
        return await collected(Peer(*messages, GONE).exchange.body())

    assert run(story()) == parts


def test_a_body_that_breaks_off_is_a_client_that_left() -> None:
    async def story() -> None:
        await collected(Peer(body(b"a"), GONE).exchange.body())

    with pytest.raises(ClientGoneError):
        run(story())


@pytest.mark.parametrize("within", [0.01, None])
def test_a_body_must_arrive_in_time_unless_it_streams(within: float | None) -> None:
    async def story() -> list[bytes]:
        async with asyncio.timeout(0.1):
            return await collected(Peer(body(b"a")).exchange.body(within))

    with pytest.raises(TimeoutError if within is None else RequestTimeout):
        run(story())


def test_what_arrives_in_time_is_read_in_time_by_whoever_is_slow() -> None:
    async def story() -> list[bytes]:
        parts = []
        async for part in Peer(body(b"a"), body(b"b", more=False)).exchange.body(0.01):
            parts.append(part)
            await asyncio.sleep(0.02)
        return parts

    assert run(story()) == [b"a", b"b"]


def test_who_sent_no_body_in_time_is_sent_away() -> None:
    async def story() -> Peer:
        peer = Peer()
        await peer.exchange.fail(RequestTimeout("late"), [])
        return peer

    sent = run(story()).sent
    assert (sent[0]["status"], dict(sent[0]["headers"])[b"connection"]) == (408, b"close")


def test_a_body_that_nobody_wants_is_not_read() -> None:
    async def story() -> list[bytes]:
        exchange = Peer(body(b"a"), LAST).exchange
        exchange.skip_body()
        return await collected(exchange.body())

    assert run(story()) == []


# --- answers ---------------------------------------------------------------------------------


def test_an_answer_in_parts() -> None:
    async def story() -> Peer:
        peer = Peer()
        assert peer.exchange.status == 0
        await peer.exchange.start(201, [(b"x", b"1")])
        await peer.exchange.write(b"a")
        await peer.exchange.finish(b"b")
        assert peer.exchange.status == 201
        return peer

    assert run(story()).sent == [
        {"type": "http.response.start", "status": 201, "headers": [(b"x", b"1")]},
        {"type": "http.response.body", "body": b"a", "more_body": True},
        {"type": "http.response.body", "body": b"b", "more_body": False},
    ]


@pytest.mark.parametrize(
    ("error", "retry_after"),
    [
        (Forbidden("no"), None),
        (NotFound("no", details={"name": "x"}), None),
        (ServiceUnavailable("later", retry_after=3), b"3"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_failure_is_a_status(error: ApiError, retry_after: bytes | None) -> None:
    async def story() -> Peer:
        peer = Peer()
        await peer.exchange.fail(error, [(b"cache-status", b"c")])
        return peer

    peer = run(story())
    headers = dict(peer.sent[0]["headers"])
    assert (peer.sent[0]["status"], peer.answer) == (error.code, error.status_body())
    assert headers.pop(b"retry-after", None) == retry_after
    assert headers == {
        b"content-type": b"application/json",
        b"cache-control": b"no-cache, private",
        b"content-length": b"%d" % len(error.status_body()),
        b"cache-status": b"c",
    }
    assert not peer.aborted


def test_a_failure_after_the_start_breaks_the_answer_off() -> None:
    async def story() -> Peer:
        peer = Peer()
        await peer.exchange.start(200, [])
        await peer.exchange.fail(Forbidden("no"), [])
        return peer

    peer = run(story())
    assert peer.aborted
    assert len(peer.sent) == 1


SENDS: list[Callable[[Exchange], Coroutine[Any, Any, None]]] = [
    lambda exchange: exchange.start(200, []),
    lambda exchange: exchange.write(b"a"),
    lambda exchange: exchange.finish(b"a"),
    lambda exchange: exchange.fail(Forbidden("no"), []),
]


@pytest.mark.parametrize("send", SENDS)
@pytest.mark.parametrize("slow", [True, False])
def test_nothing_is_sent_to_a_client_that_is_gone(
    send: Callable[[Exchange], Coroutine[Any, Any, None]], *, slow: bool
) -> None:
    peer = Peer()
    peer.is_closing, peer.is_slow = True, slow
    with pytest.raises(ClientGoneError) as raised:
        run(send(peer.exchange))
    assert isinstance(raised.value, SlowClientError) is slow
    assert not peer.sent


# --- clients that leave ----------------------------------------------------------------------


class Work:
    """Work that goes on until it's told to end, and knows whether it was cut."""

    def __init__(self, failure: Exception | None = None) -> None:
        self.end, self.started = asyncio.Event(), asyncio.Event()
        self.cut = False
        self._failure = failure

    async def run(self) -> None:
        self.started.set()
        try:
            await self.end.wait()
        except asyncio.CancelledError:
            self.cut = True
            raise
        if self._failure is not None:
            raise self._failure


@pytest.mark.parametrize("drains", [False, True])
def test_work_that_ends_has_ended(drains: bool) -> None:
    async def story() -> None:
        peer, work = Peer(LAST), Work()
        peer.exchange.skip_body()
        work.end.set()
        until = asyncio.Event() if drains else None
        assert await peer.exchange.unless_gone(work.run(), until)
        assert not work.cut

    run(story())


def test_work_that_fails_says_so() -> None:
    async def story() -> None:
        work = Work(NotFound("gone"))
        work.end.set()
        with pytest.raises(NotFound, match="gone"):
            await Peer().exchange.unless_gone(work.run())

    run(story())


def test_a_client_that_leaves_cuts_the_work() -> None:
    async def story() -> None:
        peer, work = Peer(LAST), Work()
        peer.exchange.skip_body()
        asyncio.get_running_loop().call_soon(peer.leave)
        with pytest.raises(ClientGoneError):
            await peer.exchange.unless_gone(work.run())
        assert work.cut

    run(story())


def test_while_the_body_is_read_its_reader_learns_of_the_end() -> None:
    """Two that receive at once would take each other's messages."""

    async def story() -> list[bytes]:
        peer = Peer(body(b"a"), body(b"b"), body(b"c", more=False))
        parts: list[bytes] = []

        async def work() -> None:
            async for part in peer.exchange.body():
                parts.append(part)
                await asyncio.sleep(0)
            peer.leave()
            await asyncio.Future()

        with pytest.raises(ClientGoneError):
            await peer.exchange.unless_gone(work())
        return parts

    assert run(story()) == [b"a", b"b", b"c"]


def test_draining_ends_the_work_without_blaming_the_client() -> None:
    async def story() -> None:
        peer, work, draining = Peer(LAST), Work(), asyncio.Event()
        peer.exchange.skip_body()
        asyncio.get_running_loop().call_soon(draining.set)
        assert not await peer.exchange.unless_gone(work.run(), until=draining)
        assert work.cut

    run(story())


def test_draining_that_has_begun_ends_new_work_at_once() -> None:
    async def story() -> None:
        draining = asyncio.Event()
        draining.set()
        assert not await race(Work().run(), None, draining)

    run(story())


@pytest.mark.parametrize("error", [ClientGoneError, lambda: NotFound("gone")])
def test_what_failed_work_has_held_is_free_at_once(error: Callable[[], Exception]) -> None:
    class Held:
        pass

    async def story() -> None:
        held = Held()
        found = weakref.ref(held)

        async def work(held: Held) -> None:
            await asyncio.sleep(0)
            raise error()

        working = work(held)
        del held
        with suppress(ClientGoneError, NotFound):
            await Peer().exchange.unless_gone(working)
        del working
        await asyncio.sleep(0)  # what woke this task knows of the error
        assert found() is None

    gc.disable()
    try:
        run(story())
    finally:
        gc.enable()


def test_a_race_that_is_cancelled_cancels_all_who_run() -> None:
    async def story() -> None:
        work, draining = Work(), asyncio.Event()
        gone = asyncio.create_task(asyncio.sleep(60))
        racing = asyncio.create_task(race(work.run(), gone, draining))
        await work.started.wait()
        racing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await racing
        assert work.cut
        assert gone.cancelled()

    run(story())


def test_work_that_ends_as_the_client_leaves_counts_as_done() -> None:
    async def story() -> None:
        peer, work = Peer(), Work()
        peer.exchange.skip_body()
        work.end.set()
        peer.leave()
        assert await peer.exchange.unless_gone(work.run())

    run(story())


def test_nothing_more_is_made_for_a_client_that_is_gone() -> None:
    async def main() -> None:
        peer = Peer()
        await peer.exchange.start(200, [])
        peer.is_closing = True
        with pytest.raises(ClientGoneError):
            await peer.exchange.write(b"x")

    run(main())
