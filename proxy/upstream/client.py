"""The door to the API server: one pool of connections, bytes untouched in both directions.

Nothing is decompressed, redirected or retried here, and library errors leave as API errors.
"""

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Sequence
from contextlib import ExitStack, asynccontextmanager, contextmanager
from math import inf
from typing import Any, NamedTuple

import aiohttp
from multidict import CIMultiDict
from yarl import URL

from proxy.kube.envelope import read_error
from proxy.kube.errors import ApiError, BadRequest, ServiceUnavailable, Timeout
from proxy.kube.negotiation import JSON
from proxy.kube.requests import Headers
from proxy.upstream.credentials import Credentials
from proxy.upstream.framing import Framer, LineFramer

CONNECT_TIMEOUT = 10.0
"""Seconds for TCP and TLS, as many as client-go gives TLS (``TLSHandshakeTimeout``). Of 1,500
connections that two cores begin at once, the last are made after more than 5."""

SILENCE = 3.0
"""Seconds without any answer after which the API server counts as silent. Then a connection has no
more than these: who waits for one is better told, and the first answer ends it."""

FORGET = 60.0
"""Seconds after which a failure says no more about how the API server is now."""

READ_TIMEOUT = 65.0
"""Seconds without a byte of an answer. The API server ends ordinary requests after 60 s
(``--request-timeout``), so a longer silence is a stuck one."""

KEEPALIVE = 30.0
"""Seconds an idle connection is kept; kube-apiserver would keep it longer (HTTP/1.1: 3 min)."""

BATCH = 64
"""Frames of a watch handed over at a time: about a millisecond of decoding."""

BUFFER = 256 * 1024
"""Bytes read ahead of a slow client, per connection."""

# 1.37 compresses WatchLists in one gzip member per flush, which many decoders misread.
_PLAIN = (b"Accept-Encoding", b"identity")
# What is learnt of the API server must not come from another cache on the way.
_LIVE = (b"Cache-Control", b"no-cache")


class Response(NamedTuple):
    """An answer whose body is still to come; *collapsed*: it was sent for another request."""

    status: int
    headers: Headers
    chunks: AsyncIterator[bytes]
    collapsed: bool = False

    async def body(self) -> bytes:
        """Read the body to its end."""
        return b"".join([chunk async for chunk in self.chunks])


class _Connector(aiohttp.TCPConnector):
    """Lets the event loop make its own sockets.

    aiohttp makes them and hands them over. When TLS fails on such a one, uvloop goes on using a
    file descriptor that Python closes, and that soon is somebody else's connection (uvloop 653).
    """

    async def _wrap_create_connection(
        self, *args: Any, addr_infos: list[tuple[Any, ...]], **kwargs: Any
    ) -> tuple[asyncio.Transport, Any]:
        host, port, *_ = addr_infos[0][4]
        return await self._wrap_existing_connection(*args, host=host, port=port, **kwargs)


