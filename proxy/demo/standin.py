"""A stand-in for kube-apiserver: a small one in memory, for the demo and for unit tests.

It answers get, list, watch, create, update, merge patch and delete of a few resources in
kube-apiserver's shapes. It is not kube-apiserver, and proves nothing about it.
"""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from itertools import islice
from typing import Any, Self

from proxy.cache.supervisor import Supervisor
from proxy.demo.discovery import document
from proxy.demo.storage import BY_RESOURCE, Change, Json, Storage
from proxy.forms.form import EventType
from proxy.kube import gojson
from proxy.kube.continuation import Token, decode_token, encode_token
from proxy.kube.errors import ApiError, BadRequest, MethodNotAllowed, UnsupportedMediaType
from proxy.kube.options import ReadOptions, parse_options
from proxy.kube.paths import ResourcePath, parse_path
from proxy.kube.resources import Resource
from proxy.server.addresses import Address
from proxy.server.listener import Listener

Send = Callable[[dict[str, Any]], Awaitable[None]]

BOOKMARK_PERIOD = 5.0
"""Seconds; kube-apiserver's minute is long for a demo."""


class StandIn:
    """The server: ``async with StandIn() as server`` listens at ``server.url``."""

    def __init__(self) -> None:
        self.storage = Storage()
        self._listener = Listener(self._app, Address("127.0.0.1", 0))

    async def __aenter__(self) -> Self:
        self._listener.open(Supervisor())
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._listener.close()

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://{self._listener}"

    async def _app(self, scope: Any, receive: Any, send: Send) -> None:
        try:
            body = await _read(receive)
            target = parse_path(scope["raw_path"].decode())
            if target is None or target.resource not in BY_RESOURCE:
                await _answer(send, 200, document(scope["path"]))
                return
            options = _options(scope["query_string"])
            if scope["method"] == "GET" and options.watch and not target.name:
                await self._watch(target, options, receive, send)
            else:
                status, found = self._handle(scope, target, options, body)
                await _answer(send, status, found)
        except ApiError as error:
            await _answer(send, error.code, error.status())

    def _handle(
        self, scope: Any, target: ResourcePath, options: ReadOptions, body: bytes
    ) -> tuple[int, Json]:
        method = scope["method"]
        content = dict(scope["headers"]).get(b"content-type")
        resource, namespace, name, _ = target
        storage = self.storage
        match method, bool(name):
            case "GET", True:
                return 200, _typed(resource, storage.get(resource, namespace, name))
            case "GET", False:
                return 200, self._list(target, options)
            case "POST", False:
                return 201, _typed(resource, storage.create(resource, _object(body, target)))
            case "PUT", True:
                return 200, _typed(resource, storage.update(resource, _object(body, target)))
            case "PATCH", True:
                if content != b"application/merge-patch+json":
                    raise UnsupportedMediaType("the stand-in knows merge patches only")
                patch = _json(body)
                patched = storage.change(
                    resource, namespace, name, lambda found: _merged(found, patch)
                )
                return 200, _typed(resource, patched)
            case "DELETE", True:
                return 200, _typed(resource, storage.delete(resource, namespace, name))
        raise MethodNotAllowed("the server does not allow this method on the requested resource")

    def _list(self, target: ResourcePath, options: ReadOptions) -> Json:
        revision, start = self.storage.revision, ""
        if options.continue_token:
            revision, start = _token(options.continue_token)
        elif options.resource_version_match == "Exact":
            revision = options.resource_version or 0
        selected = [
            found
            for found in self.storage.list(target.resource, revision)
            if _matches(found, target, options) and _relative(found, target) >= start
        ]
        limit = options.limit if options.resource_version != 0 else 0
        page = list(islice(selected, limit or None))
        metadata: Json = {"resourceVersion": str(revision)}
        if len(page) < len(selected):
            token = Token(revision, _relative(page[-1], target) + "\0")
            metadata["continue"] = encode_token(token, slash=True)
            metadata["remainingItemCount"] = len(selected) - len(page)
        kind = BY_RESOURCE[target.resource].kind
        return {
            "kind": f"{kind}List",
            "apiVersion": target.resource.group_version,
            "metadata": metadata,
            "items": page,
        }

    async def _watch(
        self, target: ResourcePath, options: ReadOptions, receive: Any, send: Send
    ) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": [_JSON]})
        gone = asyncio.create_task(_gone(receive))
        try:
            async for event in self._events(target, options, gone):
                frame = gojson.encode(event) + b"\n"
                await send({"type": "http.response.body", "body": frame, "more_body": True})
        except ApiError as error:
            frame = gojson.encode({"type": "ERROR", "object": error.status()}) + b"\n"
            await send({"type": "http.response.body", "body": frame, "more_body": True})
        finally:
            gone.cancel()
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    def _initial(self, target: ResourcePath, options: ReadOptions) -> Iterator[Json]:
        revision = self.storage.revision
        for found in self.storage.list(target.resource, revision):
            if _matches(found, target, options):
                yield _event("ADDED", target.resource, found)
        if options.allow_watch_bookmarks:
            yield _bookmark(target.resource, revision, end=True)

    async def _events(
        self, target: ResourcePath, options: ReadOptions, gone: asyncio.Task[None]
    ) -> AsyncIterator[Json]:
        """Initial events where they're due, then changes and bookmarks until the deadline."""
        deadline = time.monotonic() + (options.timeout_seconds or 1800)
        revision = options.resource_version or 0
        if not revision or options.send_initial_events:
            revision = self.storage.revision
            if options.send_initial_events is not False:
                for event in list(self._initial(target, options)):
                    yield event
        due = time.monotonic() + BOOKMARK_PERIOD
        while not gone.done() and time.monotonic() < deadline:
            news = self.storage.changed.next()
            # What is written while these events are sent comes in the next round.
            changes = self.storage.since(target.resource, revision)
            revision = max(revision, self.storage.revision)
            for change in changes:
                if (told := _told(change, target, options)) is not None:
                    yield told
            if time.monotonic() >= due:
                due = time.monotonic() + BOOKMARK_PERIOD
                if options.allow_watch_bookmarks:
                    yield _bookmark(target.resource, revision, end=False)
            wait = max(0.0, min(due, deadline) - time.monotonic())
            await asyncio.wait({news, gone}, timeout=wait, return_when="FIRST_COMPLETED")


