"""What the reads and writes of a history must not show; each checker returns what is wrong."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from heapq import heappop, heappush
from typing import NamedTuple

from tests.harness.history import ABSENT, Log, Read, Tide, Update, Write

_UNKNOWN = Tide()


class Violation(NamedTuple):
    """A read or an update that shows what it must not."""

    what: Read | Update
    reason: str

    def __str__(self) -> str:
        return f"{self.reason}: {self.what}"


def inexact(log: Log, reads: Iterable[Read], tide: Tide = _UNKNOWN) -> list[Violation]:
    """Lists that aren't the state of their own version, and gets of versions that never were.

    Nor may any show what there can't have been yet.
    """
    found = []
    for read in reads:
        view, highest = log.selected(read.label), tide.highest(read.returned)
        if read.key:
            shown = read.found.get(read.key, ABSENT)
            wrong = view.first(read.key, shown, 0, highest) is None
        else:
            wrong = read.version > highest or view.state(read.prefix, read.version) != read.found
        if wrong:
            found.append(Violation(read, "no such state"))
    return found


def unseen(
    log: Log,
    writes: Sequence[Write],
    reads: Iterable[Read],
    tide: Tide = _UNKNOWN,
    *,
    within: float = 0.0,
) -> list[Violation]:
    """Reads that miss a write which was acknowledged before they began, by *within* seconds."""
    known = _Acknowledged(writes)
    found = []
    for read in reads:
        highest = tide.highest(read.returned)
        for key, shown in _registers(log, read):
            needed = known.newest(key, read.called - within)
            if log.selected(read.label).first(key, shown, needed, highest) is None:
                found.append(Violation(read, f"misses the write of {needed} to {key}"))
                break
    return found


def backwards(log: Log, reads: Iterable[Read], tide: Tide = _UNKNOWN) -> list[Violation]:
    """Reads that show a client an older state than it has seen; in the order that it read."""
    by_client: dict[str, list[Read]] = {}
    for read in reads:
        by_client.setdefault(read.client, []).append(read)
    return [
        violation
        for each in by_client.values()
        for violation in (*nonlinear(log, [], each, tide), *_lists_backwards(each))
    ]


def _lists_backwards(reads: Iterable[Read]) -> Iterator[Violation]:
    """A list's own version doesn't go back either, whatever is in it."""
    seen: dict[tuple[str, str], int] = {}
    for read in sorted(reads, key=lambda read: read.called):
        scope = (read.prefix, read.label)
        if not read.key and read.version < seen.get(scope, 0):
            yield Violation(read, f"a list of {seen[scope]} was seen before")
        seen[scope] = max(read.version, seen.get(scope, 0))


def nonlinear(
    log: Log, writes: Iterable[Write], reads: Iterable[Read], tide: Tide = _UNKNOWN
) -> list[Violation]:
    """Reads that can't have happened between their call and return, each object being a register.

    The versions are the order of the writes, so a read has to find a place between them: after all
    that had returned when it was called, writes and reads of whomever, and before what had not
    been written when it returned. The first such place leaves most room to those that follow.
    """
    floors: dict[str, int] = {}
    ended: list[tuple[float, str, int]] = [
        (each.returned, each.key, each.version) for each in writes
    ]
    ended.sort()  # a sorted list is a heap
    found = []
    for read in sorted(reads, key=lambda read: read.called):
        while ended and ended[0][0] < read.called:
            _, key, version = heappop(ended)
            floors[key] = max(version, floors.get(key, 0))
        highest = tide.highest(read.returned)
        for key, shown in _registers(log, read):
            floor = floors.get(key, 0)
            place = log.selected(read.label).first(key, shown, floor, highest)
            if place is None:
                found.append(Violation(read, f"{key} had been at {floor} before"))
                break
            heappush(ended, (read.returned, key, place))
    return found


def _registers(log: Log, read: Read) -> Iterator[tuple[str, int]]:
    """What a read shows of each object that it is about."""
    keys = [read.key] if read.key else log.keys(read.prefix)
    return ((key, read.found.get(key, ABSENT)) for key in keys)


def too_old(reads: Iterable[Read], bound: float) -> list[Violation]:
    """Cached answers that say themselves that they are older than allowed."""
    return [
        Violation(read, "older than allowed") for read in reads if read.hit and read.age > bound
    ]


def lost(log: Log, updates: Iterable[Update]) -> list[Violation]:
    """Updates that undid what another had written, or didn't do what they were to."""
    found = []
    for update in updates:
        if not update.version:
            continue
        before = log.event(update.key, update.version - 1)
        if not update.merged and before.version != update.base:
            found.append(Violation(update, f"written over {before.version}"))
        after = log.event(update.key, update.version)
        if after.annotations != {**before.annotations, **update.annotations}:
            found.append(Violation(update, f"made {after.annotations} of {before.annotations}"))
    return found


def refused(log: Log, updates: Iterable[Update], tide: Tide = _UNKNOWN) -> list[Violation]:
    """Conflicts of updates whose base was still the newest state when they were refused."""
    found = []
    for update in updates:
        newer = log.next(update.key, update.base)
        if not update.version and (newer is None or newer.version > tide.highest(update.returned)):
            found.append(Violation(update, "refused without a conflict"))
    return found


class _Acknowledged:
    """The newest version of a key that was acknowledged by some time."""

    def __init__(self, writes: Iterable[Write]) -> None:
        self._times: dict[str, list[float]] = {}
        self._newest: dict[str, list[int]] = {}
        for write in sorted(writes, key=lambda write: write.returned):
            newest = self._newest.setdefault(write.key, [0])
            newest.append(max(newest[-1], write.version))
            self._times.setdefault(write.key, []).append(write.returned)

    def newest(self, key: str, time: float) -> int:
        return self._newest.get(key, [0])[bisect_right(self._times.get(key, []), time)]
