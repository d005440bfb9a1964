"""HTTP/1.1 as it arrives: what the app is shown, and in which order what is answered."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest
from uvicorn.config import Config
from uvicorn.server import ServerState

from proxy.kube.requests import Headers
from proxy.server.door import CONNECTION, Whole
from proxy.server.protocol import HEAD_TIMEOUT, LINGER, MAX_HEAD, SLOW_CLIENT, Protocol
from tests.unit import virtual_time
from tests.unit.builders import Clock

HIDDEN = b"DELETE /hidden HTTP/1.1\r\nHost: x\r\n\r\n"
WATCHED = b"/watched"
EARLY = b"/early"
QUICK = b"GET /quick HTTP/1.1\r\nHost: x\r\n\r\n"
LATER = b"GET /later HTTP/1.1\r\nHost: x\r\n\r\n"
Seen = tuple[str, bytes, bytes, bytes]


class Wire(asyncio.Transport):
    """The transport: what a client was sent, and whether it's still read from."""

    def __init__(self) -> None:
        super().__init__()
        self.sent = b""
        self.reading = True
        self.closed = False
        self.backlog = 0
        self.ended = False

    def write_eof(self) -> None:
        self.ended = True

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return default

    def get_write_buffer_size(self) -> int:
        return self.backlog

    def write(self, data: bytes | bytearray | memoryview[Any]) -> None:
        self.sent += bytes(data)

    def is_closing(self) -> bool:
        return self.closed

    def close(self) -> None:
        self.closed = True

    abort = close

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self.protocol = protocol

    def pause_reading(self) -> None:
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = True


class App:
    """An ASGI app that has no door."""

    def __init__(self, call: Callable[..., Awaitable[None]]) -> None:
        self._call = call

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        await self._call(scope, receive, send)


class AppWithDoor(App):
    """Answers at once what is named so, and knows what it has begun of the others."""

    def begin(self, path: bytes, query: bytes, headers: Headers) -> Whole | bytes:
        if path.startswith(b"/quick"):
            return Whole(200, [LENGTH_OF[path], (b"x-at", b"once")], path)
        return path

    def may_upgrade(self, method: str, path: bytes, query: bytes, headers: Headers) -> bool:
        return (method, path, query) == ("GET", b"/tunnel", b"a=b")


class Peer:
    """One connection to an app that reads a request whole, then answers its path when *let* go."""

    def __init__(self, app: type[App] = App) -> None:
        self.seen: list[Seen] = []
        self.left: list[bytes] = []
        self.begun: list[object] = []
        self.headers: list[tuple[bytes, bytes]] = []
        self.let = asyncio.Event()
        self.let.set()
        self.wire = Wire()
        config = Config(
            app(self._app),
            interface="asgi3",
            http=Protocol,
            ws="none",
            lifespan="off",
            log_config=None,
            timeout_keep_alive=180,
        )
        config.load()
        self.protocol = Protocol(config, ServerState(), {})
        self.protocol.connection_made(self.wire)

    async def _app(
        self,
        scope: dict[str, Any],
        receive: Callable[[], Awaitable[Any]],
        send: Callable[[Any], Awaitable[None]],
    ) -> None:
        path: bytes = scope["raw_path"]
        body, more = b"", True
        while (more and path != EARLY) or path == WATCHED:
            message = await receive()
            if message["type"] == "http.disconnect":
                self.left.append(path)
                return
            body += message["body"]
            more = message["more_body"]
        self.headers = list(scope["headers"])
        self.begun.append(scope["extensions"][CONNECTION]["begun"])
        self.seen.append((scope["method"], path, scope["query_string"], body))
        await self.let.wait()
        if scope["extensions"][CONNECTION]["upgrade"]:
            return
        await send({"type": "http.response.start", "status": 200, "headers": [LENGTH_OF[path]]})
        await send({"type": "http.response.body", "body": path})

    async def told(self, data: bytes, *, at_a_time: int = 1_000_000) -> None:
        for start in range(0, len(data), at_a_time):
            self.protocol.data_received(data[start : start + at_a_time])
            await self.settled()

    async def settled(self) -> None:
        for _ in range(20):
            await asyncio.sleep(0)

    @property
    def answers(self) -> list[bytes]:
        """Bodies, or the status of what was refused."""
        return list(_bodies(self.wire.sent))


