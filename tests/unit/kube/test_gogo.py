"""Fields in bytes, against the protobuf runtime."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.kube.gogo import Span, field, find, varint, varint_size
from proxy.kube.protobuf import message_classes

MESSAGE = message_classes({"M": ("n 1 int64", "a 2 bytes", "b 20 bytes", "c 3 bytes")})["M"]


@given(st.integers(0, 2**63 - 1))
def test_integers(number: int) -> None:
    assert MESSAGE.FromString(b"\x08" + varint(number)).n == number
    assert varint_size(number) == len(varint(number))


@given(st.integers(0, 300), st.binary(max_size=300), st.binary(max_size=300))
def test_fields_are_written_and_found(number: int, first: bytes, last: bytes) -> None:
    written = b"\x08" + varint(number) + field(2, first) + field(20, last)
    message = MESSAGE.FromString(written)
    assert (message.n, message.a, message.b) == (number, first, last)
    for wanted, value in ((2, first), (20, last)):
        span = find(written, wanted)
        assert span is not None
        assert written[span.value : span.end] == value
        assert written[span.start : span.end] == field(wanted, value)
    assert find(written, 3) is None


def test_a_part_is_searched() -> None:
    written = field(2, field(2, b"x")) + field(3, b"y")
    outer = find(written, 2)
    assert outer == Span(0, 2, 5)
    assert find(written, 2, outer.value, outer.end) == Span(2, 4, 5)
    assert find(written, 3, outer.value, outer.end) is None


@pytest.mark.parametrize(
    "broken", [b"\x12", b"\x12\x05x", b"\x80", b"\x09" + bytes(8), b"\x0b", b"\x12\x80"]
)
def test_what_is_no_message(broken: bytes) -> None:
    with pytest.raises(ValueError, match=r"message|wire type"):
        find(broken, 3)


def test_a_field_may_not_reach_beyond_its_part() -> None:
    """What is read of a nested message stays within it."""
    with pytest.raises(ValueError, match="longer than its message"):
        find(field(2, b"xy") + field(3, b"z"), 3, 0, 3)
