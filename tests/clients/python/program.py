"""What the programs share: they follow resources, and are asked by stdin, and answer by stdout.

A line of stdin is a command, and a line of stdout its answer in JSON. The end of stdin is the end.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import Any, Protocol

from tests.harness.objects import CustomResource, Object, configmap

GADGETS = CustomResource("python.kubecache.dev", "gadgets", "Gadget")

_BODIES: Mapping[str, Callable[[str], Object]] = {
    "configmaps": configmap,
    GADGETS.plural: GADGETS.object,
}
_WRITES = 5

Store = dict[str, Object]
"""Objects by `namespace/name`."""

Follow = Callable[[Store], Awaitable[None]]
"""Keeps a store as long as it runs."""


class Resource(Protocol):
    """Reads and writes of one resource by one library."""

    async def create(self, namespace: str, body: Object) -> None: ...

    async def names(self, namespace: str) -> Collection[str]:
        """Those of a list."""

    async def labels(self, namespace: str, name: str) -> Mapping[str, str]:
        """Those that a get tells."""

    async def label(self, namespace: str, name: str, labels: Mapping[str, str]) -> None: ...

    async def delete(self, namespace: str, name: str) -> None: ...


def key(found: Mapping[str, Any]) -> str:
    """An object's place in a store."""
    metadata = found["metadata"]
    return f"{metadata.get('namespace', '')}/{metadata['name']}"


def fill(store: Store, found: Collection[Object]) -> None:
    """Takes a list over."""
    store.clear()
    store.update((key(each), each) for each in list(found))  # which a thread may change


def fold(store: Store, kind: str, found: Object) -> None:
    """Takes an event over."""
    if kind == "DELETED":
        store.pop(key(found), None)
    elif kind in {"ADDED", "MODIFIED"}:
        store[key(found)] = found
    else:
        assert kind == "BOOKMARK", (kind, found)


async def serve(
    follow: Mapping[str, Follow], resources: Mapping[str, Resource] | None = None
) -> None:
    """Follows resources, each named by its plural, and answers commands meanwhile."""
    stores: dict[str, Store] = {plural: {} for plural in follow}
    async with asyncio.TaskGroup() as group:
        tasks = [
            group.create_task(_forever(each, stores[plural]), name=f"follow {plural}")
            for plural, each in follow.items()
        ]
        while words := (await asyncio.to_thread(sys.stdin.readline)).split():
            answer = await _answer(words, stores, resources or {})
            print(json.dumps(answer), flush=True)
        for task in tasks:
            task.cancel()


async def _forever(follow: Follow, store: Store) -> None:
    await follow(store)
    raise AssertionError("it does not follow any more")


async def _answer(
    words: list[str], stores: Mapping[str, Store], resources: Mapping[str, Resource]
) -> Any:
    match words:
        case ["stores"]:
            # Copied at once: threads go on to change them.
            return {plural: dict(store) for plural, store in stores.items()}
        case ["write", namespace]:
            written = [plural for plural in resources if plural in _BODIES]
            for plural in written:
                await _read_own_writes(resources[plural], _BODIES[plural], namespace)
            return written
    raise AssertionError(f"no such command: {words}")


async def _read_own_writes(
    resource: Resource, body: Callable[[str], Object], namespace: str
) -> None:
    """Whatever is written is seen by the reads that follow at once."""
    for number in range(_WRITES):
        name = f"own-{number}"
        await resource.create(namespace, body(name))
        assert name in await resource.names(namespace)
        assert not await resource.labels(namespace, name)
        await resource.label(namespace, name, {"own": str(number)})
        assert (await resource.labels(namespace, name)) == {"own": str(number)}
        await resource.delete(namespace, name)
        assert name not in await resource.names(namespace)
