"""The Table form: rows that come in are the rows that go out, but for the time."""

from __future__ import annotations

from typing import Any

import pytest

from proxy.forms.form import Bookmark, Change, EventType, Failure, UnknownLayoutError
from proxy.forms.table import TableForm, TableRendering
from proxy.kube import gojson
from proxy.kube.columns import PrinterColumn
from proxy.kube.errors import Expired
from proxy.kube.negotiation import PLAIN, FormName, Representation
from proxy.kube.resources import Resource, ResourceInfo
from proxy.kube.selectable import declared_field
from tests.unit.builders import Clock, error_line

NOW = 1767225600.0  # 2026-01-01T00:00:00Z
PODS = ResourceInfo(Resource("", "v1", "pods"), "Pod", namespaced=True)
WIDGETS = ResourceInfo(Resource("example.com", "v1", "widgets"), "Widget", namespaced=True)
FLOWS = ResourceInfo(
    Resource("flowcontrol.apiserver.k8s.io", "v1", "flowschemas"), "FlowSchema", namespaced=False
)
COLUMNS = [
    {"name": name, "type": "string", "format": "", "description": "d", "priority": 0}
    for name in ("Name", "Age", "Note")
]
AGE = (PrinterColumn("Age", "date", ".metadata.creationTimestamp"),)

Row = dict[str, Any]


def row(name: str, version: int = 7, age: str = "60s", *, custom: bool = False, **more: Any) -> Row:
    """A row with its whole object, which is a minute old."""
    metadata: Row = {"name": name, "namespace": "a", "uid": f"u-{name}"}
    metadata["resourceVersion"] = str(version)
    metadata |= {"creationTimestamp": "2025-12-31T23:59:00Z", "labels": {"l": name}}
    found: Row = {"kind": "Pod", "apiVersion": "v1", "metadata": metadata, "spec": {"n": "<>"}}
    if custom:
        found = {"apiVersion": "example.com/v1", "kind": "Widget"}
        found["metadata"] = {key: metadata[key] for key in sorted(metadata)}
    return {"cells": [name, age, "<note>"], **more, "object": found}


def table(
    *rows: Row,
    version: int = 9,
    columns: Any = COLUMNS,
    meta: str = "v1",
    **metadata: Any,
) -> bytes:
    members = {"resourceVersion": str(version), **metadata}
    head = {"kind": "Table", "apiVersion": f"meta.k8s.io/{meta}", "metadata": members}
    return gojson.encode({**head, "columnDefinitions": columns, "rows": list(rows)}) + b"\n"


def line(event_type: str, *rows: Row, version: int = 7, columns: Any = COLUMNS) -> bytes:
    body = table(*rows, version=version, columns=columns)[:-1]
    return b'{"type":"%s","object":%s}' % (event_type.encode(), body)


def form(info: ResourceInfo = PODS, sample: bytes = table(), **more: Any) -> TableForm:
    return TableForm(info, sample, clock=Clock(NOW), **more)


def rendering(found: TableForm, include: str = "Object", meta: str = "v1") -> TableRendering:
    rendered = found.rendering(Representation(FormName.TABLE, meta), include)
    assert rendered is not None
    return rendered


def changed(found: TableForm, encoded: bytes) -> Change:
    change = found.decode_event(encoded)
    assert isinstance(change, Change)
    return change


def included(found: Row, include: str, meta: str = "v1") -> Row:
    """A row as it's written for a client."""
    if include == "Object":
        return found
    partial = {"kind": "PartialObjectMetadata", "apiVersion": f"meta.k8s.io/{meta}"}
    metadata = row(found["object"]["metadata"]["name"])["object"]["metadata"]
    return {**found, "object": None if include == "None" else {**partial, "metadata": metadata}}


INCLUDES = ["None", "Metadata", "Object", ""]


