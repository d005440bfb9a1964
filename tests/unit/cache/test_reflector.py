"""The reflector's state machine, driven by scripts of what an API server may do."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence

import pytest

from proxy.cache.backoff import Backoff
from proxy.cache.recovery import (
    Disconnected,
    RefusedError,
    State,
    Streaming,
    Syncing,
    Trigger,
    Unsynced,
    Witness,
    after_failure,
)
from proxy.cache.reflector import EARLY, Reflector
from proxy.cache.store import Store
from proxy.cache.view import Ending
from proxy.forms.form import Change, EventType, Form, UnknownLayoutError
from proxy.kube.errors import (
    BadRequest,
    Expired,
    Forbidden,
    InternalError,
    Invalid,
    MethodNotAllowed,
    NotFound,
    ServiceUnavailable,
    Timeout,
    TooManyRequests,
    Unauthorized,
)
from proxy.kube.selectable import declared_field
from tests.unit.builders import PODS, WIDGETS, Clock, Wire, error_line, item
from tests.unit.cache.sources import ScriptedSource, ScriptEndError, Step


class RecordingSink:
    """Notes what it's told, and holds the reflector to the order of versions."""

    def __init__(self, witness: Witness | None = None) -> None:
        self.version = 0
        self.told: list[str] = []
        self.objects: dict[str, int] = {}
        self.witness = witness

    async def replace(self, form: Form, store: Store, version: int, asked: float) -> None:
        self.objects = {found.name: found.version for found in store.snapshot()}
        state = " ".join(f"{name}@{at}" for name, at in self.objects.items())
        self.told.append(f"replace [{state}] at {version}")
        self.version = version

    def apply(self, change: Change) -> None:
        found = change.object
        assert found.version > self.version, "an event was applied twice, or out of order"
        self.told.append(f"{change.type} {found.name}@{found.version}")
        self.version = found.version
        if change.type == "DELETED":
            self.objects.pop(found.name, None)
        else:
            self.objects[found.name] = found.version

    def bookmark(self, version: int) -> None:
        assert version >= self.version
        self.told.append(f"bookmark {version}")
        self.version = version

    def version_of(self, key: str) -> int:
        return self.objects.get(key.rpartition("/")[2], 0)

    def contact(self) -> None:
        self.told.append("contact")

    def drop(self, ending: Ending) -> None:
        self.told.append(ending.name)


class Play:
    """A script played to its end: what was asked, told, and how long was paused."""

    def __init__(
        self,
        *watches: Sequence[Step],
        pages: Sequence[bytes | Exception] = (),
        forms: Sequence[Form | Exception] = (),
        versions: Sequence[int | Exception] = (),
        witness: Witness | None = None,
        until: type[Exception] = ScriptEndError,
    ) -> None:
        self.clock = Clock()
        self.pauses: list[float] = []
        self.sink = RecordingSink(witness)
        self.source = ScriptedSource(
            self.clock, watches, pages=pages, forms=forms, versions=versions
        )
        self.reflector = Reflector(
            self.source,
            self.sink,
            Backoff(clock=self.clock, random=lambda: 0.0),
            clock=self.clock,
            sleep=self._sleep,
            silence=0.0,  # whoever has nothing to say at once is silent
        )
        with pytest.raises(until) as ended:
            asyncio.run(self.reflector.run())
        self.ended = ended.value
        assert self.source.open == 0, "a stream was left open"

    async def _sleep(self, seconds: float) -> None:
        assert self.source.open == 0, "a stream was left open during a pause"
        self.pauses.append(seconds)
        self.clock.advance(seconds)

    @property
    def asked(self) -> list[str]:
        return self.source.asked

    @property
    def told(self) -> list[str]:
        return self.sink.told


SYNCED = [PODS.added("x", version=3), PODS.bookmark(5, initial_end=True)]
"""The initial events of a WatchList: x, at version 5."""

AGAIN = [PODS.added("y", version=8), PODS.bookmark(9, initial_end=True)]
"""Those of a later one."""

LONG = 60.0
"""Seconds that a watch lives when it isn't a short one."""


# --- the way to a state ------------------------------------------------------------------------


