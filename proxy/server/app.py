"""The read listener's ASGI app: parse, decide, answer or forward."""

import asyncio
import logging
import time
from typing import NamedTuple

from proxy.access.hosts import HostCheck
from proxy.kube.errors import ApiError, BadRequest, Forbidden, InternalError, Timeout
from proxy.kube.options import parse_query
from proxy.kube.requests import Headers, Request, parse_request, verb_of
from proxy.reads.plan import Reason
from proxy.reads.reader import Answer, Pending, Reader, Stream
from proxy.server.exchange import (
    ClientGoneError,
    Exchange,
    Receive,
    Scope,
    Send,
    SlowClientError,
    race,
)
from proxy.server.protocol import Whole
from proxy.server.stats import Stats
from proxy.upstream import tunnel
from proxy.upstream.client import READ_TIMEOUT, Client
from proxy.upstream.documents import Documents
from proxy.upstream.headers import request_headers, response_headers

log = logging.getLogger(__name__)

_WRITES = frozenset({"POST", "PUT", "PATCH", "DELETE"})
_STREAMING_SUBRESOURCES = frozenset({"attach", "exec", "log", "portforward", "proxy"})
_REVALIDATED = (b"cache-status", b'kubecache; fwd=stale; fwd-status=304; detail="revalidated"')
_ERROR = (b"cache-status", b'kubecache; detail="error"')
_NO_CACHE = (b"cache-control", b"no-cache, private")


_Outcome = Answer | Stream | Pending | Reason


class _Begun(NamedTuple):
    """A request, since when it's served, and what the reader said of it (None: not asked yet)."""

    started: float
    request: Request
    outcome: _Outcome | None


