"""The states that a conflict is between: what the client read, and what is there now."""

import asyncio
from typing import NamedTuple
from urllib.parse import quote

import msgspec

from proxy.cache.informer import Informer
from proxy.cache.prover import EVENT_WAIT
from proxy.cache.view import View
from proxy.forms.form import plainly
from proxy.kube.envelope import NOT_UNDERSTOOD
from proxy.kube.errors import ApiError
from proxy.kube.requests import Headers
from proxy.upstream.client import Client
from proxy.writes.attempt import Attempt

TIMEOUT = 5.0
"""Seconds that reading the object for a merge may take."""

PATIENCE = 1.0
"""Seconds that a conflict may be held up for its explanation."""

_WHO = frozenset({b"authorization", b"user-agent"})


class States(NamedTuple):
    """An object as it is (*theirs*), and as the client read it (*base*, None if that's gone)."""

    base: bytes | None
    theirs: bytes

    @property
    def size(self) -> int:
        """Bytes of both."""
        return len(self.base or b"") + len(self.theirs)


class _List(msgspec.Struct):
    items: list[msgspec.Raw] = []


def held_states(attempt: Attempt, informer: Informer) -> States | None:
    """Take the states from an informer, if it has a newer object than the client read."""
    view = informer.view
    found = view.store.get(attempt.key) if view else None
    if view is None or found is None or found.version <= attempt.version:
        return None
    return States(_held_base(attempt, view), plainly(view.form).encode_object(found))


async def awaited_states(
    client: Client, attempt: Attempt, informer: Informer | None
) -> States | None:
    """Take the states from an informer that may need a moment, else from the API server.

    What can't be had soon is left out: a conflict isn't held up for long.
    """
    states = None
    try:
        async with asyncio.timeout(PATIENCE):
            if informer is None or (states := await _arriving(attempt, informer)) is None:
                return await live_states(client, attempt, informer)
            if states.base is None:
                return States(await _listed(client, attempt), states.theirs)
    except TimeoutError:
        pass
    return states


async def _arriving(attempt: Attempt, informer: Informer) -> States | None:
    loop = asyncio.get_running_loop()
    until = loop.time() + EVENT_WAIT
    while (states := held_states(attempt, informer)) is None and until > loop.time():
        await asyncio.wait({informer.signal.next()}, timeout=until - loop.time())
    return states


async def live_states(client: Client, attempt: Attempt, informer: Informer | None) -> States | None:
    """Read the object as it is now, as the client who writes; None if it can't be had."""
    collection = attempt.target.resource.path(attempt.target.namespace)
    theirs = await _read(client, attempt, f"{collection}/{quote(attempt.target.name)}")
    if theirs is None:
        return None
    view = informer.view if informer else None
    base = _held_base(attempt, view) if view else None
    return States(base or await _listed(client, attempt), theirs)


def _held_base(attempt: Attempt, view: View) -> bytes | None:
    """Find the object as the client read it, in the history or unchanged."""
    held = view.store.get(attempt.key)
    if held is None or held.version != attempt.version:
        held = view.history.version_of(attempt.key, attempt.version)
    return plainly(view.form).encode_object(held) if held is not None else None


async def _listed(client: Client, attempt: Attempt) -> bytes | None:
    """Read the object as it was: etcd keeps versions for some five minutes."""
    collection = attempt.target.resource.path(attempt.target.namespace)
    listed = await _read(
        client,
        attempt,
        f"{collection}?fieldSelector=metadata.name%3D{quote(attempt.target.name)}"
        f"&resourceVersion={attempt.version}&resourceVersionMatch=Exact",
    )
    try:
        items = msgspec.json.decode(listed, type=_List).items if listed else []
    except NOT_UNDERSTOOD:
        return None
    return bytes(items[0]) if items else None


async def _read(client: Client, attempt: Attempt, target: str) -> bytes | None:
    try:
        async with (
            asyncio.timeout(TIMEOUT),
            client.open("GET", target, _headers(attempt.headers)) as response,
        ):
            body = await response.body()
        return body if response.status == 200 else None
    except (ApiError, TimeoutError):
        return None


def _headers(headers: Headers) -> Headers:
    """Ask as the client who writes, but for JSON that nobody has cached."""
    who = [pair for pair in headers if pair[0] in _WHO or pair[0].startswith(b"impersonate-")]
    own = [(b"accept", b"application/json"), (b"accept-encoding", b"identity")]
    return [*who, *own, (b"cache-control", b"no-cache")]
