"""What reads wait for, how long, and what becomes of those that wait in vain."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import NamedTuple

import pytest

from proxy.cache.expectations import Expectation
from proxy.cache.informer import Informer
from proxy.cache.prover import PROBE_TIMEOUT
from proxy.cache.scope import Scope
from proxy.forms.form import Change, EventType
from proxy.kube.errors import ServiceUnavailable
from proxy.kube.requests import Request, parse_request
from proxy.reads.freshness import AHEAD_WAIT, PROBED_AFTER, WRITE_WAIT, Consistency, Guarantees
from proxy.reads.plan import Reason
from proxy.reads.reader import Answer, Pending, Stream
from tests.unit import virtual_time
from tests.unit.builders import PODS, item
from tests.unit.served import Served

PODS_OF_A = "/api/v1/namespaces/a/pods"
AWAY = ServiceUnavailable("away")
SESSION = Guarantees()
EVENTUAL = Guarantees(Consistency.EVENTUAL)
STRICT = Guarantees(Consistency.STRICT)
BOUNDED = Guarantees(max_staleness=2.0)


def asks(target: str, cache_control: str = "", client: str = "me") -> Request:
    path, _, query = target.partition("?")
    headers = [(b"user-agent", client.encode())]
    if cache_control:
        headers.append((b"cache-control", cache_control.encode()))
    return parse_request("GET", path.encode(), query.encode(), headers)


class Outcome(NamedTuple):
    result: Reason | int
    seconds: float


class Story(NamedTuple):
    served: Served
    informer: Informer

    async def read(self, request: Request) -> Outcome:
        """Read, and wait if that's needed; the status or the version of the answer."""
        began = self.served.clock()
        found = self.served.reader.read(request)
        if isinstance(found, Pending):
            found = await self.served.reader.wait(request, found)
        result = found.version if isinstance(found, Answer | Stream) else found
        return Outcome(result, round(self.served.clock() - began, 3))

    def expect(
        self, key: str = "a/x", *, version: int = 0, client: str = "", uid: str = ""
    ) -> None:
        expected = Expectation(key, self.served.clock(), client, version, uid)
        self.served.informers.acknowledge(PODS.info.resource, expected)

    def show_absent(self, key: str) -> None:
        shown = Expectation(key, self.served.clock(), "me", absent=True)
        self.served.informers.acknowledge(PODS.info.resource, shown)

    def write(self, version: int, name: str = "x", event: EventType = EventType.MODIFIED) -> None:
        [found] = PODS.objects(item(name, version=version))
        self.informer.apply(Change(event, found))


def play(
    story: Callable[[Story], Awaitable[None]], guarantees: Guarantees = SESSION, namespace: str = ""
) -> None:
    """Run a story with an informer at version 10, since half a minute, in the time of its clock."""
    served = Served(guarantees)

    async def run() -> None:
        try:
            informer = await served.synced(namespace)
            served.clock.advance(30)
            await story(Story(served, informer))
        finally:
            await served.informers.stop()

    virtual_time.run(run(), served.clock)


# --- own writes ------------------------------------------------------------------------------

LATEST = [
    f"{PODS_OF_A}/x",
    PODS_OF_A,
    "/api/v1/pods",
    f"{PODS_OF_A}?labelSelector=app",
    f"{PODS_OF_A}?resourceVersion=0",
    f"{PODS_OF_A}?resourceVersion=9&resourceVersionMatch=NotOlderThan",
    f"{PODS_OF_A}?limit=5",
    f"{PODS_OF_A}?watch=1",
    f"{PODS_OF_A}?watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan"
    "&resourceVersion=9",
]
PAST = [
    f"{PODS_OF_A}?resourceVersion=10&resourceVersionMatch=Exact",
    f"{PODS_OF_A}?resourceVersion=10&limit=5",
    f"{PODS_OF_A}?watch=1&resourceVersion=10",
]
OTHERS = [f"{PODS_OF_A}/y", "/api/v1/namespaces/b/pods", "/api/v1/namespaces/b/pods/x"]


