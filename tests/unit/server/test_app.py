"""The read listener over real sockets, in front of a scripted API server."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from proxy.demo.mover import fill
from proxy.demo.standin import StandIn
from proxy.server.addresses import Address
from proxy.server.proxy import Proxy
from proxy.server.settings import Settings
from tests.unit.upstream.servers import OK, Handler, Server, answering, credentials, serving

ANYWHERE = Address("127.0.0.1", 0)


def config(path: Path, url: str) -> str:
    file = path / "kubeconfig"
    cluster = {"name": "c", "cluster": {"server": url}}
    context = {"name": "c", "context": {"cluster": "c", "user": ""}}
    file.write_text(
        json.dumps(
            {
                "apiVersion": "v1",
                "kind": "Config",
                "clusters": [cluster],
                "contexts": [context],
                "current-context": "c",
            }
        )
    )
    return str(file)


@asynccontextmanager
async def proxy_of(path: Path, url: str) -> AsyncIterator[Proxy]:
    settings = Settings(listen=ANYWHERE, admin=ANYWHERE)
    proxy = Proxy(settings, await credentials(config(path, url)))
    proxy.start()
    try:
        yield proxy
    finally:
        await proxy.stop()


class Connection:
    """A client that speaks bytes."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    @classmethod
    async def to(cls, proxy: Proxy) -> "Connection":
        return cls(*await asyncio.open_connection("127.0.0.1", proxy.read_listener.port))

    def send(self, text: str) -> None:
        self.writer.write(text.replace("\n", "\r\n").encode())

    async def head(self) -> str:
        return (await asyncio.wait_for(self.reader.readuntil(b"\r\n\r\n"), 5)).decode().lower()

    async def answer(self) -> tuple[int, dict[str, str], bytes]:
        """Read an answer with a length."""
        lines = (await self.head()).split("\r\n")
        headers = dict(line.split(": ", 1) for line in lines[1:] if line)
        body = await asyncio.wait_for(self.reader.readexactly(int(headers["content-length"])), 5)
        return int(lines[0].split()[1]), headers, body

    async def rest(self) -> bytes:
        return await asyncio.wait_for(self.reader.read(), 5)


Talk = Callable[[Server, Proxy, Connection], Coroutine[Any, Any, None]]


def play(path: Path, handle: Handler, talk: Talk) -> None:
    """Let a client talk to a proxy in front of a scripted server."""

    async def run() -> None:
        async with serving(handle) as server, proxy_of(path, server.url) as proxy:
            connection = await Connection.to(proxy)
            await talk(server, proxy, connection)
            connection.writer.close()

    asyncio.run(run())


GET = "GET /healthz HTTP/1.1\nHost: localhost\n\n"


