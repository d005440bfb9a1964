"""Small objects as kube-apiserver writes them, in both layouts, and the stores made of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from proxy.cache.store import Store
from proxy.cache.view import View
from proxy.forms.form import EventType, Form
from proxy.forms.json import JsonForm
from proxy.forms.objects import NO_LABELS, LabelSet, Object
from proxy.forms.wire import Layout
from proxy.kube import gojson
from proxy.kube.errors import ApiError
from proxy.kube.resources import Resource, ResourceInfo
from proxy.kube.selectable import SelectableField

Item = dict[str, Any]

_INITIAL_END = {"k8s.io/initial-events-end": "true"}


class Clock:
    """A clock that only moves when told to."""

    def __init__(self, now: float = 1000.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now

    def advance(self, seconds: float) -> None:
        self.now += seconds


def item(
    name: str,
    namespace: str = "a",
    *,
    version: int = 1,
    uid: str = "",
    labels: Mapping[str, str] | None = None,
    **members: object,
) -> Item:
    """An object without its type; *members* stand beside its metadata."""
    metadata: Item = {"name": name}
    if namespace:
        metadata["namespace"] = namespace
    metadata |= {"uid": uid or f"uid-{name}", "resourceVersion": str(version)}
    if labels:
        metadata["labels"] = dict(labels)
    return {"metadata": metadata, **members}


class Wire:
    """A resource on the wire: its lists, its watch lines, and the form that reads them."""

    def __init__(self, info: ResourceInfo, layout: Layout) -> None:
        self.info = info
        self.layout = layout
        self._api_version = info.resource.group_version

    def form(self, *declared: SelectableField) -> JsonForm:
        """The form that an empty list shows, with no bookmark seen."""
        return JsonForm(self.info, self.page(), declared)

    def watch_list_form(self) -> JsonForm:
        """A form that has seen the end of initial events, so it writes bookmarks."""
        form = self.form()
        form.decode_event(self.bookmark(1, initial_end=True))
        return form

    def object(self, found: Item) -> bytes:
        """An object as a get or an event carries it."""
        typed = {"kind": self.info.kind, "apiVersion": self._api_version, **found}
        return self._encode(typed)

    def in_list(self, found: Item) -> bytes:
        """An object as a list carries it."""
        return self._encode(found) if self.layout is Layout.STRUCT else self.object(found)

    def page(self, *items: Item, version: int = 1, token: str = "", remaining: int = 0) -> bytes:
        """A list, or a page of one."""
        metadata: Item = {"resourceVersion": str(version)}
        metadata |= {"continue": token} if token or self.layout is Layout.UNSTRUCTURED else {}
        metadata |= {"remainingItemCount": remaining} if remaining else {}
        body = b",".join(map(self.in_list, items))
        kind = self.info.kind + "List"
        head = self._encode({"kind": kind, "apiVersion": self._api_version, "metadata": metadata})
        if self.layout is Layout.STRUCT:
            return head[:-1] + b',"items":[' + body + b"]}\n"
        before, _, after = head.partition(b',"kind"')
        return before + b',"items":[' + body + b'],"kind"' + after + b"\n"

    def event(self, event_type: EventType, found: Item) -> bytes:
        """A watch line."""
        return _line(event_type, self.object(found))

    def added(self, name: str, **details: Any) -> bytes:
        return self.event(EventType.ADDED, item(name, **details))

    def modified(self, name: str, **details: Any) -> bytes:
        return self.event(EventType.MODIFIED, item(name, **details))

    def deleted(self, name: str, **details: Any) -> bytes:
        return self.event(EventType.DELETED, item(name, **details))

    def bookmark(self, version: int, *, initial_end: bool = False) -> bytes:
        """A BOOKMARK line; with *initial_end* the one that ends a WatchList's initial events."""
        metadata: Item = {"resourceVersion": str(version)}
        metadata |= {"annotations": _INITIAL_END} if initial_end else {}
        return _line("BOOKMARK", self.object({"metadata": metadata}))

    def objects(self, *items: Item) -> list[Object]:
        """Objects as a list of them is decoded."""
        return self.form().decode_page(self.page(*items)).objects

    def _encode(self, members: Item) -> bytes:
        return gojson.encode(members if self.layout is Layout.STRUCT else _sorted(members))


def _sorted(node: Any) -> Any:
    if not isinstance(node, dict):
        return node
    return {key: _sorted(node[key]) for key in sorted(node)}


def _line(event_type: str, encoded: bytes) -> bytes:
    return b'{"type":"%s","object":%s}\n' % (event_type.encode(), encoded)


def error_line(error: ApiError) -> bytes:
    """An ERROR event."""
    return _line("ERROR", gojson.encode(error.status()))


PODS = Wire(
    ResourceInfo(Resource("", "v1", "pods"), "Pod", namespaced=True, has_status=True),
    Layout.STRUCT,
)
NODES = Wire(ResourceInfo(Resource("", "v1", "nodes"), "Node", namespaced=False), Layout.STRUCT)
WIDGETS = Wire(
    ResourceInfo(Resource("example.com", "v1", "widgets"), "Widget", namespaced=True),
    Layout.UNSTRUCTURED,
)


def stored(
    key: str,
    version: int = 1,
    *,
    uid: str = "",
    labels: LabelSet = NO_LABELS,
    fields: tuple[str | tuple[str, ...], ...] = (),
    raw: bytes = b"{}",
) -> Object:
    """A stored object by its key, for tests to which its bytes mean nothing."""
    namespace, _, name = key.rpartition("/")
    return Object(key, namespace, name, uid or f"uid-{key}", version, labels, fields, raw)


def store_of(objects: Iterable[Object], version: int = 0, indexed: Iterable[int] = ()) -> Store:
    """A store that holds *objects*, its newest change at *version* or the newest of theirs."""
    store = Store(tuple(indexed))
    for found in objects:
        store.put(found)
        store.version = max(store.version, found.version)
    store.version = store.changed = version or store.version
    return store


def view_of(
    form: Form, objects: Iterable[Object], version: int = 0, clock: Clock | None = None
) -> View:
    """A synced view of *objects*."""
    return View(form, store_of(objects, version, form.indexed), clock or Clock())
