"""A connection to the API server for a tunnel: it can be half closed, with TLS as well, and be read
to its end after it has taken its last byte.

asyncio's transports can do neither: one that fails to write drops all that it hasn't read yet, and
a server that closes first, as kube-apiserver does, makes a client's next write fail.
"""

import asyncio
import socket
import ssl
from contextlib import suppress

CHUNK = 64 * 1024
"""Bytes read at a time, and all that a tunnel holds of a direction besides the sockets' buffers."""

# A peer that vanished is noticed after four minutes; Go's clients take as long.
_KEEPALIVE = {"TCP_KEEPIDLE": 30, "TCP_KEEPINTVL": 30, "TCP_KEEPCNT": 7}


class Connection:
    """Bytes both ways over a connected socket that doesn't block; one reader and one writer."""

    def __init__(self, connected: socket.socket) -> None:
        self._socket = connected
        self._loop = asyncio.get_running_loop()

    async def read(self) -> bytes:
        """Read what there is; nothing at the end. Raises OSError."""
        return await self._loop.sock_recv(self._socket, CHUNK)

    async def write(self, data: bytes) -> None:
        """Write all, as fast as it's taken. Raises OSError."""
        await self._loop.sock_sendall(self._socket, data)

    async def end(self) -> None:
        """Tell that nothing more will be written. Raises OSError."""
        self._socket.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        """Close it; nobody may be reading or writing any more."""
        self._socket.close()


class TlsConnection(Connection):
    """The same with TLS. What TLS says by itself goes out with what is written next."""

    def __init__(self, connected: socket.socket, context: ssl.SSLContext, name: str | None) -> None:
        super().__init__(connected)
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_hostname=name)

    async def shake_hands(self) -> None:
        """Begin TLS. Raises OSError, of which ssl.SSLError is one."""
        while True:
            try:
                self._tls.do_handshake()
            except ssl.SSLWantReadError:
                await self._flush()
                await self._receive()
            else:
                break
        await self._flush()

    async def read(self) -> bytes:
        """Read what there is; nothing at the end. Raises OSError."""
        while True:
            try:
                return self._tls.read(CHUNK)
            except ssl.SSLWantReadError:
                await self._receive()
            except (ssl.SSLZeroReturnError, ssl.SSLEOFError):
                return b""

    async def write(self, data: bytes) -> None:
        """Write all, as fast as it's taken. Raises OSError."""
        self._tls.write(data)
        await self._flush()

    async def end(self) -> None:
        """Tell that nothing more will be written. Raises OSError."""
        with suppress(ssl.SSLError):  # it looks for the other side's end too, which may be far
            self._tls.unwrap()
        await self._flush()
        await super().end()

    async def _receive(self) -> None:
        if data := await super().read():
            self._incoming.write(data)
        else:
            self._incoming.write_eof()

    async def _flush(self) -> None:
        if self._outgoing.pending:
            await super().write(self._outgoing.read())


def _tune(opened: socket.socket) -> None:
    opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    opened.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in _KEEPALIVE.items():
        if hasattr(socket, option):  # macOS has none of the first
            opened.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)


async def dial(host: str, port: int) -> socket.socket:
    """Connect to the first address of a name that answers. Raises OSError."""
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    failure = OSError(f"{host} has no address")
    for family, kind, protocol, _, address in found:
        opened = socket.socket(family, kind, protocol)
        try:
            opened.setblocking(False)
            _tune(opened)
            await loop.sock_connect(opened, address)
        except OSError as error:
            opened.close()
            failure = error
        except BaseException:
            opened.close()
            raise
        else:
            return opened
    raise failure