@pytest.mark.parametrize("include", INCLUDES)
@pytest.mark.parametrize("meta", ["v1", "v1beta1"])
@pytest.mark.parametrize("custom", [False, True])
def test_what_is_read_is_written(include: str, meta: str, *, custom: bool) -> None:
    found = (
        form(WIDGETS, columns=(*AGE, PrinterColumn("Note", "string", ".n"))) if custom else form()
    )
    rows = [row("x", custom=custom), row("y", custom=custom, conditions=[{"type": "Completed"}])]
    token: dict[str, Any] = {"continue": "abc", "remainingItemCount": 5}
    page = found.decode_page(table(*rows, **token))
    assert (page.version, page.continue_token) == (9, "abc")
    written = rendering(found, include, meta)
    head, tail = written.encode_list_envelope(9, "abc", 5)
    items = written.encode_items(page.objects)
    wanted = [included(each, include, meta) for each in rows]
    assert head + items + tail == table(*wanted, meta=meta, **token)
    assert written.measure_items(page.objects) == len(items) - 1
    assert written.encode_object(page.objects[0]) == table(wanted[0], meta=meta, version=7)


def test_headers_of_objects() -> None:
    found = form(declared=[declared_field("spec.n")])
    [one] = found.decode_page(table(row("x"))).objects
    assert (one.key, one.namespace, one.name, one.uid, one.version) == ("a/x", "a", "x", "u-x", 7)
    assert one.labels["l"] == "x"
    assert one.fields[found.field_labels["spec.n"]] == "<>"
    assert len(one.fields) == len(found.field_labels)


def test_ages_grow() -> None:
    clock = Clock(NOW)
    found = TableForm(PODS, table(), clock=clock)
    [one] = found.decode_page(table(row("x"))).objects
    clock.advance(100)
    written = rendering(found)
    assert written.encode_items([one]) == gojson.encode(row("x", age="2m40s"))
    assert found.decode_page(table(row("x", age="2m40s"))).objects[0].raw == one.raw


def test_events() -> None:
    found = form()
    listed = found.decode_page(table(row("x"))).objects[0]
    for event_type in EventType:
        change = changed(found, line(event_type, row("x"), columns=None))
        assert change.type is event_type
        assert change.object.raw == listed.raw
        wanted = line(event_type, row("x"))
        written = rendering(found)
        assert written.encode_event(event_type, change.object, 7) == wanted + b"\n"
        later = line(event_type, row("x"), columns=None)
        assert written.encode_event(event_type, change.object, 7) == later + b"\n"


def test_an_event_of_another_version() -> None:
    found = form()
    change = changed(found, line("ADDED", row("x")))
    written = rendering(found).encode_event(EventType.DELETED, change.object, 12)
    assert written == line("DELETED", row("x", 12), version=12) + b"\n"


def test_an_error_is_a_status() -> None:
    found, error = form(), Expired("too old")
    failure = found.decode_event(error_line(error)[:-1])
    assert isinstance(failure, Failure)
    assert failure.error.status() == error.status()
    assert failure.frame == error_line(error)
    assert rendering(found).encode_error(error) == error_line(error)


