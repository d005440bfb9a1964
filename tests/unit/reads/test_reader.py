"""The reader: what it answers from an informer, what it waits for, what it forwards and why."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterable
from typing import TypeVar
from urllib.parse import quote

import msgspec
import pytest

from proxy.cache.informer import Informer
from proxy.cache.view import Ending
from proxy.forms.form import Change, EventType
from proxy.kube import gojson
from proxy.kube.errors import not_found
from proxy.kube.options import MAX_QUERY
from proxy.kube.requests import Request, parse_request
from proxy.reads.freshness import AHEAD_WAIT, Lack
from proxy.reads.listing import PART, SMALL
from proxy.reads.plan import MAX_TERMS, Reason
from proxy.reads.reader import MAX_WHOLE, Answer, Pending, Stream
from tests.unit import virtual_time
from tests.unit.builders import PODS, Item, item
from tests.unit.served import Served

T = TypeVar("T")
COLLECTION = "/api/v1/namespaces/a/pods"
X = item("x", version=3)
"""The object that every informer of these tests holds, at version 10."""


def request(target: str, **headers: str) -> Request:
    path, _, query = target.partition("?")
    pairs = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
    return parse_request("GET", path.encode(), query.encode(), pairs)


def play(story: Callable[[Served], Awaitable[T]]) -> T:
    """Run a story in the time of its clock."""
    served = Served()

    async def run() -> T:
        try:
            return await story(served)
        finally:
            await served.informers.stop()

    return virtual_time.run(run(), served.clock)


def answered(served: Served, target: str) -> tuple[int, bytes]:
    """Read at once; checks what the answer says of itself."""
    answer = served.reader.read(request(target))
    assert isinstance(answer, Answer), answer
    body = b"".join(answer.parts)
    assert answer.length in (None, len(body))
    assert answer.form.content_type == b"application/json"
    if answer.status == 200 and b'"kind":"PodList"' in body:
        assert json.loads(body)["metadata"]["resourceVersion"] == str(answer.version)
    return answer.status, body


def write(informer: Informer, *items: Item) -> None:
    """Let objects be added, as events of the watch."""
    assert informer.view
    for found in PODS.objects(*items):
        informer.apply(Change(EventType.ADDED, found))


def terms(term: str, count: int) -> str:
    return quote(",".join([term] * count))


def bulk(count: int, version: int = 11) -> Iterable[Item]:
    return (item(f"y{number:05}", version=version + number) for number in range(count))


# --- answers ---------------------------------------------------------------------------------


def test_an_object_is_answered_as_the_api_server_would() -> None:
    async def story(served: Served) -> None:
        await served.synced()
        assert answered(served, f"{COLLECTION}/x") == (200, PODS.object(X) + b"\n")
        missing = not_found(PODS.info.resource, "y").status_body()
        assert answered(served, f"{COLLECTION}/y") == (404, missing)
        assert answered(served, "/api/v1/namespaces/b/pods/x")[0] == 404

    play(story)


@pytest.mark.parametrize(
    ("target", "items"),
    [
        ("/api/v1/pods", [X]),
        (COLLECTION, [X]),
        (f"{COLLECTION}?labelSelector=app", []),
        (f"{COLLECTION}?fieldSelector=metadata.name%3Dx&resourceVersion=0", [X]),
        ("/api/v1/namespaces/b/pods", []),
    ],
)
def test_a_list_is_answered_as_the_api_server_would(target: str, items: list[Item]) -> None:
    async def story(served: Served) -> None:
        await served.synced()
        assert answered(served, target) == (200, PODS.page(*items, version=10))

    play(story)


@pytest.mark.parametrize(
    "query", ["limit=1&continue={}", "resourceVersion=11&resourceVersionMatch=Exact"]
)
def test_an_older_state_is_called_by_its_own_version(query: str) -> None:
    async def story(served: Served) -> None:
        informer = await served.synced()
        write(informer, item("w", version=11))
        first = json.loads(answered(served, f"{COLLECTION}?limit=1")[1])["metadata"]
        write(informer, item("z", version=12))
        answer = served.reader.read(request(f"{COLLECTION}?{query.format(first['continue'])}"))
        assert isinstance(answer, Answer)
        version = json.loads(b"".join(answer.parts))["metadata"]["resourceVersion"]
        assert version == "11"
        assert str(answer.version) == version

    play(story)


@pytest.mark.parametrize("target", [f"{COLLECTION}/x", f"{COLLECTION}/y", COLLECTION])
def test_a_person_gets_it_indented(target: str) -> None:
    async def story(served: Served) -> None:
        await served.synced()
        _, compact = answered(served, target)
        assert answered(served, f"{target}?pretty=1")[1] == gojson.indent(compact)
        by_agent = served.reader.read(request(target, user_agent="curl/8"))
        assert isinstance(by_agent, Answer)
        assert b"".join(by_agent.parts) == gojson.indent(compact)

    play(story)


def test_what_is_large_is_not_indented() -> None:
    async def story(served: Served) -> None:
        informer = await served.synced()
        write(informer, item("big", version=11, data="x" * MAX_WHOLE))
        for target in (f"{COLLECTION}/big", COLLECTION):
            assert served.reader.read(request(f"{target}?pretty=1")) is Reason.LARGE_INDENT
            assert answered(served, target)[0] == 200
        write(informer, *bulk(SMALL, version=12))
        assert served.reader.read(request(f"{COLLECTION}?pretty=1")) is Reason.LARGE_INDENT

    play(story)


@pytest.mark.parametrize(("count", "is_small"), [(SMALL, True), (SMALL + 1, False)])
def test_a_large_list_is_written_as_it_goes(count: int, *, is_small: bool) -> None:
    async def story(served: Served) -> None:
        informer = await served.synced()
        write(informer, *bulk(count - 1))
        answer = served.reader.read(request(COLLECTION))
        assert isinstance(answer, Answer)
        assert (answer.length is not None) is is_small
        assert answer.version == informer.version == 9 + count
        write(informer, item("later", version=99_999))
        body = msgspec.json.decode(b"".join(answer.parts))
        assert len(body["items"]) == count
        assert body["metadata"]["resourceVersion"] == str(answer.version)

    play(story)


def test_what_is_heavier_than_the_average_is_written_as_it_goes() -> None:
    async def story(served: Served) -> None:
        informer = await served.synced()
        write(informer, *bulk(900))
        write(informer, *(item(f"z{n}", "b", version=2000 + n, data="x" * PART) for n in range(5)))
        answer = served.reader.read(request("/api/v1/namespaces/b/pods"))
        assert isinstance(answer, Answer)
        assert answer.length is None
        assert sum(1 for part in answer.parts if len(part) > PART) == 5

    play(story)


def test_a_watch_is_a_stream() -> None:
    async def story(served: Served) -> list[bytes]:
        informer = await served.synced()
        stream = served.reader.read(request(f"{COLLECTION}?watch=1&timeoutSeconds=5"))
        assert isinstance(stream, Stream)
        assert (stream.version, stream.form.content_type) == (10, b"application/json")
        assert (stream.informer, stream.caught_up) == (informer, False)
        return [frames async for frames in stream.watch.frames()]

    assert b"".join(play(story)) == PODS.event(EventType.ADDED, X)


def test_a_watch_from_before_the_history_is_caught_up() -> None:
    async def story(served: Served) -> None:
        await served.synced()
        for version, caught_up in ((9, True), (10, False)):
            target = f"{COLLECTION}?watch=1&resourceVersion={version}"
            stream = served.reader.read(request(target))
            assert isinstance(stream, Stream)
            assert stream.caught_up is caught_up

    play(story)


def test_reading_keeps_an_informer_in_use() -> None:
    async def story(served: Served) -> None:
        informer = await served.synced()
        served.clock.advance(30)
        served.reader.read(request("/live/api/v1/pods"))
        assert informer.last_used < served.clock.now
        served.reader.read(request(COLLECTION))
        assert informer.last_used == served.clock.now

    play(story)


# --- forwards that earn an informer ----------------------------------------------------------


def test_reads_earn_an_informer_and_are_forwarded_while_it_syncs() -> None:
    async def story(served: Served) -> None:
        assert served.reader.read(request(COLLECTION)) is Reason.NOT_CACHED
        assert list(served.informers) == []
        assert served.reader.read(request(COLLECTION)) is Reason.NOT_CACHED
        [informer] = served.informers
        assert str(informer.scope) == "pods.v1/a"
        assert served.reader.read(request(COLLECTION)) is Reason.SYNCING
        assert served.reader.read(request("/api/v1/pods")) is Reason.NOT_CACHED
        await asyncio.sleep(1)
        assert answered(served, f"{COLLECTION}/x")[0] == 200

    play(story)


def test_metadata_are_read_of_whole_objects() -> None:
    """No informer of their own is earned by reads that another form's answers."""

    async def story(served: Served) -> None:
        accept = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
        asked = request(f"{COLLECTION}/x", accept=accept)
        assert served.reader.read(asked) is Reason.NOT_CACHED
        whole = await served.synced()
        for _ in range(20):
            answer = served.reader.read(asked)
            assert isinstance(answer, Answer)
            assert answer.informer is whole
            assert b"".join(answer.parts).startswith(b'{"kind":"PartialObjectMetadata"')
        assert list(served.informers) == [whole]

    play(story)


