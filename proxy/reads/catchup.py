"""Watches from before an informer's history: the API server tells what was, the informer goes on.

A client that comes back after the proxy was restarted needs no relist: short watches with
bookmarks carry it to a version that the history has.
"""

from collections.abc import AsyncIterator, Callable, Sequence
from urllib.parse import urlencode

from proxy.cache.reflector import Lines
from proxy.cache.view import View
from proxy.forms.form import Bookmark, Failure
from proxy.kube.options import parse_query
from proxy.kube.requests import Request

SECONDS = 3
"""Length of a watch: its bookmark comes two seconds before the end, however idle the resource."""

_SELECTORS = ("labelSelector", "fieldSelector")


class CatchUp:
    """Passes on the API server's own frames until the view's history has what follows.

    ``version`` is what the client has been told up to; ``failed`` once the API server has sent an
    ERROR, which is its last word to the client too. *lines* opens a watch at a raw target.
    """

    def __init__(
        self, lines: Callable[[str], Lines], request: Request, view: View, version: int
    ) -> None:
        self.version = version
        self.failed = False
        self._lines = lines
        self._view = view
        pairs = parse_query(request.query)
        self._path = request.path
        self._selectors = {name: pairs[name] for name in _SELECTORS if name in pairs}

    async def frames(self) -> AsyncIterator[bytes]:
        """Yield frames; an empty one as soon as the API server has accepted the watch."""
        while not self.failed and self._view.history.cursor_after(self.version) is None:
            stream = self._lines(self._target())
            try:
                async for lines in stream:
                    yield b"".join(self._told(lines))
                    if self._view.history.cursor_after(self.version) is not None:
                        break
            finally:
                await stream.aclose()

    def _target(self) -> str:
        query = {
            **self._selectors,
            "watch": "true",
            "resourceVersion": self.version,
            "allowWatchBookmarks": "true",
            "timeoutSeconds": SECONDS,
        }
        return f"{self._path}?{urlencode(query)}"

    def _told(self, lines: Sequence[bytes]) -> list[bytes]:
        """Choose the frames for the client, whose bookmarks come from the informer."""
        told = []
        for line in lines:
            event = self._view.form.decode_event(line)
            if isinstance(event, Bookmark):
                self.version = event.version
                continue
            if isinstance(event, Failure):
                self.failed = True
            else:
                self.version = event.object.version
            told.append(line + b"\n")
        return told
