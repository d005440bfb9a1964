"""Probes and barriers: how often, for whom, and what they show."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from functools import partial

import pytest

from proxy.cache.informer import Informer
from proxy.cache.prover import (
    BARRIER_DUE,
    BARRIER_PACE,
    BARRIER_PROBE,
    EVENT_WAIT,
    PROBE_TIMEOUT,
    REFUSED_RETRY,
    RETRY,
    STUCK,
)
from proxy.cache.scope import Scope
from proxy.cache.store import Store
from proxy.cache.view import Ending
from proxy.forms.form import Change, EventType
from proxy.kube.errors import (
    ApiError,
    Forbidden,
    ServiceUnavailable,
    TooManyRequests,
    Unauthorized,
)
from proxy.reads.freshness import LEAD
from tests.unit.builders import PODS, Clock, stored
from tests.unit.cache.sources import ServedSource
from tests.unit.virtual_time import run

ROUND_TRIP = 0.01
AWAY = ServiceUnavailable("away")


class Upstream(ServedSource):
    """An API server at a version, which a watch on the side shows after a second.

    ``barriers`` are what such watches bring: a bookmark of the version by default.
    """

    def __init__(self, clock: Clock) -> None:
        super().__init__(PODS)
        self.clock = clock
        self.probes: list[float] = []
        self.watched: list[tuple[float, int]] = []
        self.line: Callable[[], bytes | None] = lambda: PODS.bookmark(self.version)

    async def current_version(self) -> int:
        self.probes.append(self.clock())
        version = self.version  # what is committed later isn't in the answer
        await asyncio.sleep(ROUND_TRIP)
        if self.failure is not None:
            raise self.failure
        return version

    async def barrier(self, version: int) -> AsyncGenerator[Sequence[bytes], None]:
        self.watched.append((self.clock(), version))
        yield []
        await asyncio.sleep(1.0)
        line = self.line()
        if line is None:
            await asyncio.sleep(2.0)
            return
        yield [line]


class Story:
    """An informer at version 10 that nobody tells anything, and its API server."""

    def __init__(self) -> None:
        self.clock = Clock(1000.0)
        self.upstream = Upstream(self.clock)
        self.informer = Informer(Scope(PODS.info.resource), self.upstream, clock=self.clock)
        self.prover = self.informer.prover

    async def begin(self) -> None:
        store = Store()
        store.put(stored("a/x", 3))
        await self.informer.replace(PODS.watch_list_form(), store, 10)

    def now(self) -> float:
        return self.clock() - 1000.0

    def proven(self) -> float:
        return self.informer.proofs.proven - 1000.0

    def write(self, version: int) -> None:
        self.informer.apply(Change(EventType.MODIFIED, stored("a/x", version)))


def told(story: Callable[[Story], Awaitable[None]]) -> Callable[[], None]:
    def test() -> None:
        play = Story()

        async def main() -> None:
            await play.begin()
            await story(play)
            play.prover.close()

        run(main(), play.clock)

    test.__name__ = story.__name__
    return test


@told
async def test_a_probe_proves_what_is_held(story: Story) -> None:
    story.prover.ask(story.clock())
    await asyncio.sleep(1)
    assert (story.upstream.probes, story.proven()) == ([1000.0], 0.0)
    assert story.upstream.watched == []


@told
async def test_it_is_sent_after_the_moment_that_it_is_asked_for(story: Story) -> None:
    """Who comes while one is under way shares the next, whoever asks for less shares this one."""
    story.prover.ask(story.clock())
    await asyncio.sleep(ROUND_TRIP / 2)
    for _ in range(100):
        story.prover.ask(story.clock())
        story.prover.ask(story.clock() - ROUND_TRIP)
    await asyncio.sleep(1)
    assert story.upstream.probes == [1000.0, pytest.approx(1000.0 + ROUND_TRIP)]
    story.prover.ask(1000.0)
    assert len(story.upstream.probes) == 2


@told
async def test_an_event_proves_what_a_probe_has_learnt(story: Story) -> None:
    story.upstream.version = 12
    story.prover.ask(story.clock())
    await asyncio.sleep(2 * ROUND_TRIP)
    assert story.proven() < 0
    story.write(12)
    assert story.proven() == 0.0


@told
async def test_a_barrier_proves_an_idle_resource(story: Story) -> None:
    story.upstream.version = 12
    story.prover.ask(story.clock())
    await asyncio.sleep(ROUND_TRIP + 1.0 + 0.01)
    [(began, version)] = story.upstream.watched
    assert (began, version) == (1000.0 + ROUND_TRIP, 10)
    assert story.informer.version == 12
    # The proof is that of a probe sent while the barrier was up, so it's fresh.
    assert story.proven() == pytest.approx(ROUND_TRIP + BARRIER_PROBE)
    assert story.prover.is_idle
    await asyncio.sleep(10)
    assert (len(story.upstream.probes), len(story.upstream.watched)) == (2, 1)


@told
async def test_an_idle_resource_stays_proven_where_nothing_happens_at_all(story: Story) -> None:
    """Then a barrier has no bookmark, and the probe that is sent during it proves by itself."""
    story.upstream.version = 12
    story.prover.ask(story.clock())
    await asyncio.sleep(1.1)
    story.upstream.line = lambda: None
    ages = []
    probes = len(story.upstream.probes)
    for step in range(2000):
        if step == 1000:
            story.upstream.version = 20  # something happens elsewhere
            story.upstream.line = lambda: PODS.bookmark(20)
        await asyncio.sleep(0.01)
        age = story.clock() - story.informer.proofs.proven
        ages.append(age)
        if age > 2 - LEAD:
            story.prover.refresh()
    assert max(ages) < 2
    assert len(story.upstream.probes) - probes <= 20


@told
async def test_what_is_idle_is_not_any_more_once_it_changes(story: Story) -> None:
    story.upstream.version = 12
    story.prover.ask(story.clock())
    await asyncio.sleep(2)
    assert story.prover.is_idle
    story.write(13)
    assert not story.prover.is_idle


@told
async def test_where_nothing_else_is_written_either_a_probe_will_do_again(story: Story) -> None:
    story.upstream.version = 12
    story.prover.ask(story.clock())
    await asyncio.sleep(2)
    story.prover.ask(story.clock())
    await asyncio.sleep(1)
    assert not story.prover.is_idle


@told
async def test_proofs_ahead_of_time_are_paced(story: Story) -> None:
    """Whoever asks and however often, in a cluster that is never quiet."""
    for _ in range(1000):
        story.upstream.version += 1
        story.prover.refresh()
        await asyncio.sleep(0.01)
    assert 8 <= len(story.upstream.watched) <= 10
    assert len(story.upstream.probes) <= 11
    assert story.now() - story.proven() < 1.0 + BARRIER_PACE - BARRIER_PROBE


@told
async def test_what_a_barrier_shows_and_the_watch_does_not_bring(story: Story) -> None:
    """Then the informer's own watch is stuck, and another one is opened."""
    reconnects: list[float] = []

    def interrupt() -> bool:
        reconnects.append(story.now())
        return True

    story.informer.reflector.interrupt = interrupt  # type: ignore[method-assign]
    story.upstream.version = 12
    story.upstream.line = lambda: PODS.modified("x", version=11)
    story.prover.ask(story.clock())
    await asyncio.sleep(STUCK)
    assert (reconnects, story.informer.version) == ([], 10)
    await asyncio.sleep(ROUND_TRIP + 1.0)
    assert reconnects == [pytest.approx(ROUND_TRIP + 1.0 + STUCK)]
    assert story.prover.counts["barrier", "busy"] == 1


