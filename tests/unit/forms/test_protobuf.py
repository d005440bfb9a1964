"""The protobuf forms: bytes that come in are the bytes that go out."""

from __future__ import annotations

import pytest

from proxy.forms.form import Bookmark, Change, EventType, Failure, UnknownLayoutError
from proxy.forms.objects import NO_LABELS
from proxy.forms.protobuf import (
    ProtobufForm,
    ProtobufRendering,
    metadata_protobuf_form,
    protobuf_form,
    restamp,
)
from proxy.kube.envelope import encode_status
from proxy.kube.errors import Expired
from proxy.kube.gogo import field
from proxy.kube.negotiation import PROTOBUF, FormName, Representation
from proxy.kube.protobuf import wrap
from proxy.kube.resources import Resource, ResourceInfo
from proxy.kube.selectable import SelectableField, declared_field
from tests.unit.builders import PODS, WIDGETS
from tests.unit.messages import Messages, framed, message

POD = Messages("v1", "Pod")
META = Messages("meta.k8s.io/v1", "PartialObjectMetadata")
BETA = Messages("meta.k8s.io/v1beta1", "PartialObjectMetadata", backwards=True)

SPEC = field(2, field(3, b"Never") + field(10, b"node-1") + b"\x58\x01")
STATUS = field(3, field(1, b"Running"))
ODD = message("x", version=7, labels={"a": "6"}, rest=field(2, field(6, b"7")) + STATUS)
"""An object whose spec has what a careless search would find."""

SHOWN = [
    pytest.param(POD, "", id="pods"),
    pytest.param(META, "v1", id="metadata"),
    pytest.param(BETA, "v1beta1", id="older metadata"),
]


def form_of(meta: str) -> ProtobufForm:
    if meta:
        return metadata_protobuf_form(PODS.info, META.page())
    return protobuf_form(PODS.info, POD.page())


def writer(form: ProtobufForm, meta: str) -> ProtobufRendering:
    name = FormName.METADATA_PROTOBUF if meta else FormName.PROTOBUF
    found = form.rendering(Representation(name, meta), "")
    assert found is not None
    return found


def upstream(meta: str) -> Messages:
    """What the API server is asked for."""
    return META if meta else POD


@pytest.mark.parametrize(("wire", "meta"), SHOWN)
@pytest.mark.parametrize("count", [0, 1, 3, 200])
@pytest.mark.parametrize(("token", "remaining"), [("", 0), ("abc", 0), ("abc", 5)])
def test_lists(wire: Messages, meta: str, count: int, token: str, remaining: int) -> None:
    form = form_of(meta)
    items = [message(f"x{n}", rest=field(40, b"s" * n)) for n in range(count)]
    page = form.decode_page(upstream(meta).page(*items, version=12, token=token))
    assert (page.version, page.continue_token) == (12, token)
    assert [found.raw for found in page.objects] == items
    rendering = writer(form, meta)
    size = rendering.measure_items(page.objects)
    body = rendering.encode_items(page.objects)
    assert size == len(body)
    head, tail = rendering.encode_list_envelope(12, token, remaining, size)
    assert head + body + tail == wire.page(*items, version=12, token=token, remaining=remaining)
    assert rendering.encode_empty_list(12) == wire.page(version=12)


@pytest.mark.parametrize(("wire", "meta"), SHOWN)
@pytest.mark.parametrize("event_type", list(EventType))
def test_objects_and_events(wire: Messages, meta: str, event_type: EventType) -> None:
    form = form_of(meta)
    rendering = writer(form, meta)
    change = form.decode_event(upstream(meta).frame(event_type, ODD)[4:])
    assert isinstance(change, Change)
    found = change.object
    assert (change.type, found.raw) == (event_type, ODD)
    assert (found.key, found.name, found.namespace) == ("a/x", "x", "a")
    assert (found.uid, found.version, dict(found.labels)) == ("uid-x", 7, {"a": "6"})
    assert rendering.encode_object(found) == wire.object(ODD)
    assert rendering.encode_event(event_type, found, 7) == wire.frame(event_type, ODD)


