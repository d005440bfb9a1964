"""uvicorn's HTTP/1.1 protocol, which an app can answer at once, or take the connection over from.

A task and an ASGI cycle cost as much as a cached answer. So a request whose answer waits for
nothing is answered where its head ends, by the app's ``Door``.
"""

import asyncio
from collections.abc import Callable
from http import HTTPStatus
from math import inf
from typing import Any, cast
from urllib.parse import unquote

import httptools
from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import (
    STATUS_LINE,
    HttpToolsProtocol,
    RequestResponseCycle,
)

from proxy.kube.errors import ApiError, BadRequest, RequestTooLarge
from proxy.kube.paths import MAX_PATH, split_target
from proxy.server.door import CONNECTION, Door, Whole

MAX_HEAD = 1024 * 1024
"""Bytes of a request's line and headers (Go's ``DefaultMaxHeaderBytes``)."""

MAX_HEADERS = 1000
"""A quarter of a million fit into a head, and each costs."""

HEAD_TIMEOUT = 32.0
"""Seconds that a request's head may take to arrive, from its first byte or from the connection's
beginning (kube-apiserver's ``ReadHeaderTimeout``)."""

SLOW_CLIENT = 60.0
"""Seconds within which a client has to read something of what it's sent."""

LINGER = 0.5
"""Seconds that a client has to read why it was refused. To close at once while it sends would reset
the connection, and take the answer along (``rstAvoidanceDelay`` of Go's server)."""

_PIECE = 16 * 1024
"""Bytes parsed at a time: what a client sends ahead of its answers waits as bytes behind it."""

_BUFFER = 64 * 1024
_FRAMING = frozenset({b"content-length", b"transfer-encoding"})


