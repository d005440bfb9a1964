"""JSON as Go's encoding/json writes it: compact, with ``<``, ``>``, ``&`` and U+2028/9 escaped."""

from typing import Any

import msgspec

# Outside strings none of these characters can occur in JSON, so replacing bytes is exact.
_ESCAPES = (
    (b"<", b"\\u003c"),
    (b">", b"\\u003e"),
    (b"&", b"\\u0026"),
    ("\u2028".encode(), b"\\u2028"),
    ("\u2029".encode(), b"\\u2029"),
)

_MEMBERS = msgspec.json.Decoder(dict[str, msgspec.Raw])


def encode(value: Any) -> bytes:
    """Encode *value*; dicts keep their order."""
    body = msgspec.json.encode(value)
    for plain, escaped in _ESCAPES:
        if plain in body:
            body = body.replace(plain, escaped)
    return body


def indent(body: bytes) -> bytes:
    """Re-indent a compact document by two spaces, as ``?pretty=true`` does: no final newline."""
    return msgspec.json.format(body.rstrip(b"\n"), indent=2)


def split_members(encoded: bytes | msgspec.Raw) -> dict[str, msgspec.Raw]:
    """Decode an object, but not its values. Raises msgspec.MsgspecError for what is none."""
    return _MEMBERS.decode(encoded)


def join_members(members: dict[str, msgspec.Raw]) -> bytes:
    """Encode an object whose values are encoded already: the other way round."""
    pairs = (encode(key) + b":" + bytes(value) for key, value in members.items())
    return b"{" + b",".join(pairs) + b"}"
