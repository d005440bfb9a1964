"""Answers reads from informers, or says why they are forwarded."""

import asyncio
import time
from collections.abc import Callable, Iterable, Sequence
from itertools import chain
from typing import NamedTuple

from proxy.cache.informer import Informer
from proxy.cache.informers import Informers
from proxy.cache.reflector import Lines
from proxy.cache.view import View
from proxy.forms.form import Form
from proxy.kube import gojson
from proxy.kube.errors import not_found
from proxy.kube.requests import Request
from proxy.kube.resources import Resource
from proxy.reads.catchup import CatchUp
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
    plan,
)
from proxy.reads.watch import TURNS, Watch

AHEAD_WAIT = 0.15
"""Seconds a read waits for a version that its informer has not seen. A write to the resource
arrives within milliseconds; a version from elsewhere may not arrive for a minute."""

MAX_WHOLE = 1024 * 1024
"""Bytes of a body that is joined or indented here, in about a millisecond; a longer one goes out
in its parts, or is forwarded to be indented."""


class Answer(NamedTuple):
    """A cached answer; *length* is that of all *parts* together in bytes, None where that shows
    only at their end. An empty part lets the event loop go on."""

    informer: Informer
    version: int
    status: int
    form: Form
    length: int | None
    parts: Iterable[bytes]


class Stream(NamedTuple):
    """A cached watch; *caught_up* by the API server where it begins before the history."""

    informer: Informer
    version: int
    form: Form
    watch: Watch
    caught_up: bool


class Pending(NamedTuple):
    """A read that waits for its informer to reach a version."""

    informer: Informer
    version: int


class _Serving(NamedTuple):
    """A read and the view that answers it."""

    request: Request
    read: Read
    informer: Informer
    view: View


class Reader:
    """Reads from *informers*; *own_authorization* is what the proxy itself shows upstream.

    *lines* opens a watch at the API server.
    """

    def __init__(
        self,
        informers: Informers,
        own_authorization: Callable[[], str],
        lines: Callable[[str], Lines],
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.tallies: dict[Resource, Tally] = {}
        self._informers = informers
        self._own_authorization = own_authorization
        self._lines = lines
        self._clock = clock
        self._turns = asyncio.Semaphore(TURNS)

    def read(self, request: Request) -> Answer | Stream | Pending | Reason:
        """Answer at once, or say what it takes. Plain code: nothing here waits."""
        read = as_read(request, self._own_authorization())
        if isinstance(read, Reason):
            return read
        resource, namespace = read.target.resource, read.target.namespace
        informer = self._informers.find(resource, namespace)
        if informer is None or informer.view is None:
            self._informers.note(resource, namespace, read.verb)
            return Reason.NOT_CACHED if informer is None else Reason.SYNCING
        informer.touch()
        return self._serve(_Serving(request, read, informer, informer.view))

    async def wait(self, request: Request, pending: Pending) -> Answer | Stream | Reason:
        """Wait a little for the version; a read that is still ahead then is forwarded."""
        until = self._clock() + AHEAD_WAIT
        while pending.informer.version < pending.version:
            left = until - self._clock()
            if left <= 0 or pending.informer.view is None:
                return Reason.AHEAD
            await asyncio.wait({pending.informer.signal.next()}, timeout=left)
        answer = self.read(request)
        return Reason.AHEAD if isinstance(answer, Pending) else answer

    def _serve(self, serving: _Serving) -> Answer | Stream | Pending | Reason:
        _, read, informer, view = serving
        decided: Plan = plan(read, view)
        match decided:
            case ServeGet():
                return self._get(serving, decided.key)
            case ServeList():
                return self._list(serving, decided)
            case ServeWatch():
                return self._watch(serving, decided)
            case Wait():
                return Pending(informer, decided.version)
            case Reason():
                return decided

    def _get(self, serving: _Serving, key: str) -> Answer | Reason:
        _, read, _, view = serving
        found = view.store.get(key)
        if found is not None:
            status, body = 200, view.form.encode_object(found)
        else:
            missing = not_found(read.target.resource, key.rpartition("/")[2])
            status, body = missing.code, missing.status_body()
        return self._answer(serving, view.store.version, status, (body,))

    def _watch(self, serving: _Serving, decided: ServeWatch) -> Stream | Reason:
        request, _, informer, view = serving
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
        return Stream(informer, view.store.version, view.form, watch, catch_up is not None)

    def _list(self, serving: _Serving, decided: ServeList) -> Answer | Reason:
        view = serving.view
        listing = Listing(
            decided,
            view.form,
            decided.selection.candidates(view.store, decided.snapshot, decided.keys),
            view.store.raw_bytes // max(len(view.store), 1),
            view.snapshots,
            self.tallies.setdefault(serving.read.target.resource, Tally()),
        )
        parts = listing.parts()
        begun: list[bytes] = []
        # What is to be indented is needed whole; whether it's too long shows then.
        if listing.is_small or (serving.read.indent and listing.is_short):
            for part in parts:
                begun.append(part)
                if sum(map(len, begun)) > MAX_WHOLE:  # heavier than the average
                    break
            else:
                return self._answer(serving, decided.snapshot.version, 200, begun)
        if serving.read.indent:
            return Reason.LARGE_INDENT
        return Answer(
            serving.informer,
            decided.snapshot.version,
            200,
            view.form,
            None,
            chain(begun, parts),
        )

    def _answer(
        self, serving: _Serving, version: int, status: int, parts: Sequence[bytes]
    ) -> Answer | Reason:
        _, read, informer, view = serving
        length = sum(map(len, parts))
        if read.indent:
            if length > MAX_WHOLE:
                return Reason.LARGE_INDENT
            parts = (gojson.indent(b"".join(parts)),)
            length = len(parts[0])
        return Answer(informer, version, status, view.form, length, parts)
