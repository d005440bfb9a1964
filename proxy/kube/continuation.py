"""Continue tokens, in kube-apiserver's own format (``apiserver/pkg/storage/continue.go``).

The API server understands ours and we understand its own, so a list that was begun at one of them
can be continued at the other.
"""

from base64 import urlsafe_b64decode, urlsafe_b64encode
from string import ascii_letters, digits
from typing import NamedTuple

import msgspec

from proxy.kube import gojson

_FORMAT = "meta.k8s.io/v1"

_ALPHABET = frozenset(ascii_letters + digits + "-_")  # b64decode skips all else, Go refuses it

LATEST = -1
"""The version of a token that continues at whatever is current (an inconsistent continue)."""


class Token(NamedTuple):
    """Where a list goes on: at *version*, from *start* on, a key within the request's scope."""

    version: int
    start: str


class _Wire(msgspec.Struct):
    v: str
    rv: int
    start: str


def encode_token(token: Token, *, slash: bool) -> str:
    """Write a token; the watch cache's keys begin with a *slash*, those of etcd don't."""
    start = f"/{token.start}" if slash else token.start
    wire = gojson.encode({"v": _FORMAT, "rv": token.version, "start": start})
    return urlsafe_b64encode(wire).rstrip(b"=").decode()


def decode_token(text: str) -> Token:
    """Read a token. Raises ValueError for one that the API server refuses, or might."""
    try:
        wire = msgspec.json.decode(urlsafe_b64decode(text + "=" * (-len(text) % 4)), type=_Wire)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise ValueError("not a continue token") from error
    start = wire.start.removeprefix("/")
    steps = start.split("/")
    if wire.v != _FORMAT or wire.rv == 0 or wire.rv < LATEST or not start:
        raise ValueError("a continue token of another kind")
    if "" in steps or not {".", ".."}.isdisjoint(steps) or not _ALPHABET.issuperset(text):
        raise ValueError("continue key is not valid")
    return Token(wire.rv, start)
