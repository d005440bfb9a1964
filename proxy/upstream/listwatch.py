"""A reflector's source: list and watch of one scope at the API server."""

import random
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import suppress
from urllib.parse import urlencode

from proxy.cache.reflector import WATCH_SECONDS
from proxy.cache.scope import Scope
from proxy.forms.form import Form
from proxy.forms.json import JsonForm
from proxy.forms.metadata import MetadataForm
from proxy.forms.protobuf import metadata_protobuf_form, protobuf_form
from proxy.forms.table import TableForm
from proxy.forms.wire import list_version
from proxy.kube.errors import BadRequest
from proxy.kube.negotiation import FormName
from proxy.kube.requests import Headers
from proxy.kube.selectable import SelectableField, selectable_fields
from proxy.kube.selectors import name_selector
from proxy.upstream.client import Client
from proxy.upstream.discovery import Definition, definition, describe
from proxy.upstream.wires import WIRES, open_watch

BARRIER_SECONDS = 3
"""Length of a barrier: a bookmark comes two seconds before the end of a watch, and none if it's
shorter (``cacher/cache_watcher.go``)."""

_NOBODY: Mapping[str, str | int] = {"fieldSelector": "metadata.name=-", "limit": 1}
"""Selects an object whose name none can have: a list of it is empty, and read by its key. A list
with a limit is answered also while the API server's watch cache starts anew."""


class ListWatch:
    """Lists and watches *scope* through *client*; implements ``cache.reflector.Source``.

    *indexes* tells which fields the settings declare beside those that the API server knows; it's
    asked at each list, since a setting's resource may be found later than it's read.
    """

    def __init__(
        self,
        client: Client,
        scope: Scope,
        indexes: Callable[[], Sequence[SelectableField]] = tuple,
    ) -> None:
        self._client = client
        self._indexes = indexes
        self._resource = scope.resource
        self._path = self._probed = scope.resource.path(scope.namespace)
        self._form = scope.form
        self._wire = WIRES[scope.form]

    async def describe(self) -> Form:
        """Learn kind and layout; a short list shows both, and whether it's allowed."""
        info = await describe(self._client, self._resource)
        if info.namespaced and self._path == self._resource.path():
            # A name without its namespace would be looked for in all of them.
            self._probed = self._resource.path("default")
        custom = Definition(0, [])
        if selectable_fields(self._resource.group, self._resource.plural) is None:
            custom = await definition(self._client, self._resource)
        headers, sample = await self._sample()
        more = {"columns": custom.columns} if self._form is FormName.TABLE else {}
        return _FORMS[self._form](
            info,
            sample,
            [*self._indexes(), *custom.fields],
            generation=custom.generation,
            warnings=tuple(value for name, value in headers if name.lower() == b"warning"),
            **more,
        )

    async def _sample(self) -> tuple[Headers, bytes]:
        """Get a list of one object; of Tables, which always have their columns, one of none."""
        if self._form is FormName.TABLE:
            with suppress(BadRequest):  # an API that knows no field selectors
                return await self._fetch(self._probed, **_NOBODY)
        return await self._fetch(self._path, limit=1)

    async def list_page(self, limit: int, continue_token: str) -> bytes:
        """Get one page of a consistent list."""
        token = {"continue": continue_token} if continue_token else {}
        return (await self._fetch(self._path, limit=limit, **token))[1]

    async def _fetch(self, path: str, **query: str | int) -> tuple[Headers, bytes]:
        asked = urlencode({**query, **self._wire.query})
        return await self._client.fetch(f"{path}?{asked}", self._wire.listing)

    async def current_version(self) -> int:
        """Learn the API server's version from a consistent list of nothing."""
        try:
            return list_version(await self._client.get(f"{self._probed}?{urlencode(_NOBODY)}"))
        except BadRequest:  # an API that knows no field selectors
            return list_version(await self._client.get(f"{self._path}?limit=1"))

    async def list_object(self, key: str) -> bytes:
        """Get a consistent list of one object, which is empty if that doesn't exist."""
        namespace, _, name = key.rpartition("/")
        selector = name_selector(name)
        path = self._resource.path(namespace)
        return (await self._fetch(path, fieldSelector=selector, limit=1))[1]

    def watch(self, version: int | None) -> AsyncGenerator[Sequence[bytes], None]:
        """Watch from *version*, or with None by WatchList; yields lines as they arrive."""
        start = (
            {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan"}
            if version is None
            else {"resourceVersion": str(version)}
        )
        return self._lines(int(WATCH_SECONDS * (1 + random.random())), start)

    def barrier(self, version: int) -> AsyncGenerator[Sequence[bytes], None]:
        """Watch from *version* so briefly that a bookmark comes within a second."""
        return self._lines(BARRIER_SECONDS, {"resourceVersion": str(version)}, live=True)

    def _lines(
        self, seconds: int, start: dict[str, str], *, live: bool = False
    ) -> AsyncGenerator[Sequence[bytes], None]:
        query = {
            "watch": "true",
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(seconds),
            **start,
        }
        return open_watch(self._client, self._form, f"{self._path}?{urlencode(query)}", live=live)


_FORMS: Mapping[FormName, Callable[..., Form]] = {
    FormName.JSON: JsonForm,
    FormName.TABLE: TableForm,
    FormName.METADATA: MetadataForm,
    FormName.PROTOBUF: protobuf_form,
    FormName.METADATA_PROTOBUF: metadata_protobuf_form,
}
