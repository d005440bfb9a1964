"""What the API server says of a resource: its kind, its scope, its verbs."""

import re

import msgspec

from proxy.kube.errors import MethodNotAllowed, NotFound
from proxy.kube.resources import Resource, ResourceInfo
from proxy.upstream.client import Client

_NEEDED = frozenset({"list", "watch"})


class _ApiResource(msgspec.Struct):
    name: str
    kind: str
    namespaced: bool
    verbs: list[str]


class _ApiResourceList(msgspec.Struct):
    resources: list[_ApiResource]


class _Version(msgspec.Struct):
    version: str


class _ApiGroup(msgspec.Struct, rename="camel"):
    preferred_version: _Version


_VERSION = re.compile(r"v\d+((alpha|beta)\d+)?")


async def resolve(client: Client, name: str) -> Resource:
    """Find the resource of kubectl's ``plural[.version][.group]``; without a version the
    preferred one of its group. Raises ApiError.
    """
    plural, _, rest = name.partition(".")
    version, _, group = rest.partition(".")
    if not rest:
        return Resource("", "v1", plural)
    if _VERSION.fullmatch(version):
        return Resource(group, version, plural)
    found = msgspec.json.decode(await client.get(f"/apis/{rest}"), type=_ApiGroup)
    return Resource(rest, found.preferred_version.version, plural)


async def describe(client: Client, resource: Resource) -> ResourceInfo:
    """Look *resource* up in its group and version.

    Raises NotFound, or MethodNotAllowed when it can't be listed and watched.
    """
    body = await client.get(resource.root)
    for found in msgspec.json.decode(body, type=_ApiResourceList).resources:
        if found.name != resource.plural:
            continue
        if not frozenset(found.verbs) >= _NEEDED:
            raise MethodNotAllowed(f"{resource} can't be listed and watched")
        return ResourceInfo(resource, found.kind, found.namespaced)
    raise NotFound(f"the server has no resource {resource}")
