"""What many clients see through the proxy, amid faults, against the true history."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from http.client import HTTPException
from random import Random
from typing import Any

import pytest

from tests.harness.apiserver import ApiServer
from tests.harness.differential import cache_status
from tests.harness.history import (
    Log,
    Read,
    Violation,
    Write,
    backwards,
    inexact,
    too_old,
    unseen,
)
from tests.harness.http import Answer, Headers, Server, Session, Watch, ask, get
from tests.harness.objects import CustomResource, crd, define
from tests.harness.proxy import Proxy
from tests.harness.watch_delay import WatchDelay

OPERATIONS = int(os.environ.get("KUBECACHE_TEST_OPERATIONS", "1500"))
"""Reads and writes of each test, however long they take."""

CLIENTS = 6
OUTSIDERS = 2
"""Writers beside the proxy."""

OBJECTS = 4
_MERGE = ("Content-Type", "application/merge-patch+json")

pytestmark = pytest.mark.timeout(1200)


class History:
    """What clients have done and seen, of the objects of one resource in one namespace."""

    def __init__(self, namespace: str, resource: CustomResource) -> None:
        self.namespace = namespace
        self.resource = resource
        self.writes: list[Write] = []
        self.deletions: list[tuple[str, Write]] = []
        self.reads: list[Read] = []
        self.asked = 0

    @property
    def collection(self) -> str:
        return self.resource.path(self.namespace)

    def key(self, name: str) -> str:
        return f"{self.namespace}/{name}"

    def log(self, events: Sequence[dict[str, Any]]) -> Log:
        """The true history; deletions that answers don't show get their versions from it."""
        gone = {
            event["object"]["metadata"]["uid"]: _version(event["object"])
            for event in events
            if event["type"] == "DELETED"
        }
        self.writes += [write._replace(version=gone[uid]) for uid, write in self.deletions]
        return Log(
            (
                self.key(event["object"]["metadata"]["name"]),
                _version(event["object"]),
                event["type"] == "DELETED",
            )
            for event in events
        )


class Client:
    """One that reads and writes at random, on a connection of its own."""

    def __init__(
        self, name: str, server: Server, history: History, *, through_proxy: bool, headers: Headers
    ) -> None:
        self._name = name
        self._server = server.adding(("User-Agent", name))
        self._session = Session(self._server)
        self._history = history
        self._through_proxy = through_proxy
        self._headers = headers
        self._random = Random(name)

    def write(self) -> None:
        name = f"o{self._random.randrange(OBJECTS)}"
        target = f"{self._history.collection}/{name}"
        called = time.monotonic()
        match self._random.randrange(12):
            case 0 | 1:
                answer = self._ask("DELETE", target)
            case 2 | 3:
                finalizers = {"metadata": {"finalizers": self._random.choice([None, ["a.b/c"]])}}
                answer = self._ask("PATCH", target, finalizers, _MERGE)
            case 4:
                status = {"status": {"phase": str(self._random.random())}}
                answer = self._ask("PATCH", f"{target}/status", status, _MERGE)
            case 5 | 6:
                size = {"spec": {"size": self._random.randrange(10**9)}}
                answer = self._ask("PATCH", target, size, _MERGE)
            case 7:
                answer = self._ask("PUT", target + "?dryRun=All", self._object(name))
                return
            case 8:
                stale = self._object(name)
                stale["metadata"]["resourceVersion"] = "1"
                answer = self._ask("PUT", target, stale)
            case _:
                answer = self._ask("POST", self._history.collection, self._object(name))
        self._note(name, called, answer)

    def _note(self, name: str, called: float, answer: Answer | None) -> None:
        if answer is None or answer.status >= 300:
            return
        found = answer.json()
        done = Write(self._history.key(name), 0, called, time.monotonic(), self._through_proxy)
        if found["kind"] == "Status":
            self._history.deletions.append((found["details"]["uid"], done))
            return
        metadata = found["metadata"]
        if "deletionTimestamp" in metadata and not metadata.get("finalizers"):
            self._history.deletions.append((metadata["uid"], done))
        else:
            self._history.writes.append(done._replace(version=_version(found)))

    def read(self) -> None:
        history = self._history
        name = f"o{self._random.randrange(OBJECTS)}"
        listing = self._random.random() < 0.4
        target = history.collection if listing else f"{history.collection}/{name}"
        headers = self._headers
        if self._random.random() < 0.15:
            headers = (("Cache-Control", "no-cache"),)
        called = time.monotonic()
        answer = self._ask("GET", target, headers=headers)
        returned = time.monotonic()
        if not self._through_proxy:
            return
        history.asked += 1
        if answer is None or answer.status in (503, 504):  # the line was cut
            return
        assert answer.status in (200, 404), answer
        hit = cache_status(answer).hit
        read = Read(self._name, called, returned, {}, hit=hit, age=int(answer.header("Age") or 0))
        body = answer.json()
        items = body["items"] if listing else [body] if answer.status == 200 else []
        found = {history.key(each["metadata"]["name"]): _version(each) for each in items}
        if listing:
            prefix = f"{history.namespace}/"
            history.reads.append(read._replace(found=found, prefix=prefix, version=_version(body)))
        else:
            history.reads.append(read._replace(found=found, key=history.key(name)))

    def _object(self, name: str) -> dict[str, Any]:
        return self._history.resource.object(name)

    def _ask(
        self, method: str, target: str, body: Any = None, *headers: tuple[str, str], **more: Headers
    ) -> Answer | None:
        """The answer; None where the connection broke."""
        try:
            return self._session.ask(
                method, target, body=body, headers=(*headers, *more.get("headers", ()))
            )
        except (OSError, HTTPException):
            self.close()
            self._session = Session(self._server)
            return None

    def close(self) -> None:
        self._session.__exit__()


