"""What the API server says of a resource: its kind, its scope, its verbs."""

import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import NamedTuple, TypeVar

import msgspec

from proxy.kube.columns import PrinterColumn, served_columns
from proxy.kube.errors import Forbidden, MethodNotAllowed, NotFound, ServiceUnavailable
from proxy.kube.resources import Resource, ResourceInfo
from proxy.kube.selectable import SelectableField, declared_field
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


_T = TypeVar("_T")


async def _get(client: Client, target: str, document: type[_T]) -> _T:
    """Get and decode a document. Raises ApiError, also for what is no such document."""
    try:
        return msgspec.json.decode(await client.get(target), type=document)
    except msgspec.MsgspecError as error:
        raise ServiceUnavailable(f"{target} is not what it should be: {error}") from error


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
    found = await _get(client, f"/apis/{rest}", _ApiGroup)
    return Resource(rest, found.preferred_version.version, plural)


class _SelectableField(msgspec.Struct, rename="camel"):
    json_path: str


class _PrinterColumn(msgspec.Struct, rename={"json_path": "jsonPath"}):
    name: str
    type: str
    json_path: str


class _CrdVersion(msgspec.Struct, rename="camel"):
    name: str
    selectable_fields: list[_SelectableField] = []
    additional_printer_columns: list[_PrinterColumn] = []


class _CrdSpec(msgspec.Struct):
    versions: list[_CrdVersion]


class _CrdMetadata(msgspec.Struct):
    generation: int = 0


class _Crd(msgspec.Struct):
    spec: _CrdSpec
    metadata: _CrdMetadata


class Definition(NamedTuple):
    """What the proxy needs of a CustomResourceDefinition, for one version.

    With another *generation* the same objects may be read differently: with defaults, or without
    fields that the schema no longer has. *columns* are those of its Tables beside Name; None where
    nothing is known.
    """

    generation: int
    fields: list[SelectableField]
    columns: tuple[PrinterColumn, ...] | None = None


async def definition(client: Client, resource: Resource) -> Definition:
    """Read a custom resource's definition.

    Of one that the proxy may not read, and of aggregated resources, nothing is known.
    """
    crds = Resource("apiextensions.k8s.io", "v1", "customresourcedefinitions").path()
    try:
        crd = await _get(client, f"{crds}/{resource.plural}.{resource.group}", _Crd)
    except (Forbidden, NotFound):
        return Definition(0, [])
    version = next((each for each in crd.spec.versions if each.name == resource.version), None)
    if version is None:
        return Definition(crd.metadata.generation, [])
    paths = [field.json_path for field in version.selectable_fields]
    columns = (
        PrinterColumn(column.name, column.type, column.json_path)
        for column in version.additional_printer_columns
    )
    return Definition(crd.metadata.generation, [*_readable(paths)], served_columns(columns))


def _readable(paths: Iterable[str]) -> Iterator[SelectableField]:
    """Read the paths that can be; lists by the others are forwarded."""
    for path in paths:
        with suppress(ValueError):
            yield declared_field(path)


async def describe(client: Client, resource: Resource) -> ResourceInfo:
    """Look *resource* up in its group and version.

    Raises NotFound, or MethodNotAllowed when it can't be listed and watched.
    """
    resources = (await _get(client, resource.root, _ApiResourceList)).resources
    has_status = any(each.name == f"{resource.plural}/status" for each in resources)
    for found in resources:
        if found.name != resource.plural:
            continue
        if not frozenset(found.verbs) >= _NEEDED:
            raise MethodNotAllowed(f"{resource} can't be listed and watched")
        return ResourceInfo(resource, found.kind, found.namespaced, has_status)
    raise NotFound(f"the server has no resource {resource}")