class Silence:
    """Since when the API server leaves unanswered whatever it's asked.

    A request that its client gives up says nothing; one that has failed does, for FORGET seconds.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._open = 0
        self._since = inf
        self._failed = -inf

    @property
    def seconds(self) -> float:
        """For how long; 0 while nothing is asked, and nothing has failed lately."""
        return max(self._clock() - self._since, 0.0) if self._counts else 0.0

    @property
    def _counts(self) -> bool:
        return self._open > 0 or self._clock() - self._failed < FORGET

    @contextmanager
    def asked(self) -> Iterator[Callable[[], None]]:
        """Note a request; what it yields is called when that is answered."""
        self._since = min(self._since, self._clock()) if self._counts else self._clock()
        self._open += 1
        waiting = ExitStack()
        waiting.callback(self._end)

        def answered() -> None:
            waiting.close()
            self._since, self._failed = inf, -inf

        with waiting:
            try:
                yield answered
            except (TimeoutError, aiohttp.ClientError, OSError):
                self._failed = self._clock()
                raise

    def _end(self) -> None:
        self._open -= 1


class Client:
    """Sends requests to one API server; ``close`` ends its connections."""

    def __init__(
        self, credentials: Credentials, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.credentials = credentials
        self._silence = Silence(clock)
        self._session = aiohttp.ClientSession(
            connector=_Connector(limit=0, keepalive_timeout=KEEPALIVE),
            auto_decompress=False,
            cookie_jar=aiohttp.DummyCookieJar(),
            read_bufsize=BUFFER,
            max_line_size=64 * 1024,
            max_field_size=64 * 1024,
            skip_auto_headers=("User-Agent", "Accept", "Accept-Encoding", "Content-Type"),
        )
        # aiohttp sends a PUT or DELETE again when a pooled connection breaks: a write would be
        # repeated, its body lost. There is no public switch.
        self._session._retry_connection = False

    @property
    def connect_timeout(self) -> float:
        """Seconds that a connection may take now."""
        return SILENCE if self._silence.seconds >= SILENCE else CONNECT_TIMEOUT

    async def close(self) -> None:
        """Close all connections."""
        await self._session.close()

    @asynccontextmanager
    async def open(
        self,
        method: str,
        target: str,
        headers: Headers = (),
        body: AsyncIterator[bytes] | None = None,
        *,
        read_timeout: float | None = READ_TIMEOUT,
    ) -> AsyncIterator[Response]:
        """Send a request and yield its answer; *target* is a raw path and query.

        Without an Authorization header the proxy's own credentials are used. Raises
        ServiceUnavailable when nothing was sent or was only to be read, Timeout when the outcome is
        unknown; both also while the body is read.
        """
        values = _texts(headers)
        if body is None:
            values.popall("Content-Length", None)  # or the next request would be taken for it
        ssl = self.credentials.ssl_anonymous
        if "authorization" not in values:
            ssl = self.credentials.ssl
            if own := await self.credentials.authorization():
                values["Authorization"] = own
        timeout = aiohttp.ClientTimeout(
            total=None, sock_connect=self.connect_timeout, sock_read=read_timeout
        )
        with _translated(method), self._silence.asked() as answered:
            async with self._session.request(
                method,
                URL(self.credentials.server + target, encoded=True),
                headers=values,
                data=body,
                allow_redirects=False,
                timeout=timeout,
                ssl=ssl or False,
                server_hostname=self.credentials.server_hostname,
                proxy=self.credentials.proxy,
            ) as response:
                answered()
                yield Response(response.status, response.raw_headers, response.content.iter_any())

    async def get(self, target: str, accept: str = JSON) -> bytes:
        """Get a body whole. Raises ApiError for anything but 200."""
        return (await self.fetch(target, accept))[1]

    async def fetch(self, target: str, accept: str = JSON) -> tuple[Headers, bytes]:
        """Get a body whole, and the headers. Raises ApiError for anything but 200."""
        headers = ((b"Accept", accept.encode()), _PLAIN, _LIVE)
        async with self.open("GET", target, headers) as response:
            body = await response.body()
        if response.status != 200:
            raise read_error(response.status, body)
        return response.headers, body

    async def frames(
        self,
        target: str,
        accept: str = JSON,
        framer: Callable[[], Framer] = LineFramer,
        *,
        live: bool = False,
    ) -> AsyncGenerator[Sequence[bytes], None]:
        """Watch: yield frames as they arrive, an empty batch first, when the watch is accepted.

        *live* asks for the API server's own events, whatever cache there is on the way. Raises
        ApiError for a refusal, ServiceUnavailable when the stream breaks.
        """
        headers = ((b"Accept", accept.encode()), _PLAIN, *((_LIVE,) if live else ()))
        async with self.open("GET", target, headers, read_timeout=None) as response:
            if response.status != 200:
                raise read_error(response.status, await response.body())
            yield []
            cutting = framer()
            async for chunk in response.chunks:
                frames = cutting.feed(chunk)
                for start in range(0, len(frames), BATCH):
                    yield frames[start : start + BATCH]
            if not cutting.is_empty:
                raise ServiceUnavailable("the watch ended in the middle of an event")


def _texts(headers: Headers) -> CIMultiDict[str]:
    """Decode headers as the library will encode them. Raises BadRequest for what it can't."""
    try:
        return CIMultiDict((name.decode(), value.decode()) for name, value in headers)
    except UnicodeDecodeError as error:
        raise BadRequest("a header is neither ASCII nor UTF-8") from error


@contextmanager
def _translated(method: str) -> Iterator[None]:
    """Turn the library's errors into API errors, by whether the request may have had an effect."""
    try:
        yield
    except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError) as error:
        reason = getattr(error, "strerror", None) or error
        raise ServiceUnavailable(
            f"the API server can't be reached: {reason}", retry_after=1
        ) from error
    except (TimeoutError, aiohttp.ClientError, ConnectionError) as error:
        if isinstance(error.__cause__, ApiError):  # of whoever sends the body
            raise error.__cause__ from None
        raise _broken(method, error) from error


def _broken(method: str, error: Exception) -> ApiError:
    what = "did not answer in time" if isinstance(error, TimeoutError) else "closed the connection"
    if method in ("GET", "HEAD", "OPTIONS"):
        return ServiceUnavailable(f"the API server {what}", retry_after=1)
    return Timeout(f"the API server {what}: the request may or may not have taken effect")