@pytest.mark.parametrize(("wire", "meta"), [(META, "v1"), (BETA, "v1beta1")])
def test_whole_objects_as_metadata(wire: Messages, meta: str) -> None:
    form = form_of("")
    rendering = form.rendering(Representation(FormName.METADATA_PROTOBUF, meta), "")
    assert rendering is not None
    [found] = form.decode_page(POD.page(ODD)).objects
    bare = message("x", version=7, labels={"a": "6"})
    assert rendering.encode_object(found) == wire.object(bare)
    body = rendering.encode_items([found])
    assert rendering.measure_items([found]) == len(body)
    head, tail = rendering.encode_list_envelope(12, "", 0, len(body))
    assert head + body + tail == wire.page(bare, version=12)
    assert rendering.encode_event(EventType.ADDED, found, 7) == wire.frame(EventType.ADDED, bare)
    assert rendering.encode_bookmark(9, initial_end=True) is None
    form.decode_event(POD.bookmark(8)[4:])
    expected = wire.bookmark(9, initial_end=True)
    assert rendering.encode_bookmark(9, initial_end=True) == expected


@pytest.mark.parametrize(
    ("group", "plural", "derived"),
    [("", "pods", True), ("apps", "daemonsets", False), ("metrics.k8s.io", "pods", False)],
)
def test_whose_metadata_are_derived(group: str, plural: str, *, derived: bool) -> None:
    info = ResourceInfo(Resource(group, "v1", plural), "Pod", namespaced=True)
    asked = Representation(FormName.METADATA_PROTOBUF, "v1")
    assert (protobuf_form(info, POD.page()).rendering(asked, "") is not None) is derived


@pytest.mark.parametrize(("wire", "meta"), SHOWN)
@pytest.mark.parametrize("version", [8, 12345])
def test_another_version(wire: Messages, meta: str, version: int) -> None:
    form = form_of(meta)
    [found] = form.decode_page(upstream(meta).page(ODD)).objects
    rest = ODD[len(message("x", version=7, labels={"a": "6"})) :]
    expected = message("x", version=version, labels={"a": "6"}, rest=rest)
    assert restamp(ODD, version) == expected
    assert writer(form, meta).encode_event(EventType.DELETED, found, version) == wire.frame(
        "DELETED", expected
    )


@pytest.mark.parametrize("raw", [b"", field(2, b""), field(1, field(1, b"x"))])
def test_what_has_no_version_gets_none(raw: bytes) -> None:
    with pytest.raises(ValueError, match="without"):
        restamp(raw, 1)


@pytest.mark.parametrize(("wire", "meta"), SHOWN)
@pytest.mark.parametrize("shown_end", [False, True])
@pytest.mark.parametrize("end", [False, True])
def test_bookmarks(wire: Messages, meta: str, *, shown_end: bool, end: bool) -> None:
    form = form_of(meta)
    rendering = writer(form, meta)
    rest = b"" if meta else field(2, field(3, b"")) + field(3, b"")
    assert rendering.encode_bookmark(9, initial_end=end) is None
    shown = upstream(meta).bookmark(1234, initial_end=shown_end, rest=rest)
    assert form.decode_event(shown[4:]) == Bookmark(1234, shown_end)
    assert form.has_watch_list is shown_end
    expected = wire.bookmark(99, initial_end=end, rest=rest)
    assert rendering.encode_bookmark(99, initial_end=end) == expected


@pytest.mark.parametrize(("wire", "meta"), SHOWN)
def test_errors(wire: Messages, meta: str) -> None:
    del wire
    error = Expired("too old resource version: 5 (120)")
    frame = framed("ERROR", encode_status(error, PROTOBUF))
    form = form_of(meta)
    failure = form.decode_event(frame[4:])
    assert isinstance(failure, Failure)
    assert failure.frame == frame
    assert (type(failure.error), str(failure.error)) == (Expired, str(error))
    assert writer(form, meta).encode_error(error) == frame


