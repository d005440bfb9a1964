"""A TCP proxy that misbehaves on command, for between kubecache and kube-apiserver.

TLS passes through untouched: kube-apiserver's certificate is for 127.0.0.1, whatever the port.
"""

from __future__ import annotations

import asyncio
import socket
import struct
import threading
import time
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Self, TypeVar

from tests.harness.processes import free_port

_T = TypeVar("_T")

_CHUNK = 16_384
# Read ahead of a delay, in chunks; more than that stays in the sockets, as on a long line.
_IN_FLIGHT = 256
_RESET_ON_CLOSE = struct.pack("ii", 1, 0)  # SO_LINGER of no time: RST in the place of FIN


@dataclass
class _Faults:
    """What happens to bytes now. Written and read on the loop only."""

    delay_up: float = 0
    delay_down: float = 0
    bytes_per_second: float = 0


class FaultProxy:
    """Listens on `port` of 127.0.0.1 and leads to another port there; use it in a `with`.

    All methods may be called from a test's thread and have taken effect when they return.
    """

    def __init__(self, upstream_port: int) -> None:
        self.port = free_port()
        self.connections_seen = 0
        self._upstream_port = upstream_port
        self._faults = _Faults()
        self._flowing = asyncio.Event()
        self._flowing.set()
        self._open: set[asyncio.Task[None]] = set()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="faults", daemon=True)
        self._server: asyncio.Server | None = None

    def __enter__(self) -> Self:
        self._thread.start()
        self._run(self._listen())
        return self

    def __exit__(self, *_: object) -> None:
        self._run(self._close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()

    def delay(self, *, up: float = 0, down: float = 0) -> None:
        """Holds bytes back by so many seconds, to (up) and from (down) the API server."""
        self._change(delay_up=up, delay_down=down)

    def throttle(self, bytes_per_second: float) -> None:
        """Limits each direction of each connection."""
        self._change(bytes_per_second=bytes_per_second)

    def freeze(self) -> None:
        """Passes nothing more, and keeps all connections open; new ones are accepted."""
        self._call(self._flowing.clear)

    def refuse(self) -> None:
        """Stops listening: new connections are refused, those that are open stay."""
        self._run(self._stop_listening())

    def cut(self) -> None:
        """Resets all open connections; new ones are welcome."""
        self._run(self._cut())

    def resume(self) -> None:
        """Ends every fault; bytes that were held back go on."""
        self._change(delay_up=0, delay_down=0, bytes_per_second=0)
        self._call(self._flowing.set)
        self._run(self._listen())

    @property
    def connections(self) -> int:
        """How many connections are open now."""
        return self._call(lambda: len(self._open))

    async def _listen(self) -> None:
        if not self._server:
            self._server = await asyncio.start_server(self._accept, "127.0.0.1", self.port)

    async def _stop_listening(self) -> None:
        if self._server:
            self._server.close()
            self._server = None

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections_seen += 1
        task = asyncio.ensure_future(self._join(reader, writer))
        self._open.add(task)
        task.add_done_callback(self._open.discard)

    async def _join(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Pumps both ways until both are done; being cancelled resets both sides."""
        writers = [writer]
        try:
            far, upstream = await asyncio.open_connection("127.0.0.1", self._upstream_port)
            writers.append(upstream)
            async with asyncio.TaskGroup() as pumps:
                pumps.create_task(self._pump(reader, upstream, lambda: self._faults.delay_up))
                pumps.create_task(self._pump(far, writer, lambda: self._faults.delay_down))
        except* (OSError, asyncio.CancelledError):
            for each in writers:
                _reset(each)
        finally:
            for each in writers:
                each.close()

    async def _pump(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        delay: Callable[[], float],
    ) -> None:
        """One direction: what was read waits in a queue until it is due."""
        waiting: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue(_IN_FLIGHT)
        async with asyncio.TaskGroup() as ends:
            ends.create_task(self._drain(waiting, writer))
            data = b"first"
            while data:
                data = await reader.read(_CHUNK)
                await waiting.put((time.monotonic() + delay(), data))

    async def _drain(
        self, waiting: asyncio.Queue[tuple[float, bytes]], writer: asyncio.StreamWriter
    ) -> None:
        while True:
            due, data = await waiting.get()
            await asyncio.sleep(due - time.monotonic())
            await self._flowing.wait()
            if not data:
                writer.write_eof()
                return
            writer.write(data)
            await writer.drain()
            if rate := self._faults.bytes_per_second:
                await asyncio.sleep(len(data) / rate)

    async def _cut(self) -> None:
        tasks = list(self._open)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _close(self) -> None:
        await self._stop_listening()
        await self._cut()

    def _change(self, **faults: float) -> None:
        self._call(lambda: vars(self._faults).update(faults))

    def _call(self, function: Callable[[], _T]) -> _T:
        async def call() -> _T:
            return function()

        return self._run(call())

    def _run(self, coroutine: Coroutine[Any, Any, _T]) -> _T:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(10)


def _reset(writer: asyncio.StreamWriter) -> None:
    raw: socket.socket = writer.get_extra_info("socket")
    with suppress(OSError):  # closed already
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
    writer.transport.abort()
