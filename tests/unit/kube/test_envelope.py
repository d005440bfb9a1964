"""What bodies of writes and answers say about themselves, in JSON and protobuf."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.kube.envelope import (
    Envelope,
    decode_status,
    encode_status,
    read_envelope,
    read_error,
    read_precondition,
)
from proxy.kube.errors import (
    ApiError,
    Conflict,
    NotAcceptable,
    NotFound,
    TooManyRequests,
    conflict,
)
from proxy.kube.negotiation import JSON, PROTOBUF
from proxy.kube.protobuf import CLASSES, MAGIC, wrap
from proxy.kube.resources import Resource

MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
DELETED = "2026-01-05T08:00:00Z"

FULL = {
    "name": "x",
    "namespace": "a",
    "uid": "u",
    "resourceVersion": "7",
    "labels": {"app": "x"},
}
X = Envelope("v1", "Pod", "a", "x", "u", 7)


def body(metadata: Any, **members: Any) -> bytes:
    return json.dumps({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, **members}).encode()


def message(name: str, **fields: Any) -> bytes:
    return bytes(CLASSES[name](**fields).SerializeToString())


def pod(**metadata: Any) -> bytes:
    """A Pod in protobuf, with a spec that nobody reads."""
    return wrap("v1", "Pod", message("Object", metadata=metadata) + b"\x12\x03\x0a\x01x")


BASIC = {"name": "x", "namespace": "a", "uid": "u", "resourceVersion": "7"}


@pytest.mark.parametrize(
    ("content_type", "content", "expected"),
    [
        (JSON, body(FULL), X),
        (JSON, body(FULL, spec={"metadata": {"name": "other"}}), X),
        ("Application/JSON; charset=utf-8", body(FULL), X),
        (MERGE, body(FULL), X),
        (STRATEGIC, body(FULL), X),
        (MERGE, b'{"metadata":{"resourceVersion":"7"}}', Envelope("", "", "", "", "", 7)),
        (MERGE, b'{"metadata":{"resourceVersion":null}}', Envelope("", "", "", "", "", None)),
        (MERGE, b'{"metadata":null}', Envelope("", "", "", "", "", None)),
        (MERGE, b'{"spec":{}}', Envelope("", "", "", "", "", None)),
        (JSON, b"{}", Envelope("", "", "", "", "", None)),
        (JSON, body({**FULL, "resourceVersion": "0x7"}), X._replace(version=None)),
        (JSON, body({**FULL, "resourceVersion": ""}), X._replace(version=None)),
        (JSON, body({**FULL, "resourceVersion": "-7"}), X._replace(version=None)),
        (JSON, body({"generateName": "x-"}), Envelope("v1", "Pod", "", "", "", None)),
        (PROTOBUF, pod(**BASIC), X),
        (f"{PROTOBUF};charset=x", pod(**BASIC), X),
        (PROTOBUF, pod(name="x"), Envelope("v1", "Pod", "", "x", "", None)),
        (PROTOBUF, wrap("v1", "Pod", b""), Envelope("v1", "Pod", "", "", "", None)),
    ],
)
def test_an_object_is_read(content_type: str, content: bytes, expected: Envelope) -> None:
    assert read_envelope(content_type, content) == expected


@pytest.mark.parametrize(
    ("metadata", "is_last"),
    [
        ({}, False),
        ({"deletionTimestamp": None}, False),
        ({"deletionTimestamp": DELETED}, True),
        ({"deletionTimestamp": DELETED, "deletionGracePeriodSeconds": 0}, True),
        ({"deletionTimestamp": DELETED, "deletionGracePeriodSeconds": 30}, False),
        ({"deletionTimestamp": DELETED, "finalizers": ["a/b"]}, False),
        ({"deletionTimestamp": DELETED, "finalizers": []}, True),
        ({"finalizers": ["a/b"]}, False),
    ],
)
def test_deletion(metadata: dict[str, Any], is_last: bool) -> None:
    expected = X._replace(is_last=is_last)
    assert read_envelope(JSON, body({**FULL, **metadata})) == expected
    fields = {key: value for key, value in metadata.items() if value is not None}
    if "deletionTimestamp" in fields:
        fields["deletionTimestamp"] = {"seconds": 1}
    assert read_envelope(PROTOBUF, pod(**BASIC, **fields)) == expected


@pytest.mark.parametrize("content_type", [JSON, PROTOBUF])
def test_the_status_of_a_deletion(content_type: str) -> None:
    status = {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Success",
        "details": {"name": "x", "kind": "configmaps", "uid": "u"},
    }
    content = encode_status(status, content_type)
    expected = Envelope("v1", "Status", "", "x", "u", None)
    assert read_envelope(content_type, content) == expected
    assert decode_status(content_type, content) == status


LISTS = [
    (JSON, b'{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"7"},"items":[]}'),
    (PROTOBUF, wrap("v1", "PodList", b"\x0a\x07\x0a\x00\x12\x017\x1a\x00")),
]
GARBAGE = [
    (JSON, b""),
    (JSON, b"[]"),
    (JSON, b"{"),
    (JSON, b"\x1f\x8b\x08\x00"),
    (JSON, b'{"kind":7}'),
    (JSON, b'{"metadata":[]}'),
    (JSON, b'{"metadata":{"name":7}}'),
    (JSON, b'{"metadata":{"name":"\xff"}}'),
    (JSON, b'{"a":' * 100_000),
    (JSON, pod(**BASIC)),
    ("application/json-patch+json", b'[{"op":"remove","path":"/metadata"}]'),
    ("application/yaml", b"kind: Pod\n"),
    ("application/yaml", body(FULL)),
    ("application/apply-patch+yaml", body(FULL)),
    ("application/cbor", b"\xd9\xd9\xf7\xa0"),
    ("", body(FULL)),
    (PROTOBUF, b""),
    (PROTOBUF, body(FULL)),
    (PROTOBUF, MAGIC + b"\x0a\xff"),
    (PROTOBUF, wrap("v1", "Pod", b"\x0a\x05x")),
    (PROTOBUF, wrap("v1", "Pod", b"\x0a\x03\x0a\x01\xff")),
    (PROTOBUF, wrap("v1", "Status", b"\x2a\x03\x0a\x01\xff")),
    (PROTOBUF, MAGIC + message("Unknown", raw=b"", contentEncoding="gzip")),
    (PROTOBUF, MAGIC + message("Unknown", raw=b"{}", contentType="application/json")),
]


@pytest.mark.parametrize(("content_type", "content"), LISTS + GARBAGE)
def test_what_is_not_understood(content_type: str, content: bytes) -> None:
    assert read_envelope(content_type, content) is None


def test_a_kind_that_ends_as_lists_do() -> None:
    found = read_envelope(JSON, body(FULL).replace(b"Pod", b"AllowList"))
    assert found == X._replace(kind="AllowList")


@given(st.sampled_from([JSON, MERGE, PROTOBUF]), st.binary(max_size=64))
def test_nothing_is_raised(content_type: str, content: bytes) -> None:
    read_envelope(content_type, content)
    read_envelope(content_type, MAGIC + content)
    read_precondition(content)
    read_precondition(MAGIC + content)
    decode_status(content_type, MAGIC + content)


OPTIONS = wrap(
    "v1", "DeleteOptions", message("DeleteOptions", preconditions={"resourceVersion": "7"})
)


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b'{"preconditions":{"resourceVersion":"7"}}', 7),
        (b'{"kind":"DeleteOptions","preconditions":{"uid":"u","resourceVersion":"7"}}', 7),
        (b'{"preconditions":{"resourceVersion":"x"}}', None),
        (b'{"preconditions":{"resourceVersion":null}}', None),
        (b'{"preconditions":{"uid":"u"}}', None),
        (b'{"preconditions":null}', None),
        (b'{"gracePeriodSeconds":0}', None),
        (b"{}", None),
        (b"", None),
        (b"preconditions: {}", None),
        (OPTIONS, 7),
        (wrap("v1", "DeleteOptions", b""), None),
        (MAGIC + b"\xff", None),
    ],
)
def test_preconditions(content: bytes, expected: int | None) -> None:
    assert read_precondition(content) == expected


DEPLOYMENTS = Resource("apps", "v1", "deployments")
CAUSES = [
    {"reason": "FieldValueChanged", "message": "changed <from> 1 to 3", "field": "spec.replicas"},
    {"reason": "FieldValueChanged", "message": "and 3 more changed"},
]
ERRORS = [
    conflict(DEPLOYMENTS, "x"),
    Conflict("both", details={"name": "x", "uid": "u", "causes": CAUSES}),
    NotFound("nothing"),
    NotFound("nothing", details={"name": "ä"}),
    TooManyRequests("slow down", retry_after=3),
]


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: str(error)[:20])
@pytest.mark.parametrize("content_type", [JSON, PROTOBUF, f"{PROTOBUF};charset=x", "text/plain"])
def test_a_status_is_read_as_it_was_written(error: ApiError, content_type: str) -> None:
    content = encode_status(error, content_type)
    if content_type == "text/plain":
        assert content == error.status_body()
        assert decode_status(content_type, content) is None
        return
    read = decode_status(content_type, content)
    assert read == error.status()
    assert list(read) == list(error.status())
    assert encode_status(read, content_type) == content


def test_empty_fields_are_written_in_protobuf() -> None:
    content = encode_status(NotFound("", details={"name": "x"}), PROTOBUF)
    assert content == bytes.fromhex(
        "6b387300 0a0c 0a027631 1206537461747573"  # Unknown.typeMeta: v1, Status
        "122d"  # raw
        "0a06 0a00 1200 1a00"  # metadata, whose fields are empty
        "1207 4661696c757265"  # status: Failure
        "1a00"  # message
        "2208 4e6f74466f756e64"  # reason: NotFound
        "2a0b 0a0178 1200 1a00 2800 3200"  # details, without causes
        "309403"  # code: 404
        "1a00 2200"  # contentEncoding, contentType
    )


def test_empty_details_are_kept() -> None:
    for content_type in (JSON, PROTOBUF):
        status = {**NotFound("nothing").status(), "details": {}}
        found = decode_status(content_type, encode_status(status, content_type))
        assert found == {**NotFound("nothing").status(), "details": {}}


@pytest.mark.parametrize(
    ("content_type", "content"),
    [
        *GARBAGE,
        (JSON, body(FULL)),
        (PROTOBUF, pod(**BASIC)),
        (JSON, b'{"kind":"Status","details":[]}'),
        (JSON, b'{"kind":"Status","details":{"causes":{}}}'),
        # A field that isn't known would be lost.
        (PROTOBUF, wrap("v1", "Status", message("Status", code=409) + b"\x3a\x01x")),
    ],
)
def test_what_is_no_status(content_type: str, content: bytes) -> None:
    assert decode_status(content_type, content) is None


def test_unknown_members_of_json_are_kept() -> None:
    content = b'{"kind":"Status","metadata":{"a":1},"details":{"b":2},"c":3}\n'
    read = decode_status(JSON, content)
    assert read is not None
    assert encode_status(read, JSON) == content


@pytest.mark.parametrize("content_type", [JSON, PROTOBUF])
@pytest.mark.parametrize("code", [0, 429])
def test_errors_are_rebuilt_from_either_encoding(content_type: str, code: int) -> None:
    error = TooManyRequests("slowly", retry_after=3)
    found = read_error(code, encode_status(error, content_type))
    assert type(found) is TooManyRequests
    assert found.status() == error.status()


@pytest.mark.parametrize(
    "body", [b"", b"no Status", MAGIC, MAGIC + b"\xff", wrap("v1", "Pod", b"")]
)
def test_errors_without_a_status(body: bytes) -> None:
    found = read_error(406, body)
    assert type(found) is NotAcceptable
    assert found.code == 406
