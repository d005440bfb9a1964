"""Conflicts: refused here where they're certain, explained, and merged where the client asks."""

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import TypeVar

from proxy.cache.expectations import Expectation
from proxy.cache.informer import Informer
from proxy.cache.informers import Informers
from proxy.cache.scope import Scope
from proxy.kube import gojson
from proxy.kube.envelope import (
    NOT_UNDERSTOOD,
    decode_status,
    encode_status,
    read_envelope,
)
from proxy.kube.errors import ApiError, conflict
from proxy.kube.negotiation import JSON, PROTOBUF, prefers_json, wants_indent
from proxy.kube.options import asked_indent
from proxy.kube.protobuf import MAGIC
from proxy.kube.requests import Headers, Request, content_type_of
from proxy.upstream.client import Client
from proxy.upstream.discovery import describe
from proxy.writes.attempt import Attempt, certain_conflict
from proxy.writes.causes import REASON, Cause, change_causes, conflict_causes
from proxy.writes.changes import Json, OverlapError
from proxy.writes.comparer import Comparer
from proxy.writes.merging import RESULTS, NotMergedError, decoded, merged_body
from proxy.writes.states import TIMEOUT, States, awaited_states, held_states, live_states
from proxy.writes.written import MAX_ANSWER, Written, chained, framed, read_whole, whole

MAX_STATUS = 256 * 1024
"""Bytes of a 409 that is explained; kube-apiserver's own have some hundred."""

_ABOUT_VERSION = ("the object has been modified", "the ResourceVersion in the precondition")
"""How registry/generic/registry/store.go and storage/interfaces.go word them."""

_MERGED_INVALID = frozenset({413, 422})
"""Answers to what is too large, or breaks a rule, as merged."""

DETECTED = ("local", "upstream")
"""Who may see a conflict."""

T = TypeVar("T")

Send = Callable[
    [Request, Headers, AsyncIterator[bytes] | None], AbstractAsyncContextManager[Written]
]


