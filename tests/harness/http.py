"""A raw synchronous HTTP client: the path and query reach the server exactly as written."""

from __future__ import annotations

import gzip
import http.client
import json
import queue
import socket
import ssl
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

Headers = Sequence[tuple[str, str]]
Body = bytes | Mapping[str, Any] | None

_TIMEOUT = 30.0


@dataclass(frozen=True)
class Server:
    """Where to ask: an address, how to trust it, and the headers that go with every request."""

    host: str
    port: int
    ca: Path | None = None
    headers: Headers = ()

    def bearer(self, token: str) -> Server:
        """The same server for the user of another token."""
        return self.adding(("Authorization", f"Bearer {token}"))

    def adding(self, *headers: tuple[str, str]) -> Server:
        """The same server with these headers in the place of others of their names."""
        names = {name.lower() for name, _ in headers}
        kept = (header for header in self.headers if header[0].lower() not in names)
        return replace(self, headers=(*kept, *headers))

    @property
    def url(self) -> str:
        scheme = "https" if self.ca else "http"
        return f"{scheme}://{self.host}:{self.port}"

    def connect(self, timeout: float = _TIMEOUT) -> http.client.HTTPConnection:
        if self.ca is None:
            return http.client.HTTPConnection(self.host, self.port, timeout=timeout)
        context = ssl.create_default_context(cafile=str(self.ca))
        return http.client.HTTPSConnection(self.host, self.port, timeout=timeout, context=context)


@dataclass(frozen=True)
class Answer:
    """A whole response."""

    status: int
    headers: Headers
    body: bytes

    def header(self, name: str) -> str | None:
        """The header's value, several joined by a comma; None when absent."""
        found = [value for key, value in self.headers if key.lower() == name.lower()]
        return ", ".join(found) if found else None

    @property
    def content(self) -> bytes:
        """The body after content coding."""
        return (
            gzip.decompress(self.body) if self.header("Content-Encoding") == "gzip" else self.body
        )

    def json(self) -> Any:
        return json.loads(self.content)

    @property
    def version(self) -> str:
        """The `metadata.resourceVersion` of the object or list in the body."""
        version: str = self.json()["metadata"]["resourceVersion"]
        return version

    def ok(self) -> Self:
        """Itself, when the status is 2xx; a test goes on with what it asked for."""
        assert 200 <= self.status < 300, f"HTTP {self.status}: {self.body[:2000]!r}"
        return self


class Session:
    """One connection that is kept between requests; for one thread."""

    def __init__(self, server: Server, *, timeout: float = _TIMEOUT) -> None:
        self._server = server
        self._connection = server.connect(timeout)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()

    def ask(self, method: str, target: str, *, headers: Headers = (), body: Body = None) -> Answer:
        response = _send(self._connection, self._server, method, target, headers, body)
        return Answer(response.status, response.getheaders(), response.read())


def ask(
    server: Server,
    method: str,
    target: str,
    *,
    headers: Headers = (),
    body: Body = None,
    timeout: float = _TIMEOUT,
) -> Answer:
    """Sends one request on a connection of its own. A mapping as body is sent as JSON."""
    with Session(server, timeout=timeout) as session:
        return session.ask(method, target, headers=headers, body=body)


def get(server: Server, target: str, *, headers: Headers = ()) -> Answer:
    """`ask` for the commonest method."""
    return ask(server, "GET", target, headers=headers)


def _send(
    connection: http.client.HTTPConnection,
    server: Server,
    method: str,
    target: str,
    headers: Headers,
    body: Body,
) -> http.client.HTTPResponse:
    content = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
    connection.putrequest(method, target, skip_accept_encoding=True)
    for name, value in _all_headers(server.adding(*headers).headers, body, content):
        connection.putheader(name, value)
    connection.endheaders(content)
    return connection.getresponse()


