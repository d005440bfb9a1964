"""What kube-apiserver needs of a kubelet and of a pod, where no nodes are.

`exec` runs its command on this machine, port-forward leads to this machine's ports, logs are what a
test says. All else is a pod's own web server: bodies and upgrades are echoed.
"""

from __future__ import annotations

import asyncio
import json
import ssl
import threading
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from http import HTTPStatus
from pathlib import Path
from typing import Any, NamedTuple, Self, TypeVar
from urllib.parse import parse_qs, urlsplit

from tests.harness import spdy, websocket
from tests.harness.processes import free_port

_T = TypeVar("_T")

_CHUNK = 64 * 1024
_LINGER = 1.0  # seconds a client has to close, once it has been told how a command ended
_CHANNELS = ("stdin", "stdout", "stderr", "error", "resize")
_CLOSES = 255  # v5: the first byte of a message that ends a channel
_ATTACHED = ("sh", "-c", "echo attached; exec cat")

Streams = Mapping[str, spdy.Stream]


class Request(NamedTuple):
    """A request's line and headers; names are in lower case, repeated ones joined by a comma."""

    method: str
    target: str
    headers: Mapping[str, str]

    @property
    def words(self) -> list[str]:
        """The segments of its path."""
        return urlsplit(self.target).path.strip("/").split("/")

    @property
    def query(self) -> Mapping[str, list[str]]:
        return parse_qs(urlsplit(self.target).query)

    @property
    def protocols(self) -> list[str]:
        """What may be spoken on a stream, best first; v5 is for WebSockets alone."""
        name = "sec-websocket-protocol" if self.is_websocket else "x-stream-protocol-version"
        offered = [each.strip() for each in self.headers.get(name, "").split(",")]
        return [each for each in offered if self.is_websocket or not each.startswith("v5")]

    @property
    def is_websocket(self) -> bool:
        return self.headers.get("upgrade", "").lower() == "websocket"

    @property
    def wanted(self) -> set[str]:
        """The channels that exec or attach asks for."""
        names = {"input": "stdin", "output": "stdout", "error": "stderr", "tty": "resize"}
        return {channel for name, channel in names.items() if name in self.query} | {"error"}


