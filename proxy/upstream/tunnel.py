"""Raw byte tunnels for requests that upgrade: exec, attach, port-forward, WebSocket watches.

The request goes upstream as it came, then both directions are copied until both have ended.
"""

import asyncio
import re
import ssl
from collections.abc import Callable
from urllib.parse import urlsplit

from proxy.kube.errors import ServiceUnavailable
from proxy.kube.requests import Headers, header_of
from proxy.upstream.client import CONNECT_TIMEOUT
from proxy.upstream.credentials import Credentials

_CHUNK = 64 * 1024
_STATUS = re.compile(rb"HTTP/1\.[01] (\d{3})")

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


async def connect(credentials: Credentials, *, own: bool) -> Streams:
    """Open a connection to the API server, as the proxy (*own*) or without its certificate.

    Raises ServiceUnavailable.
    """
    server = urlsplit(credentials.server)
    secure = server.scheme == "https"
    context = credentials.ssl if own else credentials.ssl_anonymous
    try:
        async with asyncio.timeout(CONNECT_TIMEOUT):
            return await asyncio.open_connection(
                server.hostname,
                server.port or (443 if secure else 80),
                ssl=context,
                server_hostname=(credentials.server_hostname or server.hostname)
                if secure
                else None,
                limit=_CHUNK,
            )
    except (OSError, TimeoutError, ssl.SSLError) as error:
        raise ServiceUnavailable(
            f"the API server can't be reached: {error}", retry_after=1
        ) from error


def request_head(
    credentials: Credentials, method: str, target: str, headers: Headers, authorization: str
) -> bytes:
    """Encode the request line and the headers.

    ``Connection`` gains "close": an answer other than 101 then ends with the connection, so that
    nothing can follow it through the tunnel.
    """
    base = urlsplit(credentials.server)
    kept = [(name, value) for name, value in headers if name not in (b"host", b"connection")]
    # It has been held against a Host that the API server is not called by, and may not be missing.
    origin = f"{base.scheme}://{base.netloc}".encode()
    kept = [(name, origin if name == b"origin" else value) for name, value in kept]
    kept += [(b"host", base.netloc.encode()), (b"connection", b"Upgrade, close")]
    if authorization:
        kept.append((b"authorization", authorization.encode()))
    line = f"{method} {base.path}{target} HTTP/1.1\r\n".encode("latin-1")
    return line + b"".join(b"%s: %s\r\n" % pair for pair in kept) + b"\r\n"


def shows_token(headers: Headers) -> bool:
    """Tell whether a WebSocket client shows who it is as browsers do, by a subprotocol.

    The prefix is kube-apiserver's (``authentication/request/websocket``), which looks for it
    whatever is asked.
    """
    return header_of(headers, b"upgrade").lower() == b"websocket" and any(
        name == b"sec-websocket-protocol" and b"base64url.bearer.authorization.k8s.io." in value
        for name, value in headers
    )


async def splice(client: Streams, upstream: Streams, answered: Callable[[int], None]) -> None:
    """Copy both directions until both have ended; a broken one ends the other.

    *answered* is told the status of the API server's answer.
    """

    async def down() -> None:
        first = await upstream[0].read(_CHUNK)
        if found := _STATUS.match(first):
            answered(int(found[1]))
        client[1].write(first)
        await _copy(upstream[0], client[1])

    try:
        async with asyncio.TaskGroup() as group:
            group.create_task(_copy(client[0], upstream[1]), name="tunnel up")
            group.create_task(down(), name="tunnel down")
    except* (OSError, RuntimeError):
        pass  # one side is gone, and with it the tunnel
    finally:
        for _, writer in (client, upstream):
            writer.close()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Copy with backpressure, then pass the end on; TLS can't be half closed, so it's closed."""
    while chunk := await reader.read(_CHUNK):
        writer.write(chunk)
        await writer.drain()
    if writer.can_write_eof():
        writer.write_eof()
    else:
        writer.close()
