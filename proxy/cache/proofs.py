"""When an informer was current: what was learnt of the API server's version, and reached since.

A *mark* is a version that the API server had at some moment: every write that was committed before
is at or below it. An informer that holds a mark's version was current at the mark's moment.
"""

from collections import deque
from math import inf
from typing import NamedTuple

MAX_MARKS = 256
"""Marks kept; each is reached by the next event or bookmark, so many mean a stream that is stuck.
Of more, the oldest stays, which says since when the informer is behind."""


class _Mark(NamedTuple):
    version: int
    moment: float


class Proofs:
    """Moments, in seconds of the informer's clock, at which its state was the API server's.

    ``proven`` is good against etcd: a probe was sent then, and what it learnt is held. ``told`` is
    the last sign of the informer's own watch, which shows the API server's watch cache only; once a
    mark is known that the informer hasn't reached, it goes no further than that.
    """

    def __init__(self, now: float) -> None:
        self.proven = -inf
        self.told = now
        self._marks: deque[_Mark] = deque()

    @property
    def last(self) -> float:
        """The later of the two."""
        return max(self.proven, self.told)

    def learn(self, version: int, moment: float, held: int) -> None:
        """Note that the API server had *version* when it was asked at *moment*."""
        if version <= held:
            self.proven = max(self.proven, moment)
        elif not self._marks or (moment > self._marks[-1].moment and len(self._marks) < MAX_MARKS):
            self._marks.append(_Mark(version, moment))

    def tell(self, held: int, now: float) -> None:
        """Note that the watch has brought the informer to version *held*."""
        while self._marks and self._marks[0].version <= held:
            self.proven = max(self.proven, self._marks.popleft().moment)
        self.told = max(self.told, min(now, self._marks[0].moment) if self._marks else now)

    def forget(self) -> None:
        """Start anew: versions mean something else now."""
        self.proven = -inf
        self._marks.clear()
