"""Watches: what is told of each event, when bookmarks come, and how a watch ends."""

import asyncio
import json
from collections.abc import AsyncGenerator, Sequence
from typing import Any, cast

import pytest

from proxy.cache.history import Event
from proxy.cache.informer import Informer
from proxy.cache.scope import Scope
from proxy.cache.source import Source
from proxy.cache.store import Store
from proxy.cache.view import Ending, View
from proxy.forms.form import Change, EventType
from proxy.forms.json import JsonForm
from proxy.forms.objects import Object
from proxy.kube.negotiation import FormName
from proxy.kube.options import parse_options
from proxy.kube.paths import ResourcePath
from proxy.kube.requests import Verb, parse_request
from proxy.kube.resources import Resource, ResourceInfo
from proxy.reads.catchup import CatchUp
from proxy.reads.listing import PART
from proxy.reads.plan import Read, ServeWatch, plan
from proxy.reads.watch import BATCH, TURNS, Watch

PODS = Resource("", "v1", "pods")
END = (
    b'{"type":"BOOKMARK","object":{"kind":"Pod","apiVersion":"v1","metadata":{"resourceVersion":"10",'
    b'"annotations":{"k8s.io/initial-events-end":"true"}}}}'
)


class Clock:
    """Time that passes when a test says so."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class World:
    """An informer at version 10 with one object, whose time stands still."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.informer = Informer(Scope(PODS), cast(Source, None), clock=self.clock)
        sample = b'{"kind":"PodList","metadata":{"resourceVersion":"1"},"items":[]}'
        self.form = JsonForm(ResourceInfo(PODS, "Pod", namespaced=True), sample)
        self.form.decode_event(END)
        store = Store(self.form.indexed)
        store.put(self.pod("old", 5))
        asyncio.run(self.informer.replace(self.form, store, 10))

    @property
    def view(self) -> View:
        assert self.informer.view
        return self.informer.view

    def pod(self, name: str, version: int, **labels: str) -> Object:
        return self.form.decode_page(_page(name, version, labels)).objects[0]

    def happens(self, event_type: EventType, name: str, version: int, **labels: str) -> None:
        self.informer.apply(Change(event_type, self.pod(name, version, **labels)))

    def passes(self, batches: int) -> None:
        """Fill the history with events of one object, without labels, from version 11 on."""
        found = self.pod("old", 11)
        versions = range(11, 11 + batches * BATCH)
        self.view.history.extend(
            [Event(EventType.MODIFIED, version, found, found, 0.0) for version in versions]
        )

    def watch(self, query: str, lines: Any = None, turns: asyncio.Semaphore | None = None) -> Watch:
        options = parse_options(query.encode())
        read = Read(Verb.WATCH, ResourcePath(PODS, "", "", ""), options, indent=False)
        decided = plan(read, self.view)
        assert isinstance(decided, ServeWatch), decided
        catch_up = None
        if decided.cursor is None:
            request = parse_request("GET", b"/api/v1/pods", query.encode(), [])
            catch_up = CatchUp(
                lines,
                request,
                self.view,
                decided.after,
                signal=self.informer.signal,
                clock=self.clock,
            )
        return Watch(
            self.informer,
            self.view,
            decided,
            catch_up=catch_up,
            turns=turns,
            clock=self.clock,
        )


def _page(name: str, version: int, labels: dict[str, str]) -> bytes:
    metadata = {"name": name, "namespace": "a", "uid": name, "resourceVersion": str(version)}
    if labels:
        metadata["labels"] = cast(Any, labels)
    page = {"metadata": {"resourceVersion": "1"}, "items": [{"metadata": metadata}]}
    return json.dumps(page, separators=(",", ":")).encode()


def told(watch: Watch, *, until: int = 100) -> list[tuple[str, str, int]]:
    """What a watch sends until it would wait: type, name, version."""

    async def collect() -> list[bytes]:
        frames = watch.frames()
        found = []
        try:
            async with asyncio.timeout(0.02):
                async for part in frames:
                    found += part.splitlines()
                    if len(found) >= until:
                        break
        except TimeoutError:
            pass
        return found

    return [_read(json.loads(line)) for line in asyncio.run(collect())]