@pytest.mark.parametrize(
    ("target", "headers"),
    [
        (f"/live{COLLECTION}", {}),
        (COLLECTION, {"cache_control": "no-cache"}),
        (COLLECTION, {"authorization": "Bearer other"}),
        (COLLECTION, {"accept": "application/yaml"}),
        (f"{COLLECTION}?limit=x", {}),
        ("/api/v1/namespaces/a/secrets", {}),
    ],
)
def test_reads_that_no_informer_could_answer_earn_none(
    target: str, headers: dict[str, str]
) -> None:
    async def story(served: Served) -> None:
        for _ in range(20):
            assert isinstance(served.reader.read(request(target, **headers)), Reason)
        assert list(served.informers) == []

    play(story)


@pytest.mark.parametrize(
    ("target", "reason"),
    [
        ("/api/v1/pods/x", Reason.SCOPE),
        (f"{COLLECTION}?fieldSelector=spec.unknown%3Dx", Reason.FIELDS),
        (f"{COLLECTION}?resourceVersion=9&limit=1", Reason.EXACT),
        (f"{COLLECTION}?watch=1&sendInitialEvents=true", Reason.INVALID),
        (f"{COLLECTION}?labelSelector={terms('a', MAX_TERMS + 1)}", Reason.LARGE_QUERY),
        (f"{COLLECTION}?fieldSelector={terms('a=b', MAX_TERMS + 1)}", Reason.LARGE_QUERY),
        (f"{COLLECTION}?unknown=".ljust(len(COLLECTION) + MAX_QUERY + 2, "x"), Reason.LARGE_QUERY),
    ],
)
def test_what_the_plan_forwards_is_forwarded(target: str, reason: Reason) -> None:
    async def story(served: Served) -> None:
        await served.synced()
        assert served.reader.read(request(target)) is reason

    play(story)


