"""Follows resources by `lightkube`: its models, and generic resources for what a CRD defines."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection, Mapping
from contextlib import suppress
from typing import Any

import httpx2
import lightkube
from lightkube.generic_resource import create_namespaced_resource
from lightkube.resources.core_v1 import ConfigMap, Pod
from lightkube.types import PatchType, on_error_retry

from tests.clients.python.program import GADGETS, Store, fill, fold, serve
from tests.harness.objects import Object

_SECONDS = 2
"""How long each watch may last; the library goes on with the next by itself."""

KINDS: Mapping[str, Any] = {
    "configmaps": ConfigMap,
    "pods": Pod,
    GADGETS.plural: create_namespaced_resource(GADGETS.group, "v1", GADGETS.kind, GADGETS.plural),
}


class Resource:
    """A resource by the class of its objects."""

    def __init__(self, client: lightkube.AsyncClient, kind: Any) -> None:
        self._client = client
        self._kind = kind

    async def follow(self, store: Store) -> None:
        found = self._client.list(self._kind, namespace=lightkube.ALL_NS)
        fill(store, [each.to_dict() async for each in found])
        version = found.resourceVersion
        while True:
            # It goes on by itself when a watch is cut, but not when the answer isn't there as yet.
            with suppress(httpx2.TransportError):
                async for kind, each in self._watch(version):
                    version = each.metadata.resourceVersion
                    fold(store, kind, each.to_dict())

    def _watch(self, version: str) -> AsyncIterator[Any]:
        events: AsyncIterator[Any] = self._client.watch(
            self._kind,
            namespace=lightkube.ALL_NS,
            resource_version=version,
            server_timeout=_SECONDS,
            on_error=on_error_retry,
        )
        return events

    async def create(self, namespace: str, body: Object) -> None:
        await self._client.create(self._kind.from_dict(body), namespace=namespace)

    async def names(self, namespace: str) -> Collection[str]:
        found = self._client.list(self._kind, namespace=namespace, chunk_size=50)
        return {each.metadata.name async for each in found}

    async def labels(self, namespace: str, name: str) -> Mapping[str, str]:
        found = await self._client.get(self._kind, name, namespace=namespace)
        return found.metadata.labels or {}

    async def label(self, namespace: str, name: str, labels: Mapping[str, str]) -> None:
        body = {"metadata": {"labels": labels}}
        how = PatchType.MERGE
        await self._client.patch(self._kind, name, body, namespace=namespace, patch_type=how)

    async def delete(self, namespace: str, name: str) -> None:
        await self._client.delete(self._kind, name, namespace=namespace)


async def main() -> None:
    client = lightkube.AsyncClient()
    resources = {plural: Resource(client, kind) for plural, kind in KINDS.items()}
    await serve({plural: each.follow for plural, each in resources.items()}, resources)


if __name__ == "__main__":
    asyncio.run(main())
