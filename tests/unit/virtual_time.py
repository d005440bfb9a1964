"""An event loop whose time passes at once: whoever sleeps wakes when all others wait too."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any, TypeVar

from tests.unit.builders import Clock

T = TypeVar("T")


class _Selector(selectors.DefaultSelector):
    """Waits for files as ever, but for the next timer by advancing the clock."""

    def __init__(self, clock: Clock) -> None:
        super().__init__()
        self._clock = clock

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(timeout if timeout is None else 0)
        if not ready and timeout:
            self._clock.advance(timeout)
        return ready


class _Loop(asyncio.SelectorEventLoop):
    def __init__(self, clock: Clock) -> None:
        super().__init__(_Selector(clock))
        self._virtual = clock

    def time(self) -> float:
        return self._virtual()


def run(main: Coroutine[Any, Any, T], clock: Clock) -> T:
    """Run *main* to its end in the time of *clock*; a wait for a timer takes no time."""
    with asyncio.Runner(loop_factory=lambda: _Loop(clock)) as runner:
        return runner.run(main)
