"""The JSON form: bytes that come in are the bytes that go out, in both of Go's layouts."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.forms.form import Bookmark, Change, EventType, Failure, UnknownLayoutError
from proxy.forms.json import JsonForm
from proxy.forms.objects import Object
from proxy.forms.wire import list_version
from proxy.kube import gojson
from proxy.kube.errors import ApiError, Expired, InternalError, TooManyRequests
from proxy.kube.resources import Resource, ResourceInfo
from proxy.kube.selectable import SelectableField, declared_field
from tests.unit.builders import NODES, PODS, WIDGETS, Item, Wire, error_line, item

WIRES = [PODS, NODES, WIDGETS]

TRICKY = item(
    "tricky",
    version=7,
    labels={"a": "resourceVersion"},
    spec={
        "note": '"resourceVersion":"7" <&> \u2028 \\" {"kind":"Pod","apiVersion":"v1",',
        "metadata": {"resourceVersion": "7"},
        "kind": "Pod",
        "text": "x\n\t\x01é😀",
    },
)
"""An object whose contents look like what a careless search would find."""


def change(form: JsonForm, line: bytes) -> Change:
    decoded = form.decode_event(line)
    assert isinstance(decoded, Change)
    return decoded


def only(wire: Wire, found: Item) -> Object:
    [decoded] = wire.form().decode_page(wire.page(found)).objects
    return decoded


@pytest.fixture(params=WIRES, ids=["pods", "nodes", "widgets"])
def wire(request: pytest.FixtureRequest) -> Wire:
    found = request.param
    assert isinstance(found, Wire)
    return found


# --- round trips --------------------------------------------------------------------------------


@pytest.mark.parametrize("found", [item("x"), TRICKY], ids=["plain", "tricky"])
def test_lists_and_events_hold_the_same_bytes(wire: Wire, found: Item) -> None:
    listed = only(wire, found)
    told = change(wire.form(), wire.event(EventType.ADDED, found)).object
    assert listed.raw == told.raw == wire.in_list(found)
    assert wire.form().encode_object(listed) == wire.object(found) + b"\n"


@pytest.mark.parametrize("event_type", list(EventType))
def test_an_event_is_written_as_it_came(wire: Wire, event_type: EventType) -> None:
    form = wire.form()
    line = wire.event(event_type, TRICKY)
    decoded = change(form, line)
    assert decoded.type is event_type
    assert form.encode_event(decoded.type, decoded.object, decoded.object.version) == line


@pytest.mark.parametrize("count", [0, 1, 3])
def test_a_list_is_written_as_it_came(wire: Wire, count: int) -> None:
    form = wire.form()
    body = wire.page(*(item(f"x{number}") for number in range(count)), version=12)
    page = form.decode_page(body)
    head, tail = form.encode_list_envelope(page.version)
    assert head + b",".join(found.raw for found in page.objects) + tail == body
    assert page.continue_token == ""
    assert list_version(body) == page.version == 12


@pytest.mark.parametrize(("token", "remaining"), [("dG9rZW4", 0), ("dG9rZW4", 17)])
def test_a_page_is_written_as_it_came(wire: Wire, token: str, remaining: int) -> None:
    form = wire.form()
    body = wire.page(item("x"), version=12, token=token, remaining=remaining)
    page = form.decode_page(body)
    assert page.continue_token == token
    head, tail = form.encode_list_envelope(12, token, remaining)
    assert head + page.objects[0].raw + tail == body


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
        max_leaves=8,
    )
)
def test_any_contents_survive(contents: Any) -> None:
    for wire in (PODS, WIDGETS):
        found = item("x", data=contents)
        listed = only(wire, found)
        told = change(wire.form(), wire.event(EventType.MODIFIED, found)).object
        assert listed.raw == told.raw == wire.in_list(found)
        assert wire.form().encode_object(listed) == wire.object(found) + b"\n"


# --- another version ----------------------------------------------------------------------------


def test_a_restamped_event_changes_nothing_else(wire: Wire) -> None:
    form = wire.form()
    found = only(wire, TRICKY)
    restamped = {**TRICKY, "metadata": {**TRICKY["metadata"], "resourceVersion": "99"}}
    line = form.encode_event(EventType.DELETED, found, 99)
    assert line == wire.event(EventType.DELETED, restamped)
    assert change(form, line).object.version == 99


@given(
    st.dictionaries(st.text(min_size=1), st.text(), max_size=4),
    st.integers(1, 2**63),
    st.booleans(),
)
def test_restamping_keeps_every_byte_but_the_version(
    annotations: dict[str, str], version: int, struct: bool
) -> None:
    wire = PODS if struct else WIDGETS
    found = item("x", version=7)
    found["metadata"]["annotations"] = annotations
    expected = item("x", version=version)
    expected["metadata"]["annotations"] = annotations
    line = wire.form().encode_event(EventType.DELETED, only(wire, found), version)
    assert line == wire.event(EventType.DELETED, expected)


# --- bookmarks and errors -------------------------------------------------------------------------


@pytest.mark.parametrize("initial_end", [True, False])
def test_a_bookmark_is_written_as_the_server_does(wire: Wire, initial_end: bool) -> None:
    form = wire.form()
    assert form.encode_bookmark(5, initial_end=False) is None, "none was seen yet"
    decoded = form.decode_event(wire.bookmark(41, initial_end=initial_end))
    assert decoded == Bookmark(41, initial_end)
    assert form.has_watch_list is initial_end
    assert form.encode_bookmark(42, initial_end=False) == wire.bookmark(42)
    assert form.encode_bookmark(42, initial_end=True) == wire.bookmark(42, initial_end=True)


def test_a_watch_list_that_was_seen_stays_known(wire: Wire) -> None:
    form = wire.watch_list_form()
    form.decode_event(wire.bookmark(42))
    assert form.has_watch_list
    assert form.encode_bookmark(43, initial_end=True) == wire.bookmark(43, initial_end=True)


def test_a_bookmark_keeps_what_else_the_server_writes() -> None:
    line = (
        b'{"type":"BOOKMARK","object":{"kind":"Pod","apiVersion":"v1","metadata":'
        b'{"resourceVersion":"41","creationTimestamp":null},"spec":{"containers":null},'
        b'"status":{}}}\n'
    )
    form = PODS.form()
    form.decode_event(line)
    assert form.encode_bookmark(5, initial_end=False) == line.replace(b'"41"', b'"5"')


@pytest.mark.parametrize(
    "error",
    [
        Expired("too old resource version: 1 (5)"),
        InternalError("etcd"),
        TooManyRequests("slow", retry_after=3),
    ],
    ids=lambda error: type(error).__name__,
)
def test_an_error_event_is_the_api_servers_error(wire: Wire, error: ApiError) -> None:
    decoded = wire.form().decode_event(error_line(error))
    assert isinstance(decoded, Failure)
    assert type(decoded.error) is type(error)
    assert decoded.error.status() == error.status()


# --- what is not understood -----------------------------------------------------------------------


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"{}",
        b"null",
        b'{"type":"ADDED"}',
        b'{"type":"ADDED","object":{"kind":"Pod","apiVersion":"v1","metadata":{"resourceVers',
        b'{"type":"ADDED","object":{"kind":"Pod","apiVersion":"v1","metadata":{"name":"x"}}}',
        b'{"type":"ADDED","object":{"kind":"Pod","apiVersion":"v1","metadata":'
        b'{"resourceVersion":"abc"}}}',
        b'{"type":"ADDED","object":{"kind":"Pod","apiVersion":"v1"}}',
        b'{"type":"ADDED","object":{"metadata":{"resourceVersion":"1"}}}',
        b'{"type":"ADDED","object":{"apiVersion":"v1","kind":"Pod","metadata":'
        b'{"resourceVersion":"1"}}}',
        b'{"type":"ADDED","object":{"kind":"Node","apiVersion":"v1","metadata":'
        b'{"resourceVersion":"1"}}}',
        b'{"type":"added","object":{"kind":"Pod","apiVersion":"v1","metadata":'
        b'{"resourceVersion":"1"}}}',
        b'{"type":"BOOKMARK","object":{"kind":"Pod","apiVersion":"v1","metadata":{}}}',
        b'{"type":"ADDED","object":[]}',
        b"\xff\xfe",
    ],
)
def test_lines_that_no_form_knows(line: bytes) -> None:
    with pytest.raises(UnknownLayoutError):
        PODS.form().decode_event(line)


LIST = b'{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"1"},"items":'


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b"not JSON",
        b'{"kind":"PodList","items":[]}',
        b'{"kind":"PodList","metadata":{},"items":[]}',
        b'{"kind":"PodList","metadata":{"resourceVersion":"-1"},"items":[]}',
        LIST + b"{}}",
        LIST + b'["x"]}',
        LIST + b'[{"metadata":{"name":"x"}}]}',
        LIST + b'[{"metadata":{"name":"x","resourceVersion":"1"}}',
    ],
)
def test_bodies_that_are_no_list(body: bytes) -> None:
    with pytest.raises(UnknownLayoutError):
        PODS.form().decode_page(body)


@pytest.mark.parametrize("items", [b"[]}", b"null}"])
def test_an_empty_list_has_no_objects(items: bytes) -> None:
    assert PODS.form().decode_page(LIST + items).objects == []


@pytest.mark.parametrize(
    "sample",
    [
        b"",
        b"[]",
        b'{"metadata":{"resourceVersion":"1"},"items":[]}',
        b'{"items":[],"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"1"}}',
        b' {"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"1"},"items":[]}',
        LIST + b'[{"kind":"Pod","apiVersion":"v1","metadata":{"resourceVersion":"1"}}]}',
        b'{"apiVersion":"v1","items":[{"metadata":{"resourceVersion":"1"}}],"kind":"PodList",'
        b'"metadata":{"resourceVersion":"1"}}',
    ],
)
def test_samples_in_neither_layout(sample: bytes) -> None:
    with pytest.raises(UnknownLayoutError):
        JsonForm(PODS.info, sample)


@pytest.mark.parametrize("body", [b"", b"{}", b'{"metadata":{"resourceVersion":""}}'])
def test_bodies_without_a_version(body: bytes) -> None:
    with pytest.raises(UnknownLayoutError):
        list_version(body)


# --- what a form is -----------------------------------------------------------------------------


def form_of(group: str, plural: str, kind: str, *declared: SelectableField) -> JsonForm:
    info = ResourceInfo(Resource(group, "v1", plural), kind, namespaced=True)
    return Wire(info, PODS.layout).form(*declared)


@pytest.mark.parametrize(
    ("form", "knows", "custom", "namespace"),
    [
        (PODS.form(), True, False, True),
        (NODES.form(), True, False, False),
        (WIDGETS.form(), True, True, True),
        (form_of("", "configmaps", "ConfigMap"), True, False, True),
        (form_of("aggregated.example.com", "things", "Thing"), False, False, True),
        (form_of("certificates.k8s.io", "podcertificaterequests", "P"), True, False, False),
    ],
    ids=["pods", "nodes", "widgets", "configmaps", "aggregated", "no-namespace"],
)
def test_what_it_knows(form: JsonForm, knows: bool, custom: bool, namespace: bool) -> None:
    assert form.knows_fields is knows
    assert form.is_custom is custom
    assert form.namespace_selectable is namespace


def test_declared_fields_stand_behind_the_built_in_ones() -> None:
    form = NODES.form(declared_field("spec.podCIDR"))
    assert form.field_labels == {"spec.unschedulable": 0, "spec.podCIDR": 1}
    assert form.indexed == (1,)
    page = form.decode_page(NODES.page(item("n", "", spec={"podCIDR": "10.0.0.0/24"})))
    assert page.objects[0].fields == ("false", "10.0.0.0/24")


def test_declaring_a_built_in_field_gives_it_an_index() -> None:
    form = NODES.form(declared_field("spec.unschedulable"))
    assert form.field_labels == {"spec.unschedulable": 0}
    assert form.indexed == (0,)


def test_shapes_differ_where_objects_would() -> None:
    renamed = ResourceInfo(WIDGETS.info.resource, "Gadget", namespaced=True)
    moved = ResourceInfo(WIDGETS.info.resource, "Widget", namespaced=False)
    forms = [
        WIDGETS.form(),
        WIDGETS.form(declared_field("spec.color")),
        WIDGETS.form(declared_field("spec.size")),
        Wire(WIDGETS.info, PODS.layout).form(),
        Wire(renamed, WIDGETS.layout).form(),
        Wire(moved, WIDGETS.layout).form(),
    ]
    assert len({form.shape for form in forms}) == len(forms)
    assert WIDGETS.form().shape == WIDGETS.watch_list_form().shape


def test_decoded_objects_do_not_keep_the_body_alive() -> None:
    [found] = PODS.form().decode_page(PODS.page(item("x"))).objects
    assert type(found.raw) is bytes
    assert msgspec.json.decode(found.raw)["metadata"]["name"] == "x"
    assert gojson.encode(msgspec.json.decode(found.raw)) == found.raw
