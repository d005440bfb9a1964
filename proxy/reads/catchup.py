"""Watches from before an informer's history: the API server tells what was, the informer goes on.

A client that comes back after the proxy was restarted needs no relist: short watches with
bookmarks carry it to a version that the history has.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any
from urllib.parse import urlencode

from proxy.cache.signal import Signal
from proxy.cache.source import Lines
from proxy.cache.view import View
from proxy.forms.form import Bookmark, Failure, Rendering
from proxy.kube.errors import ServiceUnavailable
from proxy.kube.negotiation import FormName
from proxy.kube.options import parse_query
from proxy.kube.requests import Request

SECONDS = 3
"""Length of a watch: its bookmark comes two seconds before the end, however idle the resource."""

SILENCE = 30.0
"""Seconds without a line after which the API server is stuck: it would have ended the watch. With
hundreds to serve at once it may be late."""

PAUSE = 1.0
"""Seconds between two watches of which the first ended at once."""

_SELECTORS = ("labelSelector", "fieldSelector")


class CatchUp:
    """Passes on the API server's own events until the view's history has what follows.

    ``version`` is what the client has been told up to. ``ending`` says why the history won't go on:
    the API server has sent an ERROR, which is its last word to the client too, the view has ended
    (*signal* rings then), or the client's time is over. *lines* opens a watch of a form at a raw
    target.
    """

    def __init__(
        self,
        lines: Callable[[FormName, str], Lines],
        request: Request,
        view: View,
        version: int,
        *,
        signal: Signal,
        clock: Callable[[], float],
    ) -> None:
        self.version = version
        self.ending = ""
        self._lines = lines
        self._view = view
        self._signal = signal
        self._clock = clock
        pairs = parse_query(request.query)
        self._path = request.raw_target.partition("?")[0]
        self._selectors = {name: pairs[name] for name in _SELECTORS if name in pairs}

    async def frames(self, deadline: float, rendering: Rendering) -> AsyncIterator[bytes]:
        """Yield frames until *deadline*, as *rendering* writes them.

        An empty one says that the API server has accepted the watch. Raises ServiceUnavailable for
        a silent API server, and where it never accepted the watch.
        """
        accepted = False
        while not self._is_over():
            began = self._clock()
            stream = self._lines(self._view.form.name, self._target())
            try:
                while (lines := await self._next(stream, deadline)) is not None:
                    accepted = True
                    yield b"".join(self._told(lines, rendering))
                    if self._is_over():
                        break
            finally:
                await stream.aclose()
            if not self._is_over() and self._clock() - began < PAUSE:
                await asyncio.sleep(PAUSE)
        if self.ending and not accepted:
            raise ServiceUnavailable("the API server has not accepted the watch", retry_after=1)

    def _is_over(self) -> bool:
        return self.ending != "" or self._view.history.cursor_after(self.version) is not None

    async def _next(self, stream: Lines, deadline: float) -> Sequence[bytes] | None:
        """Wait for lines; None at the end of the stream, or for an ending."""
        reading: asyncio.Future[Any] = asyncio.ensure_future(anext(stream, None))
        silent = self._clock() + SILENCE
        try:
            while not reading.done():
                news, now = self._signal.next(), self._clock()
                if self._view.ended is not None or now >= deadline:
                    self.ending = "deadline" if self._view.ended is None else "stopped"
                    return None
                if now >= silent:
                    raise ServiceUnavailable("the API server did not answer in time", retry_after=1)
                await asyncio.wait(
                    {reading, news},
                    timeout=min(deadline, silent) - now,
                    return_when=asyncio.FIRST_COMPLETED,
                )
            found: Sequence[bytes] | None = reading.result()
            return found
        finally:
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)

    def _target(self) -> str:
        query = {
            **self._selectors,
            "watch": "true",
            "resourceVersion": self.version,
            "allowWatchBookmarks": "true",
            "timeoutSeconds": SECONDS,
        }
        return f"{self._path}?{urlencode(query)}"

    def _told(self, lines: Sequence[bytes], rendering: Rendering) -> list[bytes]:
        """Choose the frames for the client, whose bookmarks come from the informer."""
        told = []
        for line in lines:
            event = self._view.form.decode_event(line)
            if isinstance(event, Bookmark):
                self.version = event.version
            elif isinstance(event, Failure):
                self.ending = "expired"
                told.append(event.frame)
            else:
                self.version = event.object.version
                told.append(rendering.encode_event(*event, self.version))
        return told
