"""Follows resources by `kubernetes_asyncio`, or by its twin in `kubernetes`: typed or dynamic."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from functools import partial
from importlib import import_module
from typing import Any

import aiohttp

from tests.clients.python.generated import Functions, Generated, dynamic, typed
from tests.clients.python.program import GADGETS, Follow, Store, fill, fold, serve
from tests.harness.objects import Object

_SECONDS = 2
"""How long each watch of the typed client may last."""


class Follower:
    """Lists, watches, and watches on from where a watch has ended, however it did."""

    def __init__(
        self,
        library: Any,
        functions: Functions,
        plain: Callable[[Any], Object],
        resource: Any = None,
    ) -> None:
        """resource: one that the dynamic client has discovered, which has a watch of its own."""
        self._library = library
        self._plain = plain
        self._list_all = functions.list_all
        self._resource = resource
        self._version = ""

    async def follow(self, store: Store) -> None:
        while True:
            try:
                await self._list(store)
                while True:
                    with suppress(aiohttp.ClientError):  # the line was cut
                        await self._watch(store)
            except self._library.client.ApiException as error:
                if error.status != 410:
                    raise

    async def _list(self, store: Store) -> None:
        found = self._plain(await self._list_all())
        fill(store, found["items"])
        self._version = found["metadata"]["resourceVersion"]

    async def _watch(self, store: Store) -> None:
        async with self._library.watch.Watch() as watcher:
            async for event in self._events(watcher):
                self._version = event["raw_object"]["metadata"]["resourceVersion"]
                fold(store, event["type"], self._plain(event["object"]))

    def _events(self, watcher: Any) -> AsyncIterator[Any]:
        events: AsyncIterator[Any] = (
            self._resource.watch(resource_version=self._version, watcher=watcher)
            if self._resource
            else watcher.stream(
                self._list_all, resource_version=self._version, timeout_seconds=_SECONDS
            )
        )
        return events


def _plain(library: Any, client: Any, found: Any) -> Object:
    """What the library has made of an object, as JSON has it again."""
    plain: Object = (
        found.to_dict()
        if isinstance(found, library.dynamic.ResourceInstance)
        else client.sanitize_for_serialization(found)
    )
    return plain


async def _call(function: Any, **given: Any) -> Any:
    return await function(**given)


async def _discovered(library: Any, client: Any) -> dict[str, Any]:
    found = (await library.dynamic.DynamicClient(client)).resources
    return {
        "configmaps": await found.get(api_version="v1", kind="ConfigMap"),
        "pods": await found.get(api_version="v1", kind="Pod"),
        GADGETS.plural: await found.get(api_version=f"{GADGETS.group}/v1", kind=GADGETS.kind),
    }


async def main(name: str, variant: str) -> None:
    library = import_module(name)
    import_module(f"{name}.dynamic")
    await library.config.load_kube_config()
    async with library.client.ApiClient() as client:
        discovered = await _discovered(library, client) if variant == "dynamic" else {}
        functions = {plural: dynamic(each) for plural, each in discovered.items()} or typed(
            library, client
        )
        plain = partial(_plain, library, client)
        follow: dict[str, Follow] = {
            plural: Follower(library, each, plain, discovered.get(plural)).follow
            for plural, each in functions.items()
        }
        resources = {plural: Generated(each, _call, plain) for plural, each in functions.items()}
        await serve(follow, resources)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
