"""Answers reads from informers, or says why they are forwarded."""

import asyncio
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from itertools import chain
from typing import NamedTuple

from proxy.cache.histogram import Histogram
from proxy.cache.informer import Informer
from proxy.cache.informers import Informers
from proxy.cache.scope import Scope
from proxy.cache.source import Lines
from proxy.cache.view import View
from proxy.forms.form import Rendering
from proxy.kube import gojson
from proxy.kube.envelope import encode_status
from proxy.kube.errors import ApiError, not_found
from proxy.kube.negotiation import JSON, PROTOBUF, FormName
from proxy.kube.requests import Request
from proxy.kube.resources import Resource
from proxy.reads.catchup import CatchUp
from proxy.reads.freshness import AHEAD_WAIT, Freshness, Guarantees, Lack
from proxy.reads.listing import Listing, Tally
from proxy.reads.plan import (
    Plan,
    Read,
    Reason,
    ServeGet,
    ServeList,
    ServeWatch,
    Wait,
    as_read,
    misfit,
    plan,
)
from proxy.reads.watch import TURNS, Watch

MAX_WHOLE = 1024 * 1024
"""Bytes of a body that is joined or indented here, in about a millisecond; a longer one goes out
in its parts, or is forwarded to be indented."""


class Answer(NamedTuple):
    """A cached answer; *length* is that of all *parts* together in bytes, None where that shows
    only at their end. An empty part lets the event loop go on."""

    informer: Informer
    version: int
    status: int
    form: Rendering
    length: int | None
    parts: Iterable[bytes]
    content_type: bytes


class Stream(NamedTuple):
    """A cached watch; *caught_up* by the API server where it begins before the history."""

    informer: Informer
    version: int
    form: Rendering
    watch: Watch
    caught_up: bool

    @property
    def content_type(self) -> bytes:
        """The media type of the stream."""
        return self.form.stream_type


class Pending(NamedTuple):
    """A read that waits, since it *arrived*, for what its informer lacks."""

    informer: Informer
    lack: Lack
    arrived: float


class _Serving(NamedTuple):
    """A read and the view that answers it."""

    request: Request
    read: Read
    informer: Informer
    view: View
    rendering: Rendering

    @property
    def indent(self) -> bool:
        """Tell whether it's written for a person."""
        return self.read.indent and not self.rendering.is_binary


def _plan(read: Read, informer: Informer | None) -> Plan:
    if informer is None or informer.view is None:
        return Reason.SYNCING
    return plan(read, informer.view)


