"""Requests: what of their first line and headers is read, and what is sent on."""

from __future__ import annotations

from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.kube.paths import ResourcePath, parse_path
from proxy.kube.requests import LONGEST, Request, Verb, parse_request, verb_of
from proxy.kube.resources import Resource

PODS = Resource("", "v1", "pods")


def read(target: str = "/api/v1/pods", *headers: tuple[str, str], method: str = "GET") -> Request:
    path, _, query = target.partition("?")
    encoded = [(name.encode(), value.encode("latin-1")) for name, value in headers]
    return parse_request(method, path.encode("latin-1"), query.encode("latin-1"), encoded)


def test_what_is_read() -> None:
    found = read(
        "/api/v1/namespaces/a/pods/x?pretty=1",
        ("accept", "application/json"),
        ("user-agent", "kubectl"),
        ("authorization", "Bearer t"),
        ("cookie", "ignored"),
    )
    assert found == Request(
        method="GET",
        path="/api/v1/namespaces/a/pods/x",
        query=b"pretty=1",
        target=ResourcePath(PODS, "a", "x", ""),
        accept="application/json",
        user_agent="kubectl",
        authorization="Bearer t",
    )


def test_nothing_shown_is_not_an_empty_authorization() -> None:
    assert read().authorization is None
    assert read("/", ("authorization", "")).authorization == ""


@pytest.mark.parametrize("name", ["accept", "authorization", "user-agent"])
def test_of_a_repeated_header_the_first_counts(name: str) -> None:
    found = read("/", (name, "first"), (name, "second"))
    assert getattr(found, name.replace("-", "_")) == "first"


@pytest.mark.parametrize(
    ("name", "impersonates"),
    [
        ("impersonate-user", True),
        ("impersonate-group", True),
        ("impersonate-uid", True),
        ("impersonate-extra-reason", True),
        ("x-impersonate-user", False),
        ("impersonate", False),
    ],
)
def test_asking_to_be_somebody_else(name: str, *, impersonates: bool) -> None:
    assert read("/", (name, "")).impersonates is impersonates


@pytest.mark.parametrize(
    ("headers", "live", "only_if_cached"),
    [
        ([], False, False),
        ([("cache-control", "no-cache")], True, False),
        ([("cache-control", "No-Cache")], True, False),
        ([("cache-control", "no-store")], True, False),
        ([("cache-control", "max-age=0")], False, False),
        ([("cache-control", "max-age=60")], False, False),
        ([("cache-control", "max-stale , no-cache")], True, False),
        ([("cache-control", "no-cache=x")], True, False),
        ([("cache-control", "only-if-cached")], False, True),
        ([("cache-control", "max-age=5, only-if-cached")], False, True),
        ([("cache-control", "max-stale=5")], False, False),
        ([("cache-control", "no-transform, min-fresh=3")], False, False),
        ([("cache-control", "x-no-cache")], False, False),
        ([("cache-control", "")], False, False),
        ([("pragma", "no-cache")], False, False),
        ([("x-kubecache-read", "live")], True, False),
        # Nobody writes so much; a head may have a megabyte of it.
        ([("cache-control", "only-if-cached".ljust(LONGEST + 1, ","))], True, False),
        ([("cache-control", "only-if-cached".ljust(LONGEST, ","))], False, True),
        ([("cache-control", "only-if-cached"), *[("cache-control", "a")] * LONGEST], True, False),
        ([("x-kubecache-read", " LIVE ")], True, False),
        ([("x-kubecache-read", "cache")], False, True),
        ([("x-kubecache-read", "")], False, False),
        ([("x-kubecache-read", "live"), ("x-kubecache-read", "cache")], True, True),
        ([("cache-control", "live")], False, False),
        ([("cache-control", "cache")], False, False),
        ([("x-kubecache-read", "cache"), ("cache-control", "no-cache")], True, True),
    ],
)
def test_how_fresh_an_answer_must_be(
    headers: list[tuple[str, str]], *, live: bool, only_if_cached: bool
) -> None:
    found = read("/api/v1/pods", *headers)
    assert (found.live, found.only_if_cached) == (live, only_if_cached)


READ = "X-Kubecache-Read: {} is none of the words that it may be: live, cache"
ON_CONFLICT = "X-Kubecache-On-Conflict: {} is none of the words that it may be: merge"


