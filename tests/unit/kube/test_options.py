"""Query parameters: split as Go splits them, read as kube-apiserver reads them."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote, urlencode

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.kube.options import SHORT, ReadOptions, parse_options, parse_query
from proxy.kube.selectors import parse_field_selector, parse_label_selector

# --- splitting -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("query", "pairs"),
    [
        ("", {}),
        ("&", {}),
        ("a=1", {"a": "1"}),
        ("a=1&b=2", {"a": "1", "b": "2"}),
        ("a=1&&b=2&", {"a": "1", "b": "2"}),
        ("a", {"a": ""}),
        ("a=", {"a": ""}),
        ("=a", {"": "a"}),
        ("a=b=c", {"a": "b=c"}),
        # The first of a repeated key counts.
        ("a=1&a=2", {"a": "1"}),
        ("a=&a=2", {"a": ""}),
        # Escapes, in keys too.
        ("a=b%20c+d%2B", {"a": "b c d+"}),
        ("%61=1", {"a": "1"}),
        ("a%3Db=1", {"a=b": "1"}),
        ("a=%26b%3D1", {"a": "&b=1"}),
        ("a=%41%4a%4A", {"a": "AJJ"}),
        # Bytes, whatever they encode.
        ("a=%ff", {"a": "\xff"}),
        ("a=%C3%A9", {"a": "\xc3\xa9"}),
        # A semicolon or a broken escape drops its pair, and only that.
        ("a=1;b=2&c=3", {"c": "3"}),
        ("a;b&c=3", {"c": "3"}),
        ("a=%&c=3", {"c": "3"}),
        ("a=%4&c=3", {"c": "3"}),
        ("a=%zz&c=3", {"c": "3"}),
        ("a=%4g&c=3", {"c": "3"}),
        ("a=%+1&c=3", {"c": "3"}),
        ("a=%_1&a=%-1&a=% 1&c=3", {"c": "3"}),
        ("%zz=1&c=3", {"c": "3"}),
        ("a=%zz&a=2", {"a": "2"}),
        ("a=%2541", {"a": "%41"}),
    ],
)
def test_queries(query: str, pairs: dict[str, str]) -> None:
    assert parse_query(query.encode()) == pairs


@given(st.lists(st.tuples(st.text(), st.text())))
def test_what_was_encoded_is_read_back(pairs: list[tuple[str, str]]) -> None:
    expected: dict[str, str] = {}
    for key, value in pairs:
        expected.setdefault(*(text.encode().decode("latin-1") for text in (key, value)))
    assert parse_query(urlencode(pairs).encode()) == expected
    spaced = "&".join(f"{quote(key, safe='')}={quote(value, safe='')}" for key, value in pairs)
    assert parse_query(spaced.encode()) == ({} if spaced == "" else expected)


@given(st.binary(max_size=40))
def test_no_query_is_too_odd_to_split(query: bytes) -> None:
    for key, value in parse_query(query).items():
        assert all(ord(character) < 256 for character in key + value)


# --- reading ---------------------------------------------------------------------------------


def options(**members: Any) -> ReadOptions:
    nothing = {"labels": parse_label_selector(""), "fields": parse_field_selector("")}
    return ReadOptions(**{**nothing, **members})


@pytest.mark.parametrize(
    ("query", "members"),
    [
        ("", {}),
        ("unknown=1&fieldManager=me&Watch=1", {}),
        ("labelSelector=app%3Dx", {"labels": parse_label_selector("app=x")}),
        ("fieldSelector=spec.a%3Dx", {"fields": parse_field_selector("spec.a=x")}),
        ("labelSelector=&fieldSelector=", {}),
        ("labelSelector=a;b", {}),
        # Versions.
        ("resourceVersion=", {}),
        ("resourceVersion=0", {"resource_version": 0}),
        ("resourceVersion=01", {"resource_version": 1}),
        ("resourceVersion=17", {"resource_version": 17}),
        ("resourceVersion=18446744073709551615", {"resource_version": 2**64 - 1}),
        ("resourceVersionMatch=Any", {"resource_version_match": "Any"}),
        ("continue=abc", {"continue_token": "abc"}),
        # Numbers.
        ("limit=0", {}),
        ("limit=-0", {}),
        ("limit=5", {"limit": 5}),
        ("limit=007", {"limit": 7}),
        ("limit=-5", {"limit": -5}),
        ("limit=9223372036854775807", {"limit": 2**63 - 1}),
        ("limit=-9223372036854775808", {"limit": -(2**63)}),
        ("timeoutSeconds=0", {}),
        ("timeoutSeconds=300", {"timeout_seconds": 300}),
        ("timeoutSeconds=-1", {"timeout_seconds": -1}),
        # Booleans: whatever isn't false is true.
        ("watch=0", {}),
        ("watch=false", {}),
        ("watch=FALSE", {}),
        ("watch", {"watch": True}),
        ("watch=", {"watch": True}),
        ("watch=1", {"watch": True}),
        ("watch=no", {"watch": True}),
        ("watch=0&watch=1", {}),
        ("allowWatchBookmarks=1", {"allow_watch_bookmarks": True}),
        ("allowWatchBookmarks=false", {}),
        ("sendInitialEvents=1", {"send_initial_events": True}),
        ("sendInitialEvents=", {"send_initial_events": True}),
        ("sendInitialEvents=0", {"send_initial_events": False}),
        # pretty is read by another function: whatever isn't true is false.
        ("pretty=", {}),
        ("pretty=1", {"pretty": True}),
        ("%70retty=1", {}),
        ("pretty=t", {"pretty": True}),
        ("pretty=TRUE", {"pretty": True}),
        ("pretty=0", {"pretty": False}),
        ("pretty=tRUE", {"pretty": False}),
        ("pretty=yes", {"pretty": False}),
        # What only some requests heed.
        ("timeout=32s", {}),
        ("timeout=1h1m1s", {}),
        ("timeout=0", {}),
        ("timeout=0s", {}),
        ("timeout=", {}),
        ("export=false", {}),
        ("export=0", {}),
    ],
)
def test_options(query: str, members: dict[str, Any]) -> None:
    assert parse_options(query.encode()) == options(**members)


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("limit=", 'parsing "": invalid syntax'),
        ("limit", 'parsing "": invalid syntax'),
        ("limit=x", 'parsing "x": invalid syntax'),
        ("limit=%2B1", r'parsing "\+1": invalid syntax'),
        ("limit=+1", 'parsing " 1": invalid syntax'),
        ("limit=1.0", "invalid syntax"),
        ("limit=1e3", "invalid syntax"),
        ("limit=1_0", "invalid syntax"),
        ("limit=--1", "invalid syntax"),
        ("limit=-", "invalid syntax"),
        ("limit=9223372036854775808", "value out of range"),
        ("limit=-9223372036854775809", "value out of range"),
        ("limit=" + "9" * 5000, "digits|range"),
        ("timeoutSeconds=", "invalid syntax"),
        ("timeoutSeconds=1s", "invalid syntax"),
        ("timeoutSeconds=9223372037", "overflow"),
        ("resourceVersion=00", "out of range"),
        ("resourceVersion=abc", "'abc' is not a decimal number"),
        ("resourceVersion=-1", "not a decimal number"),
        ("resourceVersion=1.0", "not a decimal number"),
        ("resourceVersion=18446744073709551616", "out of range"),
        ("labelSelector=,", "."),
        ("labelSelector=a%3D%3D%3Db", "."),
        ("labelSelector=a+in+x", "."),
        ("fieldSelector=a", "."),
        # Maybe fine, maybe not: the API server's to say.
        ("timeout=junk", "invalid timeout"),
        ("timeout=1", "invalid timeout"),
        ("timeout=%2B5s", "invalid timeout"),
        ("timeout=1ns", "invalid timeout"),
        ("timeout=1s ", "invalid timeout"),
        ("export=true", "export"),
        ("export", "export"),
        ("labelSelector=%ff", "UTF-8"),
        ("fieldSelector=a%3D%C3%A9", "UTF-8"),
        ("unknown=%C3%A9", "UTF-8"),
    ],
)
def test_options_that_the_api_server_may_refuse(query: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        parse_options(query.encode())


def test_a_refusal_is_repeated() -> None:
    """What is remembered by query are options, never that there were none."""
    for _ in range(2):
        with pytest.raises(ValueError, match="invalid syntax"):
            parse_options(b"limit=again")


@pytest.mark.parametrize(("length", "remembered"), [(SHORT, True), (SHORT + 1, False)])
def test_only_short_queries_are_remembered(length: int, *, remembered: bool) -> None:
    query = b"unknown=".ljust(length, b"b")
    first = parse_options(query)
    assert parse_options(query) == first
    assert (parse_options(query) is first) is remembered
