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
from proxy.upstream.connection import CHUNK, Connection, TlsConnection, dial
from proxy.upstream.credentials import Credentials

_STATUS = re.compile(rb"HTTP/1\.[01] (\d{3})")
_STATUS_SIZE = len("HTTP/1.1 101")

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


async def connect(credentials: Credentials, *, own: bool) -> Connection:
    """Open a connection to the API server, as the proxy (*own*) or without its certificate.

    Raises ServiceUnavailable.
    """
    try:
        async with asyncio.timeout(CONNECT_TIMEOUT):
            return await _connect(
                credentials, credentials.ssl if own else credentials.ssl_anonymous
            )
    except (OSError, TimeoutError) as error:
        raise ServiceUnavailable(
            f"the API server can't be reached: {error}", retry_after=1
        ) from error


async def _connect(credentials: Credentials, context: ssl.SSLContext | None) -> Connection:
    server = urlsplit(credentials.server)
    host, secure = server.hostname or "", server.scheme == "https"
    connected = await dial(host, server.port or (443 if secure else 80))
    if not secure or context is None:
        return Connection(connected)
    connection = TlsConnection(connected, context, credentials.server_hostname or host)
    try:
        await connection.shake_hands()
    except BaseException:
        connection.close()
        raise
    return connection


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


async def splice(
    client: Streams, upstream: Connection, head: bytes, answered: Callable[[int], None]
) -> None:
    """Send the head of the request, then copy both directions until both have ended.

    *answered* is told the status of the API server's answer.
    """
    try:
        async with asyncio.TaskGroup() as group:
            group.create_task(_up(client[0], upstream, head), name="tunnel up")
            group.create_task(_down(upstream, client[1], answered), name="tunnel down")
    except* (OSError, RuntimeError):
        pass  # one side is gone, and with it the tunnel
    finally:
        upstream.close()
        client[1].close()


async def _up(client: asyncio.StreamReader, upstream: Connection, head: bytes) -> None:
    """Copy to the API server, as fast as it takes it.

    When it takes nothing more it may have spoken all the same. What the client says meanwhile is
    dropped: to close before it's read would reset the connection, and take along what is under way.
    """
    chunk, taken = head, True
    while chunk:
        if taken:
            try:
                await upstream.write(chunk)
            except OSError:
                taken = False
        chunk = await client.read(CHUNK)
    if taken:
        await upstream.end()


async def _down(
    upstream: Connection, client: asyncio.StreamWriter, answered: Callable[[int], None]
) -> None:
    """Copy to the client, as fast as it takes it, and look at the first line on the way."""
    begin = b""
    while chunk := await upstream.read():
        if len(begin) < _STATUS_SIZE:
            begin += chunk[:_STATUS_SIZE]
            if found := _STATUS.match(begin):
                answered(int(found[1]))
        client.write(chunk)
        await client.drain()
    client.write_eof()