@pytest.mark.parametrize("target", LATEST)
def test_reads_wait_for_a_write(target: str) -> None:
    async def story(story: Story) -> None:
        story.expect(version=12)
        waiting = asyncio.create_task(story.read(asks(target)))
        await asyncio.sleep(0.2)
        story.write(11)
        await asyncio.sleep(0.2)
        assert not waiting.done()
        story.write(12)
        assert await waiting == Outcome(12, 0.4)
        assert await story.read(asks(target)) == Outcome(12, 0.0)
        assert story.served.reader.waits.sum == pytest.approx(0.4)

    play(story)


def test_what_comes_before_the_waiting_has_begun_is_not_missed() -> None:
    async def story(story: Story) -> None:
        story.expect(version=12)
        request = asks(PODS_OF_A)
        pending = story.served.reader.read(request)
        assert isinstance(pending, Pending)
        story.write(12)
        answer = await story.served.reader.wait(request, pending)
        assert isinstance(answer, Answer)
        assert answer.version == 12
        assert story.served.reader.waits.sum == 0

    play(story)


@pytest.mark.parametrize("target", LATEST)
def test_a_read_that_waits_in_vain_goes_live(target: str) -> None:
    async def story(story: Story) -> None:
        story.expect(version=12)
        assert await story.read(asks(target)) == Outcome(Reason.UNSEEN, WRITE_WAIT)

    play(story)


@pytest.mark.parametrize("target", [*PAST, *OTHERS])
def test_reads_of_something_else_wait_for_nothing(target: str) -> None:
    async def story(story: Story) -> None:
        story.expect(version=12)
        assert await story.read(asks(target)) == Outcome(10, 0.0)

    play(story)


@pytest.mark.parametrize("target", LATEST)
def test_eventual_reads_wait_for_nothing(target: str) -> None:
    async def story(story: Story) -> None:
        story.expect(version=12)
        assert (await story.read(asks(target))).result == 10

    play(story, EVENTUAL)


def test_a_write_of_no_known_version_takes_a_proof() -> None:
    async def story(story: Story) -> None:
        story.expect("a/")
        assert await story.read(asks(PODS_OF_A)) == Outcome(10, 0.0)  # the probe takes no time
        assert story.informer.prover.counts == {("probe", "proven"): 1}
        assert not story.informer.expectations

    play(story)


def test_a_deletion_is_seen_by_its_event_or_by_a_proof() -> None:
    async def story(story: Story) -> None:
        story.expect(uid="uid-x")
        waiting = asyncio.create_task(story.read(asks(f"{PODS_OF_A}/x")))
        await asyncio.sleep(PROBED_AFTER / 2)
        story.write(13, event=EventType.DELETED)
        assert (await waiting).result == 13
        assert not story.informer.prover.counts  # the event was enough

    play(story)


def test_a_deletion_that_never_was_is_found_out() -> None:
    """As that of a dry run which its body asks for."""

    async def story(story: Story) -> None:
        story.expect(uid="uid-x")
        await asyncio.sleep(2 * PROBED_AFTER)
        assert (await story.read(asks(f"{PODS_OF_A}/x"))).result == 10
        assert story.informer.prover.counts["probe", "proven"] == 1

    play(story)


def test_a_deletion_that_is_late_gets_its_probe_while_somebody_waits() -> None:
    async def story(story: Story) -> None:
        story.expect(uid="uid-x")
        found = await story.read(asks(f"{PODS_OF_A}/x"))
        assert (found.result, round(found.seconds, 2)) == (10, PROBED_AFTER)

    play(story)


def test_a_deletion_whose_event_was_first_is_no_reason_to_wait() -> None:
    async def story(story: Story) -> None:
        story.write(13, event=EventType.DELETED)
        story.expect(uid="uid-x")
        assert not story.informer.expectations

    play(story)


