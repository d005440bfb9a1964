"""Passes writes on, once, and lets the cache know what they have changed before the client does."""

import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import asynccontextmanager

from proxy.cache.informers import Informers
from proxy.kube.envelope import read_envelope
from proxy.kube.errors import ServiceUnavailable
from proxy.kube.requests import Headers, Request, header_of
from proxy.upstream.client import Client, Response
from proxy.writes.effects import Sent, effects

MAX_ANSWER = 4 * 1024 * 1024
"""Bytes of an answer that is read for what it says of the object; none is larger (etcd takes 1.5
MiB), only a list of what deletecollection has deleted."""


class Writer:
    """Sends writes to the API server through *client*, for reads from *informers*."""

    def __init__(
        self,
        client: Client,
        informers: Informers,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._client = client
        self._informers = informers
        self._clock = clock

    @asynccontextmanager
    async def open(
        self, request: Request, headers: Headers, body: AsyncIterator[bytes] | None
    ) -> AsyncIterator[Response]:
        """Send a write and yield its answer; reads that begin then see what it has changed."""
        sent = self._clock()
        answered = False
        try:
            async with self._client.open(
                request.method, request.raw_target, headers, body
            ) as response:
                begun, ended = await _read(response.chunks, MAX_ANSWER)
                self._acknowledge(request, response, begun if ended else None, sent)
                answered = True
                yield response._replace(chunks=_chained(begun, response.chunks))
        except ServiceUnavailable:  # nothing was sent
            raise
        except BaseException:
            if not answered:  # whether it has taken effect is unknown
                self._note(Sent(request, 504, None, sent, self._clock()))
            raise

    def _acknowledge(
        self, request: Request, response: Response, body: bytes | None, sent: float
    ) -> None:
        envelope = None
        if body is not None and not header_of(response.headers, b"content-encoding"):
            content_type = header_of(response.headers, b"content-type").decode("latin-1")
            envelope = read_envelope(content_type, body)
        self._note(Sent(request, response.status, envelope, sent, self._clock()))

    def _note(self, write: Sent) -> None:
        for effect in effects(write):
            self._informers.acknowledge(*effect)


async def _read(chunks: AsyncIterator[bytes], limit: int) -> tuple[bytes, bool]:
    """Read a body to its end, which it reaches if it isn't longer than *limit*."""
    parts: list[bytes] = []
    size = 0
    async for chunk in chunks:
        parts.append(chunk)
        size += len(chunk)
        if size > limit:
            return b"".join(parts), False
    return b"".join(parts), True


async def _chained(begun: bytes, rest: AsyncIterator[bytes]) -> AsyncGenerator[bytes, None]:
    if begun:
        yield begun
    async for chunk in rest:
        yield chunk
