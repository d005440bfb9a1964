"""Informers are earned: which reads are frequent enough to deserve one."""

from collections import deque
from collections.abc import Callable

from proxy.cache.scope import Scope
from proxy.kube.requests import Verb

WINDOW = 60.0
"""Seconds within which reads count together."""

MAX_SCOPES = 4096
"""Scopes remembered: a client that sweeps over names can't fill the memory."""

MAX_NAME = 253
"""Characters of a name that something may have (a DNS subdomain's)."""


class Demand:
    """Counts the forwarded reads of each scope against the *thresholds* of ``cache.on_demand``.

    A threshold of 1 earns an informer at once, 0 never.
    """

    def __init__(self, thresholds: dict[Verb, int], clock: Callable[[], float]) -> None:
        self._thresholds = thresholds
        self._clock = clock
        self._reads: dict[tuple[Scope, Verb], deque[float]] = {}

    def earns(self, scope: Scope, read: Verb) -> bool:
        """Count a read; tell whether it earns an informer of *scope*."""
        threshold = self._thresholds[read]
        if threshold == 0 or max(map(len, (*scope.resource, scope.namespace))) > MAX_NAME:
            return False
        now = self._clock()
        times = self._times((scope, read), threshold)
        times.append(now)
        return len(times) == threshold and now - times[0] <= WINDOW

    def _times(self, key: tuple[Scope, Verb], threshold: int) -> deque[float]:
        times = self._reads.pop(key, None) or deque(maxlen=threshold)
        self._reads[key] = times  # last in, last out
        if len(self._reads) > MAX_SCOPES:
            del self._reads[next(iter(self._reads))]
        return times

    def forget(self, scope: Scope) -> None:
        """Start counting anew for a scope."""
        for read in self._thresholds:
            self._reads.pop((scope, read), None)
