"""What happened between two states of a resource, told as events."""

from collections.abc import Iterable, Iterator
from heapq import merge
from operator import attrgetter
from typing import Any, NamedTuple

from proxy.cache.history import Event
from proxy.forms.form import EventType
from proxy.forms.objects import Object

SLICE = 4096
"""Events sorted in one go: about a millisecond."""

BREATH = 250
"""Objects compared before the event loop goes on: about half a millisecond."""


class Pair(NamedTuple):
    """An object before and after, where that is not the same; None for no object."""

    before: Object | None
    after: Object | None


class NoHistoryError(ValueError):
    """The new state can't have followed the old one: the API server's history went back."""


class RereadError(ValueError):
    """An object reads otherwise at the version that it had: its definition has changed."""


def changed_pairs(before: Iterable[Object], after: Iterable[Object]) -> Iterator[Pair | None]:
    """Walk two states in key order; yields what differs, and None now and then to breathe.

    Raises RereadError.
    """
    old, new = iter(before), iter(after)
    left, right = next(old, None), next(new, None)
    compared = 0
    while left is not None or right is not None:
        compared += 1
        if compared % BREATH == 0:
            yield None
        if right is None or (left is not None and left.key < right.key):
            yield Pair(left, None)
            left = next(old, None)
        elif left is None or right.key < left.key:
            yield Pair(None, right)
            right = next(new, None)
        else:
            if left.version != right.version or left.uid != right.uid:
                yield Pair(left, right)
            elif left.raw != right.raw:
                raise RereadError(f"{left.key} at {left.version}")
            left, right = next(old, None), next(new, None)


def differences(pairs: Iterable[Pair], since: int, until: int, seen: float) -> list[Event]:
    """List the events that lead from the state at *since* to the one at *until*, *seen* now.

    Ordered by version, all in (since, until]. Deletions left no version of their own, so each gets
    one that nothing else has: a client that resumes from any event misses none and sees none twice.
    Raises NoHistoryError where no such versions exist.
    """
    events = []
    deleted: list[tuple[Object, int]] = []
    for before, after in pairs:
        if after is not None:
            events.append(_written(after, before, seen))
        if before is not None and (after is None or after.uid != before.uid):
            deleted.append((before, until if after is None else after.version - 1))
    free = _FreeVersions({event.version for event in events} if deleted else set(), since)
    for found, latest in deleted:
        events.append(Event(EventType.DELETED, free.take(latest), found, found, seen))
    events = _sorted(events)
    if events and not since < events[0].version <= events[-1].version <= until:
        raise NoHistoryError(f"changes outside of ({since}, {until}]")
    return events


def let_go(items: list[Any]) -> Iterator[None]:
    """Empty a long list in small steps; freeing its items at once would take long."""
    while items:
        del items[-BREATH:]
        yield


def _sorted(events: list[Event]) -> list[Event]:
    """Sort by version in slices, as one long sort would keep other threads from running."""
    by_version = attrgetter("version")
    slices = (
        sorted(events[start : start + SLICE], key=by_version)
        for start in range(0, len(events), SLICE)
    )
    return list(merge(*slices, key=by_version))


def _written(found: Object, previous: Object | None, seen: float) -> Event:
    if previous is None or previous.uid != found.uid:
        return Event(EventType.ADDED, found.version, found, None, seen)
    return Event(EventType.MODIFIED, found.version, found, previous, seen)


class _FreeVersions:
    """Hands out the newest version that is not taken, at or below a limit (a union-find)."""

    def __init__(self, taken: set[int], floor: int) -> None:
        self._below = {version: version - 1 for version in taken}
        self._floor = floor

    def take(self, limit: int) -> int:
        path = []
        version = limit
        while version in self._below:
            path.append(version)
            version = self._below[version]
        if version <= self._floor:
            raise NoHistoryError(f"no version free between {self._floor} and {limit}")
        for step in [*path, version]:
            self._below[step] = version - 1
        return version