class Kubelet:
    """Listens with TLS on `port` as a kubelet, without on `pod_port` as a pod; use it in a `with`.

    All methods may be called from a test's thread.
    """

    def __init__(self, certificate: Path, key: Path) -> None:
        self.port, self.pod_port = free_port(), free_port()
        self.spoken: list[str] = []
        """What was spoken on each stream, such as `exec v4.channel.k8s.io`."""
        self._ssl = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._ssl.load_cert_chain(certificate, key)
        self._open: set[asyncio.Task[Any]] = set()
        self._followers: set[asyncio.Queue[bytes]] = set()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="kubelet", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        self._run(self._listen())
        return self

    def __exit__(self, *_: object) -> None:
        self._run(self._close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()

    @property
    def connections(self) -> int:
        """How many requests are being served now."""
        return self._call(lambda: len(self._open))

    @property
    def followers(self) -> int:
        """How many follow the logs now."""
        return self._call(lambda: len(self._followers))

    def say(self, text: bytes) -> None:
        """Has the containers write to their logs."""

        def tell() -> None:
            for follower in self._followers:
                follower.put_nowait(text)

        self._call(tell)

    def end_logs(self) -> None:
        """Has the containers end, and with them their logs."""
        self.say(b"")

    async def _listen(self) -> None:
        self._servers = [
            await asyncio.start_server(self._accept, "0.0.0.0", self.port, ssl=self._ssl),
            await asyncio.start_server(self._accept, "0.0.0.0", self.pod_port),
        ]

    async def _close(self) -> None:
        for server in self._servers:
            server.close()
        for task in list(self._open):
            task.cancel()
        await asyncio.gather(*self._open, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task
        self._open.add(task)
        try:
            request = await _read_head(reader)
            await self._answer(request, reader, writer)
        except (OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass  # the client is gone, or the test is
        finally:
            self._open.discard(task)
            writer.close()

    async def _answer(
        self, request: Request, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        match request.words:
            case ["containerLogs", *_]:
                await self._log(request, reader, writer)
            case ["exec" | "attach" as kind, *_]:
                await self._command(kind, request, reader, writer)
            case ["portForward", *_]:
                await self._forward(request, reader, writer)
            case _:
                await _echo(request, reader, writer)

    # --- logs ---

    async def _log(
        self, request: Request, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        head = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nTransfer-Encoding: chunked\r\n"
        writer.write(head + b"Connection: close\r\n\r\n" + _chunk(b"started\n"))
        if "follow" in request.query:
            following = asyncio.create_task(self._follow(writer))
            await asyncio.wait({following, asyncio.create_task(reader.read())}, return_when=_FIRST)
            following.cancel()
        writer.write(_chunk(b""))

    async def _follow(self, writer: asyncio.StreamWriter) -> None:
        lines: asyncio.Queue[bytes] = asyncio.Queue()
        self._followers.add(lines)
        try:
            while text := await lines.get():
                writer.write(_chunk(text))
                await writer.drain()
        finally:
            self._followers.discard(lines)

    # --- exec and attach ---

    async def _command(
        self,
        kind: str,
        request: Request,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        protocol = self._upgraded(kind, request, writer)
        streams: dict[str, spdy.Stream] = {}
        complete = asyncio.Event()
        if request.is_websocket:
            for name in request.wanted:
                streams[name] = _channel(_CHANNELS.index(name), writer)
            session = _hear(protocol, reader, writer, streams)
            complete.set()
        else:

            def opened(stream: spdy.Stream) -> None:
                streams[stream.headers["streamtype"]] = stream
                if request.wanted <= streams.keys():
                    complete.set()

            session = spdy.Session(reader, _writing(writer), opened).run()
        words = _ATTACHED if kind == "attach" else request.query["command"]

        async def work() -> None:
            await complete.wait()
            status = await (_terminal(streams) if "tty" in request.query else _run(words, streams))
            await streams["error"].write(status)
            for stream in streams.values():
                await stream.end()
            if request.is_websocket:
                writer.write(websocket.frame(websocket.CLOSE, (1000).to_bytes(2, "big")))
            await writer.drain()

        await _until_either_ends(work(), session)

    def _upgraded(self, kind: str, request: Request, writer: asyncio.StreamWriter) -> str:
        """Accept an upgrade by the protocol that the client likes best, and note it."""
        protocol = request.protocols[0]
        lines = ["HTTP/1.1 101 Switching Protocols", "Connection: Upgrade"]
        if request.is_websocket:
            key = websocket.accept(request.headers["sec-websocket-key"])
            lines += ["Upgrade: websocket", f"Sec-WebSocket-Accept: {key}"]
            lines += [f"Sec-WebSocket-Protocol: {protocol}"]
        else:
            lines += ["Upgrade: SPDY/3.1", f"X-Stream-Protocol-Version: {protocol}"]
        writer.write("\r\n".join([*lines, "", ""]).encode())
        over = "websocket" if request.is_websocket else "spdy"
        self.spoken.append(f"{kind} {protocol} {over}")
        return protocol

    # --- port-forward ---

    async def _forward(
        self, request: Request, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self._upgraded("portforward", request, writer)
        errors: dict[str, spdy.Stream] = {}
        async with asyncio.TaskGroup() as connections:

            def opened(stream: spdy.Stream) -> None:
                number = stream.headers["requestid"]
                if stream.headers["streamtype"] == "error":
                    errors[number] = stream
                else:
                    connections.create_task(_connect(stream, errors[number]))

            if request.is_websocket:
                inner = asyncio.StreamReader()
                connections.create_task(_unwrap(reader, inner))
                reader, write = inner, _wrapping(writer)
            else:
                write = _writing(writer)
            await spdy.Session(reader, write, opened).run()

    def _call(self, function: Callable[[], _T]) -> _T:
        async def call() -> _T:
            return function()

        return self._run(call())

    def _run(self, coroutine: Coroutine[Any, Any, _T]) -> _T:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(10)


_FIRST = asyncio.FIRST_COMPLETED


async def _read_head(reader: asyncio.StreamReader) -> Request:
    line, *lines = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")[:-2]
    method, target, _ = line.split(" ")
    headers: dict[str, str] = {}
    for each in lines:
        name, _, value = each.partition(":")
        key = name.lower()
        headers[key] = f"{headers[key]}, {value.strip()}" if key in headers else value.strip()
    return Request(method, target, headers)


def _writing(writer: asyncio.StreamWriter) -> spdy.Write:
    async def write(data: bytes) -> None:
        writer.write(data)
        await writer.drain()

    return write


async def _until_either_ends(
    work: Coroutine[Any, Any, None], session: Coroutine[Any, Any, None]
) -> None:
    """A command ends with its connection; the connection, unless the client does it, soon after."""
    working, connected = asyncio.create_task(work), asyncio.create_task(session)
    try:
        await asyncio.wait({working, connected}, return_when=_FIRST)
        await asyncio.wait({connected}, timeout=_LINGER)
    finally:
        for task in (working, connected):
            task.cancel()
        await asyncio.gather(working, connected, return_exceptions=True)


# --- commands ------------------------------------------------------------------------------------


async def _run(words: Sequence[str], streams: Streams) -> bytes:
    """Run a command on streams; returns how it ended, as a Status."""
    process = await asyncio.create_subprocess_exec(
        *words, stdin=PIPE if "stdin" in streams else DEVNULL, stdout=PIPE, stderr=PIPE
    )
    assert process.stdout
    assert process.stderr
    feeding = asyncio.create_task(_feed(streams.get("stdin"), process.stdin))
    try:
        await asyncio.gather(
            _drain(process.stdout, streams.get("stdout")),
            _drain(process.stderr, streams.get("stderr")),
        )
        return _status(await process.wait())
    finally:
        feeding.cancel()
        with suppress(ProcessLookupError):
            process.kill()


async def _feed(stream: spdy.Stream | None, stdin: asyncio.StreamWriter | None) -> None:
    if stream is None or stdin is None:
        return
    with suppress(ConnectionError):  # it has ended without reading all
        while data := await stream.reader.read(_CHUNK):
            stdin.write(data)
            await stdin.drain()
        stdin.close()


async def _drain(output: asyncio.StreamReader, stream: spdy.Stream | None) -> None:
    while data := await output.read(_CHUNK):
        if stream:
            await stream.write(data)


async def _terminal(streams: Streams) -> bytes:
    """A program that tells each size of its terminal, and each line until `exit`."""

    async def sizes() -> None:
        while text := await streams["resize"].reader.read(_CHUNK):
            for size in map(json.loads, text.decode().split()):
                told = f"size {size['Width']}x{size['Height']}\r\n"
                await streams["stdout"].write(told.encode())

    telling = asyncio.create_task(sizes())
    try:
        typed = b""
        while b"exit" not in typed and (data := await streams["stdin"].reader.read(_CHUNK)):
            typed += data
            await streams["stdout"].write(data.upper())
    finally:
        telling.cancel()
    return _status(0)


def _status(code: int) -> bytes:
    """How a command ended, as a kubelet writes it to the error stream (v4 and v5)."""
    if not code:
        return json.dumps({"metadata": {}, "status": "Success"}).encode()
    causes = [{"reason": "ExitCode", "message": str(code)}]
    message = f"command terminated with non-zero exit code: exit status {code}"
    status = {"metadata": {}, "status": "Failure", "message": message}
    return json.dumps(
        status | {"reason": "NonZeroExitCode", "details": {"causes": causes}}
    ).encode()


# --- WebSockets ----------------------------------------------------------------------------------


async def _hear(
    protocol: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, streams: Streams
) -> None:
    """Feed the channels of exec and attach: each message begins with the number of its channel."""
    try:
        async for message in _messages(reader, writer):
            if protocol.startswith("v5") and message[0] == _CLOSES:
                streams[_CHANNELS[message[1]]].reader.feed_eof()
            else:
                streams[_CHANNELS[message[0]]].reader.feed_data(message[1:])
    finally:
        for stream in streams.values():
            stream.reader.feed_eof()


def _channel(number: int, writer: asyncio.StreamWriter) -> spdy.Stream:
    write_message = _wrapping(writer)

    async def write(data: bytes) -> None:
        await write_message(bytes([number]) + data)

    async def end() -> None:
        """A channel of the server ends with the connection."""

    return spdy.Stream({}, asyncio.StreamReader(), write, end)


def _wrapping(writer: asyncio.StreamWriter) -> spdy.Write:
    async def write(data: bytes) -> None:
        writer.write(websocket.frame(websocket.BINARY, data))
        await writer.drain()

    return write


async def _unwrap(reader: asyncio.StreamReader, inner: asyncio.StreamReader) -> None:
    """The bytes of a WebSocket's messages, for what is spoken within."""
    with suppress(asyncio.IncompleteReadError, ConnectionError):
        while True:
            kind, payload = await websocket.read(reader)
            if kind == websocket.CLOSE:
                break
            if kind == websocket.BINARY:
                inner.feed_data(payload)
    inner.feed_eof()


async def _messages(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> AsyncIterator[bytes]:
    """What a client says; its pings are answered."""
    with suppress(asyncio.IncompleteReadError, ConnectionError):
        while True:
            kind, payload = await websocket.read(reader)
            if kind == websocket.CLOSE:
                return
            if kind == websocket.PING:
                writer.write(websocket.frame(websocket.PONG, payload))
            elif payload:
                yield payload


# --- ports ---------------------------------------------------------------------------------------


async def _connect(data: spdy.Stream, error: spdy.Stream) -> None:
    """Join a forwarded connection with a port of this machine."""
    port = int(data.headers["port"])
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
    except OSError as refused:
        await error.write(f"port {port}: {refused}".encode())
    else:
        with suppress(OSError):
            await asyncio.gather(_send(data.reader, writer), _drain(reader, data))
        writer.close()
    with suppress(OSError):
        await data.end()
        await error.end()


async def _send(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while part := await reader.read(_CHUNK):
        writer.write(part)
        await writer.drain()
    writer.write_eof()


# --- a pod's web server --------------------------------------------------------------------------


async def _echo(
    request: Request, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> None:
    """Give back a body, or the bytes of an upgrade as they come; `/refuse/403` refuses."""
    seen = f"X-Seen: {request.method} {request.target}\r\n"
    if "refuse" in request.words:
        code = HTTPStatus(int(request.words[-1]))
        why = f"refused: {code.phrase}\n"
        head = f"HTTP/1.1 {code} {code.phrase}\r\nContent-Length: {len(why)}\r\n{seen}"
        head += "Content-Type: text/plain\r\n"
        writer.write(f"{head}Connection: close\r\n\r\n{why}".encode())
    elif upgrade := request.headers.get("upgrade"):
        head = f"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: {upgrade}"
        writer.write(f"{head}\r\n{seen}\r\n".encode())
        while part := await reader.read(_CHUNK):
            writer.write(part)
            await writer.drain()
    else:
        # kube-apiserver drops what it hasn't sent of a body once it's answered.
        body = [part async for part in _body(request, reader)]
        head = f"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n{seen}Connection: close\r\n"
        writer.write(f"{head}Content-Type: text/plain\r\n\r\n".encode())
        for part in body:
            writer.write(_chunk(part))
            await writer.drain()
        writer.write(_chunk(b""))
    await writer.drain()


async def _body(request: Request, reader: asyncio.StreamReader) -> AsyncIterator[bytes]:
    if request.headers.get("transfer-encoding") == "chunked":
        while size := int((await reader.readline()).strip(), 16):
            yield (await reader.readexactly(size + 2))[:-2]
        return
    left = int(request.headers.get("content-length", "0"))
    while left:
        part = await reader.read(min(left, _CHUNK))
        left -= len(part)
        yield part


def _chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)
