"""What the proxy doesn't answer itself goes to the API server, and its answer comes back."""

import asyncio
from collections.abc import AsyncIterator

from proxy.kube.options import MAX_QUERY, parse_query
from proxy.kube.requests import Headers, Request, verb_of
from proxy.reads.plan import Reason
from proxy.reads.shown import Shown
from proxy.server.exchange import BODY_TIMEOUT, ClientGoneError, Exchange, race
from proxy.server.live import LiveReads
from proxy.server.stats import Stats
from proxy.upstream import tunnel
from proxy.upstream.client import READ_TIMEOUT, Client
from proxy.upstream.collapse import PLAIN_SUBRESOURCES
from proxy.upstream.documents import Documents
from proxy.upstream.headers import OWN, request_headers, response_headers
from proxy.writes.writer import Writer

_STREAMING_SUBRESOURCES = frozenset({"attach", "exec", "log", "portforward", "proxy"})
_FRESH = frozenset({Reason.LIVE, Reason.UNSEEN, Reason.UNPROVEN, Reason.UNCONFIRMED})
_REFUSED = (b"cache-status", b'kubecache; hit; detail="conflict"')
_REVALIDATED = (b"cache-status", b'kubecache; fwd=stale; fwd-status=304; detail="revalidated"')


class Forwarder:
    """Passes requests through: unbuffered, as documents that are kept, or byte by byte."""

    def __init__(
        self, client: Client, live: LiveReads, writer: Writer, shown: Shown, stats: Stats
    ) -> None:
        self._client = client
        self._live = live
        self._writer = writer
        self._shown = shown
        self._documents = Documents(client)
        self._stats = stats
        self._draining = asyncio.Event()

    def drain(self) -> None:
        """End the streams; watches end cleanly, so that clients watch again elsewhere."""
        self._draining.set()

    async def forward(self, request: Request, reason: Reason, exchange: Exchange) -> None:
        """Pass a request and its answer through, unbuffered."""
        headers, with_body = exchange.headers, _has_body(exchange.headers)
        plain = reason is Reason.PATH and not with_body
        if plain and Documents.covers(request.method, request.path, headers):
            await self._document(request, reason, exchange)
            return
        if not with_body:
            exchange.skip_body()
        exchange.is_watch = _is_watch(request)
        # Logs that a person leaves in a pager wait there; only a socket's worth is held of them.
        exchange.connection.may_stall = _is_streaming(request)
        streams = exchange.is_watch or _is_streaming(request)
        if exchange.source == "write" and request.target is not None and not streams:
            passing = self._write(request, reason, exchange)
        else:
            timeout = None if streams else READ_TIMEOUT
            passing = self._pass_through(request, reason, exchange, timeout)
        ended = await exchange.unless_gone(passing, until=self._draining if streams else None)
        if not ended and exchange.is_watch and exchange.status:
            await exchange.finish()
        elif not ended:
            exchange.abort()

    def _count_forward(
        self, request: Request, reason: Reason, exchange: Exchange, status: int
    ) -> None:
        verb = verb_of(request.method, request.target, watch=exchange.is_watch)
        labels = self._stats.labels(request, verb, exchange.source, status)
        self._stats.count_forward(reason, labels)

    async def _document(self, request: Request, reason: Reason, exchange: Exchange) -> None:
        """Answer with a discovery or OpenAPI document, which the API server has just confirmed."""
        document = await self._documents.get(request.raw_target, request_headers(exchange.headers))
        self._count_forward(request, reason, exchange, document.status)
        note = _REVALIDATED if document.revalidated else _forwarded(reason)
        await exchange.start(document.status, [*document.headers, note])
        await exchange.finish(document.body)

    async def tunnel(self, request: Request, exchange: Exchange) -> None:
        """Connect the client with the API server byte by byte."""
        exchange.source = "tunnel"
        own = request.authorization is None and not tunnel.shows_token(exchange.headers)
        credentials = self._client.credentials
        authorization = await credentials.authorization() if own else ""
        upstream = await tunnel.connect(credentials, own=own)
        headers = [pair for pair in exchange.headers if pair[0] not in OWN]
        if exchange.connection.is_closing:
            upstream.close()
            raise ClientGoneError
        head = tunnel.request_head(
            credentials, request.method, request.raw_target, headers, authorization
        )
        client = exchange.connection.take_over()

        def answered(status: int) -> None:
            exchange.status = status

        await race(tunnel.splice(client, upstream, head, answered), None, self._draining)

    async def _pass_through(
        self, request: Request, reason: Reason, exchange: Exchange, read_timeout: float | None
    ) -> None:
        asked = request_headers(exchange.headers)
        if reason in _FRESH:  # for whatever cache there may be further up
            asked = [*asked, (b"cache-control", b"no-cache")]
        within = None if read_timeout is None else BODY_TIMEOUT
        body = exchange.body(within) if _has_body(exchange.headers) else None
        if body is not None and within is None:
            body = _head_first(body)
        if body is None and read_timeout is not None and LiveReads.covers(request):
            opened = self._live.open(request, asked)
        else:
            opened = self._client.open(
                request.method, request.raw_target, asked, body, read_timeout=read_timeout
            )
        async with opened as response:
            self._count_forward(request, reason, exchange, response.status)
            headers = response_headers(response.headers)
            note = _forwarded(reason, collapsed=response.collapsed)
            await exchange.start(response.status, [*headers, note])
            chunks = response.chunks
            if self._shown.concerns(request):
                chunks = self._shown.note(request, response.status, headers, chunks)
            async for chunk in chunks:
                await exchange.write(chunk)
        await exchange.finish()

    async def _write(self, request: Request, reason: Reason, exchange: Exchange) -> None:
        """Have a write sent; its answer is known to the cache before it goes to the client."""
        body = exchange.body() if _has_body(exchange.headers) else None
        async with self._writer.open(request, request_headers(exchange.headers), body) as written:
            if written.is_local:
                exchange.source = "cache"
            else:
                self._count_forward(request, reason, exchange, written.status)
            note = _REFUSED if written.is_local else _forwarded(reason)
            await exchange.start(written.status, [*response_headers(written.headers), note])
            async for chunk in written.chunks:
                await exchange.write(chunk)
        await exchange.finish()