def test_a_watch_list_becomes_the_state_at_its_end_and_goes_on_as_the_watch() -> None:
    play = Play([[PODS.added("x", version=3)], SYNCED[1:], [PODS.modified("x", version=6)], LONG])
    assert play.asked == ["watchlist", "version"]
    assert play.told == ["replace [x@3] at 5", "MODIFIED x@6", "contact"]
    assert play.reflector.relists == {Trigger.START: 1}


def test_changes_among_initial_events_are_part_of_the_state() -> None:
    play = Play(
        [
            [PODS.added("x", version=3), PODS.added("y", version=2)],
            [PODS.modified("x", version=4), PODS.deleted("y", version=5)],
            [PODS.bookmark(6, initial_end=True)],
        ]
    )
    assert play.told == ["replace [x@4] at 6", "contact"]


def test_a_plain_bookmark_among_initial_events_is_not_their_end() -> None:
    play = Play([[PODS.bookmark(2)], SYNCED])
    assert play.told[0] == "replace [x@3] at 5"


def test_events_behind_the_initial_end_in_one_batch_are_told_once() -> None:
    play = Play([[*SYNCED, PODS.modified("x", version=7), PODS.bookmark(8)]])
    assert play.told == ["replace [x@3] at 5", "MODIFIED x@7", "bookmark 8", "contact"]


def test_an_empty_resource_syncs() -> None:
    assert Play([SYNCED[1:]]).told[0] == "replace [] at 5"


@pytest.mark.parametrize("answer", [Invalid("no sendInitialEvents"), BadRequest("what?"), None])
def test_a_server_without_watch_list_is_paged_at_once(answer: Exception | None) -> None:
    pages: list[bytes | Exception] = [
        PODS.page(item("x", version=2), version=6, token="t1"),
        PODS.page(item("y", version=3), version=6, token="t2"),
        PODS.page(version=6),
    ]
    play = Play([answer], [LONG], pages=pages)
    assert play.asked == ["watchlist", "list", "list t1", "list t2", "watch 6", "version"]
    assert play.told == ["replace [x@2 y@3] at 6", "contact", "contact"]
    assert play.pauses == []


def test_a_watch_list_that_is_silent_before_its_mark_is_paged() -> None:
    play = Play([SYNCED[:1], None], [LONG], pages=[PODS.page(item("z", version=4), version=6)])
    assert play.told[0] == "replace [z@4] at 6"
    assert play.asked[:3] == ["watchlist", "list", "watch 6"]


def test_a_watch_list_that_ends_twice_before_its_mark_is_paged() -> None:
    """Once may be a server that stops; one without WatchList always does."""
    pages = [PODS.page(item("z", version=4), version=6)]
    play = Play([SYNCED[:1]], [SYNCED[:1]], [LONG], pages=pages)
    assert play.told[0] == "replace [z@4] at 6"
    assert play.asked[:4] == ["watchlist", "watchlist", "list", "watch 6"]
    assert Play([SYNCED[:1]], [SYNCED]).asked[:2] == ["watchlist", "watchlist"]


@pytest.mark.parametrize(
    "failure",
    [
        [InternalError("etcd")],
        [SYNCED[:1], ServiceUnavailable("broken")],
        [[*SYNCED[:1], error_line(InternalError("etcd"))]],
        [[*SYNCED[:1], error_line(Expired("too old"))]],
        [Timeout("Too large resource version")],
    ],
    ids=["500", "broken", "error-event", "expired", "too-large"],
)
def test_a_watch_list_that_fails_is_tried_again_from_the_start(failure: list[Step]) -> None:
    play = Play(failure, [AGAIN, LONG])
    assert play.asked == ["watchlist", "watchlist", "version"]
    assert play.told[0] == "replace [y@8] at 9", "nothing is left of the first attempt"
    assert play.pauses == [0.8]


def test_pages_start_over_when_their_token_has_expired() -> None:
    first = PODS.page(item("gone", version=2), version=6, token="t1")
    pages: list[bytes | Exception] = [
        first,
        Expired("token"),
        PODS.page(item("x", version=7), version=8),
    ]
    play = Play([Invalid("none")], [LONG], pages=pages)
    assert play.asked == ["watchlist", "list", "list t1", "list", "watch 8", "version"]
    assert play.told[0] == "replace [x@7] at 8"
    assert play.pauses == [0.8]


