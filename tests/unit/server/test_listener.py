"""Listeners: where they bind, and how they end."""

from __future__ import annotations

import asyncio
import socket
import stat
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from proxy.cache.supervisor import Supervisor
from proxy.server.addresses import Address
from proxy.server.exchange import ClientGoneError, Exchange
from proxy.server.listener import Listener

ASKED = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"


async def answers(scope: Any, receive: Any, send: Any) -> None:
    exchange = Exchange(scope, receive, send)
    await exchange.start(200, [(b"content-length", b"2")])
    await exchange.finish(b"ok")


async def streams(scope: Any, receive: Any, send: Any) -> None:
    exchange = Exchange(scope, receive, send)
    await exchange.start(200, [])
    await exchange.write(b"one ")
    await exchange.finish(b"two")


def unix(path: Path) -> Address:
    return Address("", 0, str(path))


def play(address: Address, story: Callable[[Listener], Awaitable[None]]) -> None:
    async def run() -> None:
        listener = Listener(answers, address)
        listener.open(Supervisor())
        try:
            await story(listener)
        finally:
            await listener.close()

    asyncio.run(run())


async def asked(path: Path) -> bytes:
    reader, writer = await asyncio.open_unix_connection(path)
    writer.write(ASKED)
    answer = await asyncio.wait_for(reader.readuntil(b"ok"), 5)
    writer.close()
    return answer


def test_a_unix_socket_is_for_its_owner_and_group(tmp_path: Path) -> None:
    path = tmp_path / "s"

    async def story(listener: Listener) -> None:
        assert str(listener) == f"unix:{path}"
        assert stat.S_IMODE(path.stat().st_mode) == 0o660
        assert (await asked(path)).startswith(b"HTTP/1.1 200 OK")

    play(unix(path), story)
    assert not path.exists()


def test_a_socket_that_a_dead_process_left_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "s"
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(path))

    async def story(_: Listener) -> None:
        await asked(path)

    play(unix(path), story)


def test_a_socket_that_somebody_listens_on_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "s"

    async def story(_: Listener) -> None:
        with pytest.raises(OSError, match=f"can't listen on unix:{path}: Address already in use"):
            Listener(answers, unix(path)).open(Supervisor())
        await asked(path)

    play(unix(path), story)


def test_a_file_is_not_taken_for_a_socket(tmp_path: Path) -> None:
    path = tmp_path / "s"
    path.write_text("mine")
    with pytest.raises(OSError, match="Address already in use"):
        Listener(answers, unix(path)).open(Supervisor())
    assert path.read_text() == "mine"


@pytest.mark.parametrize(
    ("version", "ends"),
    [(b"1.0", b"\r\n\r\none two"), (b"1.1", b"4\r\none \r\n3\r\ntwo\r\n0\r\n\r\n")],
)
def test_only_who_knows_chunks_gets_them(tmp_path: Path, version: bytes, ends: bytes) -> None:
    async def run() -> bytes:
        listener = Listener(streams, unix(tmp_path / "s"))
        listener.open(Supervisor())
        reader, writer = await asyncio.open_unix_connection(tmp_path / "s")
        asked = ASKED.replace(b"1.1", version).replace(b"Host: localhost", b"Connection: close")
        writer.write(asked)
        answer = await asyncio.wait_for(reader.read(), 5)
        writer.close()
        await listener.close()
        return answer

    answer = asyncio.run(run())
    assert answer.endswith(ends)
    assert (b"chunked" in answer) is (version == b"1.1")


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_a_port_is_known_once_it_is_bound(host: str) -> None:
    async def story(listener: Listener) -> None:
        assert listener.port
        with pytest.raises(OSError, match="Address already in use"):
            Listener(answers, Address(host, listener.port)).open(Supervisor())

    play(Address(host, 0), story)


class Stalled:
    """An app whose answers wait: for the body, or for the client to read."""

    def __init__(self, *, reads: bool) -> None:
        self.reads = reads
        self.begun = asyncio.Event()
        self.ended = 0

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        exchange = Exchange(scope, receive, send)
        self.begun.set()
        try:
            if self.reads:
                async for _ in exchange.body():
                    pass
            await exchange.start(200, [])
            while True:
                await exchange.write(b"x" * 100_000)
        except (ClientGoneError, asyncio.CancelledError):
            self.ended += 1
            exchange.abort()


@pytest.mark.parametrize("reads", [True, False])
def test_what_does_not_end_is_cut_in_silence(
    caplog: pytest.LogCaptureFixture, tmp_path: Path, *, reads: bool
) -> None:
    app = Stalled(reads=reads)

    async def run() -> None:
        listener = Listener(app, unix(tmp_path / "s"), grace=1)
        listener.open(Supervisor())
        opened = [await asyncio.open_unix_connection(tmp_path / "s") for _ in range(3)]
        for _, writer in opened:
            writer.write(ASKED.replace(b"\r\n\r\n", b"\r\nContent-Length: 9\r\n\r\nbo"))
        await app.begun.wait()
        await listener.close()
        for _, writer in opened:
            writer.close()

    asyncio.run(run())
    assert app.ended == 3
    assert not any(record.exc_info for record in caplog.records)
