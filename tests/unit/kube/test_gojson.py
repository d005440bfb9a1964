"""JSON as Go writes it."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.kube import gojson

values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=10,
)


@pytest.mark.parametrize(
    ("value", "encoded"),
    [
        ({"b": 1, "a": [True, None]}, b'{"b":1,"a":[true,null]}'),
        ("a < b && b > a", rb'"a \u003c b \u0026\u0026 b \u003e a"'),
        ("\u2028\u2029", rb'"\u2028\u2029"'),
        ("\\u003c", rb'"\\u003c"'),
        ('"\\/', rb'"\"\\/"'),
        ("\n\r\t", rb'"\n\r\t"'),
        ("\b\f", rb'"\b\f"'),
        ("\x00\x1f", rb'"\u0000\u001f"'),
        ("é😀", '"é😀"'.encode()),
        ("\x7f", b'"\x7f"'),
        ({"<": ">"}, rb'{"\u003c":"\u003e"}'),
        ([], b"[]"),
        ({}, b"{}"),
        ("", b'""'),
    ],
)
def test_values_are_written_as_go_does(value: Any, encoded: bytes) -> None:
    assert gojson.encode(value) == encoded


@given(values)
def test_what_is_written_reads_as_it_was(value: Any) -> None:
    encoded = gojson.encode(value)
    assert json.loads(encoded) == value
    assert not any(plain in encoded for plain in (b"<", b">", b"&", b"\xe2\x80\xa8"))


@given(st.dictionaries(st.text(), values, max_size=5))
def test_members_are_put_together_as_they_were(members: dict[str, Any]) -> None:
    encoded = gojson.encode(members)
    apart = msgspec.json.decode(encoded, type=dict[str, msgspec.Raw])
    assert gojson.join_members(apart) == encoded


@pytest.mark.parametrize(
    ("compact", "pretty"),
    [
        (b'{"a":1}\n', b'{\n  "a": 1\n}'),
        (
            b'{"a":[1,{"b":"x  y"}]}',
            b'{\n  "a": [\n    1,\n    {\n      "b": "x  y"\n    }\n  ]\n}',
        ),
        (b'{"a":[],"b":{}}', b'{\n  "a": [],\n  "b": {}\n}'),
        (b'{"a":"\\u003c:,{}"}\n', b'{\n  "a": "\\u003c:,{}"\n}'),
    ],
)
def test_pretty_documents(compact: bytes, pretty: bytes) -> None:
    assert gojson.indent(compact) == pretty
