"""A client that follows a watch knows at its end what is there, wherever it began and whatever
happened upstream: changes, relists, bookmarks.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import NamedTuple, cast

from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.cache.informer import Informer
from proxy.cache.scope import Scope
from proxy.cache.source import Source
from proxy.cache.view import View
from proxy.forms.form import Bookmark, Change, EventType
from proxy.forms.objects import Object
from proxy.kube.options import parse_options
from proxy.kube.paths import ResourcePath
from proxy.kube.requests import Verb
from proxy.reads.plan import Read, ServeWatch, plan
from proxy.reads.query import select_by
from proxy.reads.watch import Watch
from tests.unit import virtual_time
from tests.unit.builders import PODS, Clock, item, store_of

POD = PODS.info.resource
FORM = PODS.watch_list_form()
KEYS = ["a/x", "a/y", "a-b/x", "b/x", "b/y"]

Labels = dict[str, str] | None
"""What an object's labels become; None deletes it."""


class Put(NamedTuple):
    """One change, *gap* versions after the last."""

    key: str
    labels: Labels
    gap: int


class Relist(NamedTuple):
    """Changes that the informer missed, and a list that shows what became of them."""

    missed: list[Put]


class Quiet(NamedTuple):
    """Nothing but versions of other resources, as a bookmark tells."""

    gap: int


puts = st.builds(
    Put,
    st.sampled_from(KEYS),
    st.sampled_from([{"app": "x"}, {"app": "y"}, {}, None]),
    st.integers(1, 3),
)
relists = st.builds(Relist, st.lists(puts, max_size=8))
quiets = st.builds(Quiet, st.integers(0, 3))
steps = st.lists(st.one_of(puts, puts, relists, quiets), max_size=25)
queries = st.sampled_from(
    [
        "",
        "labelSelector=app%3Dx",
        "labelSelector=!app",
        "fieldSelector=metadata.name%3Dx",
        "fieldSelector=metadata.namespace!%3Da",
    ]
)


Known = dict[str, bytes]
"""The objects that a client knows, as JSON."""


class World:
    """A resource at the API server, and the informer that follows it."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.version = 100
        self.present: dict[str, Object] = {}
        self.informer = Informer(Scope(POD), cast(Source, None), clock=clock)

    @property
    def view(self) -> View:
        assert self.informer.view is not None
        return self.informer.view

    def put(self, change: Put) -> Change | None:
        """Change an object at the API server; an unknown one can't be deleted."""
        previous = self.present.pop(change.key, None)
        if change.labels is None and previous is None:
            return None
        self.version += change.gap
        namespace, _, name = change.key.partition("/")
        labels = previous.labels if change.labels is None and previous else change.labels
        uid = previous.uid if previous else f"uid-{self.version}"
        written = item(name, namespace, version=self.version, labels=labels, uid=uid)
        [found] = PODS.objects(written)
        if change.labels is None:
            return Change(EventType.DELETED, found)
        self.present[change.key] = found
        return Change(EventType.MODIFIED if previous else EventType.ADDED, found)

    async def relist(self) -> None:
        await self.informer.replace(FORM, store_of(self.present.values()), self.version)

    async def happen(self, step: Put | Relist | Quiet) -> None:
        match step:
            case Put():
                if change := self.put(step):
                    self.informer.apply(change)
            case Relist(missed):
                for each in missed:
                    self.put(each)
                self.version += 1  # a list is of a version of its own
                await self.relist()
            case Quiet(gap):
                self.version += gap
                self.informer.bookmark(self.version)

    def watch(self, query: str, namespace: str) -> Watch:
        options = parse_options(f"watch=1&timeoutSeconds=100&{query}".encode())
        read = Read(Verb.WATCH, ResourcePath(POD, namespace, "", ""), options, indent=False)
        decided = plan(read, self.view)
        assert isinstance(decided, ServeWatch)
        return Watch(self.informer, self.view, decided, clock=self.clock)

    def selected(self, query: str, namespace: str) -> Known:
        """What the API server would list now."""
        options = parse_options(query.encode())
        selection = select_by(FORM, namespace, options.labels, options.fields)
        assert selection is not None
        return {key: found.raw for key, found in self.present.items() if selection.matches(found)}


class Client:
    """Follows a watch, and remembers what it knew at each version."""

    def __init__(self, version: int, known: Known) -> None:
        self.version = version
        self.known = dict(known)
        self.past = [(version, dict(known))]

    async def follow(self, watch: Watch) -> None:
        initial = self.version == 0
        async for frames in watch.frames():
            for line in frames.splitlines():
                event = FORM.decode_event(line)
                if isinstance(event, Bookmark):
                    assert event.version >= self.version
                    assert event.initial_end is initial
                    initial = False
                    self._reach(event.version)
                    continue
                assert isinstance(event, Change)
                self._apply(event, initial=initial)

    def _apply(self, event: Change, *, initial: bool) -> None:
        event_type, found = event
        assert (event_type is EventType.ADDED) is (found.key not in self.known)
        if event_type is EventType.DELETED:
            del self.known[found.key]
        else:
            self.known[found.key] = found.raw
        if not initial:
            assert found.version > self.version
            self._reach(found.version)

    def _reach(self, version: int) -> None:
        self.version = version
        self.past.append((version, dict(self.known)))


async def play(watch: Watch, client: Client, script: AsyncIterator[None]) -> None:
    """Let the client read while the script goes on; then the watch's time is over."""
    following = asyncio.create_task(client.follow(watch))
    async for _ in script:
        await asyncio.sleep(0)
    await following
    assert watch.ending == "deadline"


async def acting(world: World, script: list[Put | Relist | Quiet]) -> AsyncIterator[None]:
    for step in script:
        await world.happen(step)
        yield


async def _story(
    world: World, before: list[Put], script: list[Put | Relist | Quiet], query: str, namespace: str
) -> None:
    for each in before:
        world.put(each)
    await world.relist()
    first = Client(0, {})
    beginning = world.watch(f"{query}&allowWatchBookmarks=1", namespace)
    await play(beginning, first, acting(world, script))
    expected = world.selected(query, namespace)
    assert first.known == expected
    for version, known in first.past[1:]:
        again = Client(version, known)
        await again.follow(world.watch(f"{query}&resourceVersion={version}", namespace))
        assert again.known == expected


@given(st.lists(puts, max_size=8), steps, queries, st.sampled_from(["", "a"]))
@settings(max_examples=150)
def test_who_follows_a_watch_knows_what_is_there(
    before: list[Put], script: list[Put | Relist | Quiet], query: str, namespace: str
) -> None:
    clock = Clock()
    virtual_time.run(_story(World(clock), before, script, query, namespace), clock)
