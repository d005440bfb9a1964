"""The states that a conflict is between: what the client read, and what is there now."""

import asyncio
from typing import Any, NamedTuple
from urllib.parse import quote

import msgspec

from proxy.cache.informer import Informer
from proxy.cache.prover import EVENT_WAIT
from proxy.cache.view import View
from proxy.kube.errors import ApiError
from proxy.kube.requests import Headers
from proxy.upstream.client import Client
from proxy.writes.attempt import Attempt

TIMEOUT = 5.0
"""Seconds that reading the states may take; without them a conflict stays unexplained."""

_WHO = frozenset({b"authorization", b"user-agent"})


Object = dict[str, Any]


class States(NamedTuple):
    """An object as it is (*theirs*), and as the client read it (*base*, None if that's gone)."""

    base: Object | None
    theirs: Object


def decoded(body: bytes) -> Object:
    """Decode an object. Raises msgspec.MsgspecError for anything else."""
    return msgspec.json.decode(body, type=Object)


async def held_states(client: Client, attempt: Attempt, informer: Informer | None) -> States | None:
    """Take the states from an informer as far as it has them, else from the API server.

    An informer that hasn't got the newer object yet is given a moment.
    """
    loop = asyncio.get_running_loop()
    until = loop.time() + EVENT_WAIT
    while informer is not None and (view := informer.view) is not None:
        found = view.store.get(attempt.key)
        if found is not None and found.version > attempt.version:
            theirs = decoded(view.form.encode_object(found))
            return States(await _base(client, attempt, view), theirs)
        if until <= loop.time():
            break
        await asyncio.wait({informer.signal.next()}, timeout=until - loop.time())
    return await live_states(client, attempt)


async def live_states(
    client: Client, attempt: Attempt, informer: Informer | None = None
) -> States | None:
    """Read the object as it is now, as the client who writes; None if it can't be had."""
    collection = attempt.target.resource.path(attempt.target.namespace)
    theirs = await _read(client, attempt, f"{collection}/{quote(attempt.target.name)}")
    if theirs is None:
        return None
    return States(await _base(client, attempt, informer.view if informer else None), theirs)


async def _base(client: Client, attempt: Attempt, view: View | None) -> Object | None:
    """Find the object as the client read it: in the history, else at the API server."""
    held = view.history.version_of(attempt.key, attempt.version) if view else None
    if view is None or held is None:
        return await _listed(client, attempt)
    return decoded(view.form.encode_object(held))


async def _listed(client: Client, attempt: Attempt) -> Object | None:
    """Read the object as it was: etcd keeps versions for some five minutes."""
    collection = attempt.target.resource.path(attempt.target.namespace)
    listed = await _read(
        client,
        attempt,
        f"{collection}?fieldSelector=metadata.name%3D{quote(attempt.target.name)}"
        f"&resourceVersion={attempt.version}&resourceVersionMatch=Exact",
    )
    items = listed.get("items") if listed else None
    if not items:
        return None
    found: Object = items[0]
    return found


async def _read(client: Client, attempt: Attempt, target: str) -> Object | None:
    try:
        async with (
            asyncio.timeout(TIMEOUT),
            client.open("GET", target, _headers(attempt.headers)) as response,
        ):
            body = await response.body()
        found = msgspec.json.decode(body) if response.status == 200 else None
    except (ApiError, TimeoutError, msgspec.MsgspecError):
        return None
    return found if isinstance(found, dict) else None


def _headers(headers: Headers) -> Headers:
    """Ask as the client who writes, but for JSON that nobody has cached."""
    who = [
        (name, value) for name, value in headers if name in _WHO or name.startswith(b"impersonate-")
    ]
    own = [(b"accept", b"application/json"), (b"accept-encoding", b"identity")]
    return [*who, *own, (b"cache-control", b"no-cache")]
