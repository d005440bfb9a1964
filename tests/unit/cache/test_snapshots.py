"""Which versions a client may come back to, and for how long."""

from __future__ import annotations

import pytest

from proxy.cache.snapshots import KEEP_SECONDS, MAX_BYTES, MAX_SNAPSHOTS, Snapshots
from proxy.cache.store import Store
from tests.unit.builders import Clock, store_of, stored


class Kept:
    """A store, its snapshots and their clock."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.store = store_of([stored("a/x", 10)])
        self.snapshots = Snapshots(self.store, self.clock)

    def write(self, version: int, raw: bytes = b"{}") -> None:
        self.store.put(stored("a/x", version, raw=raw))
        self.store.version = self.store.changed = version

    def keep(self) -> int:
        snapshot = self.store.snapshot()
        self.snapshots.keep(snapshot)
        return snapshot.version

    def held(self, version: int) -> list[int] | None:
        """The versions of the objects in the state at *version*."""
        snapshot = self.snapshots.at(version)
        if snapshot is None:
            return None
        assert snapshot.version == version
        return [found.version for found in snapshot]


@pytest.fixture
def kept() -> Kept:
    return Kept()


def test_a_version_that_was_kept_is_found_after_changes(kept: Kept) -> None:
    kept.keep()
    kept.write(11)
    kept.write(12)
    assert kept.held(10) == [10]
    assert kept.held(11) is None, "nobody learnt of it"
    assert kept.held(12) == [12]


def test_the_present_needs_no_keeping(kept: Kept) -> None:
    kept.store.version = 20
    assert [kept.held(version) for version in (9, 10, 15, 20, 21)] == [None, [10], [10], [10], None]
    assert len(kept.snapshots) == 0


@pytest.mark.parametrize(("waited", "found"), [(KEEP_SECONDS, [10]), (KEEP_SECONDS + 0.1, None)])
def test_a_snapshot_is_kept_as_long_as_etcd_keeps_history(
    kept: Kept, waited: float, found: list[int] | None
) -> None:
    kept.keep()
    kept.write(11)
    kept.clock.advance(waited)
    assert kept.held(10) == found
    assert len(kept.snapshots) == (1 if found else 0)


def test_keeping_a_version_again_does_not_prolong_it(kept: Kept) -> None:
    kept.keep()
    kept.clock.advance(KEEP_SECONDS - 1)
    kept.keep()
    kept.write(11)
    assert len(kept.snapshots) == 1
    kept.clock.advance(2)
    assert kept.held(10) is None


def test_the_oldest_of_too_many_go(kept: Kept) -> None:
    for version in range(11, 11 + MAX_SNAPSHOTS + 2):
        kept.keep()
        kept.write(version)
    assert len(kept.snapshots) == MAX_SNAPSHOTS
    assert [kept.held(version) for version in (10, 11, 12)] == [None, None, [12]]


@pytest.mark.parametrize(("over", "found"), [(0, [10]), (1, None)])
def test_snapshots_that_keep_too_many_bytes_alive_go(
    kept: Kept, over: int, found: list[int] | None
) -> None:
    kept.keep()
    kept.write(11, b"x" * (MAX_BYTES // 2))
    kept.write(12, b"y" * (MAX_BYTES // 2 + over - len(b"{}")))
    assert kept.held(10) == [10], "the newest bytes are the store's own"
    kept.write(13)
    assert kept.held(10) == found


def test_a_younger_snapshot_outlives_the_bytes_of_an_older_one(kept: Kept) -> None:
    kept.keep()
    kept.write(11, b"x" * MAX_BYTES)
    kept.write(12)
    kept.keep()
    kept.write(13)
    assert kept.held(10) is None
    assert kept.held(12) == [12]


def test_no_snapshot_of_an_empty_store_is_lost() -> None:
    store = Store()
    store.version = store.changed = 5
    snapshots = Snapshots(store, Clock())
    snapshots.keep(store.snapshot())
    store.put(stored("a/x", 6))
    store.version = store.changed = 6
    empty = snapshots.at(5)
    assert empty is not None
    assert list(empty) == []
