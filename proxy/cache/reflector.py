"""Keeps one informer current: list and watch, as a state machine that never gives up.

Its states are data (``recovery``); ``Reflector.step`` goes from one to the next. Policy constants
are client-go's (``tools/cache/reflector.go``).
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from math import inf
from typing import Literal, Protocol

from proxy.cache.backoff import Backoff
from proxy.cache.recovery import (
    Disconnected,
    EndedError,
    Missing,
    State,
    Streaming,
    Syncing,
    Trigger,
    Unsynced,
    Witness,
    after_failure,
)
from proxy.cache.source import Lines, Source
from proxy.cache.store import Store
from proxy.cache.view import Ending
from proxy.forms.form import Bookmark, Change, EventType, Failure, Form, UnknownLayoutError
from proxy.kube.errors import ApiError, BadRequest

PAGE = 250
"""Objects asked for in a page of a list: a few milliseconds of decoding for realistic pods."""

SILENCE = 65.0
"""Seconds without a byte after which a watch is taken for dead: bookmarks come every 60 s."""

WATCH_SECONDS = 300
"""A watch is asked to last this to twice this many seconds: client-go's spread of the load."""

EARLY = WATCH_SECONDS - 10.0
"""Seconds. A watch that ends sooner is ended by the API server, not by its time."""

SHORT_WATCH = 1.0
"""Seconds. A watch that ends sooner counts as a failure, so as not to spin."""


class Sink(Protocol):
    """What a reflector keeps current."""

    @property
    def version(self) -> int:
        """resourceVersion of the state held."""

    @property
    def witness(self) -> Witness | None:
        """What changed last of it; None if that is not known."""

    def version_of(self, key: str) -> int:
        """resourceVersion of an object in it; 0 for none."""

    async def replace(self, form: Form, store: Store, version: int, asked: float) -> None:
        """Take over a complete state, gathered in a store of its own; it was *asked* for then."""

    def apply(self, change: Change) -> None:
        """Take over one change."""

    def bookmark(self, version: int) -> None:
        """Note that nothing else happened up to *version*."""

    def contact(self) -> None:
        """Note that the API server answers."""

    def drop(self, ending: Ending) -> None:
        """Forget everything: the API server's history went back, or objects read otherwise now."""


