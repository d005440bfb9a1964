"""uvicorn's HTTP/1.1 protocol, whose connection an app can take over for an upgrade."""

import asyncio
from http import HTTPStatus

import httptools
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from proxy.kube.errors import ApiError, BadRequest, RequestTooLarge

CONNECTION = "kubecache.connection"
"""ASGI extension: the ``Protocol`` of the connection, and whether an ``upgrade`` is asked."""

MAX_HEAD = 1024 * 1024
"""Bytes of a request's line and headers (Go's ``DefaultMaxHeaderBytes``)."""

_BUFFER = 64 * 1024
_DECLINED = (None, b"h2c")


class Protocol(HttpToolsProtocol):
    """Parses requests; stops parsing at one that asks for an upgrade.

    Clients that only offer HTTP/2 (``Upgrade: h2c``) get HTTP/1.1, as RFC 9110 §7.8 allows.
    """

    _rest = b""
    _head: int | None = None

    def on_message_begin(self) -> None:
        """Begin to count the bytes of a head."""
        super().on_message_begin()
        self._head = 0

    def on_headers_complete(self) -> None:
        """Complete the scope of a request and start it."""
        self._head = None
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
            self.send_400_response("the HTTP request can't be parsed")
        if self._head is not None:
            self._head += len(data)
            if self._head > MAX_HEAD:
                self._refuse(RequestTooLarge(f"the head of a request may have {MAX_HEAD} bytes"))

    def send_400_response(self, msg: str) -> None:
        """Answer what can't be parsed, in the API server's form."""
        self._refuse(BadRequest(msg))

    def _refuse(self, error: ApiError) -> None:
        """Answer without an app, and close."""
        body = error.status_body()
        self.transport.write(
            b"HTTP/1.1 %d %s\r\ncontent-type: application/json\r\ncontent-length: %d\r\n"
            b"connection: close\r\n\r\n%s"
            % (error.code, HTTPStatus(error.code).phrase.encode(), len(body), body)
        )
        self.transport.close()

    def _parse_on(self) -> None:
        """Parse what follows a declined offer; the old parser would refuse it."""
        self.parser = httptools.HttpRequestParser(self)
        rest, self._rest = self._rest, b""
        if rest:
            self.data_received(rest)

    @property
    def is_closing(self) -> bool:
        """Tell whether the client is gone, or cut."""
        return self.transport.is_closing()

    @property
    def is_congested(self) -> bool:
        """Tell whether a write has to wait for the client to read."""
        return self.flow.write_paused

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
