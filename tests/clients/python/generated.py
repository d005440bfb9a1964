"""Clients that are generated from OpenAPI, `kubernetes` and `kubernetes_asyncio`: named alike."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping
from functools import partial
from typing import Any, NamedTuple

from tests.clients.python.program import GADGETS
from tests.harness.objects import Object

_MERGE_PATCH = "application/merge-patch+json"
_KINDS = {"configmaps": "config_map", "pods": "pod"}


class Functions(NamedTuple):
    """What a library has for one resource; each takes what it needs by its name."""

    list_all: Callable[..., Any]
    list: Callable[..., Any]
    read: Callable[..., Any]
    create: Callable[..., Any]
    patch: Callable[..., Any]
    delete: Callable[..., Any]


def typed(library: Any, client: Any) -> dict[str, Functions]:
    """The functions that are generated for each kind, and those that custom resources share."""
    core = library.client.CoreV1Api(client)
    custom = _custom(library.client.CustomObjectsApi(client))
    return {plural: _core(core, kind) for plural, kind in _KINDS.items()} | {GADGETS.plural: custom}


def dynamic(resource: Any) -> Functions:
    """The functions of a resource that a dynamic client has discovered."""
    patch = partial(resource.patch, content_type=_MERGE_PATCH)
    one = (resource.get, resource.create, patch, resource.delete)
    return Functions(resource.get, resource.get, *one)


def _core(api: Any, kind: str) -> Functions:
    verbs = ("list", "read", "create", "patch", "delete")
    functions = (getattr(api, f"{verb}_namespaced_{kind}") for verb in verbs)
    return _merging(Functions(getattr(api, f"list_{kind}_for_all_namespaces"), *functions))


def _custom(api: Any) -> Functions:
    verbs = ("list", "get", "create", "patch", "delete")
    functions = (getattr(api, f"{verb}_namespaced_custom_object") for verb in verbs)
    where = {"group": GADGETS.group, "version": "v1", "plural": GADGETS.plural}
    namespaced = (partial(function, **where) for function in functions)
    return _merging(Functions(partial(api.list_cluster_custom_object, **where), *namespaced))


def _merging(functions: Functions) -> Functions:
    """Patches as a merge: by itself, one library sends a JSON patch whatever the body is."""
    return functions._replace(patch=partial(functions.patch, _content_type=_MERGE_PATCH))


class Generated:
    """A resource by such functions.

    call: calls one of them; plain: what it returns, as an object of JSON.
    """

    def __init__(
        self,
        functions: Functions,
        call: Callable[..., Awaitable[Any]],
        plain: Callable[[Any], Object],
    ) -> None:
        self._functions = functions
        self._call = call
        self._plain = plain

    async def create(self, namespace: str, body: Object) -> None:
        await self._call(self._functions.create, namespace=namespace, body=body)

    async def names(self, namespace: str) -> Collection[str]:
        found = self._plain(await self._call(self._functions.list, namespace=namespace))
        return {each["metadata"]["name"] for each in found["items"]}

    async def labels(self, namespace: str, name: str) -> Mapping[str, str]:
        found = await self._call(self._functions.read, namespace=namespace, name=name)
        labels: Mapping[str, str] = self._plain(found)["metadata"].get("labels", {})
        return labels

    async def label(self, namespace: str, name: str, labels: Mapping[str, str]) -> None:
        body = {"metadata": {"labels": labels}}
        await self._call(self._functions.patch, namespace=namespace, name=name, body=body)

    async def delete(self, namespace: str, name: str) -> None:
        await self._call(self._functions.delete, namespace=namespace, name=name)
