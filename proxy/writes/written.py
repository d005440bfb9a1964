"""The answer to a write, and bodies that are read before it's known what becomes of them."""

from collections.abc import AsyncGenerator, AsyncIterator
from typing import NamedTuple

from proxy.kube.requests import Headers
from proxy.upstream.budget import Share

MAX_ANSWER = 4 * 1024 * 1024
"""Bytes of an answer that is read for what it says of the object; none is larger (etcd takes 1.5
MiB), only a list of what deletecollection has deleted."""

_FRAMING = frozenset({b"content-length", b"transfer-encoding"})


class Written(NamedTuple):
    """An answer; *is_local*: the API server was not asked."""

    status: int
    headers: Headers
    chunks: AsyncIterator[bytes]
    is_local: bool = False


def framed(headers: Headers, body: bytes) -> Headers:
    """The headers of a message whose body is another one now."""
    kept = [pair for pair in headers if pair[0].lower() not in _FRAMING]
    return [*kept, (b"content-length", b"%d" % len(body))]


async def read_whole(
    chunks: AsyncIterator[bytes], limit: int, share: Share | None = None
) -> tuple[bytes, bool]:
    """Read a body to its end, which it reaches if it isn't longer than *limit*.

    With a *share* of a budget no further than there is room for it, and one chunk.
    """
    begun = bytearray()  # a list of chunks would cost many times their size if they are tiny
    async for chunk in chunks:
        begun += chunk
        if len(begun) > limit or not (share is None or share.take(len(chunk))):
            return bytes(begun), False
    return bytes(begun), True


async def chained(begun: bytes, rest: AsyncIterator[bytes]) -> AsyncGenerator[bytes, None]:
    """Iterate a body anew that was read in part, or to its end."""
    if begun:
        yield begun
    async for chunk in rest:
        yield chunk


async def whole(body: bytes) -> AsyncGenerator[bytes, None]:
    """Iterate a body that is there."""
    yield body