@told
async def test_what_the_watch_brings_in_time_is_no_reason_to_reconnect(story: Story) -> None:
    story.informer.reflector.interrupt = lambda: pytest.fail("reconnected")  # type: ignore[method-assign]
    story.upstream.version = 12
    story.upstream.line = lambda: PODS.modified("x", version=11)
    story.prover.ask(story.clock())
    await asyncio.sleep(STUCK)
    story.write(11)
    await asyncio.sleep(STUCK)


@told
async def test_a_barrier_without_bookmark_proves_nothing(story: Story) -> None:
    story.upstream.version = 12
    story.upstream.line = lambda: None
    story.prover.ask(story.clock())
    await asyncio.sleep(9)
    assert (story.proven() < 0, story.informer.version) == (True, 10)
    assert story.prover.counts["barrier", "failed"] == 1


@pytest.mark.parametrize("silent", [False, True])
def test_an_api_server_that_is_away(*, silent: bool) -> None:
    """It's tried again and again, and while it's away nobody waits for it."""

    @told
    async def story(story: Story) -> None:
        story.upstream.failure = TimeoutError() if silent else AWAY
        story.prover.ask(story.clock())
        await asyncio.sleep(PROBE_TIMEOUT)
        away = (story.prover.is_away, story.informer.is_ready)
        assert away == (True, False)
        assert story.prover.patience(story.clock()) == 0
        count = len(story.upstream.probes)
        story.prover.ask(story.clock())
        story.prover.refresh()
        assert len(story.upstream.probes) == count
        story.upstream.failure = None
        await asyncio.sleep(RETRY + 2 * ROUND_TRIP)
        assert story.informer.is_ready
        assert story.proven() > 0

    story()