def test_what_a_live_read_has_shown_is_for_its_client() -> None:
    async def story(story: Story) -> None:
        story.served.sources[story.informer.scope].version = 12
        story.expect(version=12, client="me")
        target = f"{PODS_OF_A}/x"
        assert await story.read(asks(target, client="other")) == Outcome(10, 0.0)
        assert await story.read(asks(target)) == Outcome(Reason.AHEAD, AHEAD_WAIT)
        # A barrier sees nothing come, so it's waited for no longer until its bookmark is due.
        await asyncio.sleep(0.05)
        assert await story.read(asks(target)) == Outcome(Reason.AHEAD, 0.0)
        story.write(12)
        assert await story.read(asks(target)) == Outcome(12, 0.0)

    play(story)


def test_who_was_shown_that_nothing_is_there_waits_only_where_something_is() -> None:
    """Also when it comes later: it may have been there, and gone, before the live read."""

    async def story(story: Story) -> None:
        story.served.sources[story.informer.scope].version = 20  # of another resource
        story.show_absent("a/x")
        story.show_absent("a/new")
        for target in (PODS_OF_A, f"{PODS_OF_A}/x"):
            assert (await story.read(asks(target))).result is Reason.AHEAD
        story.write(11, event=EventType.DELETED)
        for target in (PODS_OF_A, f"{PODS_OF_A}/x", f"{PODS_OF_A}/new"):
            assert await story.read(asks(target)) == Outcome(11, 0.0)
        story.write(12, "new", EventType.ADDED)
        for target in (PODS_OF_A, f"{PODS_OF_A}/new"):
            assert (await story.read(asks(target))).result is Reason.AHEAD
            assert await story.read(asks(target, client="other")) == Outcome(12, 0.0)

    play(story)


def test_what_another_informer_shows_is_not_undone() -> None:
    """One of a namespace and one of all: a change that either has is in both answers."""

    async def story(story: Story) -> None:
        await story.served.synced("a")
        part = next(each for each in story.served.informers if each.scope.namespace)
        [found] = PODS.objects(item("x", version=12))
        part.apply(Change(EventType.MODIFIED, found))
        assert await story.read(asks(PODS_OF_A)) == Outcome(12, 0.0)
        assert await story.read(asks("/api/v1/pods")) == Outcome(Reason.AHEAD, AHEAD_WAIT)
        story.write(12)
        assert await story.read(asks("/api/v1/pods")) == Outcome(12, 0.0)

    play(story)


# --- proofs ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("guarantees", "cache_control", "target", "probes"),
    [
        (SESSION, "", PODS_OF_A, 0),
        (SESSION, "max-age=2", PODS_OF_A, 1),
        (SESSION, "max-age=0", f"{PODS_OF_A}/x", 2),
        (SESSION, "max-age=2, only-if-cached", PODS_OF_A, 1),
        (BOUNDED, "", PODS_OF_A, 1),
        (BOUNDED, "max-age=60", f"{PODS_OF_A}?resourceVersion=0", 1),
        (BOUNDED, "", PAST[0], 0),
        (STRICT, "", PODS_OF_A, 2),
        (STRICT, "", f"{PODS_OF_A}?watch=1", 2),
        (STRICT, "", f"{PODS_OF_A}?resourceVersion=0", 0),
        (STRICT, "", f"{PODS_OF_A}/x?resourceVersion=9", 0),
        (STRICT, "", PAST[0], 0),
        (EVENTUAL, "max-age=2", PODS_OF_A, 1),
    ],
)
def test_what_it_takes_to_be_believed(
    guarantees: Guarantees, cache_control: str, target: str, probes: int
) -> None:
    """Two reads in a row, in a cluster where nothing else is written."""

    async def story(story: Story) -> None:
        for _ in range(2):
            await asyncio.sleep(0.1)
            assert (await story.read(asks(target, cache_control))).result == 10
        await asyncio.sleep(0)
        assert story.informer.prover.counts["probe", "proven"] == probes

    play(story, guarantees)


def test_a_write_from_elsewhere_is_waited_for() -> None:
    async def story(story: Story) -> None:
        story.served.sources[story.informer.scope].version = 12
        waiting = asyncio.create_task(story.read(asks(PODS_OF_A, "max-age=0")))
        await asyncio.sleep(AHEAD_WAIT / 2)
        story.write(12)
        assert await waiting == Outcome(12, AHEAD_WAIT / 2)

    play(story)


