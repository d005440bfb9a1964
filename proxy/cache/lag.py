"""How long committed changes take to reach a store: exact for the writes that the proxy passed on.

A write's answer names the version it made, and the watch brings an event of that version.
"""

from math import inf
from typing import NamedTuple

from proxy.cache.histogram import Histogram
from proxy.cache.history import History

MAX_AWAITED = 1024
"""Writes whose events are awaited; those beyond are not measured."""


class Write(NamedTuple):
    """A write that made *version*: when it was *sent* and when its answer had *arrived*."""

    version: int
    sent: float
    arrived: float


class Lag:
    """Measures from a write's answer to its event; an event that is first was not late at all."""

    def __init__(self) -> None:
        self.seconds = Histogram()
        self.last: float | None = None
        self._awaited: list[Write] = []

    @property
    def since(self) -> float:
        """Since when an event is awaited; infinite if none is."""
        return self._awaited[0].arrived if self._awaited else inf

    def forget(self) -> None:
        """Await nothing any more: versions mean something else now."""
        self._awaited = []

    def expect(self, write: Write, held: int, history: History) -> None:
        """Measure a write, whose event is to come, or came while it was on its way.

        An older event is not its own: it has changed nothing.
        """
        if write.version > held:
            if len(self._awaited) < MAX_AWAITED:
                self._awaited.append(write)
        else:
            event = history.at(write.version)
            if event is not None and event.seen >= write.sent:
                self._observe(0.0)

    def reach(self, held: int, now: float) -> None:
        """Note that the store is at version *held* now."""
        if not self._awaited:
            return
        for write in self._awaited:
            if write.version <= held:
                self._observe(now - write.arrived)
        self._awaited = [write for write in self._awaited if write.version > held]

    def _observe(self, seconds: float) -> None:
        self.last = seconds
        self.seconds.observe(seconds)
