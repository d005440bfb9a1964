"""A scripted HTTP server on loopback, which sees bytes and answers with bytes."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from proxy.upstream.client import Client
from proxy.upstream.credentials import Credentials, load

Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"


class Server:
    """Counts connections and keeps the requests' heads; *handle* answers one request."""

    def __init__(self, handle: Handler) -> None:
        self.heads: list[str] = []
        self.connections = 0
        self._handle = handle
        self.port = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def first_lines(self) -> list[str]:
        return [head.partition("\r\n")[0] for head in self.heads]

    def headers(self, number: int = -1) -> dict[str, str]:
        """The headers of a request, names in lower case."""
        lines = self.heads[number].split("\r\n")[1:]
        return {
            name.lower(): value.strip()
            for name, _, value in (each.partition(":") for each in lines)
        }

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                self.heads.append(head.decode().strip())
                await self._handle(reader, writer)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()


def answering(answer: bytes) -> Handler:
    async def handle(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(answer)

    return handle


@asynccontextmanager
async def serving(handle: Handler) -> AsyncIterator[Server]:
    server = Server(handle)
    listening = await asyncio.start_server(server.serve, "127.0.0.1", 0)
    server.port = listening.sockets[0].getsockname()[1]
    try:
        yield server
    finally:
        listening.close()


@asynccontextmanager
async def client_of(kubeconfig: str) -> AsyncIterator[Client]:
    client = Client(await load(kubeconfig, None))
    try:
        yield client
    finally:
        await client.close()


async def credentials(kubeconfig: str) -> Credentials:
    return await load(kubeconfig, None)