def _version(found: dict[str, Any]) -> int:
    return int(found["metadata"]["resourceVersion"])


def run(clients: Sequence[tuple[Client, float]], operations: int) -> None:
    """Let clients work, each with its share of writes, until all operations are done."""
    left = iter(range(operations))
    errors: list[BaseException] = []

    def work(client: Client, writing: float, random: Random) -> None:
        try:
            for _ in left:
                (client.write if random.random() < writing else client.read)()
        except BaseException as error:
            errors.append(error)
            raise

    threads = [
        threading.Thread(target=work, args=(*each, Random(n)), daemon=True)
        for n, each in enumerate(clients)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(1000)
    for client, _ in clients:
        client.close()
    assert not errors, errors[0]


@contextmanager
def trouble(line: WatchDelay, *, cuts: bool) -> Iterator[None]:
    """Changes the line all the time: late events, breaks, silence."""
    ended = threading.Event()
    random = Random(7)

    def change() -> None:
        while not ended.wait(random.uniform(0.2, 1.0)):
            line.resume()
            line.delay(down=random.choice([0.0, 0.03, 0.1, 0.3, 0.6]))
            match random.randrange(12):
                case 0 if cuts:
                    line.cut()
                case 1 if cuts:
                    line.freeze()
                    ended.wait(0.3)
                    line.resume()
                case 2:
                    line.throttle(200_000)

    thread = threading.Thread(target=change, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join(10)
        line.resume()


@pytest.fixture(scope="module")
def things(apiserver: ApiServer) -> CustomResource:
    return define(apiserver.server, crd("Memory", group="history.kubecache.dev"))


Play = Callable[..., tuple[Log, History]]


@pytest.fixture
def play(apiserver: ApiServer, namespace: str, things: CustomResource) -> Play:
    def play(
        *flags: str, headers: Headers = (), delay: float | None = None, operations: int = OPERATIONS
    ) -> tuple[Log, History]:
        """Run clients of a proxy with these flags and headers; in trouble, or just a delay."""
        history = History(namespace, things)
        plural = f"{things.plural}.{things.group}"
        named = {"cache": {"resources": [{"resource": plural}]}}
        with ExitStack() as stack:
            line = stack.enter_context(WatchDelay(apiserver.port, delay or 0.0))
            truth = stack.enter_context(_watch_all(apiserver.server, history.collection))
            kubeconfig = apiserver.kubeconfig(port=line.port)
            proxy = stack.enter_context(Proxy(kubeconfig, *flags, config=named, chain=False))
            clients = [
                (Client(f"c{n}", proxy.read, history, through_proxy=True, headers=headers), 0.3)
                for n in range(CLIENTS)
            ]
            clients += [
                (Client(f"d{n}", apiserver.server, history, through_proxy=False, headers=()), 0.9)
                for n in range(OUTSIDERS)
            ]
            if delay is None:
                stack.enter_context(trouble(line, cuts=True))
            run(clients, operations)
            events = _read_all(truth, apiserver.server, history.collection)
        return history.log(events), history

    return play


def _watch_all(server: Server, collection: str) -> Watch:
    version = get(server, collection).ok().version
    return Watch(server, f"{collection}?watch=1&resourceVersion={version}")


def _read_all(truth: Watch, server: Server, collection: str) -> list[dict[str, Any]]:
    """Read the events up to one that is made to be the last."""
    name = collection.rsplit("/", 1)[-1]
    kind, group = "Memory", "history.kubecache.dev"
    last = CustomResource(group, name, kind).object("last")
    ask(server, "POST", collection, body=last).ok()
    events: list[dict[str, Any]] = []
    for event in truth:
        if event["object"]["metadata"]["name"] == "last":
            return events
        events.append(event)
    raise AssertionError("the watch of the truth has ended")


def assert_none(violations: Sequence[Violation]) -> None:
    assert not violations, f"{len(violations)}, the first ones:\n" + "\n".join(
        map(str, violations[:5])
    )


def assert_answered(history: History, share_of_hits: float) -> None:
    """Nearly all reads are answered though the line breaks, and enough of them by the cache."""
    assert len(history.reads) > 0.9 * history.asked
    assert len(hits(history)) > share_of_hits * len(history.reads)


def seen_by(reads: Sequence[Read]) -> list[Write]:
    """What reads have shown, which later ones of others must show too."""
    return [
        Write(key, version, read.called, read.returned)
        for read in reads
        for key, version in read.found.items()
    ]


def hits(history: History) -> list[Read]:
    return [read for read in history.reads if read.hit]


def through_proxy(history: History) -> list[Write]:
    return [write for write in history.writes if write.through_proxy]


def test_session(play: Play) -> None:
    log, history = play()
    assert_answered(history, 1 / 4)
    assert_none(inexact(log, history.reads))
    assert_none(unseen(log, through_proxy(history), history.reads))
    assert_none(backwards(log, history.reads))


def test_strict(play: Play) -> None:
    log, history = play("--consistency", "strict")
    assert_answered(history, 1 / 8)
    assert_none(unseen(log, seen_by(history.reads), history.reads))
    assert_none(inexact(log, history.reads))
    assert_none(unseen(log, history.writes, history.reads))
    assert_none(backwards(log, history.reads))


def test_eventual(play: Play) -> None:
    """Cached reads are of past states that only move on."""
    log, history = play("--consistency", "eventual")
    assert_answered(history, 1 / 2)
    assert_none(inexact(log, history.reads))
    assert_none(backwards(log, hits(history)))


def test_max_age(play: Play) -> None:
    log, history = play(headers=(("Cache-Control", "max-age=1"),))
    assert_answered(history, 1 / 8)
    assert_none(inexact(log, history.reads))
    assert_none(unseen(log, history.writes, history.reads, within=1.0))
    assert_none(unseen(log, through_proxy(history), history.reads))
    assert_none(too_old(history.reads, 1.0))


def test_max_staleness(play: Play) -> None:
    flags = ("--max-staleness", "200ms", "--consistency", "eventual")
    log, history = play(*flags)
    assert_answered(history, 1 / 20)
    assert_none(unseen(log, history.writes, history.reads, within=0.2))
    assert_none(too_old(history.reads, 0.2))


LATE = 0.3


def test_without_session_writes_are_missed(play: Play) -> None:
    """As everywhere below, this shows that the checker finds what there is to find."""
    log, history = play("--consistency", "eventual", delay=LATE, operations=400)
    assert unseen(log, through_proxy(history), history.reads)


def test_without_strict_what_others_write_is_missed(play: Play) -> None:
    log, history = play("--consistency", "session", delay=LATE, operations=400)
    assert_none(unseen(log, through_proxy(history), history.reads))
    assert unseen(log, history.writes, history.reads)


def test_without_a_bound_reads_are_older(play: Play) -> None:
    log, history = play(delay=LATE, operations=400)
    assert unseen(log, history.writes, history.reads, within=LATE / 3)
    assert_none(unseen(log, history.writes, history.reads, within=3 * LATE))


def test_without_session_live_reads_are_undone(play: Play) -> None:
    log, history = play("--consistency", "eventual", delay=LATE, operations=600)
    assert backwards(log, history.reads)
