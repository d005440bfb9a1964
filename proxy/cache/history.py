"""The last events of an informer in version order; watches read it with cursors.

Bounded by age, number and size; a watch from before its floor is the API server's to answer.
"""

from collections import deque
from collections.abc import Callable, Sequence
from itertools import islice

import msgspec

from proxy.forms.form import EventType
from proxy.forms.objects import Object

KEEP_SECONDS = 300.0
"""kube-apiserver's ``--etcd-compaction-interval``: what is older it could not serve either."""

MAX_EVENTS = 102_400
"""``defaultUpperBoundCapacity`` of the API server's own ring (``cacher/watch_cache.go``)."""

MAX_BYTES = 32 * 1024 * 1024
"""Encoded objects in the events of one informer."""


class Event(msgspec.Struct, frozen=True, gc=False, eq=False):
    """A change and what it replaced; *previous* is None for the first version of an object.

    *version* is that of the change. It differs from the object's own where a deletion was found by
    a relist: then the object is the last state known.
    """

    type: EventType
    version: int
    object: Object
    previous: Object | None
    seen: float


def _fitting(events: Sequence[Event]) -> int:
    """Count the last events that fit into a history."""
    size = 0
    for count, event in enumerate(reversed(events)):
        size += len(event.object.raw)
        if count == MAX_EVENTS or size > MAX_BYTES:
            return count
    return len(events)


class History:
    """Events with ``version > floor``, all of them. A cursor is the number of an event."""

    def __init__(self, floor: int, clock: Callable[[], float]) -> None:
        self.floor = floor
        self._clock = clock
        self._events: deque[Event] = deque()
        self._first = 0
        self._bytes = 0

    @property
    def end(self) -> int:
        """The cursor behind the newest event."""
        return self._first + len(self._events)

    def append(
        self, event_type: EventType, version: int, found: Object, previous: Object | None
    ) -> None:
        """Add the newest event and let go of those that are over the limits."""
        self.extend([Event(event_type, version, found, previous, self._clock())])

    def extend(self, events: Sequence[Event]) -> None:
        """Add the newest events; of more than fit only the last ones, and nothing before them."""
        fitting = _fitting(events)
        if fitting < len(events):
            self._first += len(self._events) + len(events) - fitting
            self._events.clear()
            self._bytes = 0
            self.floor = events[-fitting - 1].version
            events = events[len(events) - fitting :]
        self._events.extend(events)
        self._bytes += sum(len(event.object.raw) for event in events)
        while self._events and self._is_over():
            dropped = self._events.popleft()
            self.floor = dropped.version
            self._first += 1
            self._bytes -= len(dropped.object.raw)

    def _is_over(self) -> bool:
        oldest = self._events[0]
        return (
            len(self._events) > MAX_EVENTS
            or self._bytes > MAX_BYTES
            or self._clock() - oldest.seen > KEEP_SECONDS
        )

    def cursor_after(self, version: int) -> int | None:
        """Find the first event newer than *version*; None when events before it are gone."""
        if version < self.floor:
            return None
        behind = 0
        for event in reversed(self._events):
            if event.version <= version:
                break
            behind += 1
        return self.end - behind

    def read(self, cursor: int, limit: int) -> list[Event] | None:
        """Read up to *limit* events from *cursor* on; None when the ring has passed it."""
        start = cursor - self._first
        if start < 0:
            return None
        count = len(self._events) - start
        if count <= 0:
            return []
        if count > len(self._events) // 2:
            return list(islice(self._events, start, start + limit))
        newest = list(islice(reversed(self._events), count))
        newest.reverse()
        return newest[:limit]
