"""What happened between two states of a resource, told as events."""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from proxy.forms.form import EventType
from proxy.forms.objects import Object

BREATH = 1000
"""Keys compared before the event loop goes on: about half a millisecond."""


class Pair(NamedTuple):
    """An object before and after, where that is not the same; None for no object."""

    before: Object | None
    after: Object | None


class Difference(NamedTuple):
    """An event that a relist implies; *previous* is the object before it."""

    type: EventType
    version: int
    object: Object
    previous: Object | None


class NoHistoryError(ValueError):
    """The new state can't have followed the old one: the API server's history went back."""


def changed_pairs(before: Iterable[Object], after: Iterable[Object]) -> Iterator[Pair | None]:
    """Walk two states in key order; yields what differs, and None now and then to breathe."""
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
            left, right = next(old, None), next(new, None)


def differences(pairs: Iterable[Pair], since: int, until: int) -> list[Difference]:
    """List the events that lead from the state at *since* to the one at *until*.

    Ordered by version, all in (since, until]. Deletions left no version of their own, so each gets
    one that nothing else has: a client that resumes from any event misses none and sees none twice.
    Raises NoHistoryError where no such versions exist.
    """
    events = []
    deleted: list[tuple[Object, int]] = []
    for before, after in pairs:
        if after is not None:
            events.append(_written(after, before))
        if before is not None and (after is None or after.uid != before.uid):
            deleted.append((before, until if after is None else after.version - 1))
    free = _FreeVersions({event.version for event in events}, since)
    for found, latest in deleted:
        events.append(Difference(EventType.DELETED, free.take(latest), found, found))
    events.sort(key=lambda event: event.version)
    if events and not since < events[0].version <= events[-1].version <= until:
        raise NoHistoryError(f"changes outside of ({since}, {until}]")
    return events


def _written(found: Object, previous: Object | None) -> Difference:
    if previous is None or previous.uid != found.uid:
        return Difference(EventType.ADDED, found.version, found, None)
    return Difference(EventType.MODIFIED, found.version, found, previous)


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