def _read(event: dict[str, Any]) -> tuple[str, str, int]:
    found = event["object"]
    if event["type"] == "ERROR":
        return "ERROR", found["reason"], found["code"]
    return (
        event["type"],
        found["metadata"].get("name", ""),
        int(found["metadata"]["resourceVersion"]),
    )


ADDED, MODIFIED, DELETED = EventType.ADDED, EventType.MODIFIED, EventType.DELETED


def test_initial_events_and_what_follows() -> None:
    world = World()
    watch = world.watch("watch=1&allowWatchBookmarks=true")
    world.happens(ADDED, "new", 11)
    assert told(watch) == [("ADDED", "old", 5), ("BOOKMARK", "", 10), ("ADDED", "new", 11)]
    assert world.informer.sent == 2


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ({}, {"app": "x"}, ("ADDED", 12)),
        ({"app": "x"}, {"app": "x"}, ("MODIFIED", 12)),
        ({"app": "x"}, {}, ("DELETED", 12)),
        ({}, {}, None),
    ],
)
def test_transitions(
    before: dict[str, str], after: dict[str, str], expected: tuple[str, int] | None
) -> None:
    world = World()
    world.happens(ADDED, "p", 11, **before)
    watch = world.watch("watch=1&resourceVersion=11&labelSelector=app%3Dx")
    world.happens(MODIFIED, "p", 12, **after)
    assert [(kind, version) for kind, _, version in told(watch)] == ([expected] if expected else [])


@pytest.mark.parametrize(("labels", "expected"), [({"app": "x"}, 1), ({}, 0)])
def test_deletions(labels: dict[str, str], expected: int) -> None:
    world = World()
    world.happens(ADDED, "p", 11, **labels)
    watch = world.watch("watch=1&resourceVersion=11&labelSelector=app%3Dx")
    world.happens(DELETED, "p", 12, **labels)
    assert told(watch) == [("DELETED", "p", 12)] * expected


def test_an_object_that_leaves_is_told_as_it_was() -> None:
    world = World()
    world.happens(ADDED, "p", 11, app="x")
    watch = world.watch("watch=1&resourceVersion=11&labelSelector=app%3Dx")
    world.happens(MODIFIED, "p", 12, app="y")
    frames = asyncio.run(_first(watch))
    assert b'"labels":{"app":"x"}' in frames
    assert b'"resourceVersion":"12"' in frames


async def _first(watch: Watch) -> bytes:
    async for frames in watch.frames():
        if frames:
            return frames
    raise AssertionError("nothing told")


def test_a_version_to_come_is_waited_for_in_silence() -> None:
    world = World()
    watch = world.watch("watch=1&resourceVersion=12")
    for version in (11, 12, 13):
        world.happens(ADDED, f"p{version}", version)
    assert told(watch) == [("ADDED", "p13", 13)]


@pytest.mark.parametrize(
    ("query", "seconds", "version", "expected"),
    [
        ("allowWatchBookmarks=true", 59, 20, []),
        ("allowWatchBookmarks=true", 60, 20, [("BOOKMARK", "", 20)]),
        ("allowWatchBookmarks=true", 60, 10, []),  # nothing newer than the start
        ("", 60, 20, []),
        ("allowWatchBookmarks=true&timeoutSeconds=30", 27, 20, []),
        ("allowWatchBookmarks=true&timeoutSeconds=30", 28, 20, [("BOOKMARK", "", 20)]),
        ("allowWatchBookmarks=true&timeoutSeconds=2", 1, 20, []),
    ],
)
def test_bookmarks(
    query: str, seconds: float, version: int, expected: list[tuple[str, str, int]]
) -> None:
    world = World()
    watch = world.watch(f"watch=1&resourceVersion=10&{query}")
    world.informer.bookmark(version)
    world.clock.now += seconds
    assert told(watch, until=1) == expected


def test_the_deadline_ends_a_watch() -> None:
    world = World()
    watch = world.watch("watch=1&resourceVersion=10&timeoutSeconds=5")
    world.clock.now += 5
    assert told(watch) == []
    assert watch.ending == "deadline"