def test_a_failing_server_is_asked_ever_more_slowly() -> None:
    failures = [InternalError("etcd"), ServiceUnavailable("away"), Unauthorized("expired")]
    play = Play([SYNCED, [], LONG], forms=failures)
    assert play.pauses == [0.8, 1.6, 3.2]
    assert play.told[0] == "replace [x@3] at 5"
    assert play.reflector.last_error == "expired"


@pytest.mark.parametrize(
    ("error", "state"),
    [
        (Forbidden("no"), "describe"),
        (NotFound("no"), "describe"),
        (MethodNotAllowed("no"), "describe"),
        (UnknownLayoutError("what?"), "describe"),
        (Forbidden("no"), "watch"),
        (MethodNotAllowed("no"), "watch"),
        (Forbidden("no"), "later"),
        (NotFound("no"), "later"),
    ],
)
def test_what_retrying_can_not_help_ends_it(error: Exception, state: str) -> None:
    if state == "describe":
        play = Play([], forms=[error], until=RefusedError)
    else:
        play = Play([[], error] if state == "watch" else [SYNCED, error], until=RefusedError)
    assert isinstance(play.ended, RefusedError)
    assert play.ended.cause is error
    assert play.pauses == []


def test_a_line_that_no_form_knows_refuses_a_resource_that_never_was_in_sync() -> None:
    play = Play([[b'{"type":"ADDED","object":{"spec":{}}}\n']], until=RefusedError)
    assert play.told == []


# --- a watch that ends -------------------------------------------------------------------------


def test_a_clean_end_is_resumed_at_once() -> None:
    play = Play([SYNCED, [PODS.bookmark(7)], LONG], [LONG])
    assert play.asked == ["watchlist", "version", "watch 7", "version"]
    assert play.pauses == []
    assert play.reflector.restarts == {Trigger.ENDED: 2}


def test_a_watch_that_ends_at_once_is_not_spun() -> None:
    play = Play([SYNCED, LONG], [], [0.9], [1.0])
    assert play.pauses == [0.8, 1.6]


@pytest.mark.parametrize(
    ("failure", "reason"),
    [
        (ServiceUnavailable("the connection broke in a line"), Trigger.BROKEN),
        (None, Trigger.SILENT),
        (InternalError("etcd"), Trigger.ERROR),
        (Timeout("Too large resource version: 5, current: 3"), Trigger.ERROR),
        (Unauthorized("the token has expired"), Trigger.ERROR),
        ([error_line(InternalError("etcd"))], Trigger.ERROR),
    ],
)
def test_a_broken_watch_is_resumed_where_it_was_after_a_pause(
    failure: Step, reason: Trigger
) -> None:
    play = Play([SYNCED, [PODS.modified("x", version=6)], failure], [[PODS.bookmark(8)], LONG])
    assert play.asked == ["watchlist", "version", "watch 6", "version"]
    assert play.told[1:3] == ["MODIFIED x@6", "contact"]
    assert play.pauses == [0.8]
    assert play.reflector.restarts[reason] == 1
    assert play.reflector.relists == {Trigger.START: 1}, "nothing was listed anew"
    assert play.reflector.last_error


@pytest.mark.parametrize(
    "expiry",
    [
        [SYNCED, [error_line(Expired("too old"))]],
        [SYNCED, Expired("too old")],
        [[*SYNCED, PODS.modified("x", version=6)], [error_line(Expired("too old"))]],
    ],
    ids=["event", "http", "after-changes"],
)
def test_expired_is_relisted_without_a_pause(expiry: list[Step]) -> None:
    play = Play(expiry, [AGAIN, LONG])
    assert play.asked == ["watchlist", "watchlist", "version"]
    assert play.told[-2:] == ["replace [y@8] at 9", "contact"]
    assert play.pauses == []
    assert play.reflector.relists == {Trigger.START: 1, Trigger.EXPIRED: 1}


def test_a_resumed_watch_that_has_expired_is_relisted() -> None:
    play = Play([SYNCED, LONG], [Expired("too old")], [AGAIN, [], LONG])
    assert play.asked[:4] == ["watchlist", "version", "watch 5", "watchlist"]
    assert play.reflector.relists == {Trigger.START: 1, Trigger.EXPIRED: 1}
    assert play.pauses == []


