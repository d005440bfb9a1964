"""Passes writes on, once, and lets the cache know what they have changed before the client does."""

import time
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager

from proxy.cache.informers import Informers
from proxy.kube.envelope import Envelope, read_envelope
from proxy.kube.requests import Headers, Request, content_type_of, header_of
from proxy.upstream.budget import Budget
from proxy.upstream.client import Client, Response
from proxy.writes.attempt import read_attempt
from proxy.writes.conflicts import Conflicts
from proxy.writes.effects import Sent, effects
from proxy.writes.written import MAX_ANSWER, Written, chained, read_whole

MAX_BODY = 3 * 1024 * 1024
"""Bytes of a write that is looked at: kube-apiserver takes no more (``MaxRequestBodyBytes``)."""

MAX_BODIES = 32 * 1024 * 1024
"""Bytes of all writes that are held at once; what finds no room is passed on as it arrives."""


class Writer:
    """Sends writes to the API server through *client*, for reads from *informers*."""

    def __init__(
        self,
        client: Client,
        informers: Informers,
        conflicts: Conflicts,
        bodies: Budget,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._conflicts = conflicts
        self._bodies = bodies
        self._client = client
        self._informers = informers
        self._clock = clock

    @asynccontextmanager
    async def open(
        self, request: Request, headers: Headers, body: AsyncIterator[bytes] | None
    ) -> AsyncIterator[Written]:
        """Send a write and yield its answer; reads that begin then see what it has changed.

        One that is sure to conflict is not sent; conflicts of one that isn't held are left alone.
        """
        with self._bodies.share() as share:
            begun, ended = b"", True
            if body is not None:
                begun, ended = await read_whole(body, MAX_BODY, share)
            attempt = read_attempt(request, headers, begun) if ended and begun else None
            refusal = self._conflicts.refuse(attempt) if attempt else None
            if attempt is not None and refusal is not None:
                yield await self._conflicts.resolve(attempt, refusal, self._send)
                return
            rest = chained(begun, body) if body is not None else None
            async with self._send(request, headers, rest, begun) as written:
                if attempt is None or written.status != 409:
                    yield written
                else:
                    yield await self._conflicts.resolve(attempt, written, self._send)

    def _send(
        self,
        request: Request,
        headers: Headers,
        body: AsyncIterator[bytes] | None,
        begun: bytes = b"",
    ) -> AbstractAsyncContextManager[Written]:
        return self._acknowledged(
            request, begun, self._client.open(request.method, request.raw_target, headers, body)
        )

    @asynccontextmanager
    async def _acknowledged(
        self, request: Request, asked: bytes, opened: AbstractAsyncContextManager[Response]
    ) -> AsyncIterator[Written]:
        """Note what an answer says; a write without one isn't acknowledged to anybody."""
        sent = self._clock()
        async with opened as response:
            begun, ended = await read_whole(response.chunks, MAX_ANSWER)
            envelope = _envelope(response, begun) if ended else None
            write = Sent(request, response.status, envelope, sent, self._clock(), asked)
            for effect in effects(write):
                self._informers.acknowledge(*effect)
            chunks = chained(begun, response.chunks)
            yield Written(response.status, response.headers, chunks)


def _envelope(response: Response, body: bytes) -> Envelope | None:
    if header_of(response.headers, b"content-encoding"):
        return None
    return read_envelope(content_type_of(response.headers), body)