class _Lengths(dict[bytes, tuple[bytes, bytes]]):
    def __missing__(self, path: bytes) -> tuple[bytes, bytes]:
        return (b"content-length", b"%d" % len(path))


LENGTH_OF = _Lengths()


def _bodies(sent: bytes) -> Iterator[bytes]:
    while sent:
        head, _, rest = sent.partition(b"\r\n\r\n")
        status = head.split(b" ")[1]
        length = int(head.lower().partition(b"content-length: ")[2].split(b"\r\n")[0])
        yield rest[:length] if status == b"200" else status
        sent = rest[length:]


def play(
    story: Callable[[Peer], Awaitable[None]], apps: Sequence[type[App]] = (App, AppWithDoor)
) -> None:
    """With and without a door, which must not be seen from outside but by an upgrade."""

    async def run(app: type[App]) -> None:
        async with asyncio.timeout(30):
            await story(Peer(app))

    for app in apps:
        asyncio.run(run(app))


# --- upgrades --------------------------------------------------------------------------------


def offer(*headers: bytes, method: bytes = b"POST", protocol: bytes = b"h2c") -> bytes:
    upgrade = b"Upgrade: " + protocol
    lines = [b"Host: x", b"Connection: Upgrade, HTTP2-Settings", upgrade, *headers]
    return b"%s /first HTTP/1.1\r\n" % method + b"".join(b"%s\r\n" % line for line in lines)


CHUNKED = b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in (HIDDEN[:9], HIDDEN[9:], b""))


@pytest.mark.parametrize("at_a_time", [1, 7, 100, 1_000_000])
@pytest.mark.parametrize("method", [b"POST", b"GET", b"DELETE"])
@pytest.mark.parametrize("protocol", [b"h2c", b"websocket"])
@pytest.mark.parametrize(
    ("framing", "sent", "body"),
    [
        ((), b"", b""),
        ((b"Content-Length: 0",), b"", b""),
        ((b"Content-Length: %d" % len(HIDDEN),), HIDDEN, HIDDEN),
        ((b"content-LENGTH: %d" % len(HIDDEN), b"Expect: x"), HIDDEN, HIDDEN),
        ((b"Transfer-Encoding: chunked",), CHUNKED, HIDDEN),
    ],
    ids=["none", "empty", "length", "case", "chunked"],
)
def test_the_body_behind_a_declined_upgrade_is_no_request(
    framing: tuple[bytes, ...],
    sent: bytes,
    body: bytes,
    protocol: bytes,
    method: bytes,
    at_a_time: int,
) -> None:
    async def story(peer: Peer) -> None:
        head = offer(*framing, method=method, protocol=protocol) + b"\r\n"
        await peer.told((head + sent) * 2 + LATER, at_a_time=at_a_time)
        first = (method.decode(), b"/first", b"", body)
        assert peer.seen == [first, first, ("GET", b"/later", b"", b"")]
        assert peer.answers == [b"/first", b"/first", b"/later"]
        assert not peer.wire.closed

    play(story)


@pytest.mark.parametrize("coding", [b"identity", b"xchunked"])
def test_a_body_that_cannot_be_told_from_requests_is_refused(coding: bytes) -> None:
    async def story(peer: Peer) -> None:
        await peer.told(offer(b"Transfer-Encoding: " + coding) + b"\r\n" + HIDDEN)
        assert peer.answers == [b"400"]
        assert peer.wire.ended

    play(story)


@pytest.mark.parametrize("head", [offer(), b"POST /first HTTP/1.1\r\n"], ids=["h2c", "plain"])
def test_trailers_are_no_headers(head: bytes) -> None:
    """They come when who asks, and what for, has been decided."""

    async def story(peer: Peer) -> None:
        trailers = b"Authorization: Bearer x\r\nHost: other\r\n\r\n"
        await peer.told(head + b"Transfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\n" + trailers)
        assert peer.seen == [("POST", b"/first", b"", b"a")]
        assert not {b"authorization"} & dict(peer.headers).keys()
        assert (b"host", b"other") not in peer.headers

    play(story)