def test_an_error_behind_changes_in_one_batch_leaves_them_applied_once() -> None:
    batch = [PODS.modified("x", version=6), PODS.added("y", version=7)]
    play = Play([SYNCED, [*batch, error_line(InternalError("etcd"))]], [LONG])
    assert play.asked == ["watchlist", "version", "watch 7", "version"]
    assert play.told == [
        "replace [x@3] at 5",
        "MODIFIED x@6",
        "ADDED y@7",
        "contact",
        "contact",
    ]


def test_an_unknown_line_is_relisted_and_what_came_before_it_is_kept() -> None:
    batch = [PODS.modified("x", version=6), b'{"type":"MODIFIED","obj']
    play = Play([SYNCED, batch], [AGAIN, LONG])
    assert play.told == ["replace [x@3] at 5", "MODIFIED x@6", "replace [y@8] at 9", "contact"]
    assert play.reflector.relists == {Trigger.START: 1, Trigger.LAYOUT: 1}
    assert play.pauses == [0.8]


@pytest.mark.parametrize(
    "watches",
    [
        [[TooManyRequests("slow", retry_after=7)], [SYNCED, LONG]],
        [[SYNCED, TooManyRequests("slow", retry_after=7)], [LONG]],
        [[SYNCED, [error_line(TooManyRequests("slow", retry_after=7))]], [LONG]],
        [[SYNCED, LONG], [ServiceUnavailable("shutting down", retry_after=7)], [LONG]],
    ],
    ids=["sync", "stream", "event", "unavailable"],
)
def test_retry_after_is_the_least_pause(watches: list[list[Step]]) -> None:
    assert Play(*watches).pauses == [7.0]


def test_retry_after_does_not_shorten_a_pause() -> None:
    failures = [InternalError("etcd")] * 4 + [TooManyRequests("slow", retry_after=2)]
    play = Play([SYNCED, LONG], forms=failures)
    assert play.pauses == [0.8, 1.6, 3.2, 6.4, 12.8]


# --- a server that is not what it was ------------------------------------------------------------


@pytest.mark.parametrize("failure", [LONG, ServiceUnavailable("broken")])
def test_versions_that_went_back_drop_the_state(failure: Step) -> None:
    play = Play([SYNCED, failure], [[PODS.bookmark(2, initial_end=True)], LONG], versions=[4])
    assert play.asked[:3] == ["watchlist", "version", "watchlist"]
    assert play.told[:3] == ["replace [x@3] at 5", "REWOUND", "replace [] at 2"]
    assert play.reflector.relists == {Trigger.START: 1, Trigger.REWOUND: 1}


@pytest.mark.parametrize("version", [5, 6])
def test_versions_that_stand_still_or_go_on_do_not(version: int) -> None:
    play = Play([SYNCED, LONG], [LONG], versions=[version])
    assert "REWOUND" not in play.told
    assert "watch 5" in play.asked


[_X] = PODS.objects(item("x"))
X3, GONE = Witness(_X.key, 3), Witness(_X.key, 0)


@pytest.mark.parametrize(
    ("witness", "there", "reason", "told"),
    [
        (X3, PODS.page(item("x", version=3), version=9), None, "contact"),
        (X3, PODS.page(item("x", version=2), version=9), Trigger.REWOUND, "REWOUND"),
        (X3, PODS.page(item("x", version=4), version=9), Trigger.REWOUND, "REWOUND"),
        (X3, PODS.page(item("x", version=6), version=9), None, "contact"),
        (X3, PODS.page(version=9), None, "contact"),
        (X3, BadRequest("no field selectors"), None, "contact"),
        (X3, PODS.page(item("y", version=2), version=9), None, "contact"),
        (GONE, PODS.page(version=9), None, "contact"),
        (GONE, PODS.page(item("x", version=6), version=9), None, "contact"),
        (GONE, PODS.page(item("x", version=3), version=9), Trigger.REWOUND, "REWOUND"),
    ],
)
def test_versions_that_went_back_and_were_overtaken_show_in_what_changed_last(
    witness: Witness, there: bytes | Exception, reason: Trigger | None, told: str
) -> None:
    watches: list[list[Step]] = [[LONG]] if reason is None else [[AGAIN, LONG]]
    play = Play([SYNCED, LONG], *watches, pages=[there], witness=witness, until=IndexError)
    assert play.asked[:3] == ["watchlist", "version", f"object {_X.key}"]
    assert play.told[1] == told
    assert reason is None or play.reflector.relists[reason] == 1


