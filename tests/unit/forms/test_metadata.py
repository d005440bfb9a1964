"""Metadata in JSON: Go structs that all say their type, in two versions."""

from __future__ import annotations

import pytest

from proxy.forms.form import Bookmark, Change, EventType, Failure, UnknownLayoutError
from proxy.forms.metadata import MetadataForm, MetadataRendering
from proxy.forms.wire import Layout
from proxy.kube.errors import Expired
from proxy.kube.negotiation import FormName, Representation
from proxy.kube.resources import Resource, ResourceInfo
from proxy.kube.selectable import declared_field
from tests.unit.builders import PODS, WIDGETS, Item, Wire, error_line, item


class MetadataWire(Wire):
    """Lists whose items say their type, and null for none of them."""

    def __init__(self, version: str) -> None:
        resource = Resource("meta.k8s.io", version, "pods")
        super().__init__(
            ResourceInfo(resource, "PartialObjectMetadata", namespaced=True), Layout.STRUCT
        )

    def in_list(self, found: Item) -> bytes:
        return self.object(found)

    def page(self, *items: Item, version: int = 1, token: str = "", remaining: int = 0) -> bytes:
        body = super().page(*items, version=version, token=token, remaining=remaining)
        return body if items else body.replace(b'"items":[]', b'"items":null')


V1 = MetadataWire("v1")
VERSIONS = {"v1": V1, "v1beta1": MetadataWire("v1beta1")}
ODD = item("x", version=7, labels={"a": '"apiVersion":"meta.k8s.io/v1",'})


def rendering(form: MetadataForm, version: str) -> MetadataRendering:
    found = form.rendering(Representation(FormName.METADATA, version), "")
    assert found is not None
    return found


@pytest.fixture
def form() -> MetadataForm:
    return MetadataForm(PODS.info, V1.page())


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize(("token", "remaining"), [("", 0), ("abc", 0), ("abc", 5)])
def test_lists(form: MetadataForm, version: str, count: int, token: str, remaining: int) -> None:
    items = [item(f"x{n}") for n in range(count)]
    page = form.decode_page(V1.page(*items, version=12, token=token))
    assert (page.version, page.continue_token) == (12, token)
    writer = rendering(form, version)
    head, tail = writer.encode_list_envelope(12, token, remaining)
    body = writer.encode_items(page.objects)
    assert writer.measure_items(page.objects) == len(body) - (count - 1)
    wire = VERSIONS[version]
    assert head + body + tail == wire.page(*items, version=12, token=token, remaining=remaining)
    assert writer.encode_empty_list(12) == wire.page(version=12)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("event_type", list(EventType))
def test_objects_and_events(form: MetadataForm, version: str, event_type: EventType) -> None:
    change = form.decode_event(V1.event(event_type, ODD))
    assert isinstance(change, Change)
    found = change.object
    wire, writer = VERSIONS[version], rendering(form, version)
    assert (found.key, found.version, dict(found.labels)) == ("a/x", 7, ODD["metadata"]["labels"])
    assert writer.encode_object(found) == wire.object(ODD) + b"\n"
    assert writer.encode_event(event_type, found, 7) == wire.event(event_type, ODD)
    other = item("x", version=8, labels=ODD["metadata"]["labels"])
    assert writer.encode_event(event_type, found, 8) == wire.event(event_type, other)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("shown_end", [False, True])
@pytest.mark.parametrize("end", [False, True])
def test_bookmarks(form: MetadataForm, version: str, *, shown_end: bool, end: bool) -> None:
    writer = rendering(form, version)
    assert writer.encode_bookmark(9, initial_end=end) is None
    assert form.decode_event(V1.bookmark(1234, initial_end=shown_end)) == Bookmark(1234, shown_end)
    assert form.has_watch_list is shown_end
    expected = VERSIONS[version].bookmark(99, initial_end=end)
    assert writer.encode_bookmark(99, initial_end=end) == expected


