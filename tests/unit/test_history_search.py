"""The register checker against a search through all that can have happened, on small histories."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

import pytest

from tests.harness.history import ABSENT, Event, Log, Read, Tide, Write
from tests.harness.violations import nonlinear

KEY = "a/x"
HISTORIES = 300
"""Of each seed; about two in three show what can't be."""


def history(random: Random) -> tuple[Sequence[Event], Sequence[Write], Sequence[Read], Tide]:
    """Writes of one object at a version each, whose number is also the time of it; reads, anyhow.

    Not every write was acknowledged, and what was read beside the proxy is the truth.
    """
    events: list[Event] = []
    for version in range(2, 2 * random.randint(2, 6), 2):
        there = bool(events) and not events[-1].gone
        events.append(Event(KEY, version, gone=there and random.random() < 0.35))
    writes = [
        Write(KEY, version, version - 1, version + random.uniform(0, 4))
        for _, version, *_ in events
        if random.random() < 0.7
    ]
    sent = [random.uniform(0, 14) for _ in range(random.randrange(5))]
    versions = [ABSENT, *(event.version for event in events)]
    tide = Tide((time, max(each for each in versions if each <= time)) for time in sent)
    reads = [_read(random, events) for _ in range(random.randint(1, 5))]
    return events, writes, reads, tide


def _read(random: Random, events: Sequence[Event]) -> Read:
    called = random.uniform(0, 13)
    shown = random.choice([ABSENT, *(event.version for event in events if not event.gone)])
    found = {KEY: shown} if shown else {}
    return Read("me", called, called + random.uniform(0, 4), found, key=KEY)


def is_possible(
    log: Log, last: int, writes: Sequence[Write], reads: Sequence[Read], tide: Tide
) -> bool:
    """Whether some version for each read explains them all; tries every one of them."""

    def fits(read: Read, version: int) -> bool:
        return (
            log.at(KEY, version) == read.found.get(KEY, ABSENT)
            and version <= tide.highest(read.returned)
            and all(version >= write.version for write in writes if write.returned < read.called)
        )

    def search(placed: Sequence[tuple[Read, int]], rest: Sequence[Read]) -> bool:
        if not rest:
            return True
        read, *others = rest
        floor = max([0, *(at for before, at in placed if before.returned < read.called)])
        places = (at for at in range(floor, last + 1) if fits(read, at))
        return any(search((*placed, (read, at)), others) for at in places)

    return search((), sorted(reads, key=lambda read: read.called))


@pytest.mark.parametrize("seed", range(10))
def test_the_register_checker_finds_what_a_search_does(seed: int) -> None:
    random = Random(seed)
    possible = 0
    for _ in range(HISTORIES):
        events, writes, reads, tide = history(random)
        log = Log(events)
        expected = is_possible(log, events[-1].version, writes, reads, tide)
        assert (nonlinear(log, writes, reads, tide) == []) is expected, (events, writes, reads)
        possible += expected
    assert HISTORIES / 5 < possible < HISTORIES / 2  # both kinds are there
