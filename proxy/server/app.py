"""The read listener's app: parse, decide, answer or have it forwarded; with and without ASGI."""

import asyncio
import logging
import time
from typing import NamedTuple

from proxy.access.hosts import HostCheck
from proxy.kube.errors import ApiError, BadRequest, Forbidden, InternalError, Timeout
from proxy.kube.requests import WRITES, Headers, Request, parse_request, verb_of
from proxy.reads.plan import Reason
from proxy.reads.reader import Answer, Pending, Reader, Stream
from proxy.server.door import Whole
from proxy.server.exchange import (
    ClientGoneError,
    Exchange,
    Receive,
    Scope,
    Send,
    SlowClientError,
)
from proxy.server.forward import Forwarder, may_upgrade
from proxy.server.stats import Stats
from proxy.upstream.tunnel import shows_token

log = logging.getLogger(__name__)

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

    def __init__(
        self, reader: Reader, forwarder: Forwarder, hosts: HostCheck, stats: Stats
    ) -> None:
        self._reader = reader
        self._forwarder = forwarder
        self._hosts = hosts
        self._stats = stats

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
        if self._refusal(request, headers):
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

    def may_upgrade(self, method: str, path: bytes, query: bytes, headers: Headers) -> bool:
        """Tell whether an upgrade may be meant (``protocol.Door``), or says who asks."""
        request = parse_request(method, path, query, headers)
        return may_upgrade(request) or (method not in WRITES and shows_token(headers))

    def _count(self, begun: _Begun, source: str, status: int, *, is_watch: bool) -> None:
        request = begun.request
        verb = verb_of(request.method, request.target, watch=is_watch)
        labels = self._stats.labels(request, verb, source, status)
        self._stats.count(labels, status, time.perf_counter() - begun.started)

    async def _serve_or_fail(self, begun: _Begun, exchange: Exchange) -> None:
        request = begun.request
        try:
            await self._serve(request, begun.outcome, exchange)
        except ClientGoneError:
            raise
        except ApiError as error:
            exchange.source = "error"
            await exchange.fail(error, [_ERROR])
        except Exception:
            log.exception("%s %s failed", request.method, request.path)
            exchange.source = "error"
            await exchange.fail(InternalError("the proxy failed; its log says why"), [_ERROR])

    async def _serve(self, request: Request, outcome: _Outcome | None, exchange: Exchange) -> None:
        """Decide and answer."""
        if refusal := self._refusal(request, exchange.headers):
            raise refusal
        if exchange.wants_upgrade:
            await self._forwarder.tunnel(request, exchange)
            return
        if request.method in WRITES and shows_token(exchange.headers):
            raise BadRequest("a write can't show a token in Sec-WebSocket-Protocol")
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
                if request.only_if_cached and request.method not in WRITES:
                    raise Timeout(f"no cached answer: {outcome.detail}")
                exchange.source = "write" if request.method in WRITES else "live"
                await self._forwarder.forward(request, outcome, exchange)

    def _refusal(self, request: Request, headers: Headers) -> ApiError | None:
        if not request.path.startswith("/"):
            return BadRequest("the request names no path")
        if request.mistake:
            return BadRequest(request.mistake)
        refused = self._hosts.refuses(headers)
        return Forbidden(refused) if refused else None

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
                await exchange.start(200, _hit(stream))
            if frames:
                await exchange.write(frames)
        await exchange.finish()


def _headers(answer: Answer) -> Headers:
    if answer.length is None:
        return _hit(answer)
    return [*_hit(answer), (b"content-length", b"%d" % answer.length)]


def _hit(answer: Answer | Stream) -> Headers:
    """Headers of a cached answer: its age in whole seconds, and what it reflects."""
    partial = isinstance(answer, Stream) and answer.caught_up
    how = b"fwd=partial" if partial else b"hit"
    return [
        (b"content-type", answer.content_type),
        *((b"warning", warning) for warning in answer.form.warnings),
        _NO_CACHE,
        (b"age", b"%d" % answer.informer.staleness),
        (b"cache-status", b'kubecache; %s; detail="rv=%d"' % (how, answer.version)),
    ]
