"""Measures how long the event loop keeps others waiting."""

import asyncio
import time
from collections.abc import Awaitable, Callable

from proxy.cache.histogram import Histogram

INTERVAL = 0.02
"""Seconds between beats: fifty wake-ups a second find every pause that matters."""


class Pulse:
    """Beats on the loop; a beat that comes late was held up by a pause of that length."""

    def __init__(
        self,
        *,
        clock: Callable[[], float] = time.perf_counter,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self.pauses = Histogram()
        self._clock = clock
        self._sleep = sleep

    async def beat(self) -> None:
        """Beat for ever."""
        while True:
            due = self._clock() + INTERVAL
            await self._sleep(INTERVAL)
            self.pauses.observe(max(self._clock() - due, 0.0))