ZERO = {
    "struct": {"kind": "Pod", "apiVersion": "v1", "metadata": {"resourceVersion": "V"}, "spec": {}},
    "custom": {"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {}},
}
END = {"k8s.io/initial-events-end": "true"}


def zero(layout: str, version: int, *, initial_end: bool) -> Row:
    metadata: Row = {"resourceVersion": str(version)}
    metadata |= {"annotations": END} if initial_end else {}
    if layout == "custom":
        metadata = dict(sorted(metadata.items()))
    return {"cells": ["", "<unknown>", ""], "object": {**ZERO[layout], "metadata": metadata}}


@pytest.mark.parametrize("layout", ZERO)
@pytest.mark.parametrize("shown", [False, True])
@pytest.mark.parametrize("initial_end", [False, True])
def test_bookmarks(layout: str, *, shown: bool, initial_end: bool) -> None:
    found = form(PODS if layout == "struct" else WIDGETS)
    assert rendering(found).encode_bookmark(5, initial_end=True) is None
    encoded = line("BOOKMARK", zero(layout, 9, initial_end=shown), version=9)
    assert found.decode_event(encoded) == Bookmark(9, shown)
    assert found.has_watch_list is shown
    wanted = zero(layout, 12, initial_end=initial_end)
    written = rendering(found).encode_bookmark(12, initial_end=initial_end)
    assert written == line("BOOKMARK", wanted, version=12) + b"\n"


@pytest.mark.parametrize("include", ["None", "Metadata"])
@pytest.mark.parametrize("initial_end", [False, True])
def test_bookmarks_without_objects(include: str, *, initial_end: bool) -> None:
    """That of the end of initial events has its metadata all the same."""
    found = form()
    found.decode_event(line("BOOKMARK", zero("struct", 9, initial_end=True), version=9))
    wanted = zero("struct", 12, initial_end=initial_end)
    partial = {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1"}
    metadata = {"metadata": wanted["object"]["metadata"]}
    is_null = include == "None" and not initial_end
    wanted["object"] = None if is_null else {**partial, **metadata}
    written = rendering(found, include).encode_bookmark(12, initial_end=initial_end)
    assert written == line("BOOKMARK", wanted, version=12) + b"\n"


CREATED = [{**COLUMNS[0], "name": name} for name in ("Name", "Created At")]


@pytest.mark.parametrize("sample", [table(), table().replace(b"[]", b"null")])
def test_no_rows(sample: bytes) -> None:
    """They are written as the API server has shown it."""
    assert rendering(form(sample=sample)).encode_empty_list(9) == sample


def test_annotations_that_are_only_in_the_object() -> None:
    info = ResourceInfo(Resource("apps", "v1", "daemonsets"), "DaemonSet", namespaced=True)
    found = form(info)
    shown, whole = row("x"), row("x")
    whole["object"]["metadata"]["annotations"] = {"deprecated.daemonset.template.generation": "1"}
    page = found.decode_page(table(whole))
    assert rendering(found, "Object").encode_items(page.objects) == gojson.encode(whole)
    wanted = gojson.encode(included(shown, "Metadata"))
    assert rendering(found, "Metadata").encode_items(page.objects) == wanted


@pytest.mark.parametrize(
    "sample",
    [
        b"",
        b"[]",
        b'{"kind":"PodList","apiVersion":"v1","metadata":{},"items":[]}',
        table(meta="v2"),
        table(columns=None),
        table({"cells": [], "object": {}, "new": 1}),
    ],
)
def test_unknown_layouts(sample: bytes) -> None:
    with pytest.raises(UnknownLayoutError):
        form(sample=sample)


@pytest.mark.parametrize(
    "body",
    [
        b"{",
        table(row("x"), columns=CREATED),
        table({"cells": ["x", "60s", ""], "object": None}),
        table({**row("x"), "more": 1}),
        table(row("x"), version=-1),
    ],
)
def test_pages_that_are_none(body: bytes) -> None:
    with pytest.raises(UnknownLayoutError):
        form().decode_page(body)


@pytest.mark.parametrize(
    "encoded",
    [
        b"{",
        line("ADDED"),
        line("ADDED", row("x"), row("y")),
        line("LATER", row("x")),
        line("ADDED", row("x"), columns=CREATED),
        b'{"type":"ADDED","object":{"kind":"Pod","apiVersion":"v1","metadata":{}}}',
    ],
)
def test_events_that_are_none(encoded: bytes) -> None:
    with pytest.raises(UnknownLayoutError):
        form().decode_event(encoded)


def test_a_cell_that_nobody_can_count_anew() -> None:
    """From then on nothing is written; what is held is as it was."""
    found = form(WIDGETS)
    representation = Representation(FormName.TABLE, "v1")
    assert found.rendering(representation, "") is not None
    [one] = found.decode_page(table(row("x", age="5d", custom=True))).objects
    assert found.rendering(representation, "") is None
    assert b'"5d"' in one.raw


def test_other_representations_are_not_written() -> None:
    assert form().rendering(PLAIN, "") is None


def test_tables_that_are_sorted_by_the_api_server_are_its_own() -> None:
    assert form(FLOWS).rendering(Representation(FormName.TABLE, "v1"), "") is None


def test_shapes() -> None:
    """What is in one form may not be in that of other columns, fields or definitions."""
    others = [
        form(sample=table(columns=CREATED)),
        form(generation=2),
        form(declared=[declared_field("spec.n")]),
        form(WIDGETS),
    ]
    assert len({each.shape for each in (form(), *others)}) == 5
    assert form().shape == form(sample=table(row("x"))).shape
