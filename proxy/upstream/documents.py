"""Discovery and OpenAPI documents, kept and revalidated by ETag at every request.

They are large, asked for often, and change with every CRD: asking the API server whether they have
changed costs it little, and the answer is never out of date.
"""

import re
from collections import OrderedDict
from typing import NamedTuple

from proxy.kube.negotiation import wants_indent
from proxy.kube.requests import Headers
from proxy.upstream.client import Client
from proxy.upstream.headers import response_headers

MAX_BYTES = 64 * 1024 * 1024
"""Bytes kept in all, keys included; OpenAPI v2 of a plain cluster is 4 MB."""

_PATHS = re.compile(r"/api(/[^/]+)?|/apis(/[^/]+){0,2}|/openapi/.+")
_VARY = frozenset({b"accept", b"accept-encoding"})

_Key = tuple[str, bool, tuple[tuple[bytes, bytes], ...]]
"""Target, whether people get it indented, and the headers that it varies with."""


class Document(NamedTuple):
    """An answer kept whole; *revalidated*: the API server said that it hasn't changed."""

    status: int
    headers: Headers
    body: bytes
    revalidated: bool = False


class Documents:
    """Keeps documents by target and by what they vary with; the least recently used go first."""

    def __init__(self, client: Client, *, max_bytes: int = MAX_BYTES) -> None:
        self._client = client
        self._max_bytes = max_bytes
        self._kept: OrderedDict[_Key, Document] = OrderedDict()
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._kept)

    @staticmethod
    def covers(method: str, path: str, headers: Headers) -> bool:
        """Tell whether a request is for a document, and leaves its validation to us."""
        conditional = any(name.startswith(b"if-") for name, _ in headers)
        return method == "GET" and bool(_PATHS.fullmatch(path)) and not conditional

    async def get(self, target: str, headers: Headers) -> Document:
        """Get a document, from memory if the API server says that it's still the same."""
        agent = dict(headers).get(b"user-agent", b"").decode("latin-1")
        key = (target, wants_indent(None, agent), tuple(p for p in headers if p[0] in _VARY))
        kept = self._kept.get(key)
        if kept is not None:
            headers = [*headers, (b"if-none-match", dict(kept.headers)[b"etag"])]
        async with self._client.open("GET", target, headers) as response:
            body = await response.body()
            answer = Document(response.status, response_headers(response.headers), body)
        if answer.status == 304 and kept is not None:
            if key in self._kept:  # others may have asked meanwhile
                self._kept.move_to_end(key)
            headers = [pair for pair in kept.headers if pair[0] != b"audit-id"]
            return kept._replace(headers=headers, revalidated=True)
        if answer.status == 200:  # what isn't may be meant for this client alone
            self._forget(key)
            if b"etag" in dict(answer.headers):
                self._keep(key, answer)
        return answer

    def _keep(self, key: _Key, document: Document) -> None:
        self._kept[key] = document
        self._bytes += _size(key, document)
        while self._bytes > self._max_bytes:
            self._forget(next(iter(self._kept)))

    def _forget(self, key: _Key) -> None:
        forgotten = self._kept.pop(key, None)
        if forgotten is not None:
            self._bytes -= _size(key, forgotten)


def _size(key: _Key, document: Document) -> int:
    target, _, varied = key
    return len(target) + sum(len(value) for _, value in varied) + len(document.body)
