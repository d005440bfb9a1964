"""Follows resources by `kr8s`."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping
from contextlib import suppress

import httpx
import kr8s
from kr8s.asyncio.objects import APIObject, ConfigMap, Pod, new_class

from tests.clients.python.program import GADGETS, Store, fill, fold, serve
from tests.harness.objects import Object

CLASSES: Mapping[str, type[APIObject]] = {
    "configmaps": ConfigMap,
    "pods": Pod,
    GADGETS.plural: new_class(GADGETS.kind, f"{GADGETS.group}/v1"),
}


class Resource:
    """A resource by the class of its objects."""

    def __init__(self, api: kr8s.asyncio.Api, kind: type[APIObject]) -> None:
        self._api = api
        self._kind = kind

    async def follow(self, store: Store) -> None:
        """Lists, watches, and watches on from where a watch has ended, however it did."""
        found = [
            each.raw.to_dict() async for each in self._kind.list(api=self._api, namespace=kr8s.ALL)
        ]
        fill(store, found)
        # The version of a list isn't told. Nothing but deletions, which are known, came after this.
        versions = (int(each["metadata"]["resourceVersion"]) for each in found)
        since = str(max(versions, default=0))
        while True:
            with suppress(httpx.TransportError):  # the line was cut
                async for kind, each in self._api.watch(
                    self._kind, namespace=kr8s.ALL, since=since
                ):
                    since = each.metadata.resourceVersion
                    fold(store, kind, each.raw.to_dict())

    async def create(self, namespace: str, body: Object) -> None:
        await self._of(namespace, body).create()

    async def names(self, namespace: str) -> Collection[str]:
        return {each.name async for each in self._kind.list(api=self._api, namespace=namespace)}

    async def labels(self, namespace: str, name: str) -> Mapping[str, str]:
        found = await self._kind.get(name, api=self._api, namespace=namespace)
        return dict(found.labels)

    async def label(self, namespace: str, name: str, labels: Mapping[str, str]) -> None:
        found = await self._kind.get(name, api=self._api, namespace=namespace)
        await found.patch({"metadata": {"labels": labels}})

    async def delete(self, namespace: str, name: str) -> None:
        await (await self._kind.get(name, api=self._api, namespace=namespace)).delete()

    def _of(self, namespace: str, body: Object) -> APIObject:
        placed = {**body, "metadata": {**body["metadata"], "namespace": namespace}}
        return self._kind(placed, api=self._api)


async def main() -> None:
    api = await kr8s.asyncio.api()
    resources = {plural: Resource(api, kind) for plural, kind in CLASSES.items()}
    await serve({plural: each.follow for plural, each in resources.items()}, resources)


if __name__ == "__main__":
    asyncio.run(main())