class Reflector:
    """Drives one *sink* from one *source*; ``run`` ends only by RefusedError or cancellation.

    ``is_listing``: everything is being listed, whatever the sink holds meanwhile.
    """

    def __init__(
        self,
        source: Source,
        sink: Sink,
        backoff: Backoff,
        *,
        clock: Callable[[], float],
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        silence: float = SILENCE,
    ) -> None:
        self.relists: Counter[Trigger] = Counter()
        self.restarts: Counter[Trigger] = Counter()
        self.last_error = ""
        self._source = source
        self._sink = sink
        self._backoff = backoff
        self._clock = clock
        self._sleep = sleep
        self._silence = silence
        self._listening: asyncio.Timeout | None = None
        self.is_listing = False

    def interrupt(self) -> bool:
        """Take the watch for dead now, and open another one; False where none is open."""
        if self._listening is None or self._listening.expired():
            return False
        self._listening.reschedule(asyncio.get_running_loop().time())
        return True

    async def run(self, reason: Trigger = Trigger.START) -> None:
        """List, watch, and go on for ever; *reason* is that of the first list."""
        state: State = Unsynced(reason)
        try:
            while True:
                self.is_listing = isinstance(state, Unsynced | Syncing)
                state = await self.step(state)
                await asyncio.sleep(0)  # a stream that never pauses must not hold up the others
        finally:
            await _close(state)

    async def step(self, state: State) -> State:
        """Go on from *state*; failures lead to a state too, after a pause."""
        try:
            return await self._advance(state)
        except (ApiError, UnknownLayoutError, TimeoutError) as error:
            self.last_error = str(error) or f"silent for {self._silence:.0f} s"
            await _close(state)
            recovery = after_failure(state, error)
            if recovery.pause:
                await self._sleep(self._backoff.next(recovery.at_least))
            return recovery.state

    async def _advance(self, state: State) -> State:
        match state:
            case Unsynced():
                self.relists[state.reason] += 1
                form = await self._source.describe()
                if state.watch_list:
                    store = Store(form.indexed)
                    stream = self._source.watch(None)
                    return Syncing(stream, form, store, self._clock(), state.reason, state.ended)
                return await self._list(form)
            case Syncing():
                return await self._collect(state)
            case Disconnected():
                return await self._resume(state)
            case Streaming():
                return await self._follow(state)

    async def _list(self, form: Form) -> State:
        """Page through a list; all its pages are of one version."""
        store, asked = Store(form.indexed), self._clock()
        token = ""
        while True:
            page = form.decode_page(await self._source.list_page(PAGE, token))
            for found in page.objects:
                store.put(found)
            token = page.continue_token
            if not token:
                break
        await self._sink.replace(form, store, page.version, asked)
        return self._streaming(form)

    async def _collect(self, state: Syncing) -> State:
        """Gather a WatchList's initial events; at their end they are the state, atomically."""
        lines = await self._next(state.stream)
        if lines is None:
            raise EndedError("the watch ended among its initial events")
        events = _decode(state.form, lines)
        for event in events:
            if isinstance(event, Change):
                _apply(state.store, event)
            elif event.initial_end:
                await self._sink.replace(state.form, state.store, event.version, state.asked)
                self._deliver(events)
                return Streaming(state.stream, state.form, self._clock())
        return state

    async def _resume(self, state: Disconnected) -> State:
        """Watch on from where the last watch ended, unless the API server was set back."""
        if await self._is_set_back():
            return self._rewound()
        missing = await self._look(state.form)
        if missing is Ending.REWOUND:
            return self._rewound()
        if state.reason is Trigger.ENDED:  # as all watches of a CRD do when it is changed
            form = await self._source.describe()
            if form.shape != state.form.shape:
                self._sink.drop(Ending.STOPPED)
                return Unsynced(Trigger.LAYOUT)
            if state.lasted < SHORT_WATCH:
                await self._sleep(self._backoff.next())
            if state.lasted < EARLY and form.is_custom:
                return Unsynced(Trigger.ENDED)  # maybe of that shape since before it took effect
        self.restarts[state.reason] += 1
        return self._streaming(state.form, missing)

    def _rewound(self) -> State:
        self._sink.drop(Ending.REWOUND)
        return Unsynced(Trigger.REWOUND)

    async def _is_set_back(self) -> bool:
        """Tell whether the API server's versions are behind: a watch would be silent for ever."""
        held = self._sink.version  # a barrier may raise it meanwhile
        return await self._source.current_version() < held

    async def _look(self, form: Form) -> Missing | Literal[Ending.REWOUND] | None:
        """Look for what changed last, which a restored API server hasn't as it is held.

        Its versions may have overtaken those held; a watch would leave out what was lost. Tells
        what's missing, which may have been deleted, or that what is there contradicts.
        """
        held, witness = self._sink.version, self._sink.witness
        if witness is None:
            return None
        try:
            page = form.decode_page(await self._source.list_object(witness.key))
        except BadRequest:  # an API that knows no field selectors
            return None
        if not page.objects:
            return Missing(witness, page.version) if witness.version else None
        there = page.objects[0]
        is_it = there.key == witness.key  # not so where selectors are ignored
        contradicts = is_it and witness.version != there.version <= held
        return Ending.REWOUND if contradicts else None

    def _streaming(self, form: Form, missing: Missing | None = None) -> Streaming:
        """Watch on; where a deletion is missing, briefly, as a bookmark then comes soon."""
        if missing is not None:
            return Streaming(self._source.barrier(self._sink.version), form, -inf, missing)
        return Streaming(self._source.watch(self._sink.version), form, self._clock())

    async def _follow(self, state: Streaming) -> State:
        """Apply the next batch of events."""
        lines = await self._next(state.stream)
        if lines is not None:
            if not lines:
                self._sink.contact()  # the watch is accepted
            self._deliver(_decode(state.form, lines))
            return await self._settled(state)
        return Disconnected(state.form, Trigger.ENDED, self._clock() - state.since)

    async def _settled(self, state: Streaming) -> State:
        """Go on, unless a deletion hasn't come that must have by now."""
        if state.missing is None or self._sink.version < state.missing.by:
            return state
        key, version = state.missing.witness
        if self._sink.version_of(key) == version:
            await _close(state)
            return self._rewound()
        return replace(state, missing=None)

    async def _next(self, stream: Lines) -> Sequence[bytes] | None:
        """Wait for the next lines; None at a clean end. Raises TimeoutError on silence."""
        try:
            async with asyncio.timeout(self._silence) as self._listening:
                return await anext(stream, None)
        finally:
            self._listening = None

    def _deliver(self, events: Iterable[Change | Bookmark]) -> None:
        for event in events:
            if isinstance(event, Change):
                self._sink.apply(event)
            else:
                self._sink.bookmark(event.version)


async def _close(state: State) -> None:
    if isinstance(state, Syncing | Streaming):
        await state.stream.aclose()


def _decode(form: Form, lines: Sequence[bytes]) -> Iterator[Change | Bookmark]:
    """Decode the lines one by one; an ERROR event is raised."""
    for line in lines:
        event = form.decode_event(line)
        if isinstance(event, Failure):
            raise event.error
        yield event


def _apply(store: Store, change: Change) -> None:
    if change.type is EventType.DELETED:
        store.remove(change.object.key)
    else:
        store.put(change.object)