class Reader:
    """Reads from *informers*; *own_authorization* is what the proxy itself shows upstream.

    *lines* opens a watch of a form at the API server. ``waits`` are seconds spent waiting for own
    writes.
    """

    def __init__(
        self,
        informers: Informers,
        own_authorization: Callable[[], str],
        lines: Callable[[FormName, str], Lines],
        *,
        guarantees: Guarantees = Guarantees(),  # noqa: B008 - immutable
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.tallies: dict[Resource, Tally] = {}
        self.waits = Histogram()
        self._freshness = Freshness(informers, guarantees, clock)
        self._informers = informers
        self._own_authorization = own_authorization
        self._lines = lines
        self._clock = clock
        self._turns = asyncio.Semaphore(TURNS)

    def read(self, request: Request) -> Answer | Stream | Pending | Reason:
        """Answer at once, or say what it takes. Plain code: nothing here waits."""
        return self._read(request, self._clock())

    def _read(
        self, request: Request, arrived: float, *, stale: bool = False
    ) -> Answer | Stream | Pending | Reason:
        """Read for a request that *arrived* then; *stale*: however old the state is."""
        read = as_read(request, self._own_authorization())
        if isinstance(read, Reason):
            return read
        read = self._as_shown(read)
        if isinstance(read, Reason):
            return read
        scope = Scope(read.target.resource, read.target.namespace, read.representation.form)
        informer = self._informers.find(scope)
        decided = _plan(read, informer)
        if decided is Reason.SYNCING or decided is Reason.FIELDS:  # which the whole objects know
            whole = self._informers.find_whole(scope)
            informer, decided = (whole, _plan(read, whole)) if whole else (informer, decided)
        if informer is None or informer.view is None:
            self._informers.note(scope, read.verb)
            return Reason.NOT_CACHED if informer is None else Reason.SYNCING
        informer.touch()
        if isinstance(decided, Reason):
            return decided
        lack = None if stale else self._freshness.lack(read, request, informer, arrived)
        if lack is None and isinstance(decided, Wait):
            lack = Lack(Reason.AHEAD, AHEAD_WAIT)
        if lack is not None:
            return Pending(informer, lack, arrived)
        rendering = informer.view.form.rendering(read.representation, read.options.include_object)
        if rendering is None:
            return Reason.REPRESENTATION
        serving = _Serving(request, read, informer, informer.view, rendering)
        return self._serve(serving, decided)

    def _as_shown(self, read: Read) -> Read | Reason:
        """Leave out the first choices of representation that the resource isn't shown in."""
        while self._informers.lacks(read.target.resource, read.representation.form):
            if len(read.representations) == 1:
                return Reason.REPRESENTATION
            read = replace(read, representations=read.representations[1:])
        return misfit(read) or read

    async def wait(self, request: Request, pending: Pending) -> Answer | Stream | Reason:
        """Wait for what the informer lacks; a read that lacks it still is forwarded."""
        # What it lacks may have come before this runs, and would not be told of again.
        outcome = self._read(request, pending.arrived)
        while isinstance(outcome, Pending):
            informer, lack, arrived = outcome
            self._freshness.urge(lack, informer, request)
            patience = self._freshness.patience(lack, informer, arrived)
            left = min(arrived + lack.limit - self._clock(), patience)
            if left <= 0:
                outcome = self._give_up(request, outcome)
                break
            await asyncio.wait({informer.signal.next()}, timeout=left)
            outcome = self._read(request, arrived)
        if pending.lack.reason is Reason.UNSEEN:
            self.waits.observe(self._clock() - pending.arrived)
        return outcome

    def _give_up(self, request: Request, pending: Pending) -> Answer | Stream | Reason:
        informer, lack, arrived = pending
        if self._freshness.allows_stale(lack, informer, request):
            answer = self._read(request, arrived, stale=True)
            return lack.reason if isinstance(answer, Pending) else answer
        informer.prover.refresh()  # so that the next one needs to wait no more
        return lack.reason

    def _serve(self, serving: _Serving, decided: Plan) -> Answer | Stream | Reason:
        match decided:
            case ServeGet():
                return self._get(serving, decided.key)
            case ServeList():
                return self._list(serving, decided)
            case ServeWatch():
                return self._watch(serving, decided)
            case Wait():  # for a version that a stale answer needn't have
                return Reason.AHEAD
            case Reason():
                return decided

    def _get(self, serving: _Serving, key: str) -> Answer | Reason:
        read, view, rendering = serving.read, serving.view, serving.rendering
        found = view.store.get(key)
        if found is not None:
            return self._answer(serving, view.store.version, (rendering.encode_object(found),))
        if self._freshness.guarantees.confirm_misses:
            return Reason.UNCONFIRMED
        missing = not_found(read.target.resource, key.rpartition("/")[2])
        return self._failure(serving, missing)

    def _failure(self, serving: _Serving, error: ApiError) -> Answer | Reason:
        """Answer with a Status."""
        read = serving.read
        if read.status is None:
            return Reason.REPRESENTATION
        media = PROTOBUF if read.status is FormName.PROTOBUF else JSON
        body = encode_status(error, media)
        if read.indent and media == JSON:
            body = gojson.indent(body)
        return Answer(
            serving.informer,
            serving.view.store.version,
            error.code,
            serving.rendering,
            len(body),
            (body,),
            media.encode(),
        )

    def _watch(self, serving: _Serving, decided: ServeWatch) -> Stream | Reason:
        request, _, informer, view, rendering = serving
        catch_up = None
        if decided.cursor is None and request.only_if_cached:
            return Reason.EXACT
        if decided.cursor is None:
            catch_up = CatchUp(
                self._lines,
                request,
                view,
                decided.after,
                signal=informer.signal,
                clock=self._clock,
            )
        watch = Watch(
            informer,
            view,
            decided,
            catch_up=catch_up,
            turns=self._turns,
            clock=self._clock,
        )
        return Stream(informer, view.store.version, rendering, watch, catch_up is not None)

    def _list(self, serving: _Serving, decided: ServeList) -> Answer | Reason:
        view = serving.view
        listing = Listing(
            decided,
            serving.rendering,
            decided.selection.candidates(view.store, decided.snapshot, decided.keys),
            view.store.raw_bytes // max(len(view.store), 1),
            view.snapshots,
            self.tallies.setdefault(serving.read.target.resource, Tally()),
        )
        parts = listing.parts()
        begun: list[bytes] = []
        # What is to be indented is needed whole; whether it's too long shows then.
        if listing.is_small or (serving.indent and listing.is_short):
            for part in parts:
                begun.append(part)
                if sum(map(len, begun)) > MAX_WHOLE:  # heavier than the average
                    break
            else:
                return self._answer(serving, decided.snapshot.version, begun)
        if serving.indent:
            return Reason.LARGE_INDENT
        return Answer(
            serving.informer,
            decided.snapshot.version,
            200,
            serving.rendering,
            None,
            chain(begun, parts),
            serving.rendering.content_type,
        )

    def _answer(self, serving: _Serving, version: int, parts: Sequence[bytes]) -> Answer | Reason:
        length = sum(map(len, parts))
        if serving.indent:
            if length > MAX_WHOLE:
                return Reason.LARGE_INDENT
            parts = (gojson.indent(b"".join(parts)),)
            length = len(parts[0])
        rendering = serving.rendering
        return Answer(
            serving.informer, version, 200, rendering, length, parts, rendering.content_type
        )
