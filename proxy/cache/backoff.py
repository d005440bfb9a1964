"""Exponential backoff with jitter."""

import random
import time
from collections.abc import Callable

FIRST = 0.8
FACTOR = 2.0
CAP = 30.0
RESET = 120.0
"""Seconds. The values of client-go's reflector: fast recovery for one, little load from many."""


class Backoff:
    """Delays between attempts; starts over after a quiet ``RESET``."""

    def __init__(
        self,
        *,
        clock: Callable[[], float] = time.monotonic,
        random: Callable[[], float] = random.random,
    ) -> None:
        self._clock = clock
        self._random = random
        self._step = FIRST
        self._last = float("-inf")

    def next(self, at_least: float = 0.0) -> float:
        """Return the seconds to wait now: step x (1 to 2), never under *at_least*."""
        now = self._clock()
        if now - self._last > RESET:
            self._step = FIRST
        self._last = now
        delay = self._step * (1.0 + self._random())
        self._step = min(self._step * FACTOR, CAP)
        return max(delay, at_least)
