"""API errors: what they say on the wire, and how they are read from it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from proxy.kube.errors import (
    ApiError,
    BadRequest,
    Conflict,
    Expired,
    Forbidden,
    InternalError,
    Invalid,
    MethodNotAllowed,
    NotAcceptable,
    NotFound,
    RequestTimeout,
    RequestTooLarge,
    ServiceUnavailable,
    Timeout,
    TooManyRequests,
    Unauthorized,
    UnsupportedMediaType,
    from_status,
)

FAMILY: dict[type[ApiError], tuple[int, str]] = {
    BadRequest: (400, "BadRequest"),
    Unauthorized: (401, "Unauthorized"),
    Forbidden: (403, "Forbidden"),
    NotFound: (404, "NotFound"),
    MethodNotAllowed: (405, "MethodNotAllowed"),
    NotAcceptable: (406, "NotAcceptable"),
    RequestTimeout: (408, "Timeout"),
    Conflict: (409, "Conflict"),
    Expired: (410, "Expired"),
    UnsupportedMediaType: (415, "UnsupportedMediaType"),
    Invalid: (422, "Invalid"),
    TooManyRequests: (429, "TooManyRequests"),
    RequestTooLarge: (431, "RequestEntityTooLarge"),
    InternalError: (500, "InternalError"),
    ServiceUnavailable: (503, "ServiceUnavailable"),
    Timeout: (504, "Timeout"),
}


def status(code: int, message: str = "what happened", **members: Any) -> bytes:
    """A Status as the API server writes it."""
    known = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure"}
    return json.dumps({**known, "message": message, **members, "code": code}).encode()


def test_the_family_is_complete() -> None:
    assert set(FAMILY) == set(ApiError.__subclasses__())


@pytest.mark.parametrize("cls", FAMILY, ids=lambda cls: cls.__name__)
def test_each_error_knows_its_status(cls: type[ApiError]) -> None:
    code, reason = FAMILY[cls]
    error = cls("it <went> wrong")
    assert str(error) == "it <went> wrong"
    assert error.status_body() == (
        b'{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure",'
        b'"message":"it \\u003cwent\\u003e wrong","reason":"%s","code":%d}\n'
        % (reason.encode(), code)
    )


@pytest.mark.parametrize("cls", FAMILY, ids=lambda cls: cls.__name__)
def test_each_error_is_read_from_its_own_body(cls: type[ApiError]) -> None:
    error = cls("it went wrong", details={"causes": [{"message": "why"}]}, retry_after=3)
    for code in (0, error.code):
        read = from_status(code, error.status_body())
        assert type(read) is cls
        assert read.status() == error.status()
        assert read.retry_after == 3


def test_details_stand_before_the_code() -> None:
    error = TooManyRequests("slow down", details={"group": "apps"}, retry_after=1)
    assert list(error.status())[-2:] == ["details", "code"]
    assert error.status()["details"] == {"group": "apps", "retryAfterSeconds": 1}


def test_details_are_the_errors_own() -> None:
    details = {"name": "x"}
    TooManyRequests("slow down", details=details, retry_after=1)
    assert details == {"name": "x"}


@pytest.mark.parametrize(("seconds", "expected"), [(None, None), (0, None), (1, 1), (120, 120)])
def test_retry_after(seconds: int | None, expected: int | None) -> None:
    error = ServiceUnavailable("away", retry_after=seconds)
    assert error.retry_after == expected
    assert ("details" in error.status()) is (expected is not None)


@pytest.mark.parametrize("seconds", ["3", -1, 0, 1.5, None])
def test_a_retry_after_that_is_no_number_of_seconds(seconds: object) -> None:
    assert ServiceUnavailable("away", details={"retryAfterSeconds": seconds}).retry_after is None


@pytest.mark.parametrize(
    ("code", "body", "cls", "message"),
    [
        (410, status(410), Expired, "what happened"),
        (0, status(410), Expired, "what happened"),
        (410, status(500), Expired, "what happened"),
        (502, status(502), InternalError, "what happened"),
        (418, b"", InternalError, ""),
        (0, b"{}", InternalError, ""),
        (503, b"upstream connect error\n", ServiceUnavailable, "upstream connect error"),
        (404, b"404 page not found\n", NotFound, "404 page not found"),
        (403, b"\xff\xfe", Forbidden, "\ufffd\ufffd"),
        (500, b"x" * 1000, InternalError, "x" * 200),
        (404, b'["not", "a status"]', NotFound, '["not", "a status"]'),
        (404, b'{"message":7}', NotFound, '{"message":7}'),
        (409, status(409, reason="AlreadyExists"), Conflict, "what happened"),
    ],
)
def test_answers_are_read_as_errors(
    code: int, body: bytes, cls: type[ApiError], message: str
) -> None:
    error = from_status(code, body)
    assert type(error) is cls
    assert error.message == message
    assert error.code == (code or cls.code)


def test_a_code_of_its_own_is_kept() -> None:
    error = InternalError("bad gateway", code=502)
    assert error.status()["code"] == 502
    assert InternalError("plain").code == InternalError.code == 500


def test_the_causes_of_an_answer_are_kept() -> None:
    causes = [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}]
    body = status(504, reason="Timeout", details={"causes": causes, "retryAfterSeconds": 1})
    error = from_status(504, body)
    assert error.details["causes"] == causes
    assert error.retry_after == 1
