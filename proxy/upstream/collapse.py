"""Collapse: identical reads that arrive while one is in flight share the next one's answer.

Nobody gets the answer to a request that was sent before he asked, so reads stay linearizable.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager, suppress
from copy import copy
from typing import NamedTuple, Protocol

from proxy.kube.errors import ApiError
from proxy.kube.paths import ResourcePath
from proxy.kube.requests import Headers
from proxy.upstream.budget import Budget, Share
from proxy.upstream.client import Response

MAX_SHARED = 8 * 1024 * 1024
"""Bytes of an answer that is read whole for several; a larger one everybody gets by himself."""

MAX_HELD = 64 * 1024 * 1024
"""Bytes of all answers that are held at once, each until the slowest who shares it has read it.
What finds no room everybody gets by himself, too."""

PATIENCE = 5.0
"""Seconds until the next read is sent beside one that has got no answer yet: a stuck connection
must not hold up all who ask after it. kube-apiserver lets reads wait for 3 s at most."""

# Whatever else is sent upstream may change the answer, or who may have it.
_MEANINGLESS = frozenset({b"audit-id", b"traceparent", b"tracestate", b"x-request-id"})
PLAIN_SUBRESOURCES = frozenset({"", "scale", "status"})
"""Subresources that are read as objects are; those of other APIs may stream, or have effects."""

_Key = tuple[str, tuple[tuple[bytes, bytes], ...]]


class Opener(Protocol):
    """What sends the reads (``upstream.client.Client``)."""

    def open(
        self, method: str, target: str, headers: Headers = ..., /
    ) -> AbstractAsyncContextManager[Response]:
        """Send a request and yield its answer. Raises ApiError."""


class _Whole(NamedTuple):
    status: int
    headers: Headers
    chunks: tuple[bytes, ...]


class _Outcome(NamedTuple):
    """What came of a shared read: an answer, an error, or neither for what finds no room."""

    whole: _Whole | None = None
    error: ApiError | None = None


class _Read:
    """A read that is in flight, or will be when the one *after* which it comes is answered.

    ``answered`` is set when an answer to it has begun, or it has failed. Without *after* it has
    been sent. ``joined`` counts those who wait for its outcome or read it; *share* is what of the
    budget it has taken for them.
    """

    def __init__(self, share: Share, after: "_Read | None" = None) -> None:
        self.share = share
        self.after = after
        self.answered = asyncio.Event()
        self.joined = 0
        self.task: asyncio.Task[_Outcome] | None = None


class Collapse:
    """Sends reads, of each kind one at a time. A kind is a target and headers that matter."""

    def __init__(self, client: Opener, budget: Budget) -> None:
        self._client = client
        self._last: dict[_Key, _Read] = {}
        self._budget = budget

    def __len__(self) -> int:
        """How many kinds of reads are in flight."""
        return len(self._last)

    @staticmethod
    def covers(target: ResourcePath, headers: Headers) -> bool:
        """Tell whether a GET without a body that isn't a watch may share its answer."""
        partial = any(name == b"range" or name.startswith(b"if-") for name, _ in headers)
        return target.subresource in PLAIN_SUBRESOURCES and not partial

    @asynccontextmanager
    async def open(
        self, target: str, headers: Headers, admit: Callable[[], None]
    ) -> AsyncIterator[Response]:
        """Yield the answer to a GET; ``collapsed`` when it was sent for another.

        *admit* is called before a request is sent for this one, and may raise. Raises ApiError.
        """
        key = _key(target, headers)
        last = self._last.get(key)
        if last is None:
            admit()
            async with self._first(key, headers) as response:
                yield response
            return
        joins = last.after is not None  # it hasn't been sent yet
        if not joins:
            admit()
            last = self._next(key, headers, last)
        async with self._joined(key, last) as whole:
            if whole is not None:
                # Closed here, it lets go of the answer whoever may still know it.
                async with aclosing(_replayed(whole.chunks)) as chunks:
                    yield Response(whole.status, whole.headers, chunks, joins)
                return
        if joins:
            admit()
        async with self._client.open("GET", target, headers) as response:
            yield response

    @asynccontextmanager
    async def _first(self, key: _Key, headers: Headers) -> AsyncIterator[Response]:
        """Pass a read through, unbuffered; others wait until its answer has begun."""
        read = self._last[key] = _Read(Share(self._budget))
        try:
            async with self._client.open("GET", key[0], headers) as response:
                self._settle(key, read)
                yield response
        finally:
            self._settle(key, read)

    def _next(self, key: _Key, headers: Headers, after: _Read) -> _Read:
        read = self._last[key] = _Read(Share(self._budget), after)
        read.task = asyncio.create_task(self._shared(key, headers, read), name=f"shared {key[0]}")
        return read

    async def _shared(self, key: _Key, headers: Headers, read: _Read) -> _Outcome:
        """Wait for a read's turn, and read its answer whole."""
        assert read.after
        with suppress(TimeoutError):
            async with asyncio.timeout(PATIENCE):
                await read.after.answered.wait()
        read.after = None  # whoever asks from now on was not there when it was sent
        try:
            async with self._client.open("GET", key[0], headers) as response:
                self._settle(key, read)
                return _Outcome(await _whole(response, read.share))
        except ApiError as error:
            return _Outcome(error=copy(error))  # that one knows all frames that it went through
        finally:
            self._settle(key, read)

    @asynccontextmanager
    async def _joined(self, key: _Key, read: _Read) -> AsyncIterator[_Whole | None]:
        """Wait for a shared read, and hold its answer.

        It belongs to nobody: it's cancelled, or dropped, when all have left.
        """
        assert read.task
        read.joined += 1
        try:
            await asyncio.wait({read.task})
            outcome = read.task.result()
            if outcome.error is not None:
                raise copy(outcome.error)  # one for all would collect everybody's frames
            yield outcome.whole
        finally:
            read.joined -= 1
            if not read.joined:
                self._abandon(key, read)

    def _abandon(self, key: _Key, read: _Read) -> None:
        assert read.task
        read.share.give_back()
        if not read.task.done():
            read.task.cancel()
            self._settle(key, read)

    def _settle(self, key: _Key, read: _Read) -> None:
        """Let the next one be sent, or whoever comes next; one that was not sent steps back."""
        read.answered.set()
        if self._last.get(key) is not read:
            return
        if read.after is not None and not read.after.answered.is_set():
            self._last[key] = read.after
        else:
            del self._last[key]


def _key(target: str, headers: Headers) -> _Key:
    """The order of headers matters among those of one name."""
    kept = (pair for pair in headers if pair[0] not in _MEANINGLESS)
    return target, tuple(sorted(kept, key=lambda pair: pair[0]))


async def _whole(response: Response, share: Share) -> _Whole | None:
    """Read an answer to its end; None when it's too large to be kept for several."""
    chunks: list[bytes] = []
    size = 0
    try:
        async for chunk in response.chunks:
            size += len(chunk)
            if size > MAX_SHARED or not share.take(len(chunk)):
                share.give_back()
                return None
            chunks.append(chunk)
        return _Whole(response.status, response.headers, tuple(chunks))
    finally:
        chunks.clear()  # an error that ends this knows the frame, and the library keeps the error


async def _replayed(chunks: tuple[bytes, ...]) -> AsyncGenerator[bytes, None]:
    for chunk in chunks:
        yield chunk
        await asyncio.sleep(0)  # a fast client would not let others have a turn