@pytest.mark.parametrize("method", ["GET", "PUT", "OPTIONS"])
@pytest.mark.parametrize(
    ("headers", "mistake"),
    [
        ([], ""),
        ([("x-kubecache-read", "live")], ""),
        ([("x-kubecache-read", " Cache , ,LIVE")], ""),
        ([("x-kubecache-read", "")], ""),
        ([("x-kubecache-on-conflict", " Merge ")], ""),
        ([("x-kubecache-on-conflict", "")], ""),
        ([("cache-control", "bogus, live")], ""),
        ([("x-kubecache-read", "bogus")], READ.format('"bogus"')),
        ([("x-kubecache-read", "no-cache")], READ.format('"no-cache"')),
        ([("x-kubecache-read", "live, bogus")], READ.format('"bogus"')),
        ([("x-kubecache-read", "live;q=1")], READ.format('"live;q=1"')),
        ([("x-kubecache-read", "live"), ("x-kubecache-read", "é")], READ.format('"é"')),
        ([("x-kubecache-read", LONGEST * "a")], READ.format(f'"{100 * "a"}"')),
        ([("x-kubecache-read", "live".ljust(LONGEST, ",") + "a")], READ.format('"a"')),
        ([("x-kubecache-on-conflict", "bogus")], ON_CONFLICT.format('"bogus"')),
        ([("x-kubecache-on-conflict", "live")], ON_CONFLICT.format('"live"')),
    ],
)
def test_words_that_there_are_not(
    headers: list[tuple[str, str]], mistake: str, method: str
) -> None:
    assert read("/api/v1/pods", *headers, method=method).mistake == mistake


@pytest.mark.parametrize(
    ("cache_control", "max_age", "max_stale"),
    [
        ([], None, None),
        (["no-cache"], None, None),
        (["max-age=0"], 0.0, None),
        (["max-age=60"], 60.0, None),
        (['MAX-AGE = "5"'], 5.0, None),
        (["max-age=5", "max-age=7"], 5.0, None),
        (["max-age"], 0.0, None),
        (["max-age=soon"], 0.0, None),
        (["max-age=-1"], 0.0, None),
        (["max-age=1.5"], 0.0, None),
        (["max-age=²"], 0.0, None),
        (["max-age=" + 400 * "9"], inf, None),
        (["max-stale"], None, inf),
        (["max-stale=30, max-age=2"], 2.0, 30.0),
        (["max-stale=x"], None, 0.0),
    ],
)
def test_how_old_an_answer_may_be(
    cache_control: list[str], max_age: float | None, max_stale: float | None
) -> None:
    found = read("/api/v1/pods", *(("cache-control", value) for value in cache_control))
    assert (found.max_age, found.max_stale) == (max_age, max_stale)


@pytest.mark.parametrize(
    ("target", "live", "sent"),
    [
        ("/api/v1/pods", False, "/api/v1/pods"),
        ("/live/api/v1/pods?limit=1", True, "/api/v1/pods?limit=1"),
        ("/live", True, "/"),
        ("/livez?verbose", False, "/livez?verbose"),
        ("/api/v1/pods?", False, "/api/v1/pods"),
        ("/a%2Fb%20c//d/../e?x=%zz&y;z", False, "/a%2Fb%20c//d/../e?x=%zz&y;z"),
        ("/a'(b)*!~:@$,;=+[c]?d'(e)[f]{g}|\\^`", False, "/a'(b)*!~:@$,;=+[c]?d'(e)[f]{g}|\\^`"),
        ("/é?ü", False, "/%E9?%FC"),
    ],
)
def test_what_is_sent_on_is_what_came(target: str, sent: str, *, live: bool) -> None:
    found = read(target)
    assert (found.raw_target, found.live) == (sent, live)


printable = st.text(st.characters(min_codepoint=0x21, max_codepoint=0x7E, exclude_characters="?#"))


@given(printable, printable)
def test_no_plain_target_is_changed(path: str, query: str) -> None:
    target = f"/x{path}" + (f"?{query}" if query else "")
    assert read(target).raw_target == target


# --- verbs -----------------------------------------------------------------------------------

OBJECT, COLLECTION = "/api/v1/namespaces/a/pods/x", "/api/v1/namespaces/a/pods"


@pytest.mark.parametrize(
    ("method", "path", "watch", "verb"),
    [
        ("GET", OBJECT, False, Verb.GET),
        ("GET", OBJECT, True, Verb.GET),  # a name, so the watch is ignored
        ("GET", COLLECTION, False, Verb.LIST),
        ("GET", COLLECTION, True, Verb.WATCH),
        ("GET", f"{OBJECT}/log", False, Verb.GET),
        ("POST", COLLECTION, False, Verb.CREATE),
        ("POST", f"{OBJECT}/exec", False, Verb.CREATE),
        ("PUT", OBJECT, False, Verb.UPDATE),
        ("PATCH", OBJECT, False, Verb.PATCH),
        ("DELETE", OBJECT, False, Verb.DELETE),
        ("DELETE", COLLECTION, False, Verb.DELETE_COLLECTION),
        ("HEAD", OBJECT, False, Verb.OTHER),
        ("OPTIONS", COLLECTION, False, Verb.OTHER),
        ("get", OBJECT, False, Verb.OTHER),
        ("GET", "/healthz", False, Verb.OTHER),
        ("POST", "/healthz", False, Verb.OTHER),
        ("GET", "/api/v1/watch/pods", True, Verb.OTHER),
    ],
)
def test_verbs(method: str, path: str, verb: Verb, *, watch: bool) -> None:
    assert verb_of(method, parse_path(path), watch=watch) is verb
