"""A comparer: where states of objects are compared so that nobody else is held up by it."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TypeVar

LARGE = 64 * 1024
"""Bytes from which on states are decoded and compared in a thread; it takes 2 ms."""

T = TypeVar("T")


class Comparer:
    """Compares small states at once, and large ones in a thread, one comparison at a time.

    Several threads would leave the event loop, which needs the interpreter too, a small part of it.
    """

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="compare")

    async def run(self, size: int, compare: Callable[..., T], *states: object) -> T:
        """Return what *compare* makes of *states*, which have *size* bytes; raises what it raises.

        Whoever is cancelled before it's his turn takes none.
        """
        if size < LARGE:
            return compare(*states)
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._thread, partial(compare, *states))
