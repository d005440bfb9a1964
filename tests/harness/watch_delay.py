"""A line on which events arrive late, and answers in time: a cache behind it lags."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextvars import ContextVar

from tests.harness.faults import FaultProxy

# TLS hides what is an answer; what follows a request this soon is taken for one. An answer that
# takes longer is delayed too.
_ANSWERED = 0.05


class _Asking(asyncio.StreamReader):
    """What comes from the client of one connection, with the time of its last bytes."""

    def __init__(self, source: asyncio.StreamReader) -> None:
        super().__init__()
        self._source = source
        self.last = time.monotonic()

    async def read(self, n: int = -1) -> bytes:
        data = await self._source.read(n)
        self.last = time.monotonic()
        return data


_asking: ContextVar[_Asking] = ContextVar("asking")


class WatchDelay(FaultProxy):
    """Holds back by `seconds` what the API server sends unasked.

    Each connection has to carry either watches or answers: HTTP/1.1, as kubecache speaks it, or
    HTTP/2 with nothing but a watch.
    """

    def __init__(self, upstream_port: int, seconds: float) -> None:
        super().__init__(upstream_port)
        self._faults.delay_down = seconds

    async def _join(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asking = _Asking(reader)
        _asking.set(asking)  # each connection is a task with a context of its own
        await super()._join(asking, writer)

    async def _pump(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        delay: Callable[[], float],
    ) -> None:
        asking = _asking.get()

        def unasked() -> float:
            return delay() if time.monotonic() > asking.last + _ANSWERED else 0

        await super()._pump(reader, writer, unasked)