def test_errors(form: MetadataForm) -> None:
    error = Expired("too old resource version: 5 (120)")
    line = error_line(error)
    failure = form.decode_event(line.rstrip(b"\n"))
    assert isinstance(failure, Failure)
    assert failure.frame == line
    assert rendering(form, "v1").encode_error(failure.error) == line


@pytest.mark.parametrize("body", [b"", b"[]", PODS.page(ODD), VERSIONS["v1beta1"].page(ODD)])
def test_what_is_no_list_of_metadata(form: MetadataForm, body: bytes) -> None:
    with pytest.raises(UnknownLayoutError, match=r"list"):
        form.decode_page(body)
    with pytest.raises(UnknownLayoutError):
        MetadataForm(PODS.info, body)


def test_what_is_no_event_of_metadata(form: MetadataForm) -> None:
    with pytest.raises(UnknownLayoutError, match="event"):
        form.decode_event(PODS.event(EventType.ADDED, ODD))


def test_fields_within_the_metadata() -> None:
    declared = [
        declared_field("metadata.annotations['example.com/owner']"),
        declared_field("spec.color"),
    ]
    form = MetadataForm(WIDGETS.info, V1.page(), declared, generation=1)
    assert list(form.field_labels) == ["metadata.annotations['example.com/owner']"]
    owned = item("x")
    owned["metadata"]["annotations"] = {"example.com/owner": "me"}
    [found] = form.decode_page(V1.page(owned)).objects
    assert found.fields == ("me",)
    assert form.indexed == (0,)


def test_fields_that_overlap() -> None:
    declared = [declared_field("metadata.x"), declared_field("metadata.x.y")]
    with pytest.raises(UnknownLayoutError, match="overlaps"):
        MetadataForm(PODS.info, V1.page(), declared)


# --- metadata of whole objects ------------------------------------------------------------------

SPECIFIED = {**ODD, "spec": {"metadata": {"resourceVersion": "6"}}}


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("whole", [PODS, WIDGETS], ids=["built-in", "custom"])
def test_whole_objects_as_metadata(whole: Wire, version: str) -> None:
    wire, form = VERSIONS[version], whole.form()
    writer = form.rendering(Representation(FormName.METADATA, version), "")
    assert writer is not None
    [found] = form.decode_page(whole.page(SPECIFIED)).objects
    assert writer.encode_object(found) == wire.object(ODD) + b"\n"
    assert writer.encode_items([found, found]) == wire.object(ODD) + b"," + wire.object(ODD)
    assert writer.measure_items([found]) == len(wire.object(ODD))
    change = form.decode_event(whole.event(EventType.DELETED, SPECIFIED))
    assert isinstance(change, Change)
    newer = item("x", version=8, labels=ODD["metadata"]["labels"])
    expected = wire.event(EventType.DELETED, newer)
    assert writer.encode_event(EventType.DELETED, change.object, 8) == expected
    assert writer.encode_bookmark(9, initial_end=True) is None
    form.decode_event(whole.bookmark(8))
    assert writer.encode_bookmark(9, initial_end=True) == wire.bookmark(9, initial_end=True)


def test_annotations_that_only_whole_objects_have() -> None:
    resource = Resource("apps", "v1", "daemonsets")
    whole = Wire(ResourceInfo(resource, "DaemonSet", namespaced=True), Layout.STRUCT)
    found = item("x")
    found["metadata"]["annotations"] = {"deprecated.daemonset.template.generation": "1"}
    form = whole.form()
    writer = form.rendering(Representation(FormName.METADATA, "v1"), "")
    assert writer is not None
    [kept] = form.decode_page(whole.page(found)).objects
    assert b"deprecated" in kept.raw
    assert b"deprecated" not in writer.encode_object(kept)


def test_metadata_of_unknown_apis_are_not_derived() -> None:
    resource = Resource("metrics.k8s.io", "v1beta1", "pods")
    whole = Wire(ResourceInfo(resource, "PodMetrics", namespaced=True), Layout.STRUCT)
    assert whole.form().rendering(Representation(FormName.METADATA, "v1"), "") is None