async def _head_first(body: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Have a stream's head sent: aiohttp keeps one back until there is something of the body."""
    yield b""
    async for chunk in body:
        yield chunk


def _forwarded(reason: Reason, *, collapsed: bool = False) -> tuple[bytes, bytes]:
    shared = "; collapsed" if collapsed else ""
    note = f'kubecache; fwd={reason.fwd}{shared}; detail="{reason.detail}"'
    return b"cache-status", note.encode()


def _has_body(headers: Headers) -> bool:
    return any(
        name == b"transfer-encoding" or (name == b"content-length" and value.strip() != b"0")
        for name, value in headers
    )


def _is_watch(request: Request) -> bool:
    """Tell whether the API server will take this for a watch; it knows a prefix for them too."""
    if request.method != "GET":
        return False
    if len(request.query) > MAX_QUERY:  # too long to be read for everybody's sake
        return b"watch=" in request.query
    asked = parse_query(request.query).get("watch", "false").lower() not in ("false", "0")
    named = request.target is not None and request.target.name
    return "/watch/" in request.path or (asked and not named)


def may_upgrade(request: Request) -> bool:
    """Tell whether kube-apiserver may take an upgrade that is offered: for a WebSocket watch, a
    stream, or what isn't understood. On all else it ignores the offer.
    """
    target = request.target
    if target is None or _is_streaming(request) or _is_watch(request):
        return True
    # Those of other APIs may be streams, as virtual machines' consoles are.
    return request.method == "GET" and target.subresource not in PLAIN_SUBRESOURCES


def _is_streaming(request: Request) -> bool:
    """Subresources that may stay silent for as long as they like (``longRunningFunc``)."""
    return (
        request.target is not None
        and request.target.subresource.partition("/")[0] in _STREAMING_SUBRESOURCES
    )