@told
async def test_an_api_server_that_refuses_is_not_away(story: Story) -> None:
    """It just proves nothing, so nobody waits for it."""
    story.upstream.failure = TooManyRequests("later")
    story.prover.ask(story.clock())
    await asyncio.sleep(1)
    assert (story.prover.is_away, story.informer.is_ready) == (False, True)
    assert story.prover.patience(1000.0) <= 0
    assert len(story.upstream.probes) == 1


@pytest.mark.parametrize("refusal", [Forbidden("no more"), Unauthorized("no more")])
def test_who_may_not_probe_is_not_ready_until_he_may(
    refusal: ApiError, caplog: pytest.LogCaptureFixture
) -> None:
    """Though the watch that is open goes on."""
    caplog.set_level("INFO")

    @told
    async def story(story: Story) -> None:
        informer = story.informer
        caplog.clear()
        story.upstream.version = 12
        story.upstream.failure = refusal
        story.prover.ask(story.clock())
        await asyncio.sleep(1)
        story.write(12)
        assert (informer.is_ready, informer.is_stalled) == (False, False)
        assert (informer.why_unready, informer.last_error) == ("no more", "no more")
        await asyncio.sleep(REFUSED_RETRY)  # nobody asks
        story.prover.ask(story.clock())
        await asyncio.sleep(RETRY)
        assert len(story.upstream.probes) == 2
        assert not informer.is_ready
        story.upstream.failure = None
        await asyncio.sleep(REFUSED_RETRY)
        assert (informer.is_ready, informer.last_error) == (True, "")
        assert [each.levelname for each in caplog.records] == ["WARNING", "INFO"]
        await asyncio.sleep(10 * REFUSED_RETRY)
        assert len(story.upstream.probes) == 3

    story()


@told
async def test_a_list_that_succeeds_ends_a_refusal(story: Story) -> None:
    story.upstream.failure = Forbidden("no more")
    story.prover.ask(story.clock())
    await asyncio.sleep(1)
    assert not story.informer.is_ready
    await story.begin()
    assert story.informer.is_ready


@told
async def test_one_whose_state_is_lost_meanwhile_is_asked_again(story: Story) -> None:
    story.upstream.failure = AWAY
    story.prover.ask(story.clock())
    await asyncio.sleep(ROUND_TRIP * 2)
    story.informer.drop(Ending.STOPPED)
    story.upstream.failure = None
    await asyncio.sleep(2 * RETRY)
    assert not story.prover.is_away


