"""The bell of an informer."""

from __future__ import annotations

import asyncio

from proxy.cache.signal import Signal


def test_a_ring_wakes_all_that_wait_and_nobody_later() -> None:
    async def ring() -> None:
        signal = Signal()
        first, second = signal.next(), signal.next()
        assert first is second
        signal.ring()
        later = signal.next()
        await asyncio.wait_for(first, 1)
        assert later is not first
        assert not later.done()
        signal.ring()
        assert later.done()

    asyncio.run(ring())


def test_a_ring_that_nobody_waits_for_is_lost() -> None:
    async def ring() -> None:
        signal = Signal()
        signal.ring()
        signal.ring()
        assert not signal.next().done()

    asyncio.run(ring())


def test_one_that_gives_up_waiting_leaves_the_others_waiting() -> None:
    async def ring() -> tuple[bool, bool]:
        signal = Signal()

        async def wait() -> bool:
            done, _ = await asyncio.wait({signal.next()}, timeout=1)
            return bool(done)

        impatient, patient = asyncio.create_task(wait()), asyncio.create_task(wait())
        await asyncio.sleep(0)
        impatient.cancel()
        await asyncio.gather(impatient, return_exceptions=True)
        signal.ring()
        return impatient.cancelled(), await patient

    assert asyncio.run(ring()) == (True, True)


def test_rings_between_looks_are_not_missed() -> None:
    async def follow() -> list[int]:
        signal, news, read = Signal(), list[int](), list[int]()

        async def reader() -> None:
            while len(read) < 5:
                ring = signal.next()  # before the look, as the contract says
                read.extend(news[len(read) :])
                if len(read) < 5:
                    await asyncio.wait({ring})

        reading = asyncio.create_task(reader())
        for number in range(5):
            news.append(number)
            signal.ring()
            if number % 2:
                await asyncio.sleep(0)
        await asyncio.wait_for(reading, 1)
        return read

    assert asyncio.run(follow()) == [0, 1, 2, 3, 4]
