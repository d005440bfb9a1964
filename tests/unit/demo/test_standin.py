"""The stand-in API server, asked over a real socket."""

import asyncio
import http.client
import json
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Thread
from typing import Any

import pytest

from proxy.demo.mover import fill
from proxy.demo.standin import StandIn
from proxy.demo.storage import LOG

PODS = "/api/v1/namespaces/shop/pods"


class Client:
    """Asks a stand-in that runs in a thread of its own."""

    def __init__(self, port: int) -> None:
        self._port = port

    def ask(
        self, method: str, path: str, body: Any = None, content: str = "application/json"
    ) -> tuple[int, Any]:
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=10)
        encoded = None if body is None else json.dumps(body)
        connection.request(method, path, encoded, {"Content-Type": content})
        answer = connection.getresponse()
        found = answer.read()
        connection.close()
        return answer.status, json.loads(found)

    def watch(self, query: str) -> list[tuple[str, str, str]]:
        """Type, name and version of all events of a watch that ends by itself."""
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=10)
        connection.request("GET", f"{PODS}?watch=1&timeoutSeconds=1&{query}")
        lines = connection.getresponse().read().splitlines()
        connection.close()
        return [_event(json.loads(line)) for line in lines]


def _event(event: dict[str, Any]) -> tuple[str, str, str]:
    metadata = event["object"]["metadata"]
    return event["type"], metadata.get("name", ""), metadata.get("resourceVersion", "")


@contextmanager
def serving() -> Iterator[Client]:
    loop = asyncio.new_event_loop()
    thread = Thread(target=loop.run_forever, daemon=True)
    thread.start()

    async def start() -> StandIn:
        server = await StandIn().__aenter__()
        fill(server.storage, 6)
        return server

    server = asyncio.run_coroutine_threadsafe(start(), loop).result(10)
    try:
        yield Client(int(server.url.rpartition(":")[2]))
    finally:
        asyncio.run_coroutine_threadsafe(server.__aexit__(), loop).result(20)
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    with serving() as found:
        yield found


def test_lists_and_pages(client: Client) -> None:
    _, whole = client.ask("GET", PODS)
    names = [each["metadata"]["name"] for each in whole["items"]]
    assert names == ["web-000", "web-002", "web-004"]
    assert "kind" not in whole["items"][0]
    _, first = client.ask("GET", f"{PODS}?limit=2")
    assert first["metadata"]["remainingItemCount"] == 1
    _, last = client.ask("GET", f"{PODS}?limit=2&continue={first['metadata']['continue']}")
    assert [each["metadata"]["name"] for each in last["items"]] == ["web-004"]
    _, selected = client.ask("GET", "/api/v1/pods?labelSelector=app%3Dweb-1")
    assert [each["metadata"]["name"] for each in selected["items"]] == ["web-001"]


def test_writes_and_their_conflicts(client: Client) -> None:
    path = f"{PODS}/w"
    status, mine = client.ask("POST", PODS, {"metadata": {"name": "w"}})
    assert (status, mine["kind"], mine["apiVersion"]) == (201, "Pod", "v1")
    assert client.ask("POST", PODS, {"metadata": {"name": "w"}})[1]["reason"] == "AlreadyExists"
    status, theirs = client.ask("PUT", path, {**mine, "spec": {"nodeName": "n"}})
    assert (status, theirs["metadata"]["uid"]) == (200, mine["metadata"]["uid"])
    status, refused = client.ask("PUT", path, mine)
    assert (status, refused["reason"], refused["details"]) == (
        409,
        "Conflict",
        {"name": "w", "kind": "pods"},
    )
    merge = "application/merge-patch+json"
    _, patched = client.ask("PATCH", path, {"spec": {"nodeName": None, "x": 1}}, merge)
    assert patched["spec"] == {"x": 1}
    assert client.ask("PATCH", path, [], "application/json-patch+json")[0] == 415
    assert client.ask("DELETE", path)[0] == 200
    assert client.ask("GET", path)[1]["reason"] == "NotFound"
    assert client.ask("DELETE", PODS)[0] == 405


def test_watches(client: Client) -> None:
    _, whole = client.ask("GET", PODS)
    version = whole["metadata"]["resourceVersion"]
    initial = client.watch("allowWatchBookmarks=true")
    assert [kind for kind, _, _ in initial[:4]] == ["ADDED"] * 3 + ["BOOKMARK"]
    assert initial[3][2] == version
    client.ask("POST", PODS, {"metadata": {"name": "v", "labels": {"l": "1"}}})
    client.ask("PUT", f"{PODS}/v", {"metadata": {"name": "v"}})
    client.ask("DELETE", f"{PODS}/v")
    told = client.watch(f"resourceVersion={version}")
    assert [kind for kind, _, _ in told] == ["ADDED", "MODIFIED", "DELETED"]
    left = client.watch(f"resourceVersion={version}&labelSelector=l")
    assert [kind for kind, _, _ in left] == ["ADDED", "DELETED"]
    assert [each[2] for each in left] == [told[0][2], told[1][2]]


def test_a_version_that_is_forgotten_has_expired() -> None:
    with serving() as client:
        for number in range(LOG + 10):
            client.ask("PUT", f"{PODS}/web-000", {"spec": {"n": number}})
        assert client.watch("resourceVersion=2") == [("ERROR", "", "")]


def test_discovery(client: Client) -> None:
    assert client.ask("GET", "/version")[1]["gitVersion"].endswith("stand-in")
    assert client.ask("GET", "/apis/apps/v1")[1]["resources"][0]["name"] == "deployments"
    assert client.ask("GET", "/apis/unknown")[0] == 404
