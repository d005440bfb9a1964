"""Passes writes on, once, and lets the cache know what they have changed before the client does."""

import time
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager

from proxy.cache.informers import Informers
from proxy.kube.envelope import read_envelope
from proxy.kube.requests import Headers, Request, header_of
from proxy.upstream.client import Client, Response
from proxy.writes.attempt import read_attempt
from proxy.writes.conflicts import Conflicts
from proxy.writes.effects import Sent, effects
from proxy.writes.written import Written, chained, read_whole

MAX_BODY = 3 * 1024 * 1024
"""Bytes of a write that is looked at: kube-apiserver takes no more (``MaxRequestBodyBytes``)."""

MAX_ANSWER = 4 * 1024 * 1024
"""Bytes of an answer that is read for what it says of the object; none is larger (etcd takes 1.5
MiB), only a list of what deletecollection has deleted."""


class Writer:
    """Sends writes to the API server through *client*, for reads from *informers*."""

    def __init__(
        self,
        client: Client,
        informers: Informers,
        conflicts: Conflicts,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.conflicts = conflicts
        self._client = client
        self._informers = informers
        self._clock = clock

    @asynccontextmanager
    async def open(
        self, request: Request, headers: Headers, body: AsyncIterator[bytes] | None
    ) -> AsyncIterator[Written]:
        """Send a write and yield its answer; reads that begin then see what it has changed.

        One that is sure to conflict is not sent.
        """
        begun, ended = await read_whole(body, MAX_BODY) if body is not None else (b"", True)
        attempt = read_attempt(request, headers, begun) if ended and begun else None
        refusal = self.conflicts.refuse(attempt) if attempt else None
        if attempt is not None and refusal is not None:
            yield await self.conflicts.resolve(attempt, refusal, self._send)
            return
        rest = chained(begun, body) if body is not None else None
        async with self._send(request, headers, rest, begun) as written:
            if attempt is None or written.status != 409:
                yield written
            else:
                yield await self.conflicts.resolve(attempt, written, self._send)

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
        write = Sent(request, 0, None, self._clock(), 0.0, asked)
        async with opened as response:
            begun, ended = await read_whole(response.chunks, MAX_ANSWER)
            self._acknowledge(write, response, begun if ended else None)
            chunks = chained(begun, response.chunks)
            yield Written(response.status, response.headers, chunks)

    def _acknowledge(self, write: Sent, response: Response, body: bytes | None) -> None:
        envelope = None
        if body is not None and not header_of(response.headers, b"content-encoding"):
            content_type = header_of(response.headers, b"content-type").decode("latin-1")
            envelope = read_envelope(content_type, body)
        arrived = self._clock()
        self._note(write._replace(status=response.status, envelope=envelope, arrived=arrived))

    def _note(self, write: Sent) -> None:
        for effect in effects(write):
            self._informers.acknowledge(*effect)