@pytest.mark.parametrize(
    ("later", "reason"),
    [
        ([PODS.event(EventType.DELETED, item("x", version=7)), PODS.bookmark(9)], None),
        ([PODS.added("y", version=8), PODS.event(EventType.DELETED, item("x", version=9))], None),
        ([PODS.added("y", version=8)], None),  # it may still come
        ([PODS.added("y", version=9)], Trigger.REWOUND),
        ([PODS.bookmark(9)], Trigger.REWOUND),
    ],
)
def test_a_deletion_that_never_comes_is_of_another_history(
    later: list[bytes], reason: Trigger | None
) -> None:
    gone = PODS.page(version=9)
    watches: list[list[Step]] = [[SYNCED, LONG], [later, LONG]]
    play = Play(*watches, [AGAIN, LONG], pages=[gone], witness=X3, until=IndexError)
    assert play.reflector.relists[Trigger.REWOUND] == (1 if reason else 0)


def test_a_server_that_is_away_is_asked_for_its_version_until_it_answers() -> None:
    away: list[int | Exception] = [ServiceUnavailable("refused"), ServiceUnavailable("refused")]
    play = Play([SYNCED, ServiceUnavailable("broken")], [LONG], versions=away)
    assert play.asked == ["watchlist", "version", "version", "version", "watch 5", "version"]
    assert play.told == ["replace [x@3] at 5", "contact", "contact"]
    assert play.pauses == [0.8, 1.6, 3.2]


def test_another_shape_after_a_clean_end_is_relisted() -> None:
    changed = PODS.form(declared_field("spec.color"))
    play = Play([SYNCED, LONG], [AGAIN, LONG], forms=[PODS.form(), changed, changed, changed])
    assert play.asked == ["watchlist", "version", "watchlist", "version"]
    assert play.told == ["replace [x@3] at 5", "STOPPED", "replace [y@8] at 9", "contact"]
    assert play.reflector.relists == {Trigger.START: 1, Trigger.LAYOUT: 1}


@pytest.mark.parametrize(
    ("wire", "lasted", "relisted"),
    [(WIDGETS, EARLY - 1, True), (WIDGETS, EARLY + 1, False), (PODS, EARLY - 1, False)],
)
def test_a_custom_resource_whose_watch_is_ended_early_is_listed_anew(
    wire: Wire, lasted: float, *, relisted: bool
) -> None:
    """Its definition may have changed right before the list that the watch began with."""
    synced = [wire.added("x", version=3), wire.bookmark(5, initial_end=True)]
    script: list[Step] = [synced, LONG] if relisted else [LONG]
    play = Play([synced, lasted], script, forms=[wire.form()] * 4)
    again = "watchlist" if relisted else "watch 5"
    assert play.asked == ["watchlist", "version", again, "version"]
    assert "STOPPED" not in play.told, "that's for what the list shows"


def test_the_shape_is_not_learnt_again_after_a_break() -> None:
    forms: list[Form | Exception] = [PODS.form(), NotFound("asked after a break")]
    play = Play([SYNCED, ServiceUnavailable("broken")], forms=forms)
    assert play.reflector.restarts == {Trigger.BROKEN: 1}


def test_a_resource_that_is_gone_after_a_clean_end_is_refused() -> None:
    play = Play([SYNCED, LONG], forms=[PODS.form(), NotFound("no CRD")], until=RefusedError)
    assert play.told == ["replace [x@3] at 5"]


# --- ending it -----------------------------------------------------------------------------------


class WatchedSink(RecordingSink):
    """Says when it's given a state; a slow one then takes it over for ever."""

    def __init__(self, *, slow: bool) -> None:
        super().__init__()
        self.given = asyncio.Event()
        self._slow = slow

    async def replace(self, form: Form, store: Store, version: int, asked: float) -> None:
        self.given.set()
        if self._slow:
            await asyncio.Future()
        await super().replace(form, store, version, asked)