def test_the_deadline_ends_a_watch_that_is_behind() -> None:
    world = World()
    watch = world.watch("watch=1&resourceVersion=10&timeoutSeconds=3")
    world.passes(10)

    async def read() -> int:
        told = 0
        async for frames in watch.frames():
            told += frames.count(b"\n")
            world.clock.now += bool(frames)
        return told

    assert asyncio.run(read()) == 3 * BATCH
    assert watch.ending == "deadline"


def test_a_watch_that_is_behind_gets_its_bookmarks() -> None:
    world = World()
    watch = world.watch("watch=1&resourceVersion=10&allowWatchBookmarks=true&timeoutSeconds=30")
    world.passes(3)

    async def read() -> list[bytes]:
        frames = watch.frames()
        found = [await anext(frames), await anext(frames)]
        world.clock.now = 28
        return [*found, await anext(frames), await anext(frames)]

    _, first, second, third = map(bytes.splitlines, asyncio.run(read()))
    assert [len(each) for each in (first, second, third)] == [BATCH, BATCH + 1, BATCH]
    assert _read(json.loads(second[-1])) == ("BOOKMARK", "", 10 + 2 * BATCH)


@pytest.mark.parametrize("selector", ["", "app"])
def test_others_have_their_turn_while_a_watch_is_behind(selector: str) -> None:
    world = World()
    watch = world.watch(f"watch=1&resourceVersion=10&labelSelector={selector}")
    world.passes(100)
    world.informer.drop(Ending.STOPPED)

    async def read() -> None:
        async for _ in watch.frames():
            pass

    async def turns() -> int:
        reading = asyncio.create_task(read())
        count = 0
        while not reading.done():
            await asyncio.sleep(0)
            count += 1
        return count

    assert asyncio.run(turns()) >= 100


def test_watches_that_have_much_to_send_take_turns() -> None:
    world = World()
    turns = asyncio.Semaphore(TURNS)
    watches = [world.watch("watch=1", turns=turns) for _ in range(10 * TURNS)]
    world.passes(3)
    world.informer.drop(Ending.STOPPED)
    sent = 0

    async def read(watch: Watch) -> int:
        nonlocal sent
        told = 0
        async for frames in watch.frames():
            sent += bool(frames)
            told += frames.count(b"\n")
        return told

    async def busiest() -> tuple[int, set[int]]:
        """The most batches that were sent in one turn of the event loop, and what all were told."""
        nonlocal sent
        reading = asyncio.gather(*map(read, watches))
        most = 0
        while not reading.done():
            await asyncio.sleep(0)
            most, sent = max(most, sent), 0
        return most, set(await reading)

    assert asyncio.run(busiest()) == (TURNS, {1 + 3 * BATCH})


