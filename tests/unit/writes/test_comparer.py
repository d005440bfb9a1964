"""Comparisons: which are made where, and that large ones come one after the other."""

from __future__ import annotations

import asyncio
import threading
import time

import pytest

from proxy.writes.comparer import LARGE, Comparer


@pytest.mark.parametrize(("size", "is_here"), [(0, True), (LARGE - 1, True), (LARGE, False)])
def test_small_states_are_compared_at_once(size: int, *, is_here: bool) -> None:
    thread = asyncio.run(Comparer().run(size, threading.get_ident))
    assert (thread == threading.get_ident()) is is_here


@pytest.mark.parametrize("size", [0, LARGE])
def test_what_comparing_raises_is_raised(size: int) -> None:
    with pytest.raises(ValueError, match="invalid literal"):
        asyncio.run(Comparer().run(size, int, "x"))


def test_large_states_are_compared_one_at_a_time() -> None:
    running: list[int] = []
    seen: list[int] = []

    def compare(number: int) -> int:
        running.append(number)
        time.sleep(0.002)
        seen.append(len(running))
        running.remove(number)
        return number

    async def story() -> list[int]:
        comparer = Comparer()
        return await asyncio.gather(*(comparer.run(LARGE, compare, n) for n in range(6)))

    assert asyncio.run(story()) == [*range(6)]
    assert seen == [1] * 6


def test_who_is_cancelled_holds_up_nobody() -> None:
    """One that waits isn't compared; one that is being compared is still, and the next comes."""
    compared: list[str] = []
    has_begun, may_end = threading.Event(), threading.Event()

    def compare(name: str) -> str:
        if name == "first":
            has_begun.set()
            may_end.wait(5)
        compared.append(name)
        return name

    async def story() -> str:
        comparer = Comparer()
        first, second, third = (
            asyncio.create_task(comparer.run(LARGE, compare, name))
            for name in ("first", "second", "third")
        )
        await asyncio.to_thread(has_begun.wait, 5)
        first.cancel()
        second.cancel()
        await asyncio.wait({first, second})
        may_end.set()
        return await third

    assert asyncio.run(story()) == "third"
    assert compared == ["first", "third"]
