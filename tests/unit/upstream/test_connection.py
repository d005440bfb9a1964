"""Connections of tunnels, plain and with TLS: half closed, and read to the end."""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from proxy.upstream.connection import Connection, TlsConnection, dial
from tests.harness.certificate import CERTIFICATE, KEY

SIZE = 3_000_000
Pair = Callable[[Connection, Connection], Awaitable[None]]


class ServersTls(TlsConnection):
    """The other side of TLS."""

    def __init__(self, connected: socket.socket, context: ssl.SSLContext) -> None:
        super().__init__(connected, ssl.create_default_context(), "localhost")
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_side=True)


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    """The certificate and its key."""
    paths = tmp_path / "certificate", tmp_path / "key"
    for path, text in zip(paths, (CERTIFICATE, KEY), strict=True):
        path.write_text(text)
    return paths


@asynccontextmanager
async def pair(files: tuple[Path, Path], *, secure: bool) -> AsyncIterator[list[Connection]]:
    """A connection as a tunnel makes it, and its other side."""
    loop = asyncio.get_running_loop()
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.setblocking(False)
        near = await dial("localhost", listening.getsockname()[1])
        far, _ = await loop.sock_accept(listening)
    far.setblocking(False)
    if secure:
        trusting = ssl.create_default_context(cafile=files[0])
        serving = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        serving.load_cert_chain(*files)
        sides = [TlsConnection(near, trusting, "localhost"), ServersTls(far, serving)]
        await asyncio.gather(*(side.shake_hands() for side in sides))
    try:
        yield [*sides] if secure else [Connection(near), Connection(far)]
    finally:
        near.close()
        far.close()


def played(files: tuple[Path, Path], *, secure: bool, story: Pair) -> None:
    async def play() -> None:
        async with asyncio.timeout(10), pair(files, secure=secure) as (near, far):
            await story(near, far)

    asyncio.run(play())


async def whole(connection: Connection) -> bytes:
    """All that is said until the end."""
    said = bytearray()
    while part := await connection.read():
        said += part
    return bytes(said)


both = pytest.mark.parametrize("secure", [False, True], ids=["plain", "tls"])


@both
def test_bytes_go_both_ways_at_once(files: tuple[Path, Path], *, secure: bool) -> None:
    said = os.urandom(SIZE), os.urandom(SIZE)

    async def speak(connection: Connection, words: bytes) -> None:
        await connection.write(words)
        await connection.end()

    async def story(near: Connection, far: Connection) -> None:
        _, _, *heard = await asyncio.gather(
            speak(near, said[0]), speak(far, said[1]), whole(far), whole(near)
        )
        assert tuple(heard) == said

    played(files, secure=secure, story=story)


@both
@pytest.mark.parametrize("turned", [False, True], ids=["near", "far"])
def test_who_has_ended_still_hears(files: tuple[Path, Path], *, secure: bool, turned: bool) -> None:
    async def story(near: Connection, far: Connection) -> None:
        first, last = (far, near) if turned else (near, far)
        await last.write(b"meanwhile")
        await first.write(b"bye")
        await first.end()
        assert await whole(last) == b"bye"
        heard = asyncio.create_task(whole(first))
        await last.write(bytes(SIZE))
        await last.end()
        assert await heard == b"meanwhile" + bytes(SIZE)

    played(files, secure=secure, story=story)


@both
def test_what_was_said_is_heard_after_a_write_fails(
    files: tuple[Path, Path], *, secure: bool
) -> None:
    """The other side closes without having read all, which resets the connection."""

    async def story(near: Connection, far: Connection) -> None:
        await near.write(b"never read")
        await far.write(bytes(60_000))
        far.close()
        with pytest.raises(OSError, match=r"reset|pipe"):
            await _insist(near)
        heard = b""
        while len(heard) < 60_000:
            heard += await near.read()
        assert heard == bytes(60_000)

    played(files, secure=secure, story=story)


async def _insist(connection: Connection) -> None:
    while True:
        await connection.write(b"more")
        await asyncio.sleep(0.01)


@both
def test_a_side_that_is_cut_has_ended(files: tuple[Path, Path], *, secure: bool) -> None:
    """Without TLS's own goodbye."""

    async def story(near: Connection, far: Connection) -> None:
        await far.write(b"bye")
        far.close()
        assert await whole(near) == b"bye"

    played(files, secure=secure, story=story)


@both
def test_who_reads_nothing_slows_the_writer(files: tuple[Path, Path], *, secure: bool) -> None:
    async def story(near: Connection, _: Connection) -> None:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.5):
                await near.write(bytes(50_000_000))

    played(files, secure=secure, story=story)


def test_nobody_listens() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
    with pytest.raises(OSError, match="Connect"):
        asyncio.run(dial("127.0.0.1", port))
