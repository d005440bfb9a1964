"""The query parameters of reads: ``metav1.ListOptions`` as kube-apiserver decodes them."""

import re
from functools import lru_cache
from urllib.parse import unquote_to_bytes

import msgspec

from proxy.kube.selectors import (
    FieldSelector,
    LabelSelector,
    parse_field_selector,
    parse_label_selector,
)
from proxy.kube.versions import parse_requested_version

_INT64 = 2**63

MAX_QUERY = 8192
"""Bytes of a query that is read here, in 6 ms if all of it is a selector."""

SHORT = 1024
"""Bytes of a query that is read once, when it's asked again and again; a thousand of them are
remembered, in 50 MiB if every one is a selector with as many terms as fit."""


class ReadOptions(msgspec.Struct, frozen=True):
    """Parsed parameters of a get, list or watch.

    ``resource_version`` is None when unset; ``send_initial_events`` is None when absent;
    ``timeout_seconds`` is None when unset or zero, which both mean the server's own deadline.
    """

    labels: LabelSelector
    fields: FieldSelector
    resource_version: int | None = None
    resource_version_match: str = ""
    continue_token: str = ""
    limit: int = 0
    watch: bool = False
    allow_watch_bookmarks: bool = False
    send_initial_events: bool | None = None
    timeout_seconds: int | None = None
    pretty: bool | None = None
    include_object: str = ""


def parse_options(query: bytes) -> ReadOptions:
    """Parse a raw query string.

    Raises ValueError (SelectorError for a selector) for whatever the API server refuses.
    """
    return _remembered(query) if len(query) <= SHORT else _parse(query)


def _parse(query: bytes) -> ReadOptions:
    pairs = parse_query(query)
    _refuse(pairs)
    version = pairs.get("resourceVersion", "")
    return ReadOptions(
        labels=parse_label_selector(pairs.get("labelSelector", "")),
        fields=parse_field_selector(pairs.get("fieldSelector", "")),
        resource_version=parse_requested_version(version) if version else None,
        resource_version_match=pairs.get("resourceVersionMatch", ""),
        continue_token=pairs.get("continue", ""),
        limit=_integer(pairs.get("limit")) or 0,
        watch=_boolean(pairs.get("watch")) or False,
        allow_watch_bookmarks=_boolean(pairs.get("allowWatchBookmarks")) or False,
        send_initial_events=_boolean(pairs.get("sendInitialEvents")),
        timeout_seconds=_seconds(pairs.get("timeoutSeconds")),
        pretty=_indent(query, pairs),
        include_object=pairs.get("includeObject", ""),
    )


_remembered = lru_cache(maxsize=1024)(_parse)

TIMEOUT = re.compile(r"(0|([0-9]+(h|m|s))+)?")
"""A ``timeout`` that the API server is sure to take."""


def asked_indent(query: bytes) -> bool | None:
    """Read ``pretty`` of any request; None where the user agent decides, or where it's too long."""
    return None if len(query) > MAX_QUERY else _indent(query, parse_query(query))


def _indent(query: bytes, pairs: dict[str, str]) -> bool | None:
    """Only what is spelled out counts (``isPrettyPrint`` looks into the raw query first)."""
    return _pretty(pairs.get("pretty", "")) if b"pretty" in query else None


def _refuse(pairs: dict[str, str]) -> None:
    """Raise for what the API server may refuse, although no option here depends on it."""
    if not all(value.isascii() for value in pairs.values()):
        raise ValueError("not ASCII, and maybe not UTF-8")
    if not TIMEOUT.fullmatch(pairs.get("timeout", "")):
        raise ValueError("invalid timeout specified in the request URL")
    if _boolean(pairs.get("export")):
        raise ValueError("the export parameter is no longer supported")


def parse_query(query: bytes) -> dict[str, str]:
    """Split a query string as Go's ``url.ParseQuery`` does; of a repeated key the first counts.

    Values come as bytes, one character each: whether they are UTF-8 is the API server's business.
    A pair with a semicolon or a broken escape is dropped, silently, as net/http drops it.
    """
    pairs: dict[str, str] = {}
    for pair in query.split(b"&"):
        if not pair or b";" in pair:
            continue
        key, _, value = pair.partition(b"=")
        try:
            pairs.setdefault(_unescape(key), _unescape(value))
        except ValueError:
            continue
    return pairs


def _unescape(text: bytes) -> str:
    if b"%" in text:
        for piece in text.split(b"%")[1:]:
            int(piece[:2], 16)
            if len(piece) < 2 or not piece[:2].isalnum():
                raise ValueError("broken escape")
    return unquote_to_bytes(text.replace(b"+", b" ")).decode("latin-1")


def _boolean(value: str | None) -> bool | None:
    """``Convert_Slice_string_To_bool``: present and neither "false" nor "0" is true, even empty."""
    return None if value is None else value.lower() not in ("false", "0")


def _pretty(value: str) -> bool | None:
    """``strconv.ParseBool``, an error being false; empty leaves it to the user agent."""
    return value in ("1", "t", "T", "true", "TRUE", "True") if value else None


def _seconds(value: str | None) -> int | None:
    """``timeoutSeconds``; 0 is none. What is no Go duration, in nanoseconds, is not understood."""
    seconds = _integer(value)
    if seconds is not None and abs(seconds) >= _INT64 // 1_000_000_000:
        raise ValueError(f"{value} seconds overflow a duration")
    return seconds or None


def _integer(value: str | None) -> int | None:
    """``Convert_Slice_string_To_int64``: plain strconv.ParseInt of what is there, even if empty."""
    if value is None:
        return None
    digits = value.removeprefix("-")
    if not (digits.isascii() and digits.isdigit()):
        raise ValueError(f'strconv.ParseInt: parsing "{value}": invalid syntax')
    number = int(value)
    if not -_INT64 <= number < _INT64:
        raise ValueError(f'strconv.ParseInt: parsing "{value}": value out of range')
    return number
