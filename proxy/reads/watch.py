"""A watch from an informer: initial events, then what follows in the history, with bookmarks."""

import asyncio
import random
import time
from collections.abc import AsyncIterator, Callable, Iterator
from itertools import islice

from proxy.cache.informer import Informer
from proxy.cache.view import Ending, View
from proxy.forms.form import EventType, Rendering
from proxy.kube.errors import ApiError, Expired
from proxy.reads.catchup import CatchUp
from proxy.reads.listing import PART, runs
from proxy.reads.plan import ServeWatch
from proxy.reads.query import Candidates

BATCH = 100
"""Objects and events looked at before the event loop goes on, if they aren't PART bytes before."""

TURNS = 4
"""Watches that may send a batch in one turn of the event loop; hundreds may have begun at once."""

MIN_REQUEST_TIMEOUT = 1800.0
"""Seconds. Without timeoutSeconds a watch lasts this to twice this (``--min-request-timeout``)."""

BOOKMARK_PERIOD = 60.0
"""Seconds between bookmarks (``defaultBookmarkFrequency``)."""

BOOKMARK_LEAD = 2.0
"""Seconds before the deadline at which a last bookmark is sent."""


class Watch:
    """One client's watch: a cursor into the history of a view, and its timers.

    *catch_up* tells what lies before the history, where the plan has no cursor. *turns* are shared
    by all watches that have much to send. ``ending`` says how the watch came to its end.
    """

    def __init__(
        self,
        informer: Informer,
        view: View,
        plan: ServeWatch,
        *,
        catch_up: CatchUp | None = None,
        turns: asyncio.Semaphore | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.ending = ""
        self._informer = informer
        self._view = view
        self._plan = plan
        self._form = view.form
        self._rendering = self._render()
        self._cursor = plan.cursor or 0
        self._after = plan.after
        self._catch_up = catch_up
        self._turns = turns or asyncio.Semaphore(TURNS)
        self._candidates = _candidates(plan, view)
        self._bookmarks = plan.options.allow_watch_bookmarks
        self._clock = clock
        lasting = plan.options.timeout_seconds or MIN_REQUEST_TIMEOUT * (1 + random.random())
        self._deadline = clock() + lasting
        self._next_bookmark = float("inf")
        self._start = plan.initial.version if plan.initial else plan.after
        self._sent = self._start
        self._error: ApiError | None = None
        self._schedule_bookmark()

    async def frames(self) -> AsyncIterator[bytes]:
        """Yield encoded frames, several at a time, until the deadline or the view's end.

        The first, empty ones mean that the watch is accepted; it may be refused before.
        """
        if self._catch_up is not None:
            async for frames in self._catch_up.frames(self._deadline, self._rendering):
                yield frames
            self.ending = self._catch_up.ending
            if self.ending:
                return
            self._go_on_from(self._catch_up.version)
        for frames in self._initial():
            yield frames
            await self._turn()
        async for frames in self._following():
            yield frames

    async def _following(self) -> AsyncIterator[bytes]:
        while self._clock() < self._deadline:
            news = self._informer.signal.next()
            frames = self._events()
            if self._error is not None:
                self.ending = "expired"
                yield self._rendering.encode_error(self._error)
                return
            if frames := frames + self._due_bookmark():
                yield frames
            if not self._is_current:
                await self._turn()  # also where nothing is selected
            elif not frames:
                if self._view.ended is not None:
                    self.ending = "stopped"
                    return
                await asyncio.wait({news}, timeout=self._next_timer - self._clock())
        self.ending = "deadline"

    async def _turn(self) -> None:
        """Let others have their turn."""
        async with self._turns:
            await asyncio.sleep(0)

    def _go_on_from(self, version: int) -> None:
        """Continue behind what the API server has told."""
        cursor = self._view.history.cursor_after(version)
        self._cursor = -1 if cursor is None else cursor  # -1 is gone, and so is this watch
        self._after = self._sent = version

    def _initial(self) -> Iterator[bytes]:
        """Encode the objects that the watch starts with, and the bookmark that ends them."""
        yield b""
        snapshot = self._plan.initial
        if snapshot is None:
            return
        form = self._rendering
        candidates = iter(self._candidates.objects)
        while batch := list(islice(candidates, BATCH)):
            selected = [found for found in batch if self._plan.selection.matches(found)]
            if not selected:
                yield b""
            for run in runs(selected):
                self._informer.sent += len(run)
                yield b"".join(
                    [form.encode_event(EventType.ADDED, one, one.version) for one in run]
                )
        if self._bookmarks:
            yield form.encode_bookmark(snapshot.version, initial_end=True) or b""

    def _render(self) -> Rendering:
        """Take the writer of the present form; a relist may have learnt it anew."""
        rendering = self._form.rendering(
            self._plan.representation, self._plan.options.include_object
        )
        if rendering is None:
            raise Expired("the resource is not shown in this form any more")
        return rendering

    @property
    def _present(self) -> Rendering:
        if self._view.form is not self._form:
            self._form = self._view.form
            self._rendering = self._render()
        return self._rendering

    @property
    def _is_current(self) -> bool:
        return self._cursor >= self._view.history.end

    def _events(self) -> bytes:
        """Encode the next events, and move on behind them."""
        events = self._view.history.read(self._cursor, BATCH)
        if events is None or (not events and self._view.ended is Ending.REWOUND):
            self._error = Expired(
                f"too old resource version: {self._sent} ({self._view.history.floor})"
            )
            return b""
        frames: list[bytes] = []
        size = 0
        for event in events:
            self._cursor += 1
            self._sent = event.version
            told = self._plan.selection.transition(event)
            if told is not None and event.version > self._after:
                frames.append(self._present.encode_event(*told, event.version))
                size += len(frames[-1])
                if size >= PART:
                    break
        self._informer.sent += len(frames)
        return b"".join(frames)

    def _due_bookmark(self) -> bytes:
        """Encode a bookmark of what has been told when it's time for one (``cacheWatcher``).

        The API server sends none that says no more than the start did.
        """
        if self._clock() < self._next_bookmark:
            return b""
        self._schedule_bookmark()
        held = self._view.store.version if self._is_current else 0
        version = max(held, self._sent)
        if version <= self._start or self._informer.is_stalled:  # whoever waits shall know
            return b""
        return self._present.encode_bookmark(version, initial_end=False) or b""

    def _schedule_bookmark(self) -> None:
        """One a minute, and one shortly before the deadline: what comes first."""
        if not self._bookmarks:
            return
        now = self._clock()
        last = self._deadline - BOOKMARK_LEAD
        self._next_bookmark = min(now + BOOKMARK_PERIOD, last if last > now else float("inf"))

    @property
    def _next_timer(self) -> float:
        return min(self._next_bookmark, self._deadline)


def _candidates(plan: ServeWatch, view: View) -> Candidates:
    if plan.initial is None:
        return Candidates(0, ())
    return plan.selection.candidates(view.store, plan.initial, plan.selection.keys)