@pytest.mark.parametrize("line", [b"a: b\r\n", b"a"])
def test_trailers_do_not_go_on_for_ever(line: bytes) -> None:
    async def story(peer: Peer) -> None:
        await peer.told(
            b"POST /first HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\n"
        )
        await peer.told(line * (MAX_HEAD // len(line) + 40_000), at_a_time=100_000)
        assert peer.answers == [b"431"]

    play(story)


def test_a_long_body_has_no_limit_of_its_own() -> None:
    async def story(peer: Peer) -> None:
        chunk = b"10000\r\n%s\r\n" % bytes(65_536)
        head = b"POST /first HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n"
        await peer.told(head + chunk * 40 + b"0\r\n\r\n", at_a_time=100_000)
        assert [len(body) for *_, body in peer.seen] == [40 * 65_536]

    play(story)


def test_a_method_that_would_be_a_tunnel_is_none() -> None:
    async def story(peer: Peer) -> None:
        await peer.told(b"CONNECT example.com:443 HTTP/1.1\r\nHost: x\r\n\r\n" + LATER)
        assert [path for _, path, *_ in peer.seen] == [b"example.com:443", b"/later"]

    play(story)


@pytest.mark.parametrize("at_a_time", [1, 1_000_000])
def test_what_follows_an_accepted_upgrade_is_kept_for_whoever_takes_over(at_a_time: int) -> None:
    async def story(peer: Peer) -> None:
        peer.let.clear()
        head = LATER + b"GET /tunnel?a=b HTTP/1.1\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n"
        await peer.told(head + HIDDEN, at_a_time=at_a_time)
        peer.let.set()
        await peer.settled()
        assert [path for _, path, *_ in peer.seen] == [b"/later", b"/tunnel"]
        reader, _ = peer.protocol.take_over()
        assert await reader.readexactly(len(HIDDEN)) == HIDDEN

    play(story, [AppWithDoor])


# --- order -----------------------------------------------------------------------------------

PAIR = b"POST /one HTTP/1.1\r\nContent-Length: 2\r\n\r\nabPOST /two HTTP/1.1\r\n"


@pytest.mark.parametrize("at_a_time", [1, 1_000_000])
@pytest.mark.parametrize(
    ("sent", "answers", "seen"),
    [
        (b"GARBAGE\r\n\r\n", [b"400"], 0),
        (LATER + b"GARBAGE\r\n\r\n" + LATER, [b"/later", b"400"], 1),
        (LATER * 2 + b"GARBAGE\r\n\r\n", [b"/later", b"/later", b"400"], 2),
        (PAIR + b"Content-Length: 1\r\nContent-Length: 2\r\n\r\nab", [b"/one", b"400"], 1),
        (PAIR + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n", [b"/one", b"400"], 1),
        (PAIR + b"Transfer-Encoding: chunked\r\n\r\n1\r\na\r\nzz\r\n", [b"/one", b"400"], 1),
        (
            LATER + b"GET / HTTP/1.1\r\n" + b"a:\r\n" * 1001 + b"\r\n" + LATER,
            [b"/later", b"431"],
            1,
        ),
        (b"POST / HTTP/1.1\r\nContent-Length: 9\r\n" + b"a:\r\n" * 1001 + b"\r\nb", [b"431"], 0),
        (LATER + b"GET / HTTP/1.1\r\nX: " + b"x" * (MAX_HEAD + 1), [b"/later", b"431"], 1),
    ],
)
def test_a_refusal_comes_after_what_was_asked_before(
    sent: bytes, answers: list[bytes], seen: int, at_a_time: int
) -> None:
    async def story(peer: Peer) -> None:
        peer.let.clear()
        await peer.told(sent, at_a_time=at_a_time if len(sent) < MAX_HEAD else MAX_HEAD)
        peer.let.set()
        await peer.settled()
        assert peer.answers == answers
        assert len(peer.seen) == seen
        assert peer.wire.ended

    play(story)


def test_who_is_refused_while_it_sends_can_read_why() -> None:
    async def story() -> None:
        peer = Peer()
        await peer.told(b"GARBAGE\r\n\r\n")
        await peer.told(LATER * 1000)
        states = [(peer.wire.reading, peer.wire.closed)]
        await asyncio.sleep(LINGER + 0.1)
        states.append((peer.wire.reading, peer.wire.closed))
        assert states == [(True, False), (True, True)]
        assert (peer.answers, peer.seen) == ([b"400"], [])

    virtual_time.run(story(), Clock())


def test_requests_wait_as_bytes_behind_the_one_that_is_answered() -> None:
    async def story(peer: Peer) -> None:
        peer.let.clear()
        await peer.told(LATER * 10_000)
        queued = len(peer.protocol.pipeline)
        assert queued < 1000
        await peer.told(LATER)
        assert not peer.wire.reading
        peer.let.set()
        while len(peer.seen) < 10_001:
            await peer.settled()
        assert len(peer.answers) == 10_001
        assert peer.wire.reading

    play(story)


def test_a_body_that_waits_behind_another_request_is_read_on() -> None:
    async def story(peer: Peer) -> None:
        peer.let.clear()
        body = bytes(300_000)
        await peer.told(PAIR + b"Content-Length: %d\r\n\r\n" % len(body) + body, at_a_time=65_536)
        peer.let.set()
        await peer.settled()
        assert [len(body) for *_, body in peer.seen] == [2, 300_000]

    play(story)


# --- targets ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("target", "path", "query"),
    [
        (b"/a/b", b"/a/b", b""),
        (b"/a?x=1&y=?", b"/a", b"x=1&y=?"),
        (b"/a#b", b"/a#b", b""),
        (b"/a?x=#&y=1", b"/a", b"x=#&y=1"),
        (b"/a%23b%3F?", b"/a%23b%3F", b""),
        (b"http://host:80/a?b", b"/a", b"b"),
        (b"http://host", b"/", b""),
        (b"*", b"*", b""),
        (b"/a?http://b/c", b"/a", b"http://b/c"),
        (b"//a", b"//a", b""),
    ],
)
def test_targets_are_read_as_go_does(target: bytes, path: bytes, query: bytes) -> None:
    async def story(peer: Peer) -> None:
        await peer.told(b"GET %s HTTP/1.1\r\nHost: x\r\n\r\n" % target)
        assert peer.seen == [("GET", path, query, b"")]

    play(story)


# --- the end ---------------------------------------------------------------------------------


@contextmanager
def no_collector() -> Iterator[None]:
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


@pytest.mark.parametrize(
    "sent",
    [b"", LATER, LATER * 3, LATER[:9], LATER + LATER[:20], PAIR + b"Content-Length: 9\r\n\r\nab"],
)
@pytest.mark.parametrize("error", [None, ConnectionResetError()])
@pytest.mark.parametrize("answered", ["before", "after"])
def test_a_connection_that_has_ended_is_freed_at_once(
    sent: bytes, error: Exception | None, answered: str
) -> None:
    """Without the garbage collector, whose full runs are too dear to be frequent."""

    async def story(peer: Peer) -> None:
        if answered == "after":
            peer.let.clear()
        await peer.told(sent)
        peer.protocol.connection_lost(error)
        peer.let.set()
        await peer.settled()
        ended = weakref.ref(peer.protocol)
        del peer.protocol
        await peer.settled()
        assert ended() is None

    with no_collector():
        play(story)


@pytest.mark.parametrize(
    ("sent", "left"),
    [
        (b"POST /one HTTP/1.1\r\nContent-Length: 2\r\n\r\na", b"/one"),
        (b"GET %s HTTP/1.1\r\n\r\n" % WATCHED, WATCHED),
        (b"GET %s HTTP/1.1\r\n\r\n" % WATCHED + LATER * 2, WATCHED),
    ],
)
def test_who_is_served_learns_that_the_client_left(sent: bytes, left: bytes) -> None:
    async def story(peer: Peer) -> None:
        await peer.told(sent)
        peer.protocol.connection_lost(None)
        await peer.settled()
        assert peer.left == [left]

    play(story)


def test_aborting_drops_what_was_not_answered() -> None:
    async def story(peer: Peer) -> None:
        peer.let.clear()
        await peer.told(LATER * 3)
        peer.protocol.abort()
        peer.let.set()
        await peer.settled()
        assert len(peer.seen) == 1
        assert peer.answers == []

    play(story)


# --- slow clients ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sent", "is_cut"),
    [
        (b"", True),
        (LATER[:9], True),
        (LATER, False),
        (LATER + LATER[:9], True),
        (PAIR, True),
        (PAIR + b"Content-Length: 2\r\n\r\n", False),
    ],
)
def test_a_head_must_arrive_in_time(sent: bytes, *, is_cut: bool) -> None:
    async def story() -> None:
        peer = Peer()
        await peer.told(sent)
        await asyncio.sleep(HEAD_TIMEOUT - 1)
        assert not peer.wire.closed
        await asyncio.sleep(2)
        assert peer.wire.closed is is_cut

    virtual_time.run(story(), Clock())


def test_half_a_head_does_not_end_the_answer_before_it() -> None:
    async def story() -> None:
        peer = Peer()
        peer.let.clear()
        await peer.told(LATER + LATER[:9])
        await asyncio.sleep(3 * HEAD_TIMEOUT)
        assert not peer.wire.closed
        peer.let.set()
        await asyncio.sleep(2 * HEAD_TIMEOUT)
        assert peer.answers == [b"/later"]
        assert peer.wire.closed

    virtual_time.run(story(), Clock())


@pytest.mark.parametrize(("rest", "is_cut"), [(b"", True), (b"a", True), (b"ab" + LATER, False)])
def test_the_rest_of_a_body_must_arrive_in_time_after_an_answer(
    rest: bytes, *, is_cut: bool
) -> None:
    async def story() -> None:
        peer = Peer()
        await peer.told(b"PUT /early HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\n.")
        assert peer.answers == [EARLY]
        await peer.told(rest)
        await asyncio.sleep(HEAD_TIMEOUT + 1)
        assert peer.wire.closed is is_cut

    virtual_time.run(story(), Clock())


@pytest.mark.parametrize("app", [App, AppWithDoor])
@pytest.mark.parametrize(
    ("backlogs", "is_cut"),
    [([90], True), ([80, 70], False), ([80, 80], True), ([80, None], False)],
)
def test_who_reads_nothing_is_cut(
    app: type[App], backlogs: list[int | None], *, is_cut: bool
) -> None:
    """Whatever it's sent, with and without a door; None is when it has caught up."""

    async def story() -> None:
        peer = Peer(app)
        await peer.told(QUICK)
        peer.wire.backlog = 90
        peer.protocol.pause_writing()
        for backlog in backlogs:
            if backlog is None:
                peer.protocol.resume_writing()
            else:
                peer.wire.backlog = backlog
            await asyncio.sleep(SLOW_CLIENT + 1)
        assert (peer.wire.closed, peer.protocol.is_slow) == (is_cut, is_cut)

    virtual_time.run(story(), Clock())


@pytest.mark.parametrize(("then", "is_cut"), [(b"", False), (QUICK, True)])
def test_who_may_stall_is_not_cut_before_the_next_request(then: bytes, *, is_cut: bool) -> None:
    async def story() -> None:
        peer = Peer()
        await peer.told(QUICK)
        peer.protocol.may_stall = True
        await peer.told(then)
        peer.wire.backlog = 90
        peer.protocol.pause_writing()
        await asyncio.sleep(2 * SLOW_CLIENT + 1)
        assert (peer.wire.closed, peer.protocol.is_slow) == (is_cut, is_cut)

    virtual_time.run(story(), Clock())


# --- the door --------------------------------------------------------------------------------


def at_door(*steps: tuple[bytes, int, list[bytes]]) -> None:
    """Send each step's bytes; so many answers more come at once, and so many paths by the app."""

    async def story() -> None:
        peer = Peer(AppWithDoor)
        for sent, at_once, by_app in steps:
            before = peer.wire.sent.count(b"x-at: once")
            peer.seen.clear()
            await peer.told(sent)
            assert peer.wire.sent.count(b"x-at: once") - before == at_once
            assert [path for _, path, *_ in peer.seen] == by_app

    asyncio.run(story())


@pytest.mark.parametrize(
    ("sent", "at_once", "by_app"),
    [
        (QUICK, 1, []),
        (LATER, 0, [b"/later"]),
        (QUICK * 3, 1, [b"/quick", b"/quick"]),
        (QUICK + LATER + QUICK, 1, [b"/later", b"/quick"]),
        (LATER + QUICK, 0, [b"/later", b"/quick"]),
        (QUICK.replace(b"GET", b"HEAD"), 0, [b"/quick"]),
        (QUICK.replace(b"Host: x", b"Connection: close"), 0, [b"/quick"]),
        (QUICK.replace(b"1.1", b"1.0"), 0, [b"/quick"]),
        (QUICK.replace(b"1.1\r\nHost: x", b"1.0\r\nConnection: keep-alive"), 0, [b"/quick"]),
        (QUICK.replace(b"Host: x", b"Content-Length: 4") + b"GET ", 0, [b"/quick"]),
        (QUICK.replace(b"Host: x", b"Connection: upgrade\r\nUpgrade: h2c"), 0, [b"/quick"]),
    ],
)
def test_what_is_answered_at_once(sent: bytes, at_once: int, by_app: list[bytes]) -> None:
    at_door((sent, at_once, by_app))


def test_the_door_opens_again() -> None:
    at_door((QUICK, 1, []), (LATER, 0, [b"/later"]), (QUICK[:20], 0, []), (QUICK[20:], 1, []))


def test_an_answer_at_once_is_whole() -> None:
    async def story() -> None:
        peer = Peer(AppWithDoor)
        await peer.told(QUICK)
        head = b"HTTP/1.1 200 OK\r\ncontent-length: 6\r\nx-at: once\r\n\r\n"
        assert peer.wire.sent == head + b"/quick"
        assert not peer.wire.closed

    asyncio.run(story())


def test_the_app_goes_on_with_what_was_begun() -> None:
    async def story() -> None:
        peer = Peer(AppWithDoor)
        await peer.told(LATER)
        assert peer.begun == [b"/later"]

    asyncio.run(story())


def test_what_comes_behind_an_answer_at_once_has_its_time() -> None:
    async def story() -> None:
        peer = Peer(AppWithDoor)
        peer.let.clear()
        await peer.told(QUICK + LATER)
        await asyncio.sleep(1000)
        peer.let.set()
        await peer.settled()
        assert peer.answers == [b"/quick", b"/later"]

    virtual_time.run(story(), Clock())


def test_the_door_is_closed_while_another_answer_is_under_way() -> None:
    async def story() -> None:
        peer = Peer(AppWithDoor)
        peer.let.clear()
        await peer.told(LATER)
        await peer.told(QUICK)
        assert peer.answers == []
        peer.let.set()
        await peer.settled()
        assert peer.answers == [b"/later", b"/quick"]

    asyncio.run(story())


def test_the_door_is_closed_while_the_client_makes_no_room() -> None:
    async def story() -> None:
        peer = Peer(AppWithDoor)
        peer.protocol.pause_writing()
        await peer.told(QUICK)
        assert peer.answers == []
        peer.protocol.resume_writing()
        await peer.settled()
        assert peer.answers == [b"/quick"]

    asyncio.run(story())


def test_a_connection_answered_at_once_is_kept_for_the_next() -> None:
    async def story() -> None:
        peer = Peer(AppWithDoor)
        await peer.told(QUICK)
        await asyncio.sleep(170)
        await peer.told(QUICK)
        await asyncio.sleep(170)
        assert not peer.wire.closed
        await asyncio.sleep(20)
        assert peer.wire.closed

    virtual_time.run(story(), Clock())
