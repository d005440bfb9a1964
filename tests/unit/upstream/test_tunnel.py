"""Tunnels: the head that opens one, and bytes both ways until both ends are done."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import NamedTuple

import pytest

from proxy.kube.errors import ServiceUnavailable
from proxy.kube.requests import Headers
from proxy.upstream.connection import Connection, dial
from proxy.upstream.credentials import Credentials
from proxy.upstream.tunnel import Streams, connect, request_head, shows_token, splice
from tests.unit.upstream.servers import answering, credentials, serving

Write = Callable[..., str]


def credentials_of(kubeconfig: str) -> Credentials:
    return asyncio.run(credentials(kubeconfig))


# --- the head --------------------------------------------------------------------------------

CONNECTION = "connection: Upgrade, close"
SHOWN = b"a, base64url.bearer.authorization.k8s.io.dA"
WEBSOCKET = (b"upgrade", b"websocket")


@pytest.mark.parametrize(
    ("url", "headers", "authorization", "lines"),
    [
        (
            "http://10.0.0.1:6443",
            [(b"host", b"localhost"), (b"upgrade", b"SPDY/3.1"), (b"connection", b"Upgrade")],
            "Bearer own",
            [
                "POST /api/v1/x?command=a%20b HTTP/1.1",
                "upgrade: SPDY/3.1",
                "host: 10.0.0.1:6443",
                CONNECTION,
                "authorization: Bearer own",
            ],
        ),
        (
            "https://kube.example",
            [(b"authorization", b"Bearer mine"), (b"upgrade", b"websocket")],
            "",
            [
                "POST /api/v1/x?command=a%20b HTTP/1.1",
                "authorization: Bearer mine",
                "upgrade: websocket",
                "host: kube.example",
                CONNECTION,
            ],
        ),
        (
            "http://10.0.0.1/prefix",
            [(b"x", b"1"), (b"connection", b"keep-alive, Upgrade"), (b"x", b"\xff")],
            "",
            [
                "POST /prefix/api/v1/x?command=a%20b HTTP/1.1",
                "x: 1",
                "x: \xff",
                "host: 10.0.0.1",
                CONNECTION,
            ],
        ),
        (
            "https://kube.example",
            [(b"origin", b"http://localhost:8001"), (b"upgrade", b"websocket")],
            "",
            [
                "POST /api/v1/x?command=a%20b HTTP/1.1",
                "origin: https://kube.example",
                "upgrade: websocket",
                "host: kube.example",
                CONNECTION,
            ],
        ),
    ],
    ids=["own", "clients", "prefix", "origin"],
)
def test_the_head(
    kubeconfig: Write, url: str, headers: Headers, authorization: str, lines: list[str]
) -> None:
    found = credentials_of(kubeconfig(url))
    head = request_head(found, "POST", "/api/v1/x?command=a%20b", headers, authorization)
    assert head.decode("latin-1").split("\r\n") == [*lines, "", ""]


# --- the connection --------------------------------------------------------------------------


def test_nobody_listens(kubeconfig: Write) -> None:
    async def run() -> None:
        async with serving(answering(b"")) as server:
            url = server.url
        await connect(await credentials(kubeconfig(url)), own=True)

    with pytest.raises(ServiceUnavailable, match="can't be reached") as raised:
        asyncio.run(run())
    assert raised.value.retry_after == 1


def test_a_server_without_tls(kubeconfig: Write) -> None:
    async def run() -> None:
        async def answer(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(b"HTTP/1.0 400 Bad Request\r\n\r\n")
            writer.close()

        server = await asyncio.start_server(answer, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        try:
            await connect(await credentials(kubeconfig(f"https://127.0.0.1:{port}")), own=False)
        finally:
            server.close()

    with pytest.raises(ServiceUnavailable, match="can't be reached"):
        asyncio.run(run())


# --- bytes both ways -------------------------------------------------------------------------


HEAD = b"GET /x HTTP/1.1\r\n\r\n"


class Ends(NamedTuple):
    """The two outer ends of a tunnel: the client's and the API server's."""

    sides: tuple[Streams, Streams]
    tunnel: asyncio.Task[None]
    statuses: list[int]


@asynccontextmanager
async def listening() -> AsyncIterator[tuple[int, asyncio.Future[Streams]]]:
    """A port of the loopback, and the first connection that is made to it."""
    accepted: asyncio.Future[Streams] = asyncio.get_running_loop().create_future()

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        accepted.set_result((reader, writer))

    server = await asyncio.start_server(accept, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1], accepted
    finally:
        if accepted.done():
            accepted.result()[1].close()
        server.close()


@asynccontextmanager
async def tunnelled(head: bytes = HEAD, kind: type[Connection] = Connection) -> AsyncIterator[Ends]:
    """A tunnel, through which the head of the request has come already."""
    async with (
        asyncio.timeout(30),
        listening() as (near_port, near),
        listening() as (far_port, far),
    ):
        client = await asyncio.open_connection("127.0.0.1", near_port)
        upstream = kind(await dial("127.0.0.1", far_port))
        statuses: list[int] = []
        tunnel = asyncio.create_task(splice(await near, upstream, head, statuses.append))
        try:
            assert await (await far)[0].readexactly(len(head)) == head
            yield Ends((client, await far), tunnel, statuses)
        finally:
            tunnel.cancel()
            await asyncio.gather(tunnel, return_exceptions=True)
            client[1].close()


def test_bytes_go_both_ways() -> None:
    async def run() -> None:
        async with tunnelled() as ends:
            for sender, receiver in (ends.sides, ends.sides[::-1]):
                sender[1].write(b"\x00\xff\r\n")
                assert await receiver[0].readexactly(4) == b"\x00\xff\r\n"

    asyncio.run(run())


@pytest.mark.parametrize(
    ("answer", "statuses"),
    [
        (b"HTTP/1.1 101 Switching Protocols\r\n\r\n", [101]),
        (b"HTTP/1.1 403 Forbidden\r\n\r\n", [403]),
        (b"nonsense", []),
    ],
)
def test_the_answers_status_is_told(answer: bytes, statuses: list[int]) -> None:
    async def run() -> None:
        async with tunnelled() as ends:
            client, upstream = ends.sides
            upstream[1].write(answer)
            assert await client[0].readexactly(len(answer)) == answer
            assert ends.statuses == statuses

    asyncio.run(run())


@pytest.mark.parametrize(
    ("headers", "shows"),
    [
        ([], False),
        ([WEBSOCKET, (b"sec-websocket-protocol", b"v5.channel.k8s.io")], False),
        ([WEBSOCKET, (b"sec-websocket-protocol", SHOWN)], True),
        ([(b"upgrade", b"WebSocket"), (b"sec-websocket-protocol", SHOWN)], True),
        ([(b"upgrade", b"SPDY/3.1"), (b"sec-websocket-protocol", SHOWN)], False),
        ([(b"sec-websocket-protocol", SHOWN)], False),
    ],
)
def test_a_browsers_token_is_seen(headers: Headers, *, shows: bool) -> None:
    assert shows_token(headers) is shows


def test_more_than_any_buffer_holds_arrives_whole() -> None:
    size = 8_000_000

    async def run() -> None:
        async with tunnelled() as ends:
            client, upstream = ends.sides
            client[1].write(bytes(size))
            client[1].write_eof()
            received = 0
            while part := await upstream[0].read(100_000):
                received += len(part)
            assert received == size

    asyncio.run(run())


@pytest.mark.parametrize("first", [0, 1], ids=["client", "upstream"])
def test_one_direction_may_end_before_the_other(first: int) -> None:
    async def run() -> None:
        async with tunnelled() as ends:
            ended, other = ends.sides[first], ends.sides[1 - first]
            ended[1].write(b"bye")
            ended[1].write_eof()
            assert await other[0].read() == b"bye"
            other[1].write(b"wait")
            assert await ended[0].readexactly(4) == b"wait"
            assert not ends.tunnel.done()
            other[1].write_eof()
            assert await ended[0].read() == b""
            await ends.tunnel

    asyncio.run(run())


@pytest.mark.parametrize("broken", [0, 1], ids=["client", "upstream"])
def test_a_side_that_breaks_ends_the_other(broken: int) -> None:
    async def run() -> None:
        async with tunnelled() as ends:
            gone, other = ends.sides[broken], ends.sides[1 - broken]
            gone[1].transport.abort()
            other[1].write(b"x" * 100_000)
            while await other[0].read(1000):
                pass
            other[1].close()
            await ends.tunnel

    asyncio.run(run())


class Deaf(Connection):
    """Takes the head and nothing more, not even the end."""

    async def write(self, data: bytes) -> None:
        if data != HEAD:
            raise BrokenPipeError
        await super().write(data)

    async def end(self) -> None:
        raise OSError


def test_what_an_api_server_says_that_takes_nothing_more_is_heard() -> None:
    """All of it, by a client that goes on speaking, which must not be stopped by full buffers."""
    size = 20_000_000

    async def run() -> None:
        async with tunnelled(kind=Deaf) as ends:
            client, upstream = ends.sides
            client[1].write(bytes(size))
            await client[1].drain()
            client[1].write_eof()
            await asyncio.wait(
                [task for task in asyncio.all_tasks() if task.get_name() == "tunnel up"]
            )
            upstream[1].write(b"no")
            assert await client[0].readexactly(2) == b"no"
            upstream[1].write(b"why")
            upstream[1].write_eof()
            assert await client[0].read() == b"why"
            await ends.tunnel

    asyncio.run(run())


def test_a_tunnel_that_is_cancelled_closes_both_sides() -> None:
    async def run() -> None:
        async with tunnelled() as ends:
            await asyncio.sleep(0)
            ends.tunnel.cancel()
            assert [await reader.read() for reader, _ in ends.sides] == [b"", b""]
            assert ends.tunnel.cancelled()

    asyncio.run(run())