@pytest.mark.parametrize("slow", [True, False], ids=["in-the-sink", "in-the-watch"])
def test_cancellation_closes_the_stream(slow: bool) -> None:
    async def cancel() -> list[str]:
        clock = Clock()
        source = ScriptedSource(clock, [[SYNCED, None]])
        sink = WatchedSink(slow=slow)
        reflector = Reflector(source, sink, Backoff(clock=clock), clock=clock)
        running = asyncio.create_task(reflector.run(Trigger.ASKED))
        await sink.given.wait()
        assert source.open == 1
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        assert source.open == 0
        assert reflector.relists == {Trigger.ASKED: 1}
        return sink.told

    assert asyncio.run(cancel()) == ([] if slow else ["replace [x@3] at 5"])


# --- the table of failures -----------------------------------------------------------------------


async def _nothing() -> AsyncGenerator[Sequence[bytes], None]:
    yield []


def _state(name: str) -> State:
    form = PODS.form()
    states: dict[str, State] = {
        "unsynced": Unsynced(Trigger.START, watch_list=True),
        "paged": Unsynced(Trigger.EXPIRED, watch_list=False),
        "syncing": Syncing(_nothing(), form, Store(), 0.0, Trigger.EXPIRED, ended=False),
        "disconnected": Disconnected(form, Trigger.ENDED),
        "streaming": Streaming(_nothing(), form, 0.0),
    }
    return states[name]


START, PAGED = Unsynced(Trigger.START), Unsynced(Trigger.EXPIRED, watch_list=False)
SYNC_AGAIN, SYNC_PAGED = Unsynced(Trigger.EXPIRED), PAGED
EXPIRED, LAYOUT = Unsynced(Trigger.EXPIRED), Unsynced(Trigger.LAYOUT)
ENDED = Trigger.ENDED  # why it's disconnected, which stays to be looked into

OUTCOMES: list[tuple[Exception, list[Unsynced | Trigger | None]]] = [
    # what leads on from unsynced, paged, syncing, disconnected, streaming; None: refused
    (Forbidden(""), [None] * 5),
    (NotFound(""), [None] * 5),
    (MethodNotAllowed(""), [None] * 5),
    (UnknownLayoutError(""), [None, None, None, LAYOUT, LAYOUT]),
    (Expired(""), [START, PAGED, SYNC_AGAIN, EXPIRED, EXPIRED]),
    (Invalid(""), [START, PAGED, SYNC_PAGED, ENDED, Trigger.ERROR]),
    (BadRequest(""), [START, PAGED, SYNC_PAGED, ENDED, Trigger.ERROR]),
    (TimeoutError(), [START, PAGED, SYNC_PAGED, ENDED, Trigger.SILENT]),
    (Timeout(""), [START, PAGED, SYNC_AGAIN, ENDED, Trigger.ERROR]),
    (ServiceUnavailable(""), [START, PAGED, SYNC_AGAIN, ENDED, Trigger.BROKEN]),
    (InternalError(""), [START, PAGED, SYNC_AGAIN, ENDED, Trigger.ERROR]),
    (Unauthorized(""), [START, PAGED, SYNC_AGAIN, ENDED, Trigger.ERROR]),
    (TooManyRequests("", retry_after=9), [START, PAGED, SYNC_AGAIN, ENDED, Trigger.ERROR]),
]

UNPAUSED = {
    # The second try is of another kind, so it needs no pause.
    ("syncing", "Invalid"),
    ("syncing", "BadRequest"),
    ("syncing", "TimeoutError"),
    ("disconnected", "Expired"),
    ("streaming", "Expired"),
}


@pytest.mark.parametrize(
    ("name", "error", "expected"),
    [
        pytest.param(name, error, outcome, id=f"{name}-{type(error).__name__}")
        for error, outcomes in OUTCOMES
        for name, outcome in zip(
            ("unsynced", "paged", "syncing", "disconnected", "streaming"), outcomes, strict=True
        )
    ],
)
def test_what_a_failure_leads_to(
    name: str, error: Exception, expected: Unsynced | Trigger | None
) -> None:
    state = _state(name)
    if expected is None:
        with pytest.raises(RefusedError):
            after_failure(state, error)
        return
    recovery = after_failure(state, error)
    if isinstance(expected, Trigger):
        assert isinstance(state, Disconnected | Streaming)
        assert recovery.state == Disconnected(state.form, expected)
    else:
        assert recovery.state == expected
    assert recovery.pause is ((name, type(error).__name__) not in UNPAUSED)
    assert recovery.at_least == (9.0 if isinstance(error, TooManyRequests) else 0.0)