def _all_headers(headers: Headers, body: Body, content: bytes | None) -> Iterable[tuple[str, str]]:
    yield from headers
    names = {name.lower() for name, _ in headers}
    if content is not None and not names & {"content-length", "transfer-encoding"}:
        yield "Content-Length", str(len(content))
    if isinstance(body, Mapping) and "content-type" not in names:
        yield "Content-Type", "application/json"


def cut(body: bytes, content_type: str) -> tuple[list[bytes], bytes]:
    """Cut a watch into lines, or in protobuf what has its length before it; and what's left."""
    found = []
    if "protobuf" not in content_type:
        *found, rest = body.split(b"\n")
        return [line + b"\n" for line in found], rest
    at = 0
    while len(body) >= (end := at + 4 + int.from_bytes(body[at : at + 4])) and len(body) >= at + 4:
        found.append(body[at:end])
        at = end
    return found, body[at:]


class Watch:
    """A streamed response, read frame by frame in the background; close it or use it in a `with`.

    A quiet time does not end it: `line` and `event` raise TimeoutError and may be asked again.
    """

    def __init__(self, server: Server, target: str, *, headers: Headers = ()) -> None:
        self._connection = server.connect()
        self._connection.connect()
        self._socket = self._connection.sock  # http.client drops its own on "Connection: close"
        try:
            self._response = _send(self._connection, server, "GET", target, headers, None)
        except BaseException:
            self._connection.close()
            raise
        self.status = self._response.status
        self.headers: Headers = self._response.getheaders()
        self._socket.settimeout(None)
        self._lines: queue.Queue[bytes] = queue.Queue()
        self._ended = threading.Event()
        self._error: Exception | None = None
        self._reader = threading.Thread(target=self._read, name=f"watch {target}", daemon=True)
        self._reader.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends it from this side."""
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._reader.join(10)
        self._response.close()
        self._connection.close()

    def line(self, timeout: float = 10) -> bytes:
        """The next line with its newline, or frame; b"" at the clean end of the stream."""
        try:
            line = self._lines.get(timeout=timeout)
        except queue.Empty:
            raise TimeoutError(f"no event within {timeout} s") from None
        if not line:
            self._lines.put(b"")  # the end stays the end
            if self._error:
                raise self._error
        return line

    def event(self, timeout: float = 10) -> dict[str, Any]:
        """The next event, parsed; EOFError at the end of the stream."""
        line = self.line(timeout)
        if not line:
            raise EOFError("the watch ended")
        event: dict[str, Any] = json.loads(line)
        return event

    def events(self, count: int, timeout: float = 10) -> list[dict[str, Any]]:
        """The next `count` events, all of them within `timeout`."""
        deadline = time.monotonic() + timeout
        return [self.event(max(0.0, deadline - time.monotonic())) for _ in range(count)]

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """Parsed events to the end of the stream; TimeoutError after 10 s without one."""
        while line := self.line():
            yield json.loads(line)

    def quiet(self, seconds: float) -> None:
        """Asserts that nothing comes for a while."""
        with suppress(TimeoutError):
            raise AssertionError(f"not quiet: {self.line(seconds)[:2000]!r}")

    def wait_end(self, timeout: float = 10) -> None:
        """Waits until the server has ended it, whatever still is unread."""
        assert self._ended.wait(timeout), f"the watch still runs after {timeout} s"

    def _read(self) -> None:
        rest = b""
        content_type = self._response.getheader("Content-Type") or ""
        try:
            while part := self._response.read1():  # readline() would take a cut stream for its end
                found, rest = cut(rest + part, content_type)
                for frame in found:
                    self._lines.put(frame)
        except (OSError, http.client.HTTPException, ValueError) as error:
            self._error = error
        if rest:
            self._lines.put(rest)
        self._ended.set()
        self._lines.put(b"")


def watch(server: Server, target: str, *, headers: Headers = ()) -> Watch:
    """Opens a stream; `target` says `watch=1` itself, as everything else in its query."""
    return Watch(server, target, headers=headers)
