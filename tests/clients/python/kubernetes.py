"""Follows resources by `kubernetes`, the client that blocks: typed, dynamic or its informers."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator
from functools import cache, partial
from typing import Any

import kubernetes
import urllib3
from kubernetes.client.exceptions import ApiException
from kubernetes.dynamic import DynamicClient, Resource, ResourceInstance
from kubernetes.informer import SharedInformer
from kubernetes.watch import Watch

from tests.clients.python.generated import Functions, Generated, dynamic, typed
from tests.clients.python.program import GADGETS, Follow, Store, fill, fold, key, serve
from tests.harness.objects import Object

_SECONDS = 2
"""How long each watch may last."""


class Follower:
    """Lists, watches, and watches on from where a watch has ended, however it did."""

    def __init__(self, functions: Functions) -> None:
        self._list_all = functions.list_all
        self._watch = Watch()
        self._stopped = False

    async def follow(self, store: Store) -> None:
        try:
            await asyncio.to_thread(self._follow, store)
        finally:
            self._stopped = True
            self._watch.stop()

    def _follow(self, store: Store) -> None:
        version = ""
        while not self._stopped:
            version = version or self._list(store)
            try:
                for event in self._events(version):
                    version = event["raw_object"]["metadata"]["resourceVersion"]
                    fold(store, event["type"], plain(event["object"]))
            except urllib3.exceptions.HTTPError:
                continue  # the line was cut
            except ApiException as error:
                if error.status != 410:
                    raise
                version = ""

    def _list(self, store: Store) -> str:
        found = plain(self._list_all())
        fill(store, found["items"])
        version: str = found["metadata"]["resourceVersion"]
        return version

    def _events(self, version: str) -> Iterator[Any]:
        yield from self._watch.stream(
            self._list_all, resource_version=version, timeout_seconds=_SECONDS
        )


class DynamicFollower(Follower):
    """The same by the dynamic client, whose watches last as long as the server lets them."""

    def __init__(self, resource: Resource) -> None:
        super().__init__(dynamic(resource))
        self._resource = resource

    def _events(self, version: str) -> Iterator[Any]:
        yield from self._resource.watch(resource_version=version, watcher=self._watch)


async def inform(functions: Functions, store: Store) -> None:
    """Takes what the library's own informer has, now and then."""
    informer = SharedInformer(functions.list_all)
    informer.start()
    try:
        while True:
            found = {key(each): each for each in map(plain, informer.cache.list())}
            for gone in store.keys() - found.keys():
                del store[gone]
            store.update(found)
            await asyncio.sleep(0.1)
    finally:
        await asyncio.to_thread(informer.stop)


def plain(found: Any) -> Object:
    """What the library has made of an object, as JSON has it again."""
    plain: Object = (
        found.to_dict()
        if isinstance(found, ResourceInstance)
        else _client().sanitize_for_serialization(found)
    )
    return plain


@cache
def _client() -> kubernetes.client.ApiClient:
    return kubernetes.client.ApiClient()


def _discovered() -> dict[str, Resource]:
    found = DynamicClient(_client()).resources
    return {
        "configmaps": found.get(api_version="v1", kind="ConfigMap"),
        "pods": found.get(api_version="v1", kind="Pod"),
        GADGETS.plural: found.get(api_version=f"{GADGETS.group}/v1", kind=GADGETS.kind),
    }


async def main(variant: str) -> None:
    kubernetes.config.load_kube_config()
    follow: dict[str, Follow]
    match variant:
        case "typed":
            functions = typed(kubernetes, _client())
            follow = {plural: Follower(each).follow for plural, each in functions.items()}
        case "dynamic":
            found = _discovered()
            functions = {plural: dynamic(each) for plural, each in found.items()}
            follow = {plural: DynamicFollower(each).follow for plural, each in found.items()}
        case "informer":
            functions = typed(kubernetes, _client())
            del functions[GADGETS.plural]  # it takes models only
            follow = {plural: partial(inform, each) for plural, each in functions.items()}
    resources = {
        plural: Generated(each, asyncio.to_thread, plain) for plural, each in functions.items()
    }
    await serve(follow, resources)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
