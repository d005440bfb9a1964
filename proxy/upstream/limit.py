"""A rate limit: a token bucket for each who asks, holding a second's worth."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from math import ceil

from proxy.kube.errors import TooManyRequests


@dataclass(slots=True)
class _Bucket:
    tokens: float
    filled: float


class RateLimit:
    """Allows each name *rate* reads a second, and at least one at a time; 0 is no limit.

    A bucket is kept for every name: they must be bounded.
    """

    def __init__(self, rate: float, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._rate = rate
        self._most = max(1.0, rate)
        self._clock = clock
        self._buckets: dict[str, _Bucket] = {}

    def take(self, name: str) -> None:
        """Take a token. Raises TooManyRequests with the whole seconds until there is one."""
        if not self._rate:
            return
        now = self._clock()
        bucket = self._buckets.setdefault(name, _Bucket(self._most, now))
        bucket.tokens = min(self._most, bucket.tokens + (now - bucket.filled) * self._rate)
        bucket.filled = now
        if bucket.tokens < 1:
            raise TooManyRequests(
                f"Too many requests: live reads of {name} are limited to {self._rate:g} a second",
                retry_after=max(1, ceil((1 - bucket.tokens) / self._rate)),
            )
        bucket.tokens -= 1
