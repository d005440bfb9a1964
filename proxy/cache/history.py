"""The last events of an informer in version order; watches read it with cursors.

Bounded by age, number and size; a watch from before its floor is the API server's to answer.
"""

from bisect import bisect_right
from collections.abc import Callable, Sequence

import msgspec

from proxy.forms.form import EventType
from proxy.forms.objects import Object

KEEP_SECONDS = 300.0
"""kube-apiserver's ``--etcd-compaction-interval``: what is older it could not serve either."""

MAX_EVENTS = 102_400
"""``defaultUpperBoundCapacity`` of the API server's own ring (``cacher/watch_cache.go``)."""

MAX_SEARCHED = 20_000
"""Events among which a version of an object is looked for, in about a millisecond."""

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


def _fitting(events: Sequence[Event]) -> tuple[int, int]:
    """Count the last events that fit into a history, and their bytes."""
    total = 0
    for count, event in enumerate(reversed(events)):
        size = len(event.object.raw)
        if count == MAX_EVENTS or total + size > MAX_BYTES:
            return count, total
        total += size
    return len(events), total


class History:
    """Events with ``version > floor``, all of them. A cursor is the number of an event.

    A list, since readers begin anywhere in it: the first ``_gone`` places are empty, until they are
    as many as the others and are cut off.
    """

    def __init__(self, floor: int, clock: Callable[[], float]) -> None:
        self.floor = floor
        self._clock = clock
        self._events: list[Event | None] = []
        self._gone = 0
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

    def extend(self, events: Sequence[Event]) -> list[Event | None]:
        """Add the newest events; of more than fit only the last ones, and nothing before them.

        Returns what was there where that has made room at once: to be freed in small steps.
        """
        replaced: list[Event | None] = []
        fitting, size = _fitting(events)
        if fitting < len(events):
            self._first += len(self._events) + len(events) - fitting
            replaced, self._events = self._events, []
            self._gone = self._bytes = 0
            self.floor = events[-fitting - 1].version
            events = events[len(events) - fitting :]
        self._events.extend(events)
        self._bytes += size
        while (oldest := self._oldest) is not None and self._is_over(oldest):
            self.floor = oldest.version
            self._bytes -= len(oldest.object.raw)
            self._events[self._gone] = None
            self._gone += 1
        if self._gone * 2 > len(self._events):
            del self._events[: self._gone]
            self._first += self._gone
            self._gone = 0
        return replaced

    @property
    def _oldest(self) -> Event | None:
        return self._events[self._gone] if self._gone < len(self._events) else None

    def _is_over(self, oldest: Event) -> bool:
        return (
            len(self._events) - self._gone > MAX_EVENTS
            or self._bytes > MAX_BYTES
            or self._clock() - oldest.seen > KEEP_SECONDS
        )

    def cursor_after(self, version: int) -> int | None:
        """Find the first event newer than *version*; None when events before it are gone."""
        if version < self.floor:
            return None
        return self._first + bisect_right(self._events, version, lo=self._gone, key=_version)

    def at(self, version: int) -> Event | None:
        """Find the event of a version."""
        cursor = self.cursor_after(version - 1)
        found = self.read(cursor, 1) if cursor is not None else None
        return found[0] if found and found[0].version == version else None

    def after(self, version: int) -> Event | None:
        """Find the first event that is newer than *version*, of those that are left."""
        found = self.read(self.cursor_after(max(version, self.floor)) or self._first, 1)
        return found[0] if found else None

    def version_of(self, key: str, version: int) -> Object | None:
        """Find what an object was at the *version* of its own, if an event shows it."""
        event = self.at(version)
        if event is not None and event.object.key == key:
            return event.object
        for event in self.newest(MAX_SEARCHED):
            if event.object.key == key and event.previous and event.previous.version == version:
                return event.previous
        return None

    def before(self, moment: float, key: str, now: Object | None) -> Object | None:
        """Tell what an object that is *now* this one was right before *moment*."""
        for event in reversed(self._events):
            if event is None or event.seen < moment:
                break
            if event.object.key == key:
                now = event.previous
        return now

    def newest(self, limit: int) -> list[Event]:
        """The last *limit* events, the newest one first."""
        start = max(self._gone, len(self._events) - limit)
        return [event for event in reversed(self._events[start:]) if event is not None]

    def read(self, cursor: int, limit: int) -> list[Event] | None:
        """Read up to *limit* events from *cursor* on; None when the ring has passed it."""
        start = cursor - self._first
        if start < self._gone:
            return None
        return [event for event in self._events[start : start + limit] if event is not None]


def _version(event: Event | None) -> int:
    return 0 if event is None else event.version
