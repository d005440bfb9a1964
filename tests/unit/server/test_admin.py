"""The admin listener: health, status and the two levers, asked as an ASGI server asks."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, NamedTuple

import pytest

from proxy.access.hosts import HostCheck
from proxy.cache.expectations import Expectation
from proxy.cache.health import STALLED
from proxy.kube.errors import Forbidden, NotFound, ServiceUnavailable
from proxy.reads.listing import Tally
from proxy.server.admin import admin_app
from tests.unit.builders import PODS
from tests.unit.served import Served


class Response(NamedTuple):
    status: int
    content_type: str
    body: str

    @property
    def json(self) -> Any:
        return json.loads(self.body)


async def ask(
    served: Served,
    target: str,
    method: str = "GET",
    client: str = "127.0.0.1",
    *,
    headers: Sequence[tuple[bytes, bytes]] = ((b"host", b"localhost"),),
    listen: str = "0.0.0.0",
) -> Response:
    """Send one request to the admin app."""
    path, _, query = target.partition("?")
    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "scheme": "http",
        "method": method,
        "path": path,
        "raw_path": path.encode(),
        "root_path": "",
        "query_string": query.encode(),
        "headers": list(headers),
        "client": (client, 1234) if client else None,
        "server": ("127.0.0.1", 8002),
    }
    sent: list[Any] = []

    async def receive() -> Any:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Any) -> None:
        sent.append(message)

    await admin_app(served, HostCheck(listen))(scope, receive, send)
    answered = dict(sent[0]["headers"])
    body = b"".join(message.get("body", b"") for message in sent[1:])
    return Response(sent[0]["status"], answered.get(b"content-type", b"").decode(), body.decode())


def play(story: Callable[[Served], Awaitable[None]]) -> None:
    """Run a story against the insides of a proxy, and stop them."""

    async def run() -> None:
        served = Served()
        try:
            await story(served)
        finally:
            await served.informers.stop()

    asyncio.run(run())


# --- health ----------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["/healthz", "/livez"])
def test_a_process_that_serves_is_alive_though_not_ready(path: str) -> None:
    async def story(served: Served) -> None:
        served.name()
        assert (await ask(served, path))[::2] == (200, "ok")
        assert (await ask(served, "/readyz")).status == 500

    play(story)


def test_readiness_waits_for_every_named_informer() -> None:
    async def story(served: Served) -> None:
        assert (await ask(served, "/readyz"))[::2] == (200, "ok")
        await served.synced("a")
        served.name("b")
        assert await ask(served, "/readyz") == Response(
            500,
            "text/plain; charset=utf-8",
            "[+]informer pods.v1/a ok\n"
            "[-]informer pods.v1/b failed: not synced yet\n"
            "readyz check failed\n",
        )
        await served.synced("b")
        assert (await ask(served, "/readyz"))[::2] == (200, "ok")

    play(story)


REFUSALS: list[tuple[Exception, str]] = [
    (Forbidden('pods is forbidden: User "x" cannot list'), 'forbidden: User "x" cannot list'),
    (NotFound("the server has no resource pods.v1"), "the server has no resource pods.v1"),
    (ServiceUnavailable("can't be reached:\n no route"), "can't be reached: no route"),
]


@pytest.mark.parametrize(("failure", "reason"), REFUSALS)
def test_readiness_says_why_it_is_missing(failure: Exception, reason: str) -> None:
    async def story(served: Served) -> None:
        served.name()
        [source] = served.sources.values()
        source.failure = failure
        await asyncio.sleep(0.01)
        lines = (await ask(served, "/readyz?verbose")).body.splitlines()
        assert lines[0].startswith("[-]informer pods.v1 failed: ")
        assert lines[0].endswith(reason)
        assert lines[1:] == ["readyz check failed"]

    play(story)


@pytest.mark.parametrize("query", ["?verbose", "?verbose=1", "?verbose="])
def test_verbose_readiness_lists_what_is_ready(query: str) -> None:
    async def story(served: Served) -> None:
        await served.synced("b")
        await served.synced("a")
        found = await ask(served, "/readyz" + query)
        assert found.status == 200
        assert found.body == (
            "[+]informer pods.v1/a ok\n[+]informer pods.v1/b ok\nreadyz check passed\n"
        )

    play(story)


@pytest.mark.parametrize(("silence", "status"), [(STALLED - 1, 200), (STALLED, 500)])
def test_readiness_ends_when_an_informer_stalls(silence: float, status: int) -> None:
    async def story(served: Served) -> None:
        await served.synced()
        served.clock.advance(silence)
        assert (await ask(served, "/readyz")).status == status

    play(story)


# --- status ----------------------------------------------------------------------------------


def test_the_status_tells_of_each_informer() -> None:
    async def story(served: Served) -> None:
        informer = await served.synced("a")
        informer.watchers = 2
        served.clock.advance(1.23456)
        for client, version in (("", 99), ("who-was-shown-it", 100)):
            informer.acknowledge(Expectation("a/x", served.clock(), client, version))
        served.name("b")
        found = (await ask(served, "/status.json")).json
        assert (found["ready"], found["scans"]) == (False, [])
        assert found["unready"] == {"pods.v1/b": "not synced yet"}
        synced, started = found["informers"]
        assert synced.pop("raw_bytes") > 50
        assert synced == {
            "id": "pods.v1/a",
            "named": True,
            "synced": True,
            "resource_version": "10",
            "objects": 1,
            "staleness": 1.235,
            "unproven": 1.235,
            "lag": None,
            "expected": 1,
            "stalled": False,
            "watchers": 2,
            "last_error": "",
        }
        assert (started["id"], started["synced"], started["objects"]) == ("pods.v1/b", False, 0)

    play(story)


def test_the_status_names_selectors_that_scan() -> None:
    async def story(served: Served) -> None:
        tally = served.reader.tallies[PODS.info.resource] = Tally()
        for shape, lists in (("", 1), ("app in", 3)):
            for _ in range(lists):
                tally.count(shape, 5000, 1)
        tally.count("app in", 5000, 5000)
        assert (await ask(served, "/status.json")).json["scans"] == [
            {"resource": "pods.v1", "selector": "app in", "lists": 3},
            {"resource": "pods.v1", "selector": "(everything)", "lists": 1},
        ]

    play(story)


@pytest.mark.parametrize(
    ("path", "content_type", "part"),
    [
        ("/", "text/html; charset=utf-8", "<td>pods.v1/a</td>"),
        ("/metrics", "text/plain; version=0.0.4; charset=utf-8", "kubecache_informer_objects{"),
        ("/docs", "text/html; charset=utf-8", "kubecache admin"),
        ("/openapi.json", "application/json", "/informers/{informer_id}"),
    ],
)
def test_pages(path: str, content_type: str, part: str) -> None:
    async def story(served: Served) -> None:
        await served.synced("a")
        found = await ask(served, path)
        assert (found.status, found.content_type) == (200, content_type)
        assert part in found.body

    play(story)


# --- levers ----------------------------------------------------------------------------------


def test_an_informer_is_stopped() -> None:
    async def story(served: Served) -> None:
        await served.earned("a")
        await served.synced()
        assert (await ask(served, "/informers/pods.v1/a", "DELETE"))[::2] == (204, "")
        assert [str(each.scope) for each in served.informers] == ["pods.v1"]

    play(story)


def test_an_informer_lists_anew() -> None:
    async def story(served: Served) -> None:
        informer = await served.synced("a")
        view = informer.view
        [source] = served.sources.values()
        source.version = 20
        assert (await ask(served, "/informers/pods.v1/a/relist", "POST")).status == 202
        while informer.version < 20:
            await asyncio.wait({informer.signal.next()}, timeout=1)
        assert informer.reflector.relists == {"start": 1, "asked": 1}
        assert informer.view is view, "readers go on"

    play(story)


def test_what_is_named_is_not_stopped() -> None:
    async def story(served: Served) -> None:
        served.name("a")
        answer = await ask(served, "/informers/pods.v1/a", "DELETE")
        assert answer.status == 409
        assert "named in the settings" in answer.body
        assert len(list(served.informers)) == 1

    play(story)


LEVERS = [("DELETE", "/informers/{}"), ("POST", "/informers/{}/relist")]


@pytest.mark.parametrize(("method", "path"), LEVERS)
@pytest.mark.parametrize("name", ["pods.v1/b", "pods", "a", "pods.v1%2Fa"])
def test_levers_of_no_informer(method: str, path: str, name: str) -> None:
    async def story(served: Served) -> None:
        await served.synced("a")
        found = await ask(served, path.format(name), method)
        assert found.status == 404
        assert "no informer" in found.body
        assert len(list(served.informers)) == 1

    play(story)


@pytest.mark.parametrize(
    ("client", "refused"),
    [
        ("127.0.0.1", False),
        ("127.8.8.8", False),
        ("::1", False),
        ("", False),  # a Unix socket
        ("10.0.0.7", True),
        ("0.0.0.0", True),
        ("fd00::1", True),
    ],
)
@pytest.mark.parametrize(("method", "path"), LEVERS)
def test_levers_are_local(client: str, method: str, path: str, *, refused: bool) -> None:
    async def story(served: Served) -> None:
        await served.earned("a")
        found = await ask(served, path.format("pods.v1/a"), method, client)
        assert (found.status == 403) is refused
        assert len(list(served.informers)) == (1 if refused or method == "POST" else 0)
        assert (await ask(served, "/status.json", client=client)).status == 200

    play(story)


# --- web pages -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("listen", "host", "origin", "target", "status"),
    [
        ("localhost", b"evil.example", None, "/status.json", 403),
        ("0.0.0.0", b"10.0.0.7:8002", None, "/status.json", 200),
        ("0.0.0.0", b"10.0.0.7:8002", b"http://evil.example", "/status.json", 403),
    ],
)
def test_web_pages_are_refused(
    listen: str, host: bytes, origin: bytes | None, target: str, status: int
) -> None:
    headers = [(b"host", host), *([(b"origin", origin)] if origin else [])]

    async def story(served: Served) -> None:
        answer = await ask(served, target, headers=headers, listen=listen)
        assert answer.status == status

    play(story)


@pytest.mark.parametrize("headers", [[(b"host", b"evil.example")], [(b"origin", b"null")]])
def test_levers_are_not_for_web_pages(headers: list[tuple[bytes, bytes]]) -> None:
    async def story(served: Served) -> None:
        await served.synced("a")
        answer = await ask(served, "/informers/pods.v1/a/relist", "POST", headers=headers)
        assert answer.status == 403

    play(story)
