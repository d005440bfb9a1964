"""Measures how long the event loop keeps others waiting."""

import asyncio
import time

from proxy.server.stats import Histogram

INTERVAL = 0.02
"""Seconds between beats: fifty wake-ups a second find every pause that matters."""


class Pulse:
    """Beats on the loop; a beat that comes late was held up by a pause of that length."""

    def __init__(self) -> None:
        self.pauses = Histogram()

    async def beat(self) -> None:
        """Beat for ever."""
        while True:
            due = time.perf_counter() + INTERVAL
            await asyncio.sleep(INTERVAL)
            self.pauses.observe(max(time.perf_counter() - due, 0.0))
