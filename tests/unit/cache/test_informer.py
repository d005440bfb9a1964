"""An informer as its reflector writes it and as readers see it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from proxy.cache.evidence import contradicts
from proxy.cache.expectations import Expectation
from proxy.cache.health import FAILING, STALLED
from proxy.cache.informer import MANY, Informer
from proxy.cache.lag import Write
from proxy.cache.scope import Scope
from proxy.cache.store import Store
from proxy.cache.view import Ending, View
from proxy.forms.form import Change, EventType, UnknownLayoutError
from proxy.forms.objects import Object
from proxy.kube.resources import Resource
from proxy.kube.selectable import declared_field
from tests.unit.builders import PODS, WIDGETS, Clock, stored
from tests.unit.cache.sources import ServedSource


class Kept:
    """An informer, and shorthands for what its reflector would tell it."""

    def __init__(self) -> None:
        self.clock = Clock()
        scope = Scope(PODS.info.resource)
        self.informer = Informer(scope, ServedSource(), clock=self.clock)

    async def relist(self, version: int, *objects: Object) -> None:
        store = Store()
        for found in objects:
            store.put(found)
        await self.informer.replace(PODS.form(), store, version)

    def change(self, event_type: EventType, key: str, version: int) -> Object:
        found = stored(key, version)
        self.informer.apply(Change(event_type, found))
        return found

    @property
    def view(self) -> View:
        assert self.informer.view is not None
        return self.informer.view

    def told(self, cursor: int = 0) -> list[str]:
        events = self.view.history.read(cursor, 10_000)
        assert events is not None
        return [f"{event.type} {event.object.key}@{event.version}" for event in events]

    def holds(self) -> list[str]:
        return [f"{found.key}@{found.version}" for found in self.view.store.snapshot()]


def played(test: Callable[[Kept], Coroutine[Any, Any, None]]) -> Callable[[], None]:
    """Run an asynchronous test with an informer of its own."""

    def run() -> None:
        asyncio.run(test(Kept()))

    run.__name__ = test.__name__
    return run


# --- before and at the first list ------------------------------------------------------------


@played
async def test_it_has_nothing_before_its_first_list(kept: Kept) -> None:
    assert kept.informer.view is None
    assert kept.informer.version == 0
    assert not kept.informer.is_ready
    with pytest.raises(RuntimeError, match="before its first list"):
        kept.change(EventType.ADDED, "a/x", 1)
    with pytest.raises(RuntimeError, match="before its first list"):
        kept.informer.bookmark(1)


@played
async def test_the_first_list_is_the_state_and_tells_no_events(kept: Kept) -> None:
    await kept.relist(10, stored("a/x", 3), stored("a/y", 7))
    assert kept.informer.version == kept.view.store.changed == 10
    assert kept.informer.is_ready
    assert kept.holds() == ["a/x@3", "a/y@7"]
    assert kept.told() == []
    assert kept.view.history.floor == 10


# --- the watch ---------------------------------------------------------------------------------


@played
async def test_changes_move_the_state_and_are_told(kept: Kept) -> None:
    await kept.relist(10, stored("a/x", 3))
    kept.change(EventType.MODIFIED, "a/x", 11)
    kept.change(EventType.ADDED, "a/y", 12)
    kept.change(EventType.DELETED, "a/x", 13)
    assert kept.told() == ["MODIFIED a/x@11", "ADDED a/y@12", "DELETED a/x@13"]
    assert kept.holds() == ["a/y@12"]
    assert kept.informer.version == kept.view.store.changed == 13
    assert kept.informer.events == dict.fromkeys(EventType, 1)


@played
async def test_events_carry_what_they_replaced(kept: Kept) -> None:
    first = stored("a/x", 3)
    await kept.relist(10, first)
    second = kept.change(EventType.MODIFIED, "a/x", 11)
    deleted = kept.change(EventType.DELETED, "a/x", 12)
    third = kept.change(EventType.ADDED, "a/x", 13)
    events = kept.view.history.read(0, 10) or []
    assert [(event.object, event.previous) for event in events] == [
        (second, first),
        (deleted, second),
        (third, None),
    ]


@played
async def test_a_bookmark_moves_the_version_and_leaves_the_change(kept: Kept) -> None:
    await kept.relist(10)
    kept.change(EventType.ADDED, "a/x", 12)
    kept.informer.bookmark(20)
    assert (kept.informer.version, kept.view.store.changed) == (20, 12)
    assert kept.told() == ["ADDED a/x@12"]
    assert kept.view.store.snapshot_at(15) is not None


@played
async def test_everything_it_is_told_wakes_who_waits(kept: Kept) -> None:
    async def rings(change: Callable[[], object]) -> bool:
        ring = kept.informer.signal.next()
        change()
        return ring.done()

    ring = kept.informer.signal.next()
    await kept.relist(10)
    assert ring.done()
    assert await rings(lambda: kept.change(EventType.ADDED, "a/x", 11))
    assert await rings(lambda: kept.informer.bookmark(12))
    assert not await rings(kept.informer.contact)
    assert await rings(lambda: kept.informer.drop(Ending.REWOUND))
    assert await rings(lambda: kept.informer.drop(Ending.STOPPED))


# --- lists after the first ---------------------------------------------------------------------


@played
async def test_a_relist_becomes_events_and_goes_on(kept: Kept) -> None:
    await kept.relist(10, stored("a/x", 3), stored("a/y", 4))
    kept.change(EventType.MODIFIED, "a/x", 11)
    view, cursor = kept.view, kept.view.history.end
    await kept.relist(20, stored("a/x", 15), stored("a/z", 18))
    kept.change(EventType.DELETED, "a/z", 21)
    assert kept.view is view
    assert view.ended is None
    assert kept.told(cursor) == [
        "MODIFIED a/x@15",
        "ADDED a/z@18",
        "DELETED a/y@20",
        "DELETED a/z@21",
    ]
    assert kept.holds() == ["a/x@15"]
    assert kept.informer.relisted == 3
    assert sum(kept.informer.events.values()) == 2, "only what the watch brought"


@played
async def test_a_relist_without_news_tells_nothing(kept: Kept) -> None:
    await kept.relist(10, stored("a/x", 3))
    store = kept.view.store
    await kept.relist(20, stored("a/x", 3))
    assert kept.told() == []
    assert kept.view.store is not store
    assert kept.informer.version == 20


@played
async def test_snapshots_of_before_a_relist_are_not_answered_from(kept: Kept) -> None:
    await kept.relist(10, stored("a/x", 3))
    kept.view.snapshots.keep(kept.view.store.snapshot())
    snapshot = kept.view.store.snapshot()
    await kept.relist(20, stored("a/x", 15))
    assert kept.view.snapshots.at(10) is None
    assert [found.version for found in snapshot] == [3], "who reads it may go on"


@played
async def test_a_large_relist_tells_the_same(kept: Kept) -> None:
    count = MANY + 200
    await kept.relist(count, *(stored(f"n/{number:05}", number + 1) for number in range(count)))
    kept_objects = [stored(f"n/{number:05}", count + 1 + number) for number in range(50)]
    ring = kept.informer.signal.next()
    await kept.relist(3 * count, *kept_objects)
    assert ring.done()
    assert len(kept.view.store) == 50
    versions = [int(line.rpartition("@")[2]) for line in kept.told()]
    assert len(versions) == count
    assert versions == sorted(set(versions))
    assert versions[-1] == 3 * count


@played
async def test_a_relist_that_can_not_follow_ends_the_view(kept: Kept) -> None:
    await kept.relist(10, stored("a/x", 9))
    kept.informer.bookmark(30)
    old = kept.view
    await kept.relist(20, stored("a/x", 15))
    assert old.ended is Ending.REWOUND
    assert kept.view is not old
    assert kept.view.ended is None
    assert kept.view.history.floor == kept.informer.version == 20
    assert kept.told() == []
    assert kept.informer.is_ready


@played
async def test_another_form_ends_what_reads_by_the_old_one(kept: Kept) -> None:
    """Even at the same versions: objects of a definition that has changed read otherwise."""
    await kept.relist(5, stored("x", 3))
    old = kept.view
    store = Store()
    store.put(stored("x", 3))
    await kept.informer.replace(PODS.form(declared_field("spec.color")), store, 6)
    assert old.ended is Ending.STOPPED
    assert kept.view is not old
    assert kept.told() == []
    assert kept.informer.version == 6


@played
async def test_versions_never_go_back(kept: Kept) -> None:
    await kept.relist(5, stored("x", 3))
    kept.informer.bookmark(4)
    assert kept.informer.version == 5
    for version in (4, 5):
        with pytest.raises(UnknownLayoutError):
            kept.change(EventType.MODIFIED, "x", version)
    assert (kept.holds(), kept.informer.version) == (["x@3"], 5)


@played
async def test_objects_may_be_deleted_together(kept: Kept) -> None:
    await kept.relist(5, stored("x", 3), stored("y", 4), stored("z", 5))
    for key in ("x", "y"):
        kept.change(EventType.DELETED, key, 6)
    assert kept.holds() == ["z@5"]
    assert kept.told() == ["DELETED x@6", "DELETED y@6"]
    with pytest.raises(UnknownLayoutError):
        kept.change(EventType.DELETED, "y", 6)
    with pytest.raises(UnknownLayoutError):
        kept.change(EventType.MODIFIED, "z", 6)


@played
async def test_a_list_of_an_older_version_ends_the_view(kept: Kept) -> None:
    await kept.relist(100, stored("x", 3))
    view = kept.view
    await kept.relist(50, stored("x", 3))
    assert view.ended is Ending.REWOUND
    assert (kept.informer.version, kept.told()) == (50, [])


@pytest.mark.parametrize("ending", list(Ending))
def test_a_dropped_state_ends_for_its_readers(ending: Ending) -> None:
    async def drop() -> None:
        kept = Kept()
        await kept.relist(10, stored("a/x", 9))
        view = kept.view
        if ending is Ending.REWOUND:
            kept.informer.drop(Ending.REWOUND)
        else:
            kept.informer.drop(ending)
        assert view.ended is ending
        assert kept.informer.view is None
        assert not kept.informer.is_ready
        await kept.relist(5, stored("a/y", 2))
        assert kept.holds() == ["a/y@2"]
        assert view.ended is ending

    asyncio.run(drop())


# --- how fresh it is -----------------------------------------------------------------------------


def _prove_by_event(kept: Kept) -> None:
    kept.change(EventType.ADDED, "a/x", 11)


def _prove_by_bookmark(kept: Kept) -> None:
    kept.informer.bookmark(11)


def _contact(kept: Kept) -> None:
    kept.informer.contact()


@pytest.mark.parametrize(
    ("act", "staleness", "ready"),
    [
        (_prove_by_event, 0.0, True),
        (_prove_by_bookmark, 0.0, True),
        (_contact, STALLED, True),
        (None, STALLED, False),
    ],
)
def test_staleness_and_readiness(
    act: Callable[[Kept], None] | None, staleness: float, ready: bool
) -> None:
    async def wait() -> None:
        kept = Kept()
        await kept.relist(10)
        kept.clock.advance(STALLED)
        if act is not None:
            act(kept)
        assert kept.informer.staleness == staleness
        assert kept.informer.is_ready is ready

    asyncio.run(wait())


@played
async def test_a_watch_that_is_refused_stalls_it_though_probes_are_answered(kept: Kept) -> None:
    await kept.relist(10)
    for _ in range(3):
        await kept.informer.pause(0)
        kept.clock.advance(FAILING / 2)
        kept.informer.learn(12, kept.clock())
    assert kept.informer.is_stalled
    kept.informer.contact()
    assert kept.informer.is_ready


@played
async def test_a_relist_proves_it_and_a_stalled_one_recovers(kept: Kept) -> None:
    await kept.relist(10)
    kept.clock.advance(10 * STALLED)
    stalled = kept.informer.is_ready
    await kept.relist(12)
    assert (stalled, kept.informer.is_ready, kept.informer.staleness) == (False, True, 0.0)


@played
async def test_it_notes_when_it_was_read(kept: Kept) -> None:
    kept.clock.advance(5.0)
    assert kept.informer.last_used == kept.clock() - 5.0
    kept.informer.touch()
    assert kept.informer.last_used == kept.clock()


@pytest.mark.parametrize(
    ("scope", "text"),
    [
        (Scope(Resource("", "v1", "pods")), "pods.v1"),
        (Scope(Resource("", "v1", "pods"), "default"), "pods.v1/default"),
        (Scope(Resource("apps", "v1", "deployments"), "a"), "deployments.v1.apps/a"),
        (Scope(WIDGETS.info.resource), "widgets.v1.example.com"),
    ],
)
def test_scopes_are_spelled_as_ids(scope: Scope, text: str) -> None:
    assert str(scope) == text


@played
async def test_it_says_where_it_is(kept: Kept) -> None:
    assert repr(kept.informer) == "<Informer pods.v1 unsynced>"
    await kept.relist(10)
    assert repr(kept.informer) == "<Informer pods.v1 at 10>"


# --- expectations ------------------------------------------------------------------------------


def _expect(kept: Kept, *, version: int = 0, uid: str = "") -> None:
    kept.informer.acknowledge(Expectation("a/x", kept.clock(), version=version, uid=uid))


@pytest.mark.parametrize(
    ("event", "uid", "left"),
    [
        (EventType.MODIFIED, "uid-a/x", 1),
        (EventType.DELETED, "uid-a/x", 0),
        (EventType.MODIFIED, "another", 0),  # deleted and created again, as a relist shows it
    ],
)
def test_a_deletion_is_expected_until_the_uid_is_gone(
    event: EventType, uid: str, left: int
) -> None:
    @played
    async def test(kept: Kept) -> None:
        await kept.relist(10, stored("a/x", 3))
        _expect(kept, uid="uid-a/x")
        kept.informer.apply(Change(event, stored("a/x", 11, uid=uid)))
        assert len(kept.informer.expectations) == left

    test()


@played
async def test_a_relist_meets_a_deletion_too(kept: Kept) -> None:
    await kept.relist(10, stored("a/x", 3))
    _expect(kept, uid="uid-a/x")
    await kept.relist(11, stored("a/x", 3))
    assert len(kept.informer.expectations) == 1
    await kept.relist(12)
    assert not kept.informer.expectations


@played
async def test_a_write_whose_event_is_missing_shows_in_the_staleness(kept: Kept) -> None:
    await kept.relist(10, stored("a/x", 3))
    written = Write(12, kept.clock(), kept.clock())
    expected = Expectation("a/x", kept.clock(), version=12)
    kept.informer.acknowledge(expected, written)
    kept.clock.advance(5)
    kept.change(EventType.ADDED, "a/y", 11)
    assert kept.informer.staleness == 5
    kept.change(EventType.MODIFIED, "a/x", 12)
    assert (kept.informer.staleness, kept.informer.lag.last) == (0, 5)
    assert not kept.informer.expectations


@played
async def test_versions_that_went_back_leave_the_need_for_a_proof(kept: Kept) -> None:
    await kept.relist(10, stored("a/x", 3))
    written = Write(500, kept.clock(), kept.clock())
    kept.informer.acknowledge(Expectation("a/x", kept.clock(), version=500), written)
    await kept.relist(4, stored("a/x", 3))
    assert kept.informer.expectations.of("a/x", "") == [Expectation("a/x", 1000.0)]
    kept.clock.advance(60)
    kept.informer.bookmark(5)
    assert kept.informer.staleness == 0  # nobody waits for version 500 any more


@played
async def test_a_version_that_should_be_held_and_is_not_takes_a_proof(kept: Kept) -> None:
    """As of a server that was set back, before that has shown."""
    await kept.relist(500, stored("a/x", 300), stored("a/z", 450), stored("a/same", 400))
    for key in ("a/y", "a/x", "a/z", "a/same"):
        kept.informer.acknowledge(Expectation(key, kept.clock(), version=400))
    assert kept.informer.expectations.of("", "") == [
        Expectation("a/y", 1000.0),
        Expectation("a/x", 1000.0),
        Expectation("a/z", 1000.0),
    ]


@pytest.mark.parametrize(
    ("key", "version", "sent", "restored"),
    [
        ("a/x", 9, 1002.0, True),
        ("a/new", 9, 1002.0, True),
        ("a/x", 9, 1000.0, False),  # its event may have been held before all that is held now
        ("a/x", 11, 1002.0, True),
        ("a/x", 11, 1001.5, False),  # it has changed nothing, and then another did
        ("a/x", 13, 1002.0, False),
        ("a/x", 20, 1002.0, False),
        ("a/y", 3, 1002.0, False),  # it has changed nothing
        ("a/x", 5, 1000.5, False),
        ("a/y", 7, 1000.5, True),  # it would have been seen on the way to 8
    ],
)
def test_a_version_given_out_after_a_higher_one_is_of_another_history(
    key: str, version: int, sent: float, *, restored: bool
) -> None:
    @played
    async def story(kept: Kept) -> None:
        await kept.relist(8, stored("a/x", 5), stored("a/y", 3))
        kept.clock.advance(1)
        kept.change(EventType.MODIFIED, "a/x", 11)
        kept.clock.advance(0.7)
        kept.change(EventType.MODIFIED, "a/x", 13)
        write = Write(version, sent, sent + 1)
        expected = Expectation(key, sent + 1, version=version)
        assert contradicts(kept.informer.view, expected, write) is restored

    story()


@played
async def test_a_deletion_of_what_was_not_seen_yet_takes_a_proof(kept: Kept) -> None:
    """Its creation may still be on its way, and would bring it back to life."""
    await kept.relist(10)
    kept.informer.acknowledge(Expectation("a/x", kept.clock(), uid="uid-a/x"))
    kept.change(EventType.ADDED, "a/x", 11)
    [left] = kept.informer.expectations.of("a/x", "anybody")
    assert left == Expectation("a/x", 1000.0)
    kept.informer.learn(11, kept.clock() + 1)
    assert not kept.informer.expectations