@told
async def test_a_version_below_the_one_held_is_no_proof(story: Story) -> None:
    """The API server was set back; its watch is looked into."""
    reconnects: list[float] = []

    def interrupt() -> bool:
        reconnects.append(story.now())
        return True

    story.informer.reflector.interrupt = interrupt  # type: ignore[method-assign]
    story.upstream.version = 4
    story.prover.ask(story.clock())
    await asyncio.sleep(1)
    assert story.proven() < 0
    assert reconnects == [pytest.approx(ROUND_TRIP)]


@told
async def test_a_barrier_is_nothing_to_a_state_that_is_being_replaced(story: Story) -> None:
    """The list that has begun may be older, and would be taken for a server that was set back."""
    story.upstream.version = 12
    story.prover.ask(story.clock())
    await asyncio.sleep(0.5)
    story.informer.reflector.is_listing = True
    await asyncio.sleep(1)
    assert (story.informer.version, story.prover.counts["barrier", "failed"]) == (10, 1)


@told
async def test_a_sign_of_the_watch_is_one_of_the_api_server(story: Story) -> None:
    story.upstream.failure = AWAY
    story.prover.ask(story.clock())
    await asyncio.sleep(0.1)
    before = story.informer.is_ready
    story.write(11)
    assert (before, story.informer.is_ready) == (False, True)


@told
async def test_patience(story: Story) -> None:
    moment = story.clock()
    assert story.prover.patience(moment) == 0  # nobody has asked
    story.upstream.version = 12
    story.prover.ask(moment)
    assert story.prover.patience(moment) == PROBE_TIMEOUT
    await asyncio.sleep(2 * ROUND_TRIP)
    assert story.prover.patience(moment) == pytest.approx(EVENT_WAIT - ROUND_TRIP)
    await asyncio.sleep(EVENT_WAIT)
    assert story.prover.patience(moment) <= 0
    # When the barrier's bookmark is about to come, it's worth waiting for.
    await asyncio.sleep(0.9 - EVENT_WAIT)
    late = moment + BARRIER_PROBE - 0.1
    assert story.prover.patience(late) > 0 or story.clock() < 1000.0 + BARRIER_DUE - EVENT_WAIT
    assert story.prover.patience(story.clock()) <= 0


@told
async def test_a_round_that_ends_before_it_has_begun_is_over(story: Story) -> None:
    """A probe's answer proves, in the same turn of the loop in which a bookmark opens a round."""
    answers = asyncio.Event()
    story.upstream.version = 12
    story.prover.ask(story.clock())
    story.upstream.barrier = partial(_answered_with, story.upstream, answers)  # type: ignore[method-assign]
    await asyncio.sleep(2 * ROUND_TRIP)
    story.upstream.current_version = partial(_version_with, story.upstream, answers)  # type: ignore[method-assign]
    await asyncio.sleep(BARRIER_PROBE + 0.1)
    story.prover.refresh()
    answers.set()
    for _ in range(50):
        story.upstream.version += 1
        story.prover.refresh()
        await asyncio.sleep(0.1)
    assert story.proven() > story.now() - 2


async def _answered_with(
    upstream: Upstream, answers: asyncio.Event, version: int
) -> AsyncGenerator[Sequence[bytes], None]:
    yield []
    await answers.wait()
    yield [PODS.bookmark(upstream.version)]


async def _version_with(upstream: Upstream, answers: asyncio.Event) -> int:
    version = upstream.version
    await answers.wait()
    return version


@told
async def test_after_its_end_nothing_is_sent(story: Story) -> None:
    for failure, seconds in ((Forbidden("no"), RETRY + 1), (AWAY, 0.1)):
        story.upstream.failure = failure
        story.prover.ask(story.clock())
        await asyncio.sleep(seconds)
    story.prover.close()
    probes = len(story.upstream.probes)
    await asyncio.sleep(10 * REFUSED_RETRY)
    assert len(story.upstream.probes) == probes