def test_an_answer_that_breaks_off_upstream_breaks_off_here(tmp_path: Path) -> None:
    async def half(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\n")
        await writer.drain()
        await asyncio.sleep(0.05)
        writer.transport.abort()

    async def talk(_: Server, proxy: Proxy, connection: Connection) -> None:
        connection.send(GET)
        assert "200 ok" in await connection.head()
        assert await connection.rest() == b"4\r\nhalf\r\n"  # and no last chunk

    play(tmp_path, half, talk)


def test_a_client_that_leaves_ends_its_watch_upstream(tmp_path: Path) -> None:
    left = asyncio.Event()

    async def stream(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        await writer.drain()
        assert await reader.read() == b""
        left.set()

    async def talk(_: Server, proxy: Proxy, connection: Connection) -> None:
        connection.send("GET /api/v1/watch/pods HTTP/1.1\nHost: localhost\n\n")
        await connection.head()
        connection.writer.transport.abort()
        await asyncio.wait_for(left.wait(), 5)

    play(tmp_path, stream, talk)


def test_a_stop_ends_watches_cleanly(tmp_path: Path) -> None:
    async def stream(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n")
        await reader.read()

    async def talk(_: Server, proxy: Proxy, connection: Connection) -> None:
        connection.send("GET /api/v1/watch/pods HTTP/1.1\nHost: localhost\n\n")
        await connection.head()
        await asyncio.wait_for(proxy.stop(), 5)
        assert (await connection.rest()).endswith(b"0\r\n\r\n")

    play(tmp_path, stream, talk)


def test_bodies_go_through_in_any_framing(tmp_path: Path) -> None:
    bodies: list[bytes] = []

    async def keep(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        bodies.append(await reader.readuntil(b"}"))
        writer.write(OK)

    async def talk(server: Server, proxy: Proxy, connection: Connection) -> None:
        connection.send("POST /api/v1/x HTTP/1.1\nHost: localhost\nContent-Length: 7\n\n{'a':1}")
        await connection.answer()
        assert server.headers()["content-length"] == "7"
        connection.send(
            "POST /api/v1/x HTTP/1.1\nHost: localhost\nExpect: 100-continue\n"
            "Transfer-Encoding: chunked\n\n"
        )
        assert "100 continue" in await connection.head()
        connection.send("7\n{'a':2}\n0\n\n")
        assert (await connection.answer())[0] == 200
        assert server.headers(1)["transfer-encoding"] == "chunked"

    play(tmp_path, keep, talk)
    assert bodies[0] == b"{'a':1}"
    assert b"{'a':2}" in bodies[1]


def test_requests_in_one_breath_are_answered_in_order(tmp_path: Path) -> None:
    async def echo(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n%d" % len(answered))
        answered.append(1)

    answered: list[int] = []

    async def talk(_: Server, proxy: Proxy, connection: Connection) -> None:
        connection.send(GET * 3)
        bodies = [(await connection.answer())[2] for number in range(3)]
        assert bodies == [b"0", b"1", b"2"]

    play(tmp_path, echo, talk)


def test_an_upgrade_becomes_a_tunnel(tmp_path: Path) -> None:
    async def upper(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\n")
        while chunk := await reader.read(100):
            writer.write(chunk.upper())

    async def talk(server: Server, proxy: Proxy, connection: Connection) -> None:
        connection.send(
            "POST /api/v1/namespaces/a/pods/p/exec HTTP/1.1\nHost: localhost\n"
            "Connection: Upgrade\nUpgrade: SPDY/3.1\n\nearly"
        )
        assert "101 switching" in await connection.head()
        assert await connection.reader.readexactly(5) == b"EARLY"
        connection.send("late")
        assert await connection.reader.readexactly(4) == b"LATE"
        assert server.headers()["connection"] == "Upgrade, close"
        connection.writer.write_eof()
        assert await connection.rest() == b""

    play(tmp_path, upper, talk)


def test_an_offer_of_http2_is_declined(tmp_path: Path) -> None:
    offer = GET.replace("\n\n", "\nConnection: Upgrade, HTTP2-Settings\nUpgrade: h2c\n\n")

    async def talk(_: Server, proxy: Proxy, connection: Connection) -> None:
        for request in (offer, GET, offer + GET):
            connection.send(request)
            for _number in range(request.count("GET")):
                assert (await connection.answer())[0] == 200

    play(tmp_path, answering(OK), talk)


@pytest.mark.parametrize("header", ["Host: evil.example", "Host: localhost\nOrigin: http://evil"])
def test_web_pages_are_refused(tmp_path: Path, header: str) -> None:
    async def talk(server: Server, proxy: Proxy, connection: Connection) -> None:
        connection.send(f"GET /api HTTP/1.1\n{header}\n\n")
        status, _, body = await connection.answer()
        assert (status, json.loads(body)["reason"]) == (403, "Forbidden")
        assert server.connections == 0

    play(tmp_path, answering(OK), talk)


@pytest.mark.parametrize(
    ("request_text", "code"),
    [
        ("OPTIONS * HTTP/1.1\nHost: localhost\n\n", 400),
        ("nonsense\n\n", 400),
        ("GET /api HTTP/1.1\nHost: localhost\nContent-Length: 1\nContent-Length: 2\n\n", 400),
        (f"GET /api HTTP/1.1\nX: {'a' * 1_100_000}", 431),
    ],
)
def test_what_cannot_be_a_request(tmp_path: Path, request_text: str, code: int) -> None:
    async def talk(server: Server, proxy: Proxy, connection: Connection) -> None:
        connection.send(request_text)
        status, _, body = await connection.answer()
        assert (status, json.loads(body)["code"]) == (code, code)
        assert server.connections == 0

    play(tmp_path, answering(OK), talk)


def test_nobody_upstream(tmp_path: Path) -> None:
    async def talk(connection: Connection) -> None:
        for request, code in (
            (GET, 503),
            ("DELETE /api/v1/nodes/n HTTP/1.1\nHost: localhost\n\n", 503),
            ("GET /api/v1/nodes HTTP/1.1\nHost: localhost\nCache-Control: only-if-cached\n\n", 504),
        ):
            connection.send(request)
            status, headers, body = await connection.answer()
            assert (status, json.loads(body)["kind"]) == (code, "Status")
            assert headers.get("retry-after") == ("1" if code == 503 else None)

    async def run() -> None:
        async with serving(answering(OK)) as server:
            url = server.url
        async with proxy_of(tmp_path, url) as proxy:
            connection = await Connection.to(proxy)
            await talk(connection)
            connection.writer.close()

    asyncio.run(run())


def test_cached_answers_over_the_wire(tmp_path: Path) -> None:
    async def run() -> None:
        async with StandIn() as server, proxy_of(tmp_path, server.url) as proxy:
            fill(server.storage, 4)
            connection = await Connection.to(proxy)
            path = "/api/v1/namespaces/shop/pods"
            for _ in range(50):
                connection.send(f"GET {path} HTTP/1.1\nHost: localhost\n\n")
                status, headers, body = await connection.answer()
                if "hit" in headers["cache-status"]:
                    break
                await asyncio.sleep(0.02)
            assert (status, len(json.loads(body)["items"])) == (200, 2)
            assert headers["age"] == "0"
            assert headers["cache-control"] == "no-cache, private"
            counted = {labels.source for labels, _ in proxy.stats.requests}
            assert counted == {"live", "cache"}
            connection.writer.close()

    asyncio.run(run())
