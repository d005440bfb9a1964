"""The tour: the main job, told in the terminal, with every number measured while it runs.

A chapter that doesn't come out as it is told raises TourError.
"""

import asyncio
import http.client
import json
import time
from collections.abc import Mapping
from email.message import Message
from typing import Any, NamedTuple

from proxy.server.proxy import Proxy

PODS = "/api/v1/namespaces/shop/pods"
_JSON = {"Content-Type": "application/json"}


class TourError(Exception):
    """Something is not as the tour says."""


class Answer(NamedTuple):
    """An answer of the proxy, and how long it took in milliseconds."""

    status: int
    headers: Message
    body: bytes
    milliseconds: float

    @property
    def cache_status(self) -> str:
        """What the proxy says of where the answer came from."""
        return str(self.headers["Cache-Status"])

    def json(self) -> Any:
        """The body, decoded."""
        return json.loads(self.body)


class Tour:
    """Talks to *proxy* as a client does, over its listeners."""

    def __init__(self, proxy: Proxy) -> None:
        self._proxy = proxy

    async def run(self) -> None:
        """Tell all chapters. Raises TourError."""
        await self._cached_list()
        await self._live_read()
        await self._write()
        await self._bounded_read()
        await self._conflict()
        await self._numbers()

    async def ask(
        self, method: str, path: str, headers: Mapping[str, str] | None = None, body: Any = None
    ) -> Answer:
        """Send a request to the read listener."""
        return await asyncio.to_thread(
            _ask, self._proxy.read_listener.port, method, path, dict(headers or {}), body
        )

    async def _cached_list(self) -> None:
        _chapter("A list earns an informer, and is answered from memory from then on")
        for _ in range(2):
            first = await self.ask("GET", PODS)
            _show(f"GET {PODS}", first)
        answer = await self._until_hit(PODS)
        _show(f"GET {PODS}", answer)
        items = answer.json()["items"]
        print(f"   {len(items)} pods, the API server's own bytes, Age: {answer.headers['Age']} s")

    async def _until_hit(self, path: str) -> Answer:
        for _ in range(100):
            answer = await self.ask("GET", path)
            if "hit" in answer.cache_status:
                return answer
            await asyncio.sleep(0.05)
        raise TourError(f"{path} was never answered from memory")

    async def _live_read(self) -> None:
        _chapter("A header asks the API server itself")
        path = f"{PODS}/web-000"
        cached = await self.ask("GET", path)
        _show(f"GET {path}", cached)
        live = await self.ask("GET", path, {"Cache-Control": "no-cache"})
        _show("    with Cache-Control: no-cache", live)
        _expect("hit" in cached.cache_status, "the get was not cached")
        _expect("fwd=request" in live.cache_status, "the live get was not live")

    async def _write(self) -> None:
        _chapter("A write goes through, and the next read sees it, from memory")
        path = f"{PODS}/web-002"
        body = {"metadata": {"labels": {"toured": "yes"}}}
        written = await self.ask(
            "PATCH", path, {"Content-Type": "application/merge-patch+json"}, body
        )
        _show(f"PATCH {path}", written)
        answer = await self.ask("GET", path)
        _show(f"GET {path}", answer)
        labels = answer.json()["metadata"].get("labels", {})
        _expect(labels.get("toured") == "yes", "the read has missed the write")
        _expect("hit" in answer.cache_status, "the read was not cached")

    async def _bounded_read(self) -> None:
        _chapter("A bound on what others wrote: proven current, not just assumed")
        path = f"{PODS}/web-000"
        answer = await self.ask("GET", path, {"Cache-Control": "max-age=2"})
        _show(f"GET {path} with Cache-Control: max-age=2", answer)
        print(f"   Age: {answer.headers['Age'] or 'none, the API server was asked'}")
        _expect(answer.status == 200, "the bounded read failed")

    async def _conflict(self) -> None:
        _chapter("Two writers, one stale read: a 409 that says what changed")
        path = f"{PODS}/web-004"
        mine = (await self.ask("GET", path)).json()
        theirs = {**mine, "status": {**mine["status"], "phase": "Succeeded"}}
        first = await self.ask("PUT", f"{path}?fieldManager=kubelet", _JSON, theirs)
        _show(f"PUT {path} (they)", first)
        mine["metadata"].setdefault("labels", {})["toured"] = "yes"
        second = await self.ask("PUT", path, _JSON, mine)
        _show(f"PUT {path} (I, from the same read)", second)
        causes = second.json()["details"].get("causes", [])
        for cause in causes:
            print(f"   {cause['field']} {cause['message']}")
        _expect((first.status, second.status) == (200, 409), "the conflict did not happen")
        _expect(any(cause["field"] == "status.phase" for cause in causes), "it has no cause")
        merging = {**_JSON, "X-Kubecache-On-Conflict": "merge"}
        merged = await self.ask("PUT", path, merging, mine)
        _show("    with X-Kubecache-On-Conflict: merge", merged)
        found = merged.json()
        both = (found["status"]["phase"], found["metadata"]["labels"].get("toured"))
        print(f"   both changes are in: status.phase {both[0]}, label toured {both[1]}")
        _expect((merged.status, *both) == (200, "Succeeded", "yes"), "it was not merged")

    async def _numbers(self) -> None:
        _chapter("What it measures")
        informer = next(iter(self._proxy.informers))
        print(f"   informer {informer.scope}: staleness {informer.staleness * 1e3:.0f} ms")
        answer = await asyncio.to_thread(
            _ask, self._proxy.admin_listener.port, "GET", "/metrics", {}, None
        )
        wanted = (
            "kubecache_requests_total",
            "kubecache_informer_objects",
            "kubecache_staleness",
            "kubecache_conflict",
        )
        for line in answer.body.decode().splitlines():
            if line.startswith(wanted):
                print(f"   {line}")


def _ask(port: int, method: str, path: str, headers: dict[str, str], body: Any) -> Answer:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    started = time.perf_counter()
    content = None if body is None else json.dumps(body)
    connection.request(method, path, content, {"Accept": "application/json", **headers})
    response = connection.getresponse()
    received = response.read()
    taken = (time.perf_counter() - started) * 1e3
    connection.close()
    return Answer(response.status, response.headers, received, taken)


def _chapter(title: str) -> None:
    print(f"\n== {title}")


def _show(request: str, answer: Answer) -> None:
    print(f"   {request}")
    print(
        f"      {answer.status}  {answer.milliseconds:5.1f} ms  Cache-Status: {answer.cache_status}"
    )


def _expect(holds: object, otherwise: str) -> None:
    if not holds:
        raise TourError(otherwise)
