"""Identical reads at once: who shares whose answer, never one to a request sent before he asked."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any, NamedTuple, cast

import pytest

from proxy.kube.errors import ApiError, ServiceUnavailable, TooManyRequests
from proxy.kube.paths import parse_path
from proxy.kube.requests import Headers
from proxy.upstream.budget import Budget as ByteBudget
from proxy.upstream.client import Response
from proxy.upstream.collapse import MAX_HELD, MAX_SHARED, PATIENCE, Collapse
from tests.unit import virtual_time
from tests.unit.builders import Clock

PODS = "/api/v1/pods"
JSON: Headers = ((b"accept", b"application/json"),)


class Upstream:
    """Answers with the number of the request, or its *body*: *think* until it begins, then *read*.

    ``sent`` has the time at which each request was sent; ``register`` can be written beside it,
    and what an answer shows is what it was between sending and answering.
    """

    def __init__(self, *, think: float = 1.0, read: float = 0.0) -> None:
        self.think = think
        self.read = read
        self.body: bytes | None = None
        self.error: Exception | None = None
        self.breaks = False
        self.register = 0
        self.sent: list[float] = []
        self.headers: list[Headers] = []
        self.cancelled = 0
        self.open_now = 0

    @asynccontextmanager
    async def open(
        self, method: str, target: str, headers: Headers = ()
    ) -> AsyncIterator[Response]:
        assert method == "GET"
        number = len(self.sent)
        self.sent.append(now())
        self.headers.append(headers)
        self.open_now += 1
        try:
            half = self.think / 2
            await asyncio.sleep(half)
            seen = self.register
            await asyncio.sleep(half)
            if self.error:
                raise self.error
            body = self.body or b"%s %d %d" % (target.encode(), number, seen)
            yield Response(200, [(b"x-number", b"%d" % number)], self._chunks(body))
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        finally:
            self.open_now -= 1

    async def _chunks(self, body: bytes) -> AsyncIterator[bytes]:
        middle = len(body) // 2
        yield body[:middle]
        await asyncio.sleep(self.read)
        if self.breaks:
            raise ServiceUnavailable("broken off")
        yield body[middle:]


class Got(NamedTuple):
    """An answer, and when its reader had it."""

    body: bytes
    collapsed: bool
    at: float

    @property
    def number(self) -> int:
        return int(self.body.split()[1])


def now() -> float:
    return asyncio.get_running_loop().time() - 1000


def free() -> None:
    """Admits everybody."""


class Reader:
    """Reads through one Collapse; *admit* decides who may send."""

    def __init__(self, upstream: Upstream, admit: Callable[[], None] = free) -> None:
        self.budget = ByteBudget(MAX_HELD)
        self.collapse = Collapse(upstream, self.budget)
        self.admit = admit

    async def get(self, target: str = PODS, headers: Headers = JSON, *, pace: float = 0.0) -> Got:
        """Read an answer; with *pace* a client that is slow between chunks."""
        async with self.collapse.open(target, headers, self.admit) as response:
            parts = []
            async for chunk in response.chunks:
                parts.append(chunk)
                await asyncio.sleep(pace)
            return Got(b"".join(parts), response.collapsed, now())

    def later(
        self, delay: float, target: str = PODS, headers: Headers = JSON, *, pace: float = 0.0
    ) -> asyncio.Task[Got]:
        async def run() -> Got:
            await asyncio.sleep(delay)
            return await self.get(target, headers, pace=pace)

        return asyncio.create_task(run())


def play(story: Callable[[Upstream, Reader], Coroutine[Any, Any, None]], **slow: float) -> None:
    """Run a story in virtual time; afterwards nothing is in flight."""

    async def run() -> None:
        upstream = Upstream(**slow)
        reader = Reader(upstream)
        await story(upstream, reader)
        await asyncio.sleep(0.01)
        assert (upstream.open_now, len(reader.collapse), reader.budget.held) == (0, 0, 0)
        assert [task for task in asyncio.all_tasks() if task is not asyncio.current_task()] == []

    virtual_time.run(run(), Clock())


# --- who shares ------------------------------------------------------------------------------


def test_a_read_alone_goes_through() -> None:
    async def story(upstream: Upstream, reader: Reader) -> None:
        assert await reader.get() == (b"/api/v1/pods 0 0", False, 1.0)
        assert (await reader.get()).number == 1
        assert upstream.sent == [0, 1]

    play(story)


def test_who_arrives_meanwhile_shares_the_next() -> None:
    async def story(upstream: Upstream, reader: Reader) -> None:
        tasks = [reader.later(delay) for delay in (0, 0.1, 0.2, 0.9, 1.5, 1.9, 2.5)]
        found = await asyncio.gather(*tasks)
        assert upstream.sent == [0, 1, 2, 3]
        assert [got.number for got in found] == [0, 1, 1, 1, 2, 2, 3]
        assert [got.collapsed for got in found] == [False, False, True, True, False, True, False]

    play(story)


def test_a_hundred_at_once_are_two_requests() -> None:
    async def story(upstream: Upstream, reader: Reader) -> None:
        found = await asyncio.gather(*(reader.get() for _ in range(100)))
        assert upstream.sent == [0, 1]
        assert sum(got.collapsed for got in found) == 98
        assert {got.at for got in found[1:]} == {2.0}

    play(story)


def test_the_next_is_sent_as_soon_as_an_answer_begins() -> None:
    async def story(upstream: Upstream, reader: Reader) -> None:
        first, second, third = reader.later(0), reader.later(0.5), reader.later(1.5)
        assert (await second).at == 12.0
        assert upstream.sent == [0, 1, 2]
        assert ((await first).at, (await third).at) == (11.0, 13.0)

    play(story, read=10.0)


def test_once_an_answer_has_begun_the_next_is_the_first_again() -> None:
    async def story(upstream: Upstream, reader: Reader) -> None:
        first, second = reader.later(0), reader.later(1.5)
        assert upstream.sent == []
        assert ((await second).at, (await second).collapsed) == (12.5, False)
        assert (await first).at == 11.0
        assert upstream.sent == [0, 1.5]

    play(story, read=10.0)


def pair(name: str, value: str) -> tuple[bytes, bytes]:
    return name.encode(), value.encode()


@pytest.mark.parametrize(
    ("target", "headers", "shared"),
    [
        (PODS, JSON, True),
        (PODS, (*JSON, pair("audit-id", "1")), True),
        (PODS, (*JSON, pair("traceparent", "00-1-1-01"), pair("tracestate", "a=b")), True),
        (PODS, (*JSON, pair("x-request-id", "1")), True),
        (f"{PODS}?limit=1", JSON, False),
        (PODS, (), False),
        (PODS, (pair("accept", "application/yaml"),), False),
        (PODS, (*JSON, *JSON), False),
        (PODS, (*JSON, pair("authorization", "Bearer other")), False),
        (PODS, (*JSON, pair("impersonate-user", "other")), False),
        (PODS, (*JSON, pair("x-remote-user", "other")), False),
        (PODS, (*JSON, pair("accept-encoding", "gzip")), False),
        (PODS, (*JSON, pair("user-agent", "Mozilla/5.0")), False),
        (PODS, (*JSON, pair("cookie", "a=b")), False),
    ],
)
def test_what_makes_reads_identical(target: str, headers: Headers, shared: bool) -> None:
    async def story(upstream: Upstream, reader: Reader) -> None:
        reads = [reader.get(), reader.get(), reader.get(target, headers)]
        found = await asyncio.gather(*reads)
        assert found[2].collapsed == shared
        assert len(upstream.sent) == 3 - shared

    play(story)


def test_the_order_of_headers_counts_within_a_name_only() -> None:
    one, two, other = pair("accept", "a"), pair("accept", "b"), pair("x", "c")

    async def story(upstream: Upstream, reader: Reader) -> None:
        orders: list[Headers] = [(one, two, other), (one, two, other), (other, one, two)]
        found = await asyncio.gather(*(reader.get(PODS, order) for order in (*orders, (two, one))))
        assert [got.collapsed for got in found] == [False, False, True, False]

    play(story)


@pytest.mark.parametrize(
    ("path", "headers", "covered"),
    [
        (PODS, JSON, True),
        ("/api/v1/namespaces/a/pods/x", JSON, True),
        ("/api/v1/namespaces/a/pods/x/status", JSON, True),
        ("/apis/apps/v1/namespaces/a/deployments/x/scale", JSON, True),
        ("/api/v1/namespaces/a/pods/x/log", JSON, False),
        ("/api/v1/namespaces/a/pods/x/proxy/metrics", JSON, False),
        ("/apis/vendor.example/v1/namespaces/a/machines/x/screen", JSON, False),
        (PODS, (pair("if-none-match", "x"),), False),
        (PODS, (pair("if-modified-since", "x"),), False),
        (PODS, (pair("range", "bytes=0-1"),), False),
    ],
)
def test_what_may_share(path: str, headers: Headers, covered: bool) -> None:
    target = parse_path(path)
    assert target is not None
    assert Collapse.covers(target, headers) is covered


# --- linearizability -------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(10))
def test_nobody_gets_an_answer_from_before_he_asked(seed: int) -> None:
    """Of a register that is written beside the proxy, each read shows what was written before."""
    chance = random.Random(seed)

    async def story(upstream: Upstream, reader: Reader) -> None:
        async def write() -> None:
            for _ in range(300):
                upstream.think = chance.choice([0.001, 0.05, 0.3])
                upstream.register += 1
                await asyncio.sleep(chance.random() * 0.1)

        async def read() -> None:
            for _ in range(50):
                await asyncio.sleep(chance.random() * 0.2)
                before, asked = upstream.register, now()
                with_patience = asyncio.timeout(chance.choice([0.01, 100, 100, 100]))
                try:
                    async with with_patience:
                        got = await reader.get(pace=chance.choice([0, 0.01]))
                except TimeoutError:
                    continue
                assert int(got.body.split()[2]) >= before
                assert upstream.sent[got.number] >= asked

        await asyncio.gather(write(), *(read() for _ in range(20)))
        assert 100 < len(upstream.sent) < 900

    play(story, read=0.02)


# --- clients that leave, and slow ones -------------------------------------------------------


def test_the_first_leaves_and_the_next_is_sent() -> None:
    async def story(upstream: Upstream, reader: Reader) -> None:
        first, second = reader.later(0), reader.later(0.1)
        await asyncio.sleep(0.5)
        first.cancel()
        assert (await second).at == 1.5
        assert upstream.sent == [0, 0.5]

    play(story)


@pytest.mark.parametrize("leaves", [0.5, 1.5, 2.5])
def test_who_leaves_disturbs_nobody(leaves: float) -> None:
    """Before the shared one is sent, before it's answered, and while it's read."""

    async def story(upstream: Upstream, reader: Reader) -> None:
        tasks = [reader.later(delay) for delay in (0, 0.1, 0.2, 0.3)]
        await asyncio.sleep(leaves)
        tasks[1].cancel()  # it asked for the shared one
        tasks[3].cancel()
        assert ((await tasks[2]).number, (await tasks[2]).at) == (1, 3.0)
        assert (upstream.sent, upstream.cancelled) == ([0, 1], 0)

    play(story, read=1.0)


@pytest.mark.parametrize(
    ("leaves", "sent", "cancelled"), [(0.1, [0], 0), (0.5, [0], 0), (1.5, [0, 1], 1)]
)
def test_when_all_have_left_it_is_cancelled(
    leaves: float, sent: list[float], cancelled: int
) -> None:
    async def story(upstream: Upstream, reader: Reader) -> None:
        tasks = [reader.later(delay) for delay in (0, 0.1, 0.1)]
        await asyncio.sleep(leaves)
        await asyncio.sleep(0)
        for task in tasks[1:]:
            task.cancel()
        await asyncio.wait(tasks)
        await asyncio.sleep(0.01)
        assert (upstream.sent, upstream.cancelled) == (sent, cancelled)

    play(story)


def test_who_comes_after_all_have_left_waits_for_the_one_in_flight() -> None:
    async def story(upstream: Upstream, reader: Reader) -> None:
        first, second, third = reader.later(0), reader.later(0.1), reader.later(0.6)
        await asyncio.sleep(0.5)
        second.cancel()
        await first
        assert (await third).at == 2.0
        assert upstream.sent == [0, 1]

    play(story)


def test_a_slow_client_holds_up_nobody() -> None:
    async def story(upstream: Upstream, reader: Reader) -> None:
        slow_first = reader.later(0, pace=50)
        tasks = [reader.later(0.1, pace=pace) for pace in (100, 0)]
        assert (await tasks[1]).at == 2.0
        assert [(await tasks[0]).at, (await slow_first).at] == [202.0, 101.0]
        assert (await reader.get()).number == 2

    play(story)


def test_an_answer_that_does_not_come_holds_up_the_next_for_a_while_only() -> None:
    async def story(upstream: Upstream, reader: Reader) -> None:
        stuck = reader.later(0)
        await asyncio.sleep(0.5)
        upstream.think = 1.0
        second, third = reader.later(0), reader.later(PATIENCE + 0.5)
        assert (await second).at == 0.5 + PATIENCE + 1
        assert (await third).at == 0.5 + PATIENCE + 2
        assert (await stuck).at == 65.0
        assert upstream.sent == [0, PATIENCE + 0.5, PATIENCE + 1.5]

    play(story, think=65.0)


# --- what is held ----------------------------------------------------------------------------


def test_an_answer_is_held_until_the_slowest_has_read_it() -> None:
    async def story(upstream: Upstream, reader: Reader) -> None:
        upstream.body = b"x" * 1000
        tasks = [reader.later(0), reader.later(0), reader.later(0.1, pace=50), reader.later(0.1)]
        await asyncio.sleep(3)
        assert [task.done() for task in tasks] == [True, True, False, True]
        assert reader.budget.held == 1000
        await tasks[2]
        assert reader.budget.held == 0

    play(story)


def test_what_finds_no_room_everybody_reads_by_himself() -> None:
    async def story(upstream: Upstream, reader: Reader) -> None:
        upstream.body = b"x" * 1000
        reader.budget.size = 1500
        first, *pods = [reader.later(0.1 * number, pace=50) for number in range(3)]
        _, *nodes = [reader.later(3, "/api/v1/nodes") for _ in range(3)]
        assert [(await task).collapsed for task in nodes] == [False, False]
        assert (upstream.sent[2:], reader.budget.held) == ([3, 4, 5, 5], 1000)
        await asyncio.gather(first, *pods)
        *_, last = [reader.later(0, "/api/v1/nodes") for _ in range(3)]
        assert (await last).collapsed

    play(story)


def test_who_has_left_holds_nothing_though_his_answer_is_known_to_somebody() -> None:
    async def story(upstream: Upstream, reader: Reader) -> None:
        first = reader.later(0)
        await asyncio.sleep(0.1)
        async with reader.collapse.open(PODS, JSON, free) as response:
            await anext(aiter(response.chunks))
            assert reader.budget.held
        assert cast(Any, response.chunks).ag_frame is None
        await first

    play(story)


# --- what else comes of a read ---------------------------------------------------------------


def test_errors_are_shared() -> None:
    async def story(upstream: Upstream, reader: Reader) -> None:
        upstream.error = ServiceUnavailable("away", retry_after=1)
        found = await asyncio.gather(*(reader.get() for _ in range(10)), return_exceptions=True)
        assert [type(each) for each in found] == [ServiceUnavailable] * 10
        assert upstream.sent == [0, 1]
        upstream.error = None
        assert (await reader.get()).number == 2

    play(story)


def test_an_answer_that_breaks_off_is_an_error_for_those_who_share_it() -> None:
    async def story(upstream: Upstream, reader: Reader) -> None:
        first, second, third = reader.later(0), reader.later(0.1), reader.later(0.1)
        assert (await first).number == 0
        upstream.breaks = True
        for task in (second, third):
            with pytest.raises(ServiceUnavailable):
                await task
        upstream.breaks = False
        assert (await reader.get()).number == 2

    play(story)


def test_a_fault_of_our_own_is_everybodys() -> None:
    async def story(upstream: Upstream, reader: Reader) -> None:
        upstream.error = ZeroDivisionError()
        found = await asyncio.gather(*(reader.get() for _ in range(3)), return_exceptions=True)
        assert [type(each) for each in found] == [ZeroDivisionError] * 3

    play(story)


@pytest.mark.parametrize(("size", "requests"), [(MAX_SHARED, 2), (MAX_SHARED + 1, 2 + 4)])
def test_what_is_too_large_everybody_gets_by_himself(size: int, requests: int) -> None:
    async def story(upstream: Upstream, reader: Reader) -> None:
        upstream.body = b"x" * size
        found = await asyncio.gather(*(reader.get() for _ in range(5)))
        assert {len(got.body) for got in found} == {size}
        assert len(upstream.sent) == requests
        assert sum(got.collapsed for got in found) == (3 if size == MAX_SHARED else 0)

    play(story)


def test_the_bytes_and_headers_are_the_api_servers() -> None:
    async def story(_: Upstream, reader: Reader) -> None:
        async def seen() -> tuple[int, Headers]:
            async with reader.collapse.open(PODS, JSON, free) as response:
                return response.status, response.headers

        found = await asyncio.gather(seen(), seen(), seen())
        assert found[1] == found[2] == (200, [(b"x-number", b"1")])

    play(story)


# --- who may send ----------------------------------------------------------------------------


class Budget:
    """Admits so many requests."""

    def __init__(self, requests: int) -> None:
        self.requests = requests

    def __call__(self) -> None:
        if not self.requests:
            raise TooManyRequests("enough", retry_after=1)
        self.requests -= 1


@pytest.mark.parametrize(
    ("budget", "size", "answered", "sent"),
    [
        (0, 10, 0, 0),
        (1, 10, 1, 1),
        (2, 10, 5, 2),
        (9, 10, 5, 2),
        (2, MAX_SHARED + 1, 2, 3),  # the one that was too large for all was sent for one of them
        (4, MAX_SHARED + 1, 4, 5),
    ],
)
def test_only_who_has_a_request_sent_needs_to_be_admitted(
    budget: int, size: int, answered: int, sent: int
) -> None:
    async def story(upstream: Upstream, reader: Reader) -> None:
        upstream.body = b"x" * size
        reader.admit = Budget(budget)
        found = await asyncio.gather(*(reader.get() for _ in range(5)), return_exceptions=True)
        refused = [each for each in found if isinstance(each, ApiError)]
        assert (5 - len(refused), len(upstream.sent)) == (answered, sent)
        assert {each.code for each in refused} <= {429}

    play(story)
