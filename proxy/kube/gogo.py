"""Protobuf as gogo-protobuf writes it in Go: fields put together, and found, in bytes.

Messages are kept encoded, so that what isn't read here stays as the API server wrote it.
"""

from typing import NamedTuple

_BYTES = 2
"""The wire type of what has its length in front: strings, bytes and messages."""


class Span(NamedTuple):
    """Where a field is within its message: its tag at *start*, its value from *value* to *end*."""

    start: int
    value: int
    end: int


def varint(number: int) -> bytes:
    """Encode an integer that isn't negative."""
    encoded = bytearray()
    while number > 0x7F:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)


def varint_size(number: int) -> int:
    """Count the bytes that ``varint`` makes of an integer."""
    return (number.bit_length() + 6) // 7 or 1


def field(number: int, value: bytes) -> bytes:
    """Encode a field with its tag and length; *value* is a text or an encoded message."""
    return varint(number << 3 | _BYTES) + varint(len(value)) + value


def find(message: bytes, number: int, start: int = 0, end: int | None = None) -> Span | None:
    """Find the first field of a number that has its length in front; None if there is none.

    The fields of the part from *start* to *end* are passed over one by one. Raises ValueError for
    what is no message.
    """
    at, end = start, len(message) if end is None else end
    while at < end:
        tag, value = _read_varint(message, at)
        kind = tag & 7
        if kind == _BYTES:
            length, value = _read_varint(message, value)
            after = value + length
        elif kind == 0:
            after = _read_varint(message, value)[1]
        else:
            raise ValueError(f"no field of an API object has wire type {kind}")
        if after > end:
            raise ValueError("a field is longer than its message")
        if tag == number << 3 | _BYTES:
            return Span(at, value, after)
        at = after
    return None


def _read_varint(message: bytes, at: int) -> tuple[int, int]:
    """Decode an integer; returns it and the place behind it."""
    number = shift = 0
    while at < len(message):
        byte = message[at]
        number |= (byte & 0x7F) << shift
        at += 1
        if byte < 0x80:
            return number, at
        shift += 7
    raise ValueError("an integer goes on behind the end of its message")