def test_what_is_no_larger_is_answered() -> None:
    async def story(served: Served) -> None:
        await served.synced()
        query = f"labelSelector={terms('!a', MAX_TERMS)}&unknown="
        assert answered(served, f"{COLLECTION}?{query.ljust(MAX_QUERY, 'x')}")[0] == 200

    play(story)


# --- versions ahead --------------------------------------------------------------------------

AHEAD = [f"{COLLECTION}/x?resourceVersion=12", f"{COLLECTION}?resourceVersion=12"]


async def waited(served: Served, target: str) -> Answer | Stream | Reason:
    pending = served.reader.read(request(target))
    assert isinstance(pending, Pending)
    assert pending.lack == Lack(Reason.AHEAD, AHEAD_WAIT)
    return await served.reader.wait(request(target), pending)


@pytest.mark.parametrize("target", AHEAD)
def test_a_version_that_arrives_in_time_is_waited_for(target: str) -> None:
    async def story(served: Served) -> None:
        informer = await served.synced()
        waiting = asyncio.create_task(waited(served, target))
        await asyncio.sleep(AHEAD_WAIT / 3)
        write(informer, item("y", version=11))
        await asyncio.sleep(AHEAD_WAIT / 3)
        assert not waiting.done()
        write(informer, item("z", version=12))
        answer = await waiting
        assert isinstance(answer, Answer)
        assert answer.version == 12

    play(story)


@pytest.mark.parametrize("target", AHEAD)
def test_a_version_that_does_not_arrive_is_forwarded(target: str) -> None:
    async def story(served: Served) -> None:
        informer = await served.synced()
        began = served.clock.now
        waiting = asyncio.create_task(waited(served, target))
        await asyncio.sleep(AHEAD_WAIT / 2)
        informer.contact()
        write(informer, item("y", version=11))  # rings do not prolong it
        assert await waiting is Reason.AHEAD
        assert served.clock.now - began == pytest.approx(AHEAD_WAIT)

    play(story)


def test_a_view_that_ends_is_waited_for_no_longer() -> None:
    async def story(served: Served) -> None:
        informer = await served.synced()
        began = served.clock.now
        waiting = asyncio.create_task(waited(served, AHEAD[0]))
        await asyncio.sleep(0)
        informer.drop(Ending.STOPPED)
        assert await waiting is Reason.SYNCING
        assert served.clock.now == began

    play(story)


def test_one_that_is_still_ahead_after_waiting_is_forwarded() -> None:
    """Then another informer answers by now, and it isn't as far."""

    async def story(served: Served) -> None:
        informer = await served.synced()
        lack = Lack(Reason.AHEAD, AHEAD_WAIT)
        pending = Pending(informer, lack, served.clock())
        assert await served.reader.wait(request(AHEAD[0]), pending) is Reason.AHEAD

    play(story)


# --- tallies ---------------------------------------------------------------------------------


def test_lists_are_tallied_by_resource() -> None:
    async def story(served: Served) -> None:
        informer = await served.synced()
        write(informer, *bulk(9))
        for target in (COLLECTION, f"{COLLECTION}?labelSelector=app", f"{COLLECTION}/x"):
            answered(served, target)
        [(resource, tally)] = served.reader.tallies.items()
        assert resource == PODS.info.resource
        assert (tally.scanned, tally.returned) == (10, 10)

    play(story)