_JSON = (b"content-type", b"application/json")


async def _answer(send: Send, status: int, body: Json) -> None:
    content = gojson.encode(body) + b"\n"
    headers = [_JSON, (b"content-length", b"%d" % len(content))]
    headers.append((b"cache-control", b"no-cache, private"))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": content, "more_body": False})


async def _read(receive: Any) -> bytes:
    body: bytes = b""
    while True:
        message = await receive()
        body += message.get("body", b"")
        if not message.get("more_body"):
            return body


async def _gone(receive: Any) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def _options(query: bytes) -> ReadOptions:
    try:
        return parse_options(query)
    except ValueError as error:
        raise BadRequest(str(error)) from error


def _token(text: str) -> Token:
    try:
        return decode_token(text)
    except ValueError as error:
        raise BadRequest(f"invalid continue token: {error}") from error


def _json(body: bytes) -> Json:
    try:
        found = json.loads(body)
    except ValueError as error:
        raise BadRequest(f"not JSON: {error}") from error
    if not isinstance(found, dict):
        raise BadRequest("not an object")
    return found


def _object(body: bytes, target: ResourcePath) -> Json:
    """Read an object to be stored: without kind and apiVersion, as list items are."""
    found = _json(body)
    metadata = dict(found.get("metadata") or {})
    name = target.name or metadata.get("name")
    if not name:
        raise BadRequest("name is required")
    placed = {"name": name} | ({"namespace": target.namespace} if target.namespace else {})
    rest = {key: value for key, value in found.items() if key not in ("kind", "apiVersion")}
    return {**rest, "metadata": {**metadata, **placed}}


def _merged(found: Any, patch: Any) -> Any:
    """RFC 7386."""
    if not isinstance(patch, dict):
        return patch
    merged = dict(found) if isinstance(found, dict) else {}
    for key, value in patch.items():
        if value is None:
            merged.pop(key, None)
        elif key not in ("kind", "apiVersion"):
            merged[key] = _merged(merged.get(key), value)
    return merged


def _typed(resource: Resource, found: Json) -> Json:
    return {"kind": BY_RESOURCE[resource].kind, "apiVersion": resource.group_version, **found}


def _relative(found: Json, target: ResourcePath) -> str:
    """An object's key within the scope of a request."""
    metadata = found["metadata"]
    inside = target.namespace or not BY_RESOURCE[target.resource].namespaced
    return str(metadata["name"] if inside else f"{metadata['namespace']}/{metadata['name']}")


def _matches(found: Json | None, target: ResourcePath, options: ReadOptions) -> bool:
    if found is None:
        return False
    metadata = found["metadata"]
    fields = {
        "metadata.name": metadata["name"],
        "metadata.namespace": metadata.get("namespace", ""),
    }
    return (
        target.namespace in ("", metadata.get("namespace"))
        and options.labels.matches(metadata.get("labels", {}))
        and all(
            (fields.get(term.field, "") == term.value) is not term.negated
            for term in options.fields.terms
        )
    )


def _told(change: Change, target: ResourcePath, options: ReadOptions) -> Json | None:
    """What a watcher is told of a change; leaving its selection is a deletion."""
    before = _matches(change.before, target, options)
    after = change.type is not EventType.DELETED and _matches(change.after, target, options)
    if after:
        return _event("MODIFIED" if before else "ADDED", target.resource, change.after)
    if before and change.before is not None:
        stamp = {**change.before["metadata"], "resourceVersion": str(change.revision)}
        return _event("DELETED", target.resource, {**change.before, "metadata": stamp})
    return None


def _event(event_type: str, resource: Resource, found: Json) -> Json:
    return {"type": event_type, "object": _typed(resource, found)}


def _bookmark(resource: Resource, revision: int, *, end: bool) -> Json:
    metadata: Json = {"resourceVersion": str(revision)}
    if end:
        metadata["annotations"] = {"k8s.io/initial-events-end": "true"}
    return _event("BOOKMARK", resource, {"metadata": metadata})
