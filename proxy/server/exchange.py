"""One HTTP exchange in ASGI terms: body in, answer out, and a client that may leave."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, MutableMapping
from math import inf
from typing import Any

from proxy.kube.errors import ApiError, RequestTimeout
from proxy.kube.requests import Headers
from proxy.server.door import CONNECTION
from proxy.server.protocol import Protocol

BODY_TIMEOUT = 60.0
"""Seconds that a body may take to arrive: the API server gives a whole request no more
(``--request-timeout``)."""

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]


class ClientGoneError(Exception):
    """The client closed the connection."""


class SlowClientError(ClientGoneError):
    """The client did not read for too long."""


class Exchange:
    """Reads the request's body and sends the answer; ``status`` is 0 until that has begun.

    ``source`` and ``is_watch`` are what the request is counted as.
    """

    def __init__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.headers: Headers = scope["headers"]
        self.status = 0
        self.is_watch = False
        self.source = "cache"
        extension = scope["extensions"][CONNECTION]
        self.connection: Protocol = extension["protocol"]
        self.wants_upgrade: bool = extension["upgrade"]
        self.begun: object = extension["begun"]
        self._is_old = scope["http_version"] == "1.0"
        self._ends_with_connection = False
        self._receive = receive
        self._send = send
        self._body_read = asyncio.Event()

    async def body(self, within: float | None = BODY_TIMEOUT) -> AsyncIterator[bytes]:
        """Yield the request's body as it arrives, for so many seconds; None for one that streams.

        Raises ClientGoneError when it breaks off, and RequestTimeout.
        """
        deadline = None if within is None else asyncio.get_running_loop().time() + within
        while not self._body_read.is_set():
            message = await self._received(deadline)
            if message["type"] == "http.disconnect":
                raise ClientGoneError
            if not message.get("more_body", False):
                self._body_read.set()
            if chunk := message.get("body", b""):
                yield chunk

    async def _received(self, deadline: float | None) -> Message:
        try:
            async with asyncio.timeout_at(deadline):
                return await self._receive()
        except TimeoutError:
            raise RequestTimeout("the body of the request did not arrive in time") from None

    def skip_body(self) -> None:
        """Declare that nobody will ask for the body."""
        self._body_read.set()

    async def start(self, status: int, headers: Headers) -> None:
        """Send the status and the headers."""
        self.status = status
        if self._is_old and not any(name == b"content-length" for name, _ in headers):
            self._ends_with_connection = True
            self.connection.expect(inf)
        await self._sent(
            {"type": "http.response.start", "status": status, "headers": list(headers)}
        )

    async def write(self, part: bytes) -> None:
        """Send a part of the body."""
        await self._sent({"type": "http.response.body", "body": part, "more_body": True})

    async def finish(self, part: bytes = b"") -> None:
        """Send the last part of the body."""
        if self._ends_with_connection:
            self.connection.expect(len(part))
        await self._sent({"type": "http.response.body", "body": part, "more_body": False})

    async def _sent(self, message: Message) -> None:
        """Send; waits while the client is slow, until it's cut. Raises ClientGoneError."""
        if self.connection.is_closing:
            raise self._leaving()
        await self._send(message)

    def _leaving(self) -> ClientGoneError:
        return SlowClientError() if self.connection.is_slow else ClientGoneError()

    def abort(self) -> None:
        """Close the connection at once, so that the client sees the answer break off."""
        self.connection.abort()

    async def fail(self, error: ApiError, headers: Headers) -> None:
        """Answer with a Status; one that has begun already breaks off."""
        if self.status:
            self.abort()
            return
        body = error.status_body()
        own = [
            (b"content-type", b"application/json"),
            (b"cache-control", b"no-cache, private"),
            (b"content-length", b"%d" % len(body)),
            *headers,
        ]
        if isinstance(error, RequestTimeout):  # what else arrives would be the rest of its body
            own.append((b"connection", b"close"))
        if error.retry_after is not None:
            own.append((b"retry-after", b"%d" % error.retry_after))
        await self.start(error.code, own)
        await self.finish(body)

    async def unless_gone(
        self, work: Coroutine[Any, Any, None], until: asyncio.Event | None = None
    ) -> bool:
        """Do *work*, but stop when the client leaves (ClientGoneError) or *until* is set.

        Returns whether the work came to its end.
        """
        gone = asyncio.create_task(self._gone(), name="client gone")
        finished = await race(work, gone, until)
        if not finished and not gone.cancelled():
            raise self._leaving()
        return finished

    async def _gone(self) -> None:
        """Wait for the end of the connection; the body belongs to whoever reads it."""
        await self._body_read.wait()
        while (await self._receive())["type"] != "http.disconnect":
            pass


async def race(
    work: Coroutine[Any, Any, None], gone: asyncio.Task[None] | None, until: asyncio.Event | None
) -> bool:
    """Do *work* until *gone* ends or *until* is set; whatever is not done then is cancelled.

    Returns whether the work came to its end; its errors are raised.
    """
    task = asyncio.create_task(work, name="exchange")
    drained = asyncio.create_task(until.wait(), name="drain") if until is not None else None
    racers = [each for each in (task, gone, drained) if each is not None]
    try:
        await asyncio.wait(racers, return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            await task
            return True
        return False
    finally:
        for each in racers:
            each.cancel()
        await asyncio.gather(*racers, return_exceptions=True)
        # What a task has raised holds this frame: were the task held here, both and all that the
        # work held would stay until a garbage collection, which is rare.
        del task, racers, each
