"""Continue tokens: what the API server writes is read, what it refuses is refused."""

from __future__ import annotations

import json
from base64 import b64encode, urlsafe_b64encode
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.kube.continuation import LATEST, Token, decode_token, encode_token

NAME = st.from_regex(r"[a-z0-9]([-.a-z0-9]{0,20}[a-z0-9])?", fullmatch=True)


def wire(**members: Any) -> str:
    """A token of any contents, encoded as Go's base64.RawURLEncoding does."""
    members = {"v": "meta.k8s.io/v1", "rv": 227, "start": "a/x\0"} | members
    present = {key: value for key, value in members.items() if value is not None}
    return encoded(json.dumps(present).encode())


def encoded(body: bytes) -> str:
    return urlsafe_b64encode(body).rstrip(b"=").decode()


@given(
    st.integers(1, 2**63 - 1) | st.just(LATEST),
    st.none() | NAME,
    NAME,
    st.booleans(),
)
def test_a_token_comes_back_as_it_went(
    version: int, namespace: str | None, name: str, slash: bool
) -> None:
    token = Token(version, f"{namespace}/{name}\0" if namespace else f"{name}\0")
    text = encode_token(token, slash=slash)
    assert decode_token(text) == token
    assert not set(text) & set("=+/")


@pytest.mark.parametrize(
    ("slash", "body"),
    [
        (True, b'{"v":"meta.k8s.io/v1","rv":227,"start":"/default/a\\u0000"}'),
        (False, b'{"v":"meta.k8s.io/v1","rv":227,"start":"default/a\\u0000"}'),
    ],
)
def test_tokens_are_written_as_kube_apiserver_does(slash: bool, body: bytes) -> None:
    assert encode_token(Token(227, "default/a\0"), slash=slash) == encoded(body)
    assert decode_token(encoded(body)) == Token(227, "default/a\0")


@pytest.mark.parametrize(
    ("text", "token"),
    [
        (wire(), Token(227, "a/x\0")),
        (wire(start="x\0"), Token(227, "x\0")),
        (wire(start="/x\0"), Token(227, "x\0")),
        (wire(start="system:node.x\0"), Token(227, "system:node.x\0")),
        (wire(start="..x/y\0"), Token(227, "..x/y\0")),
        (wire(rv=-1), Token(LATEST, "a/x\0")),
        (wire(more="later"), Token(227, "a/x\0")),
    ],
)
def test_tokens_that_are_understood(text: str, token: Token) -> None:
    assert decode_token(text) == token


@pytest.mark.parametrize(
    "text",
    [
        "",
        "a",
        "junk",
        "!!!!",
        "é",
        encoded(b"null"),
        encoded(b'{"v":' + b"[" * 5000 + b"]" * 5000 + b"}"),
        encoded(b"[]"),
        encoded(b"{}"),
        encoded(b'{"v":"meta.k8s.io/v1","rv":1'),
        encoded(b"\xff\xfe\xfd"),
        wire(v="meta.k8s.io/v2"),
        wire(v="meta1.k8s.io/v1"),
        wire(v=None),
        wire(rv=None),
        wire(rv=0),
        wire(rv=-2),
        wire(rv="227"),
        wire(rv=1.5),
        wire(start=None),
        wire(start=""),
        wire(start="/"),
        wire(start="//x\0"),
        wire(start="a//x\0"),
        wire(start="a/"),
        wire(start="../x\0"),
        wire(start="a/../x\0"),
        wire(start="a/./x\0"),
        wire(start=".."),
        wire() + "=",
        wire() + "====",
        wire(start="a/xy\0") + "==",
        wire()[:-2],
        wire()[:8] + "!!!!" + wire()[8:],
        wire()[:8] + "\n\n\n\n" + wire()[8:],
        " " * 4 + wire(),
    ],
)
def test_tokens_that_are_refused(text: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - any of its kinds
        decode_token(text)


def test_only_the_alphabet_of_urls_is_read() -> None:
    """One whose encoding has both of the letters in which the alphabets differ."""
    body = b'{"v":"meta.k8s.io/v1","rv":227,"start":"a/\xc3\xbf\xc3\xbe\xc2\xbf>>>???\\u0000"}'
    text = encoded(body)
    standard = b64encode(body).rstrip(b"=").decode()
    assert set(text) & set("-_")
    assert decode_token(text).version == 227
    with pytest.raises(ValueError, match="not valid"):
        decode_token(standard)
