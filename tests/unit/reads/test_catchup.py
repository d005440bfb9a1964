"""Watches from before the history: what the API server is asked, and what of it is passed on."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from math import inf
from urllib.parse import parse_qsl, urlsplit

import pytest

from proxy.cache.signal import Signal
from proxy.cache.source import Lines
from proxy.cache.view import Ending, View
from proxy.forms.form import Change, EventType, plainly
from proxy.kube.errors import Expired, Forbidden, ServiceUnavailable
from proxy.kube.negotiation import FormName
from proxy.kube.requests import parse_request
from proxy.reads.catchup import PAUSE, SECONDS, SILENCE, CatchUp
from tests.unit import virtual_time
from tests.unit.builders import PODS, Clock, error_line, stored, view_of

PLAINLY = plainly(PODS.form())

FLOOR = 50
"""The version of the view, whose history begins behind it."""


class Upstream:
    """Plays a script, watch by watch; a failure in the place of a batch is raised."""

    def __init__(self, *watches: Sequence[list[bytes] | Exception]) -> None:
        self.targets: list[str] = []
        self.open = 0
        self._watches = list(watches)

    async def __call__(self, form: FormName, target: str) -> AsyncGenerator[Sequence[bytes], None]:
        self.targets.append(target)
        self.open += 1
        try:
            for batch in self._watches.pop(0):
                if isinstance(batch, Exception):
                    raise batch
                yield [line.rstrip(b"\n") for line in batch]
        finally:
            self.open -= 1

    @property
    def queries(self) -> list[dict[str, str]]:
        return [dict(parse_qsl(urlsplit(target).query)) for target in self.targets]


def catching_up(
    lines: Callable[[FormName, str], Lines],
    view: View | None = None,
    query: str = "",
    clock: Clock | None = None,
) -> CatchUp:
    """A watch from version 3, which is caught up by *lines*."""
    request = parse_request("GET", b"/api/v1/namespaces/a/pods", query.encode(), [])
    return CatchUp(lines, request, view or at_floor(), 3, signal=Signal(), clock=clock or Clock())


def catch_up(
    upstream: Upstream, query: str = "", view: View | None = None, clock: Clock | None = None
) -> tuple[bytes, CatchUp]:
    """Catch up; returns all frames, and where that has led."""
    clock = clock or Clock()
    catching = catching_up(upstream, view, query, clock)

    async def run() -> bytes:
        return b"".join([frames async for frames in catching.frames(inf, PLAINLY)])

    return virtual_time.run(run(), clock), catching


def at_floor() -> View:
    return view_of(PODS.watch_list_form(), [], FLOOR)


ADDED, MODIFIED = PODS.added("x", version=7), PODS.modified("x", version=FLOOR)


def test_frames_are_passed_on_until_the_history_has_what_follows() -> None:
    upstream = Upstream([[], [ADDED], [MODIFIED], [PODS.modified("x", version=51)]])
    frames, catching = catch_up(upstream)
    assert frames == ADDED + MODIFIED
    assert (catching.version, catching.ending, upstream.open) == (FLOOR, "", 0)


def test_a_short_watch_with_bookmarks_is_asked_for() -> None:
    upstream = Upstream([[], [PODS.bookmark(FLOOR)]])
    query = "watch=1&resourceVersion=3&labelSelector=a%3Db&fieldSelector=c%21%3Dd&timeoutSeconds=9"
    catch_up(upstream, f"{query}&allowWatchBookmarks=0&unknown=1")
    assert urlsplit(upstream.targets[0]).path == "/api/v1/namespaces/a/pods"
    assert upstream.queries == [
        {
            "watch": "true",
            "resourceVersion": "3",
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(SECONDS),
            "labelSelector": "a=b",
            "fieldSelector": "c!=d",
        }
    ]


def test_a_path_is_sent_as_requests_are() -> None:
    request = parse_request("GET", b"/api/v1/namespaces/a#b/pods", b"", [])
    upstream = Upstream([[], [PODS.bookmark(FLOOR)]])
    catching = CatchUp(upstream, request, at_floor(), 3, signal=Signal(), clock=Clock())

    async def run() -> None:
        async for _ in catching.frames(inf, PLAINLY):
            pass

    asyncio.run(run())
    assert upstream.targets[0].startswith("/api/v1/namespaces/a%23b/pods?")


def test_an_idle_resource_is_caught_up_by_its_bookmark() -> None:
    frames, catching = catch_up(Upstream([[], [PODS.bookmark(70)]]))
    assert (frames, catching.version) == (b"", 70)


def test_watches_that_end_too_early_are_followed_by_others() -> None:
    upstream = Upstream([[], [ADDED]], [[]], [[], [PODS.bookmark(FLOOR - 1)]], [[], [MODIFIED]])
    clock = Clock()
    frames, catching = catch_up(upstream, clock=clock)
    assert frames == ADDED + MODIFIED
    assert clock.now - Clock().now == 3 * PAUSE, "a server that drains is not asked in a loop"
    assert [query["resourceVersion"] for query in upstream.queries] == ["3", "7", "7", "49"]
    assert catching.version == FLOOR


def test_the_first_frame_is_an_empty_one_that_tells_of_acceptance() -> None:
    catching = catching_up(Upstream([[], [ADDED], [MODIFIED]]))

    async def run() -> list[bytes]:
        return [frames async for frames in catching.frames(inf, PLAINLY)]

    assert asyncio.run(run()) == [b"", ADDED, MODIFIED]


def test_an_error_event_is_passed_on_and_ends_it() -> None:
    gone = error_line(Expired("too old resource version: 3 (40)"))
    upstream = Upstream([[], [ADDED, gone]])
    frames, catching = catch_up(upstream)
    assert frames == ADDED + gone
    assert (catching.ending, upstream.open) == ("expired", 0)


@pytest.mark.parametrize("after", [[], [[], [ADDED]]], ids=["refused", "broken"])
def test_a_failure_is_the_callers(after: list[list[bytes]]) -> None:
    upstream = Upstream([*after, Forbidden("no")])
    with pytest.raises(Forbidden):
        catch_up(upstream)
    assert upstream.open == 0


def test_a_history_that_reaches_back_needs_no_catching_up() -> None:
    upstream = Upstream()
    assert catch_up(upstream, view=view_of(PODS.watch_list_form(), [], 3))[0] == b""
    assert upstream.targets == []


def test_a_history_that_has_lost_its_beginning_is_caught_up_with_further() -> None:
    view = at_floor()
    for version in (60, 70):
        view.history.append(EventType.ADDED, version, stored("a/x", version), None)
    view.history.floor = 65
    upstream = Upstream([[], [ADDED], [PODS.modified("x", version=60)], [PODS.bookmark(66)]])
    frames, catching = catch_up(upstream, view=view)
    assert frames == ADDED + PODS.modified("x", version=60)
    assert catching.version == 66


def test_frames_are_bytes_as_they_came() -> None:
    odd = ADDED.replace(b'"metadata"', b'"odd":"\\u003c <&> \\ud83d\\ude00","metadata"')
    frames, _ = catch_up(Upstream([[], [odd, MODIFIED]]))
    assert frames == odd + MODIFIED
    assert isinstance(PODS.form().decode_event(odd), Change)


class Frozen:
    """An API server that takes watches and tells *batches*, then nothing any more."""

    def __init__(self, *batches: list[bytes]) -> None:
        self.open = 0
        self._batches = batches

    async def __call__(self, form: FormName, target: str) -> AsyncGenerator[Sequence[bytes], None]:
        self.open += 1
        try:
            for batch in self._batches:
                yield batch
            await asyncio.Event().wait()
        finally:
            self.open -= 1


class Story:
    """A watch at a frozen API server, in a time of its own."""

    def __init__(self, *batches: list[bytes]) -> None:
        self.clock = Clock()
        self.started = self.clock()
        self.signal = Signal()
        self.view = at_floor()
        self.upstream = Frozen(*batches)
        request = parse_request("GET", b"/api/v1/pods", b"", [])
        self.catching = CatchUp(
            self.upstream, request, self.view, 3, signal=self.signal, clock=self.clock
        )

    async def frames(self, lasting: float = inf) -> list[bytes]:
        return [frames async for frames in self.catching.frames(self.started + lasting, PLAINLY)]

    async def ended(self, ending: Ending) -> list[bytes]:
        """The frames of a watch whose view ends after a second."""
        reading = asyncio.create_task(self.frames())
        await asyncio.sleep(1)
        self.view.ended = ending
        self.signal.ring()
        return await reading


ACCEPTED: tuple[list[bytes], ...] = ([], [ADDED.rstrip(b"\n")])


@pytest.mark.parametrize("batches", [(), ACCEPTED], ids=["at once", "later"])
def test_a_frozen_apiserver_is_given_up(batches: tuple[list[bytes], ...]) -> None:
    story = Story(*batches)
    with pytest.raises(ServiceUnavailable) as raised:
        virtual_time.run(story.frames(), story.clock)
    assert raised.value.retry_after == 1
    assert story.clock() - story.started == SILENCE
    assert story.upstream.open == 0


def test_the_clients_time_runs_while_it_is_caught_up() -> None:
    story = Story(*ACCEPTED)
    assert virtual_time.run(story.frames(2), story.clock) == [b"", ADDED]
    assert (story.catching.ending, story.clock() - story.started) == ("deadline", 2)
    assert story.upstream.open == 0


@pytest.mark.parametrize("ending", list(Ending))
def test_the_end_of_the_view_ends_it(ending: Ending) -> None:
    story = Story(*ACCEPTED)
    assert virtual_time.run(story.ended(ending), story.clock) == [b"", ADDED]
    assert (story.catching.ending, story.clock() - story.started) == ("stopped", 1)
    assert story.upstream.open == 0


@pytest.mark.parametrize("stopped", [True, False])
def test_a_watch_that_was_never_accepted_is_refused_at_its_end(*, stopped: bool) -> None:
    story = Story()
    with pytest.raises(ServiceUnavailable):
        virtual_time.run(story.ended(Ending.STOPPED) if stopped else story.frames(2), story.clock)