@pytest.mark.parametrize("initial", [True, False])
def test_large_objects_are_told_a_few_at_a_time(*, initial: bool) -> None:
    world = World()
    watch = world.watch("watch=1&resourceVersion=10")
    for version in range(11, 21):
        world.happens(ADDED, f"p{version}", version, pad="x" * (PART // 4))
    if initial:
        watch = world.watch("watch=1")
    world.informer.drop(Ending.STOPPED)

    async def read() -> list[bytes]:
        return [frames async for frames in watch.frames()]

    parts = asyncio.run(read())
    assert max(map(len, parts)) < PART * 3 // 2
    assert sum(part.count(b'"pad"') for part in parts) == 10


def test_a_watch_that_the_history_has_passed_has_expired() -> None:
    world = World()
    watch = world.watch("watch=1&resourceVersion=10")
    world.happens(ADDED, "p", 11)
    world.clock.now += 1000
    world.happens(ADDED, "q", 12)
    assert told(watch) == [("ERROR", "Expired", 410)]
    assert watch.ending == "expired"


def test_the_expiry_says_from_where_on_there_is_a_history() -> None:
    world = World()
    watch = world.watch("watch=1&resourceVersion=10&timeoutSeconds=9999")

    async def read() -> bytes:
        frames = watch.frames()
        world.happens(ADDED, "p", 11)
        assert b"ADDED" in b"".join([await anext(frames), await anext(frames)])
        for version in (12, 13):
            world.clock.now += 1000
            world.happens(ADDED, "q", version)
        return await anext(frames)

    assert b'"message":"too old resource version: 11 (12)"' in asyncio.run(read())


@pytest.mark.parametrize(
    ("ending", "expected"),
    [
        (Ending.STOPPED, [("ADDED", "p", 11)]),
        (Ending.REWOUND, [("ADDED", "p", 11), ("ERROR", "Expired", 410)]),
    ],
)
def test_the_end_of_a_view(ending: Ending, expected: list[tuple[str, str, int]]) -> None:
    world = World()
    watch = world.watch("watch=1&resourceVersion=10")
    world.happens(ADDED, "p", 11)
    world.informer.drop(ending)
    assert told(watch) == expected


class Upstream:
    """Watches of the API server, one after the other: batches of lines."""

    def __init__(self, *watches: list[list[bytes]]) -> None:
        self.targets: list[str] = []
        self._watches = list(watches)

    async def __call__(self, form: FormName, target: str) -> AsyncGenerator[Sequence[bytes], None]:
        self.targets.append(target)
        for batch in self._watches.pop(0):
            yield batch


def line(event_type: str, name: str, version: int) -> bytes:
    metadata = f'{{"name":"{name}","namespace":"a","resourceVersion":"{version}"}}'
    return (
        f'{{"type":"{event_type}","object":{{"kind":"Pod","apiVersion":"v1","metadata":{metadata}}}}}'
    ).encode()


def test_a_watch_from_before_the_history_is_caught_up_by_the_apiserver() -> None:
    world = World()
    upstream = Upstream([[], [line("ADDED", "early", 4)], [line("BOOKMARK", "", 10)]])
    watch = world.watch("watch=1&resourceVersion=3&labelSelector=!app", upstream)
    world.happens(ADDED, "late", 11)
    assert told(watch) == [("ADDED", "early", 4), ("ADDED", "late", 11)]
    assert "resourceVersion=3&" in upstream.targets[0]
    assert "labelSelector=%21app" in upstream.targets[0]


def test_a_bookmark_from_beyond_the_informer_hides_what_was_told() -> None:
    world = World()
    upstream = Upstream([[], [line("ADDED", "early", 4), line("MODIFIED", "p", 11)]])
    watch = world.watch("watch=1&resourceVersion=3", upstream)
    world.happens(ADDED, "p", 11)
    world.happens(ADDED, "q", 12)
    assert told(watch) == [("ADDED", "early", 4), ("MODIFIED", "p", 11), ("ADDED", "q", 12)]


def test_the_apiservers_own_410_is_the_last_word() -> None:
    error = (
        b'{"type":"ERROR","object":{"kind":"Status","reason":"Expired","code":410,"message":"x"}}'
    )
    world = World()
    watch = world.watch("watch=1&resourceVersion=3", Upstream([[], [error]]))
    assert told(watch) == [("ERROR", "Expired", 410)]
    assert watch.ending == "expired"


def test_a_bookmark_says_no_less_than_the_apiserver_did() -> None:
    world = World()
    upstream = Upstream([[], [line("BOOKMARK", "", 70)]])
    watch = world.watch("watch=1&resourceVersion=3&allowWatchBookmarks=true", upstream)
    world.clock.now = 60

    async def read() -> list[bytes]:
        frames = watch.frames()
        found = [await anext(frames), await anext(frames), await anext(frames)]
        following = asyncio.ensure_future(anext(frames))
        for version in (69, 71):
            await asyncio.sleep(0.01)
            world.clock.now += 60
            world.informer.bookmark(version)
        return [*found, await following]

    told = b"".join(asyncio.run(read())).splitlines()
    assert [_read(json.loads(each)) for each in told] == [("BOOKMARK", "", 70)]


@pytest.mark.parametrize("ending", list(Ending))
def test_the_end_of_a_view_ends_a_watch_that_is_caught_up(ending: Ending) -> None:
    world = World()

    async def lines(form: FormName, target: str) -> AsyncGenerator[Sequence[bytes], None]:
        yield []
        yield [line("ADDED", "early", 4)]
        world.informer.drop(ending)
        await asyncio.sleep(10)

    watch = world.watch("watch=1&resourceVersion=3", lines)
    assert told(watch) == [("ADDED", "early", 4)]
    assert watch.ending == "stopped"
