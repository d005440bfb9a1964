"""Histories of concurrent reads and writes, and the truth that they are held against.

The truth is the log of watches at kube-apiserver itself: every state of every object, in order. A
write is the event that it made; a read has to be some state of that log, and which ones it may be
is what each checker in `violations` says. Times are the client's own, taken before a request and
after its answer. Keys are `plural/namespace/name`; the versions of all resources are one order.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping
from math import inf
from typing import NamedTuple

ABSENT = 0
"""The version of an object that isn't there."""


class Event(NamedTuple):
    """A state of an object from *version* on; *gone*: its deletion.

    *labels* are written `name=value`; *annotations* are what updates change.
    """

    key: str
    version: int
    gone: bool = False
    labels: frozenset[str] = frozenset()
    annotations: Mapping[str, str] = {}


class Write(NamedTuple):
    """A write that was acknowledged, by the version of the event that it made."""

    key: str
    version: int
    called: float
    returned: float
    through_proxy: bool = True


class Update(NamedTuple):
    """An update, of what was read at *base* or if *merged* of what is there; it sets *annotations*.

    Acknowledged at *version*; 0 where it was refused as a conflict, *local* by the proxy itself.
    """

    key: str
    base: int
    annotations: Mapping[str, str]
    called: float
    returned: float
    version: int = 0
    merged: bool = False
    local: bool = False


class Read(NamedTuple):
    """A get of *key*, or a list of all objects of *prefix* that have *label*, by their versions.

    *version* is the list's own, 0 for a get. *hit*: the cache answered.
    """

    client: str
    called: float
    returned: float
    found: dict[str, int]
    key: str = ""
    prefix: str = ""
    label: str = ""
    version: int = 0
    hit: bool = True
    age: int = 0
    form: str = ""
    through_proxy: bool = True

    def __str__(self) -> str:
        scope = f"{self.prefix or 'all'} {self.label}".strip()
        what = f"get {self.key}" if self.key else f"list {scope} at {self.version}"
        how = f"hit, age {self.age}" if self.hit else "live"
        times = f"{self.called:.4f} to {self.returned:.4f}"
        return f"{self.client}: {what} ({how}) {self.form} {times} {self.found}"


class Log:
    """Every version of every object, in order."""

    def __init__(self, events: Iterable[Event]) -> None:
        self._events: dict[str, list[Event]] = {}
        self._versions: dict[str, list[int]] = {}
        self._selected: dict[str, Log] = {}
        for event in sorted(events, key=lambda event: event.version):
            first = Event(event.key, 0, gone=True)
            self._events.setdefault(event.key, [first]).append(event)
            self._versions.setdefault(event.key, [0]).append(event.version)

    def selected(self, label: str) -> Log:
        """The log as those see it who select by a label: what hasn't got it is gone."""
        if not label:
            return self
        if label not in self._selected:
            self._selected[label] = Log(
                event._replace(gone=event.gone or label not in event.labels)
                for events in self._events.values()
                for event in events[1:]
            )
        return self._selected[label]

    def keys(self, prefix: str = "") -> Iterator[str]:
        return (key for key in self._versions if key.startswith(prefix))

    def event(self, key: str, version: int) -> Event:
        """What made the object what it is in the state of a version."""
        events = self._events.get(key) or [Event(key, 0, gone=True)]
        return events[bisect_right(self._versions.get(key, [0]), version) - 1]

    def next(self, key: str, version: int) -> Event | None:
        """What first happened to the object after a version."""
        place = bisect_right(self._versions.get(key, [0]), version)
        events = self._events.get(key, [])
        return events[place] if place < len(events) else None

    def at(self, key: str, version: int) -> int:
        """The object's version in the state of a version."""
        event = self.event(key, version)
        return ABSENT if event.gone else event.version

    def state(self, prefix: str, version: int) -> dict[str, int]:
        """All objects in the state of a version."""
        found = {key: self.at(key, version) for key in self.keys(prefix)}
        return {key: each for key, each in found.items() if each != ABSENT}

    def first(self, key: str, found: int, after: int, until: float = inf) -> int | None:
        """Where the object was first seen as *found*, in a state of *after* to *until*."""
        versions = self._versions.get(key, [0])
        place = max(bisect_right(versions, after) - 1, 0)
        while place < len(versions) and versions[place] <= until:
            event = self._events[key][place] if key in self._events else None
            shown = ABSENT if event is None or event.gone else event.version
            if shown == found:
                return max(versions[place], after)
            place += 1
        return None


class Tide:
    """What consistent reads beside the proxy have shown of kube-apiserver's version, and when.

    None of them shows less than was there when it was sent, so nothing newer was there before.
    """

    def __init__(self, shown: Iterable[tuple[float, int]] = ()) -> None:
        """Pairs of the time at which a read was sent, and the version that it showed."""
        self._shown = sorted(shown)
        lowest = inf
        self._lowest: list[float] = []
        for _, version in reversed(self._shown):
            lowest = min(lowest, version)
            self._lowest.append(lowest)
        self._lowest.reverse()

    def highest(self, time: float) -> float:
        """The newest version that there can have been at some time; infinite if that's unknown."""
        place = bisect_left(self._shown, (time, 0))
        return self._lowest[place] if place < len(self._lowest) else inf