NOT_PAGES = [
    b"",
    b"{}",
    b"k8s\0",
    wrap("v1", "PodList", b"\xff"),
    POD.page(b""),
    POD.page(field(1, b"")),
    POD.page(field(1, field(6, b"x"))),
    POD.page(field(1, field(6, b"1") + field(1, b"\xff"))),
]


@pytest.mark.parametrize("body", NOT_PAGES)
def test_what_is_no_list(body: bytes) -> None:
    for form in (form_of(""), form_of("v1")):
        with pytest.raises(UnknownLayoutError, match="not a list"):
            form.decode_page(body)
    with pytest.raises(UnknownLayoutError):
        protobuf_form(PODS.info, body)
    with pytest.raises(UnknownLayoutError):
        metadata_protobuf_form(PODS.info, body)


@pytest.mark.parametrize(
    "frame",
    [
        b"\xff",
        b"",
        framed("ADDED", b"{}")[4:],
        framed("RENAMED", POD.object(ODD))[4:],
        POD.frame("BOOKMARK", b"")[4:],
        POD.frame("ADDED", b"")[4:],
    ],
)
def test_what_is_no_event(frame: bytes) -> None:
    with pytest.raises(UnknownLayoutError, match="not a watch event"):
        form_of("").decode_event(frame)


def test_label_sets_are_shared() -> None:
    labels = {"b": "2", "a": "1"}
    items = [message("x", labels=labels), message("y", labels=labels), message("z")]
    one, other, none = form_of("").decode_page(POD.page(*items)).objects
    assert one.labels is other.labels
    assert dict(one.labels) == labels
    assert none.labels is NO_LABELS


def test_fields_that_are_built_in() -> None:
    form = protobuf_form(PODS.info, POD.page(), [declared_field("spec.containers[*].image")])
    [full, empty] = form.decode_page(
        POD.page(message("x", rest=SPEC + STATUS), message("y"))
    ).objects
    values = [
        {label: found.fields[place] for label, place in form.field_labels.items()}
        for found in (full, empty)
    ]
    assert {label: text for label, text in values[0].items() if text} == {
        "spec.nodeName": "node-1",
        "spec.host": "node-1",
        "spec.restartPolicy": "Never",
        "spec.hostNetwork": "true",
        "status.phase": "Running",
    }
    assert {label: text for label, text in values[1].items() if text} == {
        "spec.hostNetwork": "false"
    }
    assert "spec.containers[*].image" not in form.field_labels
    assert form.knows_fields


@pytest.mark.parametrize("declared", [[], [declared_field("status.phase")]])
def test_an_index_that_is_declared_of_a_field_that_is_known(
    declared: list[SelectableField],
) -> None:
    form = protobuf_form(PODS.info, POD.page(), declared)
    assert (form.field_labels["status.phase"] in form.indexed) is bool(declared)


@pytest.mark.parametrize(
    ("info", "generation", "known"),
    [(PODS.info, 0, True), (WIDGETS.info, 0, False), (WIDGETS.info, 3, True)],
)
def test_metadata_of_what_is_known(info: ResourceInfo, generation: int, *, known: bool) -> None:
    form = metadata_protobuf_form(info, META.page(), generation=generation)
    assert form.knows_fields is known
    assert form.is_custom is (generation > 0)
    assert form.field_labels == {}


def test_a_resource_whose_fields_are_not_known() -> None:
    info = ResourceInfo(Resource("", "v1", "unknowns"), "Unknown", namespaced=True)
    form = protobuf_form(info, Messages("v1", "Unknown").page())
    assert not form.knows_fields
    assert form.field_labels == {}


def test_shapes_tell_forms_apart() -> None:
    shapes = {form_of("").shape, form_of("v1").shape}
    shapes |= {metadata_protobuf_form(PODS.info, META.page(), generation=2).shape}
    assert len(shapes) == 3


def test_a_version_that_is_not_known_is_not_written() -> None:
    assert form_of("v1").rendering(Representation(FormName.METADATA_PROTOBUF, "v2"), "") is None
