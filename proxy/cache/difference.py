"""What happened between two states of a resource, told as events."""

from collections.abc import Iterable
from typing import NamedTuple

from proxy.forms.form import EventType
from proxy.forms.objects import Object


class Difference(NamedTuple):
    """An event that a relist implies; *previous* is the object before it."""

    type: EventType
    version: int
    object: Object
    previous: Object | None


class NoHistoryError(ValueError):
    """The new state can't have followed the old one: the API server's history went back."""


def differences(
    before: Iterable[Object], after: Iterable[Object], since: int, until: int
) -> list[Difference]:
    """List the events that lead from *before* (at version *since*) to *after* (at *until*).

    Ordered by version, all in (since, until]. Deletions left no version of their own, so each gets
    one that nothing else has: a client that resumes from any event misses none and sees none twice.
    Raises NoHistoryError where no such versions exist.
    """
    old = {found.key: found for found in before}
    new = {found.key: found for found in after}
    events = [
        _written(found, old.get(key))
        for key, found in new.items()
        if key not in old or _is_other(old[key], found)
    ]
    free = _FreeVersions({event.version for event in events}, since)
    for key, found in old.items():
        successor = new.get(key)
        if successor is None:
            events.append(Difference(EventType.DELETED, free.take(until), found, found))
        elif successor.uid != found.uid:
            version = free.take(successor.version - 1)
            events.append(Difference(EventType.DELETED, version, found, found))
    events.sort(key=lambda event: event.version)
    if events and not since < events[0].version <= events[-1].version <= until:
        raise NoHistoryError(f"changes outside of ({since}, {until}]")
    return events


def _is_other(old: Object, new: Object) -> bool:
    return old.version != new.version or old.uid != new.uid


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
