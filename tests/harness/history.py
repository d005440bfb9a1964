"""Histories of concurrent reads and writes, and what they must not show.

The truth is the log of a watch at kube-apiserver itself: every state of every object, in order. A
write is the event that it made; a read has to be some state of that log, and which ones it may be
is what each checker says. Times are the client's own, taken before a request and after its answer.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

ABSENT = 0
"""The version of an object that isn't there."""


class Write(NamedTuple):
    """A write that was acknowledged, by the version of the event that it made."""

    key: str
    version: int
    called: float
    returned: float
    through_proxy: bool = True


class Read(NamedTuple):
    """A get of *key*, or a list of all the objects of *prefix*, by their versions.

    *version* is the list's own, 0 for a get. *hit*: the cache answered.
    """

    client: str
    called: float
    returned: float
    found: dict[str, int]
    key: str = ""
    prefix: str = ""
    version: int = 0
    hit: bool = True
    age: int = 0

    def __str__(self) -> str:
        what = f"get {self.key}" if self.key else f"list {self.prefix or 'all'} at {self.version}"
        how = "hit" if self.hit else "live"
        return f"{self.client}: {what} ({how}, age {self.age}) {self.called:.4f} {self.found}"


class Log:
    """Every version of every object, in order; ABSENT ones are deletions, at their version."""

    def __init__(self, events: Iterable[tuple[str, int, bool]]) -> None:
        self._versions: dict[str, list[int]] = {}
        self._gone: dict[str, list[bool]] = {}
        for key, version, gone in sorted(events, key=lambda event: event[1]):
            self._versions.setdefault(key, [0]).append(version)
            self._gone.setdefault(key, [True]).append(gone)

    def keys(self, prefix: str = "") -> Iterator[str]:
        return (key for key in self._versions if key.startswith(prefix))

    def at(self, key: str, version: int) -> int:
        """The object's version in the state of a version."""
        versions = self._versions.get(key, [0])
        place = bisect_right(versions, version) - 1
        return ABSENT if self._gone.get(key, [True])[place] else versions[place]

    def state(self, prefix: str, version: int) -> dict[str, int]:
        """All objects in the state of a version."""
        found = {key: self.at(key, version) for key in self.keys(prefix)}
        return {key: each for key, each in found.items() if each != ABSENT}

    def first(self, key: str, found: int, after: int) -> int | None:
        """Where the object was first seen as *found* in a state of *after* or later."""
        versions, gone = self._versions.get(key, [0]), self._gone.get(key, [True])
        for place, version in enumerate(versions):
            ends = versions[place + 1] if place + 1 < len(versions) else None
            shown = ABSENT if gone[place] else version
            if shown == found and (ends is None or ends > after):
                return max(version, after)
        return None


class Violation(NamedTuple):
    """A read that shows what it must not."""

    read: Read
    reason: str

    def __str__(self) -> str:
        return f"{self.reason}: {self.read}"


def inexact(log: Log, reads: Iterable[Read]) -> list[Violation]:
    """Lists that aren't the state of their own version, and gets of versions that never were."""
    found = []
    for read in reads:
        if read.key:
            wrong = log.first(read.key, read.found.get(read.key, ABSENT), 0) is None
        else:
            wrong = log.state(read.prefix, read.version) != read.found
        if wrong:
            found.append(Violation(read, "no such state"))
    return found


def unseen(
    log: Log, writes: Sequence[Write], reads: Iterable[Read], *, within: float = 0.0
) -> list[Violation]:
    """Reads that miss a write which was acknowledged before they began, by *within* seconds."""
    known = _Acknowledged(writes)
    found = []
    for read in reads:
        if read.key:
            needed = known.newest(read.key, read.called - within)
            missed = log.first(read.key, read.found.get(read.key, ABSENT), needed) is None
        else:
            needed = known.newest_of(read.prefix, read.called - within)
            missed = _misses(log, read, needed)
        if missed:
            found.append(Violation(read, f"misses the write of {needed}"))
    return found


def _misses(log: Log, read: Read, needed: int) -> bool:
    """A list of an older version may be right: nothing in it has changed in between."""
    return read.version < needed and log.state(read.prefix, needed) != read.found


def backwards(log: Log, reads: Iterable[Read]) -> list[Violation]:
    """Reads that show a client an older state than it has seen; in the order that it read."""
    seen: dict[tuple[str, str], int] = {}
    lists: dict[tuple[str, str], int] = {}
    found = []
    for read in sorted(reads, key=lambda read: read.called):
        keys = [read.key] if read.key else list(log.keys(read.prefix))
        if not read.key:
            scope = (read.client, read.prefix)
            if read.version < lists.get(scope, 0):
                found.append(Violation(read, f"a list of {lists[scope]} was seen before"))
            lists[scope] = max(read.version, lists.get(scope, 0))
        for key in keys:
            place = (read.client, key)
            shown = log.first(key, read.found.get(key, ABSENT), seen.get(place, 0))
            if shown is None:
                found.append(Violation(read, f"{key} was seen at {seen[place]} before"))
            else:
                seen[place] = shown
    return found


def too_old(reads: Iterable[Read], bound: float) -> list[Violation]:
    """Cached answers that say themselves that they are older than allowed."""
    return [
        Violation(read, "older than allowed") for read in reads if read.hit and read.age > bound
    ]


class _Acknowledged:
    """The newest version that was acknowledged by some time: of a key, and of a prefix."""

    def __init__(self, writes: Sequence[Write]) -> None:
        self._writes = sorted(writes, key=lambda write: write.returned)
        self._cache: dict[tuple[str, bool], tuple[list[float], list[int]]] = {}

    def newest(self, key: str, time: float) -> int:
        return self._newest(key, time, whole=True)

    def newest_of(self, prefix: str, time: float) -> int:
        return self._newest(prefix, time, whole=False)

    def _newest(self, text: str, time: float, *, whole: bool) -> int:
        times, versions = self._cache.get((text, whole)) or self._gather(text, whole=whole)
        place = bisect_right(times, time)
        return versions[place - 1] if place else 0

    def _gather(self, text: str, *, whole: bool) -> tuple[list[float], list[int]]:
        times, versions = [], []
        newest = 0
        for write in self._writes:
            if write.key == text if whole else write.key.startswith(text):
                newest = max(newest, write.version)
                times.append(write.returned)
                versions.append(newest)
        self._cache[text, whole] = times, versions
        return times, versions
