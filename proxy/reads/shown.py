"""What live reads have shown, so that cached ones that follow don't go back behind it."""

import re
import time
from collections.abc import AsyncIterator, Callable

from proxy.cache.expectations import Expectation
from proxy.cache.informer import Informer
from proxy.cache.informers import Informers
from proxy.kube.envelope import read_envelope
from proxy.kube.options import MAX_QUERY, parse_query
from proxy.kube.paths import ResourcePath
from proxy.kube.requests import Headers, Request, content_type_of, header_of

# The metadata of a list, or of a Table, comes first, or with sorted keys last.
_HEAD = re.compile(
    rb'\{"kind":"\w+","apiVersion":"[\w./-]+","metadata":\{"resourceVersion":"(\d+)"'
)
_PROTOBUF_HEAD = re.compile(
    rb"k8s\0\n.\n.[\w./-]+\x12.\w+List\x12.{1,5}?\n.\n\0\x12.(\d+)\x1a", re.DOTALL
)
_TAIL = re.compile(rb'"kind":"\w+List","metadata":\{[^{}]*"resourceVersion":"(\d+)"[^{}]*\}\}\n?\Z')


class Shown:
    """Lets *informers* expect the states that live reads show."""

    def __init__(
        self, informers: Informers, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._informers = informers
        self._clock = clock

    def concerns(self, request: Request) -> bool:
        """Tell a read of the present state of something that is cached too."""
        target = request.target
        if target is None or request.method != "GET" or target.subresource:
            return False
        informers = self._informers.of(target.resource)
        return any(_is_sound(target, each) for each in informers) and not _is_past(request)

    async def note(
        self, request: Request, status: int, headers: Headers, chunks: AsyncIterator[bytes]
    ) -> AsyncIterator[bytes]:
        """Pass an answer on; what it shows is noted before the client has all of it."""
        first = last = b""
        count = 0
        async for chunk in chunks:
            if last:
                yield last
            first, last, count = first or chunk, chunk, count + 1
        if status == 200:
            self._expect(request, _version(headers, first, last, is_whole=count == 1))
        elif status == 404 and request.target and request.target.name:
            self._expect(request, 0, absent=True)
        if last:
            yield last

    def _expect(self, request: Request, version: int, *, absent: bool = False) -> None:
        target = request.target
        assert target is not None
        self._informers.acknowledge(
            target.resource,
            Expectation(target.key, self._clock(), request.client, version, absent=absent),
        )


def _is_sound(target: ResourcePath, informer: Informer) -> bool:
    """Tell whether there can be what a path names: a namespace where there is one, or none."""
    if informer.view is None:
        return True
    namespaced = informer.view.form.namespaced
    return namespaced is bool(target.namespace) or (namespaced and not target.name)


def _is_past(request: Request) -> bool:
    """Tell a watch, and a read that may show an older state than the present one."""
    if len(request.query) > MAX_QUERY:
        return True
    options = parse_query(request.query)
    if not options.keys().isdisjoint({"watch", "continue"}):
        return True
    pages = "limit" in options and options.get("resourceVersion", "") not in ("", "0")
    return pages or options.get("resourceVersionMatch") == "Exact"


def _version(headers: Headers, first: bytes, last: bytes, *, is_whole: bool) -> int:
    """Find the resourceVersion that an answer shows; 0 where it isn't seen at a glance."""
    if header_of(headers, b"content-encoding"):
        return 0
    if found := _HEAD.match(first) or _PROTOBUF_HEAD.match(first) or _TAIL.search(last):
        return int(found[1])
    envelope = read_envelope(content_type_of(headers), first) if is_whole else None
    return (envelope and envelope.version) or 0
