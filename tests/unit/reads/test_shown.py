"""What live reads show, and when it's known."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

import pytest

from proxy.cache.expectations import Expectation
from proxy.cache.informers import Informers, Policy
from proxy.cache.scope import Scope
from proxy.kube.requests import MAX_CLIENT, Request, parse_request
from proxy.reads.shown import Shown
from tests.unit.builders import PODS, WIDGETS, Clock, Wire, item
from tests.unit.cache.sources import ServedSource
from tests.unit.messages import Messages, message
from tests.unit.served import Served

PODS_OF_A = "/api/v1/namespaces/a/pods"
JSON = (b"content-type", b"application/json")
NOW = 1000.0


def asks(target: str, agent: str = "me", method: str = "GET") -> Request:
    path, _, query = target.partition("?")
    return parse_request(method, path.encode(), query.encode(), [(b"user-agent", agent.encode())])


async def chunks_of(chunks: Sequence[bytes]) -> AsyncIterator[bytes]:
    for chunk in chunks:
        yield chunk


def expected(
    target: str,
    chunks: Sequence[bytes],
    status: int = 200,
    *,
    headers: Sequence[tuple[bytes, bytes]] = (JSON,),
    agent: str = "me",
    wire: Wire = PODS,
) -> list[Expectation]:
    """Show an answer; checks that it's passed on, and noted before its last chunk is."""

    async def run() -> list[Expectation]:
        informers = Informers(lambda scope: ServedSource(wire), Policy(), clock=Clock(NOW))
        informers.name(Scope(wire.info.resource))
        [informer] = informers
        shown = Shown(informers, clock=Clock(NOW))
        passed = []
        async for chunk in shown.note(asks(target, agent), status, headers, chunks_of(chunks)):
            passed.append(chunk)
            is_last = len(passed) == len(chunks)
            noted = status == 200 or (status == 404 and target.endswith("/x"))
            assert bool(informer.expectations) is (is_last and noted)
        assert passed == list(chunks)
        await informers.stop()
        return informer.expectations.of("", agent[:MAX_CLIENT] or "-")

    return asyncio.run(run())


OBJECT = PODS.object(item("x", version=7))
PAGE = PODS.page(item("x", version=7), item("y", version=8), version=9)
MESSAGES = Messages("v1", "Pod").page(message("x", version=7), version=9)
WIDGET_PAGE = WIDGETS.page(item("x", version=7), version=9)
TABLE = (
    b'{"kind":"Table","apiVersion":"meta.k8s.io/v1","metadata":{"resourceVersion":"9"},"rows":[]}'
)
WIDGETS_OF_A = "/apis/example.com/v1/namespaces/a/widgets"


@pytest.mark.parametrize(
    ("target", "chunks", "key", "version"),
    [
        (f"{PODS_OF_A}/x", [OBJECT], "a/x", 7),
        (PODS_OF_A, [PAGE], "a/", 9),
        ("/api/v1/pods", [PAGE], "", 9),
        (PODS_OF_A, [PAGE[:120], PAGE[120:]], "a/", 9),
        (PODS_OF_A, [MESSAGES], "a/", 9),
        (PODS_OF_A, [TABLE], "a/", 9),
        # What isn't seen at a glance has to be proven.
        (f"{PODS_OF_A}/x", [OBJECT[:50], OBJECT[50:]], "a/x", 0),
        (PODS_OF_A, [b"k8s\0binary"], "a/", 0),
        (f"{PODS_OF_A}/x", [b'{"spec":', b'{"ref":{"resourceVersion":"5"}}'], "a/x", 0),
        (PODS_OF_A, [PAGE[:20], PAGE[20:]], "a/", 0),
    ],
)
def test_versions_that_were_shown(target: str, chunks: list[bytes], key: str, version: int) -> None:
    assert expected(target, chunks) == [Expectation(key, NOW, "me", version)]


@pytest.mark.parametrize("cut", [0, 30, len(WIDGET_PAGE) - 90])
def test_a_list_with_sorted_keys_shows_its_version_last(cut: int) -> None:
    chunks = [each for each in (WIDGET_PAGE[:cut], WIDGET_PAGE[cut:]) if each]
    found = expected(WIDGETS_OF_A, chunks, wire=WIDGETS)
    assert found == [Expectation("a/", NOW, "me", 9)]


def test_what_was_not_there_must_not_come_back() -> None:
    body = b'{"kind":"Status"}'
    assert expected(f"{PODS_OF_A}/x", [body], 404) == [Expectation("a/x", NOW, "me", absent=True)]
    assert expected(f"{PODS_OF_A}/x", [body], 500) == []
    assert expected(PODS_OF_A, [body], 404) == []


def test_a_compressed_answer_is_not_looked_into() -> None:
    headers = [JSON, (b"Content-Encoding", b"gzip")]
    assert expected(PODS_OF_A, [PAGE], headers=headers) == [Expectation("a/", NOW, "me")]


@pytest.mark.parametrize(
    ("target", "method", "concerned"),
    [
        (PODS_OF_A, "GET", True),
        (f"{PODS_OF_A}/x", "GET", True),
        (f"{PODS_OF_A}?labelSelector=a&limit=3", "GET", True),
        (f"{PODS_OF_A}?watch=1", "GET", False),
        (f"{PODS_OF_A}?resourceVersion=0", "GET", True),
        (f"{PODS_OF_A}?resourceVersion=5", "GET", True),
        (f"{PODS_OF_A}?resourceVersion=5&limit=5", "GET", False),
        (f"{PODS_OF_A}?resourceVersion=5&resourceVersionMatch=Exact", "GET", False),
        (f"{PODS_OF_A}?continue=x", "GET", False),
        (f"{PODS_OF_A}/x/log", "GET", False),
        ("/api/v1/pods", "GET", True),
        ("/api/v1/pods/x", "GET", False),  # a pod has a namespace
        (f"{PODS_OF_A}/x", "DELETE", False),
        ("/api/v1/nodes", "GET", False),  # of which there is no informer
        ("/version", "GET", False),
    ],
)
def test_reads_that_show_the_present_state(target: str, method: str, *, concerned: bool) -> None:
    async def story(served: Served) -> bool:
        await served.synced()
        return Shown(served.informers).concerns(asks(target, method=method))

    assert asyncio.run(in_time(story)) is concerned


async def in_time(story: Callable[[Served], Awaitable[bool]]) -> bool:
    served = Served()
    try:
        return await story(served)
    finally:
        await served.informers.stop()


@pytest.mark.parametrize(
    ("agent", "client"), [("kubectl/v1", "kubectl/v1"), ("", "-"), ("x" * 999, "x" * MAX_CLIENT)]
)
def test_clients_are_told_apart_by_their_agent(agent: str, client: str) -> None:
    assert asks(PODS_OF_A, agent).client == client
