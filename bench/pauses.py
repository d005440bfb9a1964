"""How long the event loop is held up while 100,000 objects are synced, relisted and listed, and
while a watch passes over as many events."""

import asyncio
import time
from collections.abc import AsyncGenerator, Iterator, Sequence

from bench.report import Figure
from bench.scale import INFO, SAMPLE, listing
from proxy.cache.history import Event
from proxy.cache.informer import Informer
from proxy.cache.scope import Scope
from proxy.cache.store import Store
from proxy.cache.view import Ending
from proxy.cli.run import keep_pauses_short
from proxy.forms.form import EventType, Form
from proxy.forms.json import JsonForm
from proxy.kube.options import parse_options
from proxy.kube.paths import ResourcePath
from proxy.kube.requests import Verb
from proxy.reads.plan import Read, ServeWatch, plan
from proxy.reads.watch import Watch
from proxy.upstream.client import BATCH

OBJECTS = 100_000


def pauses() -> Iterator[Figure]:
    """The longest pauses, in one process with the work, whose garbage collector is the proxy's."""
    keep_pauses_short()
    for name, seconds in asyncio.run(_measure()).items():
        yield Figure(f"longest pause, {name}", seconds * 1e3, "ms", 10)


async def _measure() -> dict[str, float]:
    source = _Source()
    informer = Informer(Scope(INFO.resource), source)
    worst = {}
    with _Beats() as beats:
        for name in ("syncing 100,000 objects", "relisting 100,000 objects"):
            task = asyncio.create_task(informer.reflector.run())
            await source.sent()
            worst[name] = await beats.longest()
            task.cancel()
        assert informer.view
        for _ in listing(informer.view, "", b"").parts():
            await asyncio.sleep(0)
        worst["listing 100,000 objects"] = await beats.longest()
    worst["passing over 100,000 events"] = await _passing_over()
    return worst


async def _passing_over() -> float:
    """Watch from before as many events, of which none is selected."""
    informer = Informer(Scope(INFO.resource), _Source())
    form = JsonForm(INFO, SAMPLE)
    await informer.replace(form, Store(form.indexed), 1)
    assert informer.view
    [found] = form.decode_page(_PAGE).objects
    informer.view.history.extend(
        [
            Event(EventType.MODIFIED, version, found, found, time.monotonic())
            for version in range(2, OBJECTS + 2)
        ]
    )
    query = b"watch=1&resourceVersion=1&labelSelector=none"
    read = Read(
        Verb.WATCH, ResourcePath(INFO.resource, "", "", ""), parse_options(query), indent=False
    )
    decided = plan(read, informer.view)
    assert isinstance(decided, ServeWatch)
    watch = Watch(informer, informer.view, decided)
    informer.drop(Ending.STOPPED)
    with _Beats() as beats:
        async for _ in watch.frames():
            pass
        return await beats.longest()


_ITEM = b'{"metadata":{"name":"p","resourceVersion":"1"}}'
_PAGE = b'{"metadata":{"resourceVersion":"1"},"items":[%s]}' % _ITEM


class _Beats:
    """A task that beats as often as it can; the longest gap is the longest pause.

    In CPU time of all threads: one that holds the interpreter's lock counts, other processes don't.
    """

    def __enter__(self) -> "_Beats":
        self._longest = 0.0
        self._task = asyncio.create_task(self._beat())
        return self

    def __exit__(self, *_: object) -> None:
        self._task.cancel()

    async def _beat(self) -> None:
        last = time.process_time()
        while True:
            await asyncio.sleep(0)
            now = time.process_time()
            self._longest = max(self._longest, now - last)
            last = now

    async def longest(self) -> float:
        """The longest since the last call."""
        await asyncio.sleep(0)
        longest, self._longest = self._longest, 0.0
        return longest


class _Source:
    """Sends all objects as a WatchList, each time in newer versions, and then nothing."""

    def __init__(self) -> None:
        self._version = 0
        self._done = asyncio.Event()

    async def sent(self) -> None:
        """Wait until all has been sent and taken."""
        await self._done.wait()
        self._done.clear()

    async def describe(self) -> Form:
        return JsonForm(INFO, SAMPLE)

    async def list_page(self, limit: int, continue_token: str) -> bytes:
        raise NotImplementedError

    async def current_version(self) -> int:
        return self._version

    async def list_object(self, key: str) -> bytes:
        raise NotImplementedError

    def barrier(self, version: int) -> AsyncGenerator[Sequence[bytes], None]:
        raise NotImplementedError

    async def watch(self, version: int | None) -> AsyncGenerator[Sequence[bytes], None]:
        lines: list[bytes] = []
        for number in range(OBJECTS):
            self._version += 1
            lines.append(_event(number, self._version))
            if len(lines) == BATCH:
                yield lines
                lines = []
        yield [*lines, _END % self._version]
        self._done.set()
        await asyncio.sleep(3600)


_END = (
    b'{"type":"BOOKMARK","object":{"kind":"Pod","apiVersion":"v1","metadata":{"resourceVersion":"%d",'
    b'"annotations":{"k8s.io/initial-events-end":"true"}}}}'
)


def _event(number: int, version: int) -> bytes:
    return (
        f'{{"type":"ADDED","object":{{"kind":"Pod","apiVersion":"v1","metadata":{{"name":"p{number:06}",'
        f'"namespace":"ns-{number // 100:04}","uid":"u{number}","resourceVersion":"{version}",'
        f'"labels":{{"app":"a{number % 1000}"}}}},"spec":{{"nodeName":"n{number % 1000}"}},'
        f'"status":{{"phase":"Running"}},"pad":"{"x" * 1000}"}}}}'
    ).encode()
