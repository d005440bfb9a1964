"""Sources of a reflector: one that plays a script, and one that behaves."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from typing import TypeVar

from proxy.cache.reflector import PAGE
from proxy.forms.form import Form
from tests.unit.builders import PODS, Clock, Wire, item

T = TypeVar("T")

Step = list[bytes] | Exception | float | None
"""Of a watch: a batch of lines, a failure, seconds that pass, or None: silence for ever."""


class ScriptEndError(Exception):
    """All watches of the script were played; the reflector knows no such failure, so it ends."""


def result(scripted: T | Exception) -> T:
    if isinstance(scripted, Exception):
        raise scripted
    return scripted


class ScriptedSource:
    """Answers each call with the next entry of its script, and notes what was asked.

    A failure in the place of a form, a page or a version is raised.
    """

    def __init__(
        self,
        clock: Clock,
        watches: Sequence[Sequence[Step]],
        *,
        pages: Sequence[bytes | Exception] = (),
        forms: Sequence[Form | Exception] = (),
        versions: Sequence[int | Exception] = (),
    ) -> None:
        self._clock = clock
        self._watches = list(watches)
        self._pages = list(pages)
        self._forms = list(forms)
        self._versions = list(versions)
        self.asked: list[str] = []
        self.open = 0

    async def describe(self) -> Form:
        return result(self._forms.pop(0)) if self._forms else PODS.form()

    async def list_page(self, limit: int, continue_token: str) -> bytes:
        assert limit == PAGE
        self.asked.append(f"list {continue_token}".strip())
        return result(self._pages.pop(0))

    async def current_version(self) -> int:
        self.asked.append("version")
        return result(self._versions.pop(0)) if self._versions else 10**9

    def _accepts(self) -> bool:
        """Tell whether a watch begins: one whose script is but a failure is refused."""
        return not (len(self._watches[0]) == 1 and isinstance(self._watches[0][0], Exception))

    async def list_object(self, key: str) -> bytes:
        self.asked.append(f"object {key}")
        return result(self._pages.pop(0))

    def barrier(self, version: int) -> AsyncGenerator[Sequence[bytes], None]:
        return self.watch(version)

    async def watch(self, version: int | None) -> AsyncGenerator[Sequence[bytes], None]:
        if not self._watches:
            if version is not None:
                yield []
            raise ScriptEndError
        self.asked.append("watchlist" if version is None else f"watch {version}")
        self.open += 1
        try:
            if version is not None and self._accepts():
                yield []
            for step in self._watches.pop(0):
                if isinstance(step, float):
                    self._clock.advance(step)
                elif step is None:
                    await asyncio.Future()
                else:
                    yield result(step)
        finally:
            self.open -= 1


class ServedSource:
    """An API server in its best mood: a WatchList of one object, then a bookmark each minute.

    ``failure`` is what it answers instead, for as long as it's set.
    """

    def __init__(self, wire: Wire = PODS, failure: Exception | None = None) -> None:
        self._wire = wire
        self.failure = failure
        self.version = 10
        self.described = 0
        self.open = 0
        self._cut = asyncio.Event()
        self._muted = False

    def cut(self) -> None:
        """End the watch cleanly."""
        self._cut.set()

    def mute(self) -> None:
        """Say nothing any more, whatever is asked."""
        self._muted = True

    async def describe(self) -> Form:
        self.described += 1
        if self.failure is not None:
            raise self.failure
        return self._wire.form()

    async def list_page(self, limit: int, continue_token: str) -> bytes:
        raise AssertionError("a server with WatchList is not paged")

    async def current_version(self) -> int:
        await self._unless_muted()
        if self.failure is not None:
            raise self.failure
        return self.version

    async def list_object(self, key: str) -> bytes:
        return self._wire.page(item("x", version=3), version=self.version)

    async def barrier(self, version: int) -> AsyncGenerator[Sequence[bytes], None]:
        await self._unless_muted()
        await asyncio.sleep(1)
        yield [self._wire.bookmark(max(version, self.version))]

    async def _unless_muted(self) -> None:
        if self._muted:
            await asyncio.Future()

    async def watch(self, version: int | None) -> AsyncGenerator[Sequence[bytes], None]:
        self.open += 1
        try:
            if version is None:
                yield [self._wire.added("x", version=3)]
                yield [self._wire.bookmark(self.version, initial_end=True)]
            while not await self._is_cut_within(60.0):
                await self._unless_muted()
                yield [self._wire.bookmark(self.version)]
        finally:
            self.open -= 1

    async def _is_cut_within(self, seconds: float) -> bool:
        try:
            async with asyncio.timeout(seconds):
                await self._cut.wait()
        except TimeoutError:
            return False
        self._cut.clear()
        return True