def test_what_does_not_come_goes_live_soon() -> None:
    async def story(story: Story) -> None:
        story.served.sources[story.informer.scope].version = 12
        request = asks(PODS_OF_A, "max-age=0")
        assert await story.read(request) == Outcome(Reason.UNPROVEN, AHEAD_WAIT)

    play(story)


def test_an_idle_resource_is_known_to_be_one() -> None:
    """Then a strict read goes live without a probe before it."""

    async def story(story: Story) -> None:
        source = story.served.sources[story.informer.scope]
        source.version = 12
        await story.read(asks(PODS_OF_A))
        await asyncio.sleep(2)
        source.version = 20
        count = sum(story.informer.prover.counts.values())
        assert await story.read(asks(PODS_OF_A)) == Outcome(Reason.UNPROVEN, 0.0)
        assert sum(story.informer.prover.counts.values()) == count

    play(story, STRICT)


def test_max_age_is_kept_up_in_a_busy_cluster() -> None:
    async def story(story: Story) -> None:
        source = story.served.sources[story.informer.scope]
        outcomes = []
        for _ in range(200):
            source.version += 1
            outcomes.append(await story.read(asks(PODS_OF_A, "max-age=2")))
            age = story.served.clock() - story.informer.proofs.proven
            assert outcomes[-1].result is Reason.UNPROVEN or age <= 2
            await asyncio.sleep(0.1)
        hits = [each for each in outcomes if each.result is not Reason.UNPROVEN]
        assert len(hits) > 190
        probes = sum(n for (kind, _), n in story.informer.prover.counts.items() if kind == "probe")
        assert probes <= 21

    play(story)


# --- an API server that is away ----------------------------------------------------------------


@pytest.mark.parametrize(
    ("cache_control", "result"),
    [
        ("max-age=1", Reason.UNPROVEN),
        ("max-age=1, max-stale", 10),
        ("max-age=1, max-stale=60", 10),
        ("max-age=1, max-stale=5", Reason.UNPROVEN),  # the state is 10 seconds old
        ("max-age=1, max-stale=60, only-if-cached", 10),
        ("max-stale", 10),
        ("", 10),
    ],
)
def test_stale_answers(cache_control: str, result: Reason | int) -> None:
    async def story(story: Story) -> None:
        await asyncio.sleep(10)
        story.served.sources[story.informer.scope].failure = AWAY
        for _ in range(2):
            found = await story.read(asks(PODS_OF_A, cache_control))
            assert found == Outcome(result, 0.0)

    play(story)


def test_a_silent_api_server_is_given_up() -> None:
    async def story(story: Story) -> None:
        story.served.sources[story.informer.scope].mute()
        found = await story.read(asks(PODS_OF_A, "max-age=0, max-stale"))
        assert found == Outcome(10, PROBE_TIMEOUT)
        assert await story.read(asks(PODS_OF_A, "max-age=0, max-stale")) == Outcome(10, 0.0)

    play(story)


def test_own_writes_are_not_given_up_for_an_answer() -> None:
    async def story(story: Story) -> None:
        story.expect(version=12)
        found = await story.read(asks(PODS_OF_A, "max-stale"))
        assert found == Outcome(Reason.UNSEEN, WRITE_WAIT)

    play(story)


# --- misses ----------------------------------------------------------------------------------


def test_a_miss_is_confirmed_where_that_is_asked_for() -> None:
    async def story(story: Story) -> None:
        assert (await story.read(asks(f"{PODS_OF_A}/y"))).result is Reason.UNCONFIRMED
        assert (await story.read(asks(f"{PODS_OF_A}/x"))).result == 10

    play(story, Guarantees(confirm_misses=True))


def test_a_namespaced_informer_expects_only_what_is_in_it() -> None:
    async def story(story: Story) -> None:
        story.expect("b/x", version=12)
        story.expect("a/x", version=12)
        assert [each.key for each in story.informer.expectations.of("", "")] == ["a/x"]
        assert story.informer.scope == Scope(PODS.info.resource, "a")

    play(story, namespace="a")