class ReadApp:
    """Answers the Kubernetes API from informers, and forwards what they can't answer."""

    def __init__(self, reader: Reader, client: Client, hosts: HostCheck, stats: Stats) -> None:
        self._reader = reader
        self._client = client
        self._documents = Documents(client)
        self._hosts = hosts
        self._stats = stats
        self._draining = asyncio.Event()

    def drain(self) -> None:
        """End the forwarded streams; watches end cleanly, so that clients watch again elsewhere."""
        self._draining.set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request and count it."""
        exchange = Exchange(scope, receive, send)
        begun = exchange.begun
        if not isinstance(begun, _Begun):
            started = time.perf_counter()
            path, query = scope["raw_path"], scope["query_string"]
            request = parse_request(scope["method"], path, query, exchange.headers)
            begun = _Begun(started, request, None)
        try:
            await self._serve_or_fail(begun, exchange)
        except (ClientGoneError, asyncio.CancelledError):  # cancelled: it took too long to drain
            exchange.abort()
        self._count(begun, exchange.source, exchange.status, is_watch=exchange.is_watch)

    def begin(self, path: bytes, query: bytes, headers: Headers) -> Whole | _Begun | None:
        """Answer a GET where that waits for nothing, or begin it (``protocol.Door``)."""
        started = time.perf_counter()
        request = parse_request("GET", path, query, headers)
        if self._hosts.refuses(headers):
            return None
        try:
            outcome = self._reader.read(request)
        except Exception:  # comes again where it's answered
            return None
        begun = _Begun(started, request, outcome)
        if not isinstance(outcome, Answer) or outcome.length is None:
            return begun
        self._count(begun, "cache", outcome.status, is_watch=False)
        return Whole(outcome.status, _headers(outcome), b"".join(outcome.parts))

    def _count(self, begun: _Begun, source: str, status: int, *, is_watch: bool) -> None:
        request = begun.request
        verb = verb_of(request.method, request.target, watch=is_watch)
        labels = self._stats.labels(request, verb, source, status)
        self._stats.count(labels, status, time.perf_counter() - begun.started)

    async def _serve_or_fail(self, begun: _Begun, exchange: Exchange) -> None:
        request = begun.request
        try:
            await self._serve(request, begun.outcome, exchange)
            return
        except ApiError as error:
            failure = error
        except ClientGoneError:
            raise
        except Exception:
            log.exception("%s %s failed", request.method, request.path)
            failure = InternalError("the proxy failed; its log says why")
        exchange.source = "error"
        await exchange.fail(failure, [_ERROR])

    async def _serve(self, request: Request, outcome: _Outcome | None, exchange: Exchange) -> None:
        """Decide and answer."""
        if refusal := self._hosts.refuses(exchange.headers):
            raise Forbidden(refusal)
        if not request.path.startswith("/"):
            raise BadRequest("the request names no path")
        if exchange.wants_upgrade:
            await self._tunnel(request, exchange)
            return
        if outcome is None:
            outcome = self._reader.read(request)
        if isinstance(outcome, Pending):
            outcome = await self._reader.wait(request, outcome)
        match outcome:
            case Answer():
                await self._answer(outcome, exchange)
            case Stream():
                await self._stream(outcome, exchange)
            case Reason():
                if request.only_if_cached and outcome is not Reason.METHOD:
                    raise Timeout(f"no cached answer: {outcome.detail}")
                exchange.source = "write" if request.method in _WRITES else "live"
                await self._forward(request, outcome, exchange)

    async def _answer(self, answer: Answer, exchange: Exchange) -> None:
        await exchange.start(answer.status, _headers(answer))
        if answer.length is not None:
            await exchange.finish(b"".join(answer.parts))
            return
        for part in answer.parts:
            if part:
                await exchange.write(part)
            await asyncio.sleep(0)
        await exchange.finish()

    async def _stream(self, stream: Stream, exchange: Exchange) -> None:
        """Send a cached watch; headers go out before the first event."""
        exchange.skip_body()
        exchange.is_watch = True
        stream.informer.watchers += 1
        how = "client"
        try:
            await exchange.unless_gone(self._send_frames(stream, exchange))
            how = stream.watch.ending
        except SlowClientError:
            how = "slow"
            raise
        except ApiError:
            how = "upstream"
            raise
        finally:
            stream.informer.watchers -= 1
            stream.informer.terminated[how] += 1
            stream.informer.touch()

    async def _send_frames(self, stream: Stream, exchange: Exchange) -> None:
        async for frames in stream.watch.frames():
            if not exchange.status:
                headers = [(b"content-type", stream.content_type), *_hit(stream)]
                await exchange.start(200, headers)
            if frames:
                await exchange.write(frames)
        await exchange.finish()

    async def _forward(self, request: Request, reason: Reason, exchange: Exchange) -> None:
        """Pass a request and its answer through, unbuffered."""
        if reason is Reason.PATH and Documents.covers(
            request.method, request.path, exchange.headers
        ):
            await self._document(request, reason, exchange)
            return
        if not _has_body(exchange.headers):
            exchange.skip_body()
        exchange.is_watch = _is_watch(request)
        streams = exchange.is_watch or _is_streaming(request)
        passing = self._pass_through(request, reason, exchange, None if streams else READ_TIMEOUT)
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

    async def _tunnel(self, request: Request, exchange: Exchange) -> None:
        """Connect the client with the API server byte by byte."""
        exchange.source = "tunnel"
        own = request.authorization is None and not tunnel.shows_token(exchange.headers)
        credentials = self._client.credentials
        authorization = await credentials.authorization() if own else ""
        upstream = await tunnel.connect(credentials, own=own)
        headers = [pair for pair in exchange.headers if pair[0] != b"x-kubecache-read"]
        upstream[1].write(
            tunnel.request_head(
                credentials, request.method, request.raw_target, headers, authorization
            )
        )
        client = exchange.connection.take_over()

        def answered(status: int) -> None:
            exchange.status = status

        await race(tunnel.splice(client, upstream, answered), None, self._draining)

    async def _pass_through(
        self, request: Request, reason: Reason, exchange: Exchange, read_timeout: float | None
    ) -> None:
        asked = request_headers(exchange.headers)
        if reason is Reason.LIVE:  # for whatever cache there may be further up
            asked = [*asked, (b"cache-control", b"no-cache")]
        async with self._client.open(
            request.method,
            request.raw_target,
            asked,
            exchange.body() if _has_body(exchange.headers) else None,
            read_timeout=read_timeout,
        ) as response:
            self._count_forward(request, reason, exchange, response.status)
            headers = response_headers(response.headers)
            await exchange.start(response.status, [*headers, _forwarded(reason)])
            async for chunk in response.chunks:
                await exchange.write(chunk)
        await exchange.finish()


def _headers(answer: Answer) -> Headers:
    headers = [(b"content-type", answer.content_type), *_hit(answer)]
    if answer.length is not None:
        headers.append((b"content-length", b"%d" % answer.length))
    return headers


def _hit(answer: Answer | Stream) -> Headers:
    """Headers of a cached answer: its age in whole seconds, and what it reflects."""
    partial = isinstance(answer, Stream) and answer.caught_up
    how = b"fwd=partial" if partial else b"hit"
    return [
        _NO_CACHE,
        (b"age", b"%d" % answer.informer.staleness),
        (b"cache-status", b'kubecache; %s; detail="rv=%d"' % (how, answer.version)),
    ]


def _forwarded(reason: Reason) -> tuple[bytes, bytes]:
    return b"cache-status", f'kubecache; fwd={reason.fwd}; detail="{reason.detail}"'.encode()


def _has_body(headers: Headers) -> bool:
    return any(
        name == b"transfer-encoding" or (name == b"content-length" and value.strip() != b"0")
        for name, value in headers
    )


def _is_watch(request: Request) -> bool:
    """Tell whether the API server will take this for a watch; it knows a prefix for them too."""
    if request.method != "GET":
        return False
    asked = parse_query(request.query).get("watch", "false").lower() not in ("false", "0")
    named = request.target is not None and request.target.name
    return "/watch/" in request.path or (asked and not named)


def _is_streaming(request: Request) -> bool:
    """Subresources that may stay silent for as long as they like (``longRunningFunc``)."""
    return (
        request.target is not None
        and request.target.subresource.partition("/")[0] in _STREAMING_SUBRESOURCES
    )