class Conflicts:
    """Knows what a write conflicts with, from *informers* or through *client*.

    *own_authorization* is what the proxy itself shows upstream; *is_local*: conflicts that are
    certain are answered here. ``counts`` has them by who saw them, ``merges`` by result,
    each from 0.
    """

    def __init__(
        self,
        client: Client,
        informers: Informers,
        own_authorization: Callable[[], str],
        *,
        is_local: bool = True,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.counts = Counter(dict.fromkeys(DETECTED, 0))
        self.merges = Counter(dict.fromkeys(RESULTS, 0))
        self._client = client
        self._informers = informers
        self._own_authorization = own_authorization
        self._is_local = is_local
        self._clock = clock
        self._comparer = Comparer()

    def _informer(self, attempt: Attempt) -> Informer | None:
        """Find the informer whose objects the client may be shown."""
        if not attempt.request.is_own(self._own_authorization()):
            return None
        return self._informers.find(Scope(attempt.target.resource, attempt.target.namespace))

    def refuse(self, attempt: Attempt) -> Written | None:
        """Answer as the API server is sure to, before anything else that it may say."""
        informer = self._informer(attempt) if self._is_local else None
        if informer is None or informer.view is None:
            return None
        content_type = _status_type(attempt.request, is_custom=informer.view.form.is_custom)
        if not content_type or certain_conflict(attempt, informer) is None:
            return None
        error = conflict(attempt.target.resource, attempt.target.name)
        body = encode_status(error, content_type)
        headers = [
            (b"content-type", content_type.encode()),
            (b"cache-control", b"no-cache, private"),
        ]
        return Written(409, headers, whole(body), is_local=True)

    async def resolve(self, attempt: Attempt, refusal: Written, send: Send) -> Written:
        """Merge what was refused, where that's wanted and works; else tell what has changed.

        A 409 that isn't about the object's version is left as it is.
        """
        body, ended = await read_whole(refusal.chunks, MAX_STATUS)
        content_type = content_type_of(refusal.headers)
        status = decode_status(content_type, body) if ended else None
        if status is None or not _is_about_version(status):
            return refusal._replace(chunks=chained(body, refusal.chunks))
        self.counts["local" if refusal.is_local else "upstream"] += 1
        causes = await self._merge_or_explain(attempt, send, is_local=refusal.is_local)
        if isinstance(causes, Written):
            return causes
        return _with_causes(attempt, refusal, status, causes)

    async def _merge_or_explain(
        self, attempt: Attempt, send: Send, *, is_local: bool
    ) -> Written | list[Cause]:
        informer = self._informer(attempt)
        held = held_states(attempt, informer) if is_local and informer is not None else None
        if not (attempt.request.merges and attempt.is_mergeable):
            states = held  # no request for one that saves one
            if states is None:
                states = await awaited_states(self._client, attempt, informer)
                self._show(attempt, states, is_local=is_local)
            return await self._compare(attempt, states, _explain, None)
        states = await live_states(self._client, attempt, informer)
        self._show(attempt, states, is_local=is_local)
        try:
            return await self._merge(attempt, states, send)
        except OverlapError as overlap:
            self.merges["overlap"] += 1
            return await self._compare(attempt, states, _explain, overlap)
        except NotMergedError as error:
            self.merges[error.result] += 1
            return await self._compare(attempt, states or held, _explain, None)

    async def _has_status(self, attempt: Attempt, base: bytes) -> bool:
        """Tell whether an update leaves the status alone. Raises NotMergedError if that's unknown.

        Only of an update of an object with a status it matters.
        """
        target = attempt.target
        if attempt.request.method != "PUT" or target.subresource or b'"status":' not in base:
            return False
        informer = self._informers.find(Scope(target.resource, target.namespace))
        if informer is not None and informer.view is not None:
            return informer.view.form.has_status
        try:
            async with asyncio.timeout(TIMEOUT):
                return (await describe(self._client, target.resource)).has_status
        except (ApiError, TimeoutError) as error:
            raise NotMergedError("unknown") from error

    async def _compare(
        self, attempt: Attempt, states: States | None, compare: Callable[..., T], *more: object
    ) -> T:
        size = states.size + len(attempt.body) if states else 0
        return await self._comparer.run(size, compare, attempt, states, *more)

    def _show(self, attempt: Attempt, states: States | None, *, is_local: bool) -> None:
        """Let the client's next read not go back behind what the conflict has told it.

        A conflict that was seen here, of what is held, has told it nothing that reads don't show.
        """
        if states is None and is_local:
            return
        envelope = read_envelope(JSON, states.theirs) if states else None
        version = (envelope and envelope.version) or 0
        shown = Expectation(attempt.key, self._clock(), attempt.request.client, version)
        self._informers.acknowledge(attempt.target.resource, shown)

    async def _merge(self, attempt: Attempt, states: States | None, send: Send) -> Written:
        """Write once more, on top of what is there now. Raises OverlapError, NotMergedError.

        What breaks a rule as merged was written by nobody, so it stays the conflict that it was,
        also because clients don't repeat what is invalid. Other refusals the client gets: they are
        about the object (deleted), about himself (forbidden), or about what he has written (not
        decodable); and after one of 500 and more it may have happened.
        """
        if states is None or states.base is None:
            raise NotMergedError("unknown")
        has_status = await self._has_status(attempt, states.base)
        body = await self._compare(attempt, states, merged_body, has_status)
        headers = framed(attempt.headers, body)
        async with self._counting_failure(), send(attempt.request, headers, whole(body)) as written:
            answer, _ = await read_whole(written.chunks, MAX_ANSWER)
            if written.status == 409:
                raise NotMergedError("lost")
            if written.status in _MERGED_INVALID:
                raise NotMergedError("failed")
            self.merges["merged" if written.status < 300 else "failed"] += 1
            return written._replace(chunks=whole(answer))

    @asynccontextmanager
    async def _counting_failure(self) -> AsyncIterator[None]:
        """Count a merge that gets no answer, as one that may have happened."""
        try:
            yield
        except ApiError:
            self.merges["failed"] += 1
            raise


def _explain(attempt: Attempt, states: States | None, overlap: OverlapError | None) -> list[Cause]:
    if states is None:
        return []
    resource = attempt.target.resource
    try:
        theirs = decoded(states.theirs)
        base = decoded(states.base) if states.base is not None else None
        if overlap is not None and base is not None and overlap.changes:
            return change_causes(resource, overlap.changes, base, theirs)
        return conflict_causes(resource, base, theirs, attempt.version)
    except NOT_UNDERSTOOD:  # what is nested deeply may be decoded, and too deep to be compared
        return []


def _is_about_version(status: Json) -> bool:
    """Tell a conflict of versions from others: names that are taken, managers that differ.

    It may be explained already, by another proxy behind this one.
    """
    details = status.get("details")
    causes = details.get("causes", ()) if isinstance(details, dict) else ()
    is_ours = all(isinstance(each, dict) and each.get("reason") == REASON for each in causes)
    message = str(status.get("message"))
    return (
        status.get("reason") == "Conflict"
        and is_ours
        and any(text in message for text in _ABOUT_VERSION)
    )


def _with_causes(attempt: Attempt, refusal: Written, status: Json, causes: list[Cause]) -> Written:
    """Write a 409 anew, its causes where Go would write them."""
    if causes:
        details: Json = dict(status.get("details") or {})
        last = {key: details.pop(key) for key in ("retryAfterSeconds",) if key in details}
        status = {**status, "details": {**details, "causes": causes, **last}}
    content_type = content_type_of(refusal.headers)
    body = encode_status(status, content_type)
    request = attempt.request
    indented = wants_indent(asked_indent(request.query), request.user_agent)
    if indented and not body.startswith(MAGIC):
        body = gojson.indent(body)
    return refusal._replace(headers=framed(refusal.headers, body), chunks=whole(body))


def _status_type(request: Request, *, is_custom: bool) -> str:
    """Name the media type in which the API server would write a Status; "" where that's unsure."""
    if prefers_json(request.accept):
        return JSON
    first = request.accept.partition(",")[0].strip()
    return PROTOBUF if first == PROTOBUF and not is_custom else ""
