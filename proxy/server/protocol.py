"""uvicorn's HTTP/1.1 protocol, whose connection an app can take over for an upgrade."""

import asyncio

import httptools
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

CONNECTION = "kubecache.connection"
"""ASGI extension: the ``Protocol`` of the connection, and whether an ``upgrade`` is asked."""

_BUFFER = 64 * 1024
_DECLINED = (None, b"h2c")


class Protocol(HttpToolsProtocol):
    """Parses requests; stops parsing at one that asks for an upgrade.

    Clients that only offer HTTP/2 (``Upgrade: h2c``) get HTTP/1.1, as RFC 9110 §7.8 allows.
    """

    _rest = b""

    def on_headers_complete(self) -> None:
        """Complete the scope of a request and start it."""
        upgrade = self.parser.should_upgrade() and self._get_upgrade() not in _DECLINED
        self.scope["extensions"] = {CONNECTION: {"protocol": self, "upgrade": upgrade}}
        super().on_headers_complete()

    def data_received(self, data: bytes) -> None:
        """Parse; keep the bytes behind an upgrade request for whoever takes over."""
        self._unset_keepalive_if_required()
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            self._rest = data[upgrade.args[0] :]
            if self.scope["extensions"][CONNECTION]["upgrade"]:
                self.flow.pause_reading()
            else:
                self._parse_on()
        except httptools.HttpParserError:
            self.send_400_response("Invalid HTTP request received.")

    def _parse_on(self) -> None:
        """Parse what follows a declined offer; the old parser would refuse it."""
        self.parser = httptools.HttpRequestParser(self)
        rest, self._rest = self._rest, b""
        if rest:
            self.data_received(rest)

    def abort(self) -> None:
        """Close the connection at once; the client sees an answer break off."""
        self.transport.abort()

    def take_over(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Give the raw connection away; HTTP ends here, and the request counts as answered."""
        reader = asyncio.StreamReader(limit=_BUFFER)
        protocol = asyncio.StreamReaderProtocol(reader)
        self.cycle.disconnected = True
        self.connections.discard(self)
        self.transport.set_protocol(protocol)
        protocol.connection_made(self.transport)
        reader.feed_data(self._rest)
        self.flow.resume_reading()
        return reader, asyncio.StreamWriter(self.transport, protocol, reader, self.loop)
