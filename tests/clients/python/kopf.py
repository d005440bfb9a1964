"""Follows resources by `kopf`: an operator, which writes too, as its handlers and finalizers do."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Collection
from functools import partial
from typing import Any, cast

import kopf

from tests.clients.python.program import GADGETS, Store, fill, key, serve
from tests.harness.objects import Object

_HANDLED = f"{GADGETS.group}/handled"
_GADGETS = f"{GADGETS.plural}.{GADGETS.group}"

# By uid: kopf handles two objects of one name, of which the first is deleted, side by side.
_told: dict[str, Store] = {"configmaps": {}, "pods": {}}
_index: list[kopf.Index[str, Object]] = []


@kopf.on.event("pods")
@kopf.on.event("configmaps")
def told(event: kopf.RawEvent, resource: kopf.Resource, **_: Any) -> None:
    held, found = _told[resource.plural], cast(Object, dict(event["object"]))
    if event["type"] == "DELETED":
        held.pop(found["metadata"]["uid"], None)
    else:
        held[found["metadata"]["uid"]] = found


@kopf.index(_GADGETS)
def gadgets(body: kopf.Body, **_: Any) -> dict[str, Object]:
    return {key(body): dict(body)}


@kopf.on.event(_GADGETS)
def find_index(**found: Any) -> None:
    """The index is shown to handlers only."""
    _index[:] = [found["gadgets"]]


@kopf.on.create(_GADGETS)
@kopf.on.update(_GADGETS)
def handle(meta: kopf.Meta, patch: kopf.Patch, spec: kopf.Spec, **_: Any) -> None:
    patch.metadata.annotations[_HANDLED] = spec["color"]
    patch.status["observedGeneration"] = meta["generation"]


@kopf.on.delete(_GADGETS)
def let_go(**_: Any) -> None:
    """Makes kopf hold each object by a finalizer."""


def _indexed() -> list[Object]:
    return [each for index in _index for values in index.values() for each in values]


async def _copy(held: Callable[[], Collection[Object]], store: Store) -> None:
    while True:
        fill(store, held())
        await asyncio.sleep(0.1)


async def main(variant: str) -> None:
    settings = kopf.OperatorSettings()
    settings.watching.initial_streaming = variant == "streaming"
    settings.watching.server_timeout = 2
    settings.persistence.progress_storage = kopf.AnnotationsProgressStorage()
    follow = {plural: partial(_copy, held.values) for plural, held in _told.items()}
    stop = asyncio.Event()
    async with asyncio.TaskGroup() as group:
        group.create_task(
            kopf.operator(settings=settings, standalone=True, clusterwide=True, stop_flag=stop)
        )
        await serve({**follow, GADGETS.plural: partial(_copy, _indexed)})
        stop.set()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