class Protocol(HttpToolsProtocol):
    """Parses requests one by one; stops parsing at one that asks for an upgrade.

    An offer of HTTP/2 (``Upgrade: h2c``), or one that the app's ``Door`` doesn't take as meant, is
    declined: the answer is HTTP/1.1, as RFC 9110 §7.8 allows.
    """

    _unparsed = b""
    _in_head = False
    _overhead = 0
    _running: RequestResponseCycle | None = None
    _declined = False
    _muted = False
    _upgrading = False
    _refusal: ApiError | None = None
    _is_lingering = False
    _watching: asyncio.TimerHandle | None = None
    _backlog = inf
    is_slow = False
    may_stall = False
    """Whether this answer may be left unread for as long as its client likes."""
    _deadline: asyncio.TimerHandle | None = None
    _is_open = False
    _answered = False

    def __init__(self, config: Config, *args: Any, **kwargs: Any) -> None:
        super().__init__(config, *args, **kwargs)
        app = cast(object, config.app)
        self._door = app if isinstance(app, Door) else None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Expect a head."""
        super().connection_made(transport)
        self._expect_head()

    def _expect_head(self) -> None:
        self._deadline = self.loop.call_later(HEAD_TIMEOUT, self._miss_head)

    def _miss_head(self) -> None:
        """Close, but let an answer that is under way be ended first."""
        self._deadline = None
        if self._running is None or self._running.response_complete:
            self.transport.close()
        else:
            self._expect_head()

    def _stop_waiting(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    # --- what the parser finds ---

    def on_message_begin(self) -> None:
        """Begin to count the bytes of a head."""
        if not self._muted:
            super().on_message_begin()
            self._in_head = True
            self._overhead = 0
            self._answered = False

    def on_url(self, url: bytes) -> None:
        """Collect the target."""
        if not self._muted:
            super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        """Collect a header; what comes behind the head is a trailer, which nobody asks for."""
        if self._in_head and not self._muted and len(self.headers) <= MAX_HEADERS:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """Complete the scope of a request and start it."""
        if self._muted:
            return
        self._in_head = False
        self._overhead = 0
        self.may_stall = False
        self._stop_waiting()
        if len(self.headers) > MAX_HEADERS:
            self._refuse(RequestTooLarge(f"a request may have {MAX_HEADERS} headers"))
        self._answered = self._refusal is not None
        if self._answered:
            return
        path, query = split_target(self.url)
        asked = self.parser.should_upgrade()
        self._upgrading = asked and self._may_upgrade(path, query)
        self._declined = asked and not self._upgrading
        begun = None
        if self._door is not None and not asked and self._may_answer():
            begun = self._door.begin(path, query, self.headers)
            if isinstance(begun, Whole):
                self._answer(begun)
                return
        self.scope["extensions"] = {
            CONNECTION: {"protocol": self, "upgrade": self._upgrading, "begun": begun}
        }
        self._unset_keepalive_if_required()  # an answer before it may have set it
        self.url = b"/"  # uvicorn's own reading of a target loses what follows a "#"
        super().on_headers_complete()
        self.scope["raw_path"] = path
        self.scope["query_string"] = query
        self.scope["path"] = unquote(path[:MAX_PATH].decode("latin-1"))  # the admin app's
        if self._upgrading:  # what follows its answer is not HTTP, or the client doesn't know
            self.cycle.keep_alive = False

    def _may_upgrade(self, path: bytes, query: bytes) -> bool:
        """Tell whether the API server is to be asked for an upgrade; HTTP/2 is not passed on."""
        offers = [value.strip().lower() for name, value in self.headers if name == b"upgrade"]
        if self._door is None or not offers or offers == [b"h2c"]:
            return False
        method = self.parser.get_method().decode()
        return self._door.may_upgrade(method, path, query, self.headers)

    def on_body(self, body: bytes) -> None:
        """Collect the body, unless the request has been refused."""
        if not self._answered:
            self._overhead = 0
            super().on_body(body)

    def on_message_complete(self) -> None:
        """End the body; that of a declined upgrade is still to come."""
        if not (self._declined or self._answered):
            super().on_message_complete()

    # --- what arrives ---

    def data_received(self, data: bytes) -> None:
        """Parse, unless what came earlier has to be answered first."""
        if self._is_lingering:
            return
        self._unparsed += data
        self._is_open = True
        self._parse()

    def _parse(self) -> None:
        while self._unparsed and self._is_parsing():
            self._unset_keepalive_if_required()
            piece, self._unparsed = self._unparsed[:_PIECE], self._unparsed[_PIECE:]
            self._feed(piece)
        if self._unparsed:
            self.flow.pause_reading()

    def _is_parsing(self) -> bool:
        waiting = self.pipeline or self._upgrading or self._refusal
        return not (waiting or self.transport.is_closing())

    def _feed(self, piece: bytes) -> None:
        try:
            self.parser.feed_data(piece)
        except httptools.HttpParserUpgrade as upgrade:
            self._unparsed = piece[upgrade.args[0] :] + self._unparsed
            if self._declined:
                self._parse_on()
        except httptools.HttpParserError:
            self._refuse(BadRequest("the HTTP request can't be parsed"))
        self._overhead += len(piece)
        if self._in_head and self._deadline is None:
            self._expect_head()
        if self._overhead > MAX_HEAD:  # a head, or the trailers of a body
            self._refuse(RequestTooLarge(f"the head of a request may have {MAX_HEAD} bytes"))

    def _parse_on(self) -> None:
        """Go on behind the head of a declined upgrade; the old parser would skip its body.

        The new one is shown a head that has the same body and asks for nothing.
        """
        self._declined = False
        self.parser = httptools.HttpRequestParser(self)
        self.parser.set_dangerous_leniencies(lenient_data_after_close=True)
        framing = [b"%s: %s\r\n" % pair for pair in self.headers if pair[0] in _FRAMING]
        self._muted = True
        try:
            self.parser.feed_data(b"POST / HTTP/1.1\r\n%s\r\n" % b"".join(framing))
        except httptools.HttpParserError:
            self._refuse(BadRequest("the body of the HTTP request can't be parsed"))
        self._muted = False

    # --- what is answered ---

    def _may_answer(self) -> bool:
        """Tell whether the door is open: for one bodiless GET of what has arrived at a time.

        More than one would hold up the other connections.
        """
        return (
            self._is_open
            and self.parser.get_method() == b"GET"
            and self.parser.get_http_version() == "1.1"
            and self.parser.should_keep_alive()
            and (self._running is None or self._running.response_complete)
            and not self.flow.write_paused
            and not any(name in _FRAMING for name, _ in self.headers)
        )

    def _answer(self, whole: Whole) -> None:
        self._is_open = False
        self._answered = True
        lines = [STATUS_LINE[whole.status]]
        for headers in (self.server_state.default_headers, whole.headers):
            lines += [b"%s: %s\r\n" % pair for pair in headers]
        self.transport.write(b"%s\r\n%s" % (b"".join(lines), whole.body))
        super().on_response_complete()

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Callable[..., Any]) -> None:
        self._running = cycle
        super()._start_asgi_task(cycle, app)

    def on_response_complete(self) -> None:
        """Go on with what came meanwhile; the rest of a body has the time of a head."""
        rest = self._running is not None and self._running.more_body
        super().on_response_complete()
        if rest and self._deadline is None and not self.transport.is_closing():
            self._expect_head()
        if self._refusal is not None:
            self._refuse(self._refusal)
        self._parse()

    def _refuse(self, error: ApiError) -> None:
        """Answer without an app, once all that came before is answered, and close."""
        self._refusal = error
        cycle = self._running
        if self.pipeline or (cycle and not cycle.more_body and not cycle.response_complete):
            return
        if cycle is None or cycle.response_complete or not cycle.response_started:
            self.transport.write(_encoded(error))
            self.transport.write_eof()
            self._unparsed = b""
            self._is_lingering = True
            self.loop.call_later(LINGER, self.transport.close)
        else:
            self.transport.close()

    def pause_writing(self) -> None:
        """Begin to watch a client that doesn't read as fast as it's answered."""
        super().pause_writing()
        self._backlog = inf
        self._check_progress()

    def resume_writing(self) -> None:
        """Stop watching it."""
        super().resume_writing()
        self._stop_watching()

    def _check_progress(self) -> None:
        """Cut a client that has read nothing for so long, whatever it's sent but a stream."""
        backlog = self.transport.get_write_buffer_size()
        if backlog >= self._backlog and not self.may_stall:
            self.is_slow = True
            self.abort()
            return
        self._backlog = backlog
        self._watching = self.loop.call_later(SLOW_CLIENT, self._check_progress)

    def _stop_watching(self) -> None:
        if self._watching is not None:
            self._watching.cancel()
            self._watching = None

    @property
    def is_closing(self) -> bool:
        """Tell whether the client is gone, or cut."""
        return self.transport.is_closing()

    def abort(self) -> None:
        """Close the connection at once; the client sees an answer break off."""
        self._hang_up()
        self.transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """Let go of everything, so that no cycle of references outlives the connection."""
        super().connection_lost(exc)
        self._hang_up()
        self._unset_keepalive_if_required()
        self._stop_waiting()
        self._stop_watching()
        self._let_go()

    def _hang_up(self) -> None:
        """Drop what was not answered yet; whoever answers learns that the client is gone."""
        self.pipeline.clear()
        self._unparsed = b""
        if self._running is not None and not self._running.response_complete:
            self._running.disconnected = True
            self._running.message_event.set()

    def _let_go(self) -> None:
        self._running = None
        self.cycle = self.scope = self.headers = None  # type: ignore[assignment]
        self.parser = None  # type: ignore[assignment]

    def expect(self, length: float) -> None:
        """Expect *length* bytes more of an answer to HTTP/1.0, which has no chunks.

        Without a length it ends with the connection: *length* is infinite until its last part.
        """
        if self._running is not None:
            self._running.chunked_encoding = False
            self._running.expected_content_length = length  # type: ignore[assignment]

    def take_over(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Give the raw connection away; HTTP ends here, and the request counts as answered."""
        reader = asyncio.StreamReader(limit=_BUFFER)
        protocol = asyncio.StreamReaderProtocol(reader)
        self.connections.discard(self)
        self.transport.set_protocol(protocol)
        protocol.connection_made(self.transport)
        if self.flow.write_paused:  # by an answer before it
            protocol.pause_writing()
        self.flow.resume_reading()  # before what was read ahead, which may be enough to pause it
        reader.feed_data(self._unparsed)
        self._hang_up()
        self._let_go()
        return reader, asyncio.StreamWriter(self.transport, protocol, reader, self.loop)


def _encoded(error: ApiError) -> bytes:
    body = error.status_body()
    return (
        b"HTTP/1.1 %d %s\r\ncontent-type: application/json\r\ncontent-length: %d\r\n"
        b'cache-status: kubecache; detail="error"\r\nconnection: close\r\n\r\n%s'
        % (error.code, HTTPStatus(error.code).phrase.encode(), len(body), body)
    )
