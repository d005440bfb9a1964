"""The one decision, row by row of the API server's tables."""

import pytest

from proxy.cache.store import Store
from proxy.cache.view import View
from proxy.forms.form import EventType
from proxy.forms.json import JsonForm
from proxy.kube.continuation import Token, encode_token
from proxy.kube.negotiation import PROTOBUF, FormName
from proxy.kube.requests import Request, parse_request
from proxy.kube.resources import Resource, ResourceInfo
from proxy.reads.plan import (
    Plan,
    Read,
    Reason,
    ServeGet,
    ServeList,
    ServeWatch,
    Wait,
    as_read,
    misfit,
    plan,
)

PODS = "/api/v1/namespaces/a/pods"
OWN = "Bearer own"

NOW = 100
"""The informer's version; its newest change was at 90, and its history begins behind 50."""


def view_of(plural: str = "pods", *, watch_list: bool = True) -> View:
    info = ResourceInfo(Resource("", "v1", plural), "Pod", namespaced=plural != "nodes")
    form = JsonForm(info, b'{"kind":"PodList","metadata":{"resourceVersion":"1"},"items":[]}')
    if watch_list:
        form.decode_event(
            b'{"type":"BOOKMARK","object":{"kind":"Pod","metadata":{"resourceVersion":"50",'
            b'"annotations":{"k8s.io/initial-events-end":"true"}}}}'
        )
    store = Store(form.indexed)
    store.version = 50
    view = View(form, store, lambda: 0.0)
    found = form.decode_page(
        b'{"metadata":{"resourceVersion":"90"},"items":[{"metadata":{"name":"p","namespace":"a",'
        b'"uid":"u","resourceVersion":"90"},"spec":{},"status":{}}]}'
    ).objects[0]
    store.put(found)
    store.changed, store.version = 90, NOW
    view.history.append(EventType.ADDED, 90, found, None)
    return view


def request(target: str, method: str = "GET", **headers: str) -> Request:
    path, _, query = target.partition("?")
    pairs = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
    return parse_request(method, path.encode(), query.encode(), pairs)


def planned(target: str, view: View | None = None) -> Plan:
    read = as_read(request(target), OWN)
    assert isinstance(read, Read), read
    return plan(read, view or view_of())


def token(version: int, start: str = "p\0") -> str:
    return encode_token(Token(version, start), slash=True)


@pytest.mark.parametrize(
    ("target", "method", "headers", "reason"),
    [
        ("/healthz", "GET", {}, Reason.PATH),
        ("/api/v1", "GET", {}, Reason.PATH),
        ("/api/v1/watch/pods", "GET", {}, Reason.PATH),
        (f"{PODS}/p", "PUT", {}, Reason.METHOD),
        (f"{PODS}/p", "HEAD", {}, Reason.METHOD),
        (f"{PODS}/p/log", "GET", {}, Reason.SUBRESOURCE),
        (f"{PODS}/p/status", "GET", {}, Reason.SUBRESOURCE),
        (f"/live{PODS}/p", "GET", {}, Reason.LIVE),
        (PODS, "GET", {"cache_control": "no-cache"}, Reason.LIVE),
        (PODS, "GET", {"cache_control": "no-store"}, Reason.LIVE),
        (PODS, "GET", {"x_kubecache_read": "live"}, Reason.LIVE),
        (PODS, "GET", {"authorization": "Bearer other"}, Reason.IDENTITY),
        (PODS, "GET", {"impersonate_user": ""}, Reason.IDENTITY),
        (PODS, "GET", {"accept": "application/yaml"}, Reason.REPRESENTATION),
        (f"{PODS}?limit=x", "GET", {}, Reason.INVALID),
        (f"{PODS}?labelSelector=,", "GET", {}, Reason.INVALID),
    ],
)
def test_requests_that_no_informer_answers(
    target: str, method: str, headers: dict[str, str], reason: Reason
) -> None:
    assert as_read(request(target, method, **headers), OWN) is reason


_METADATA = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
_TABLE = "application/json;as=Table;g=meta.k8s.io;v=v1"


@pytest.mark.parametrize(
    ("accept", "status"),
    [
        ("", FormName.JSON),
        ("*/*", FormName.JSON),
        (PROTOBUF, FormName.PROTOBUF),
        (f"{PROTOBUF},application/json", FormName.PROTOBUF),
        (f"application/json,{PROTOBUF}", FormName.JSON),
        (f"{_METADATA},application/json", FormName.JSON),
        (f"{_METADATA},{PROTOBUF}", FormName.PROTOBUF),
        (_METADATA, None),
        (_TABLE, None),
        (f"{_TABLE},{_TABLE}beta1,*/*", FormName.JSON),
        (f"{_TABLE},{PROTOBUF},application/json", FormName.PROTOBUF),
        (f"{_METADATA},application/yaml", None),
        (f"{_METADATA},application/yaml,application/json", None),
    ],
)
def test_the_form_of_a_failure(accept: str, status: FormName | None) -> None:
    read = as_read(request(f"{PODS}/p", accept=accept), OWN)
    assert isinstance(read, Read)
    assert read.status is status


_LIST = _METADATA.replace("Metadata;", "MetadataList;")


@pytest.mark.parametrize(
    ("target", "accept", "reason"),
    [
        (PODS, _LIST, None),
        (f"{PODS}/p", _METADATA, None),
        (f"{PODS}?watch=1", _METADATA, None),
        (PODS, _METADATA, Reason.REPRESENTATION),
        (f"{PODS}/p", _LIST, Reason.REPRESENTATION),
        (f"{PODS}?watch=1", _LIST, Reason.REPRESENTATION),
        (PODS, _LIST.replace("application/json", PROTOBUF), None),
        (PODS, _METADATA.replace("application/json", PROTOBUF), Reason.REPRESENTATION),
        (f"{PODS}?includeObject=None", _TABLE, None),
        (f"{PODS}?includeObject=All", _TABLE, Reason.INVALID),
        (f"{PODS}?includeObject=All", "application/json", None),
    ],
)
def test_what_the_first_choice_does_not_fit(
    target: str, accept: str, reason: Reason | None
) -> None:
    read = as_read(request(target, accept=accept), OWN)
    assert isinstance(read, Read)
    assert misfit(read) is reason


@pytest.mark.parametrize(
    ("authorization", "own", "served"),
    [
        (None, OWN, True),
        (None, "", True),
        (OWN, OWN, True),
        ("Bearer other", OWN, False),
        ("", "", False),
        ("", OWN, False),
        ("Bearer other", "", False),
    ],
)
def test_whose_reads_are_served(authorization: str | None, own: str, *, served: bool) -> None:
    headers = {} if authorization is None else {"authorization": authorization}
    assert isinstance(as_read(request(PODS, **headers), own), Read) is served


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("", ServeGet("a/p")),
        ("?resourceVersion=0", ServeGet("a/p")),
        ("?resourceVersion=100", ServeGet("a/p")),
        ("?resourceVersion=101", Wait(101)),
        ("?watch=1", ServeGet("a/p")),
    ],
)
def test_gets(query: str, expected: Plan) -> None:
    assert planned(f"{PODS}/p{query}") == expected


def test_scopes() -> None:
    assert planned("/api/v1/pods/p") is Reason.SCOPE
    assert planned("/api/v1/namespaces/a/nodes/n", view_of("nodes")) is Reason.SCOPE
    assert planned("/api/v1/nodes/n", view_of("nodes")) == ServeGet("n")


@pytest.mark.parametrize(
    ("query", "version", "limit"),
    [
        ("", 100, 0),
        ("resourceVersion=0", 100, 0),
        ("resourceVersion=0&limit=1", 100, 0),
        ("resourceVersion=0&resourceVersionMatch=NotOlderThan", 100, 0),
        ("resourceVersion=7", 100, 0),
        ("resourceVersion=7&resourceVersionMatch=NotOlderThan&limit=1", 100, 1),
        ("limit=1", 100, 1),
        ("limit=-1", 100, -1),
        ("resourceVersion=95&limit=1", 95, 1),
        ("resourceVersion=100&limit=1", 100, 1),
        ("resourceVersion=90&resourceVersionMatch=Exact", 90, 0),
        (f"continue={token(-1)}", 100, 0),
        (f"continue={token(95)}&limit=1", 95, 1),
        (f"continue={token(95)}&limit=1&resourceVersion=0", 95, 0),
    ],
)
def test_lists_that_are_served(query: str, version: int, limit: int) -> None:
    found = planned(f"{PODS}?{query}")
    assert isinstance(found, ServeList)
    assert (found.snapshot.version, found.limit) == (version, limit)
    assert found.keys.low == ("a/p\0" if "continue" in query else "a/")


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("resourceVersion=101", Wait(101)),
        ("resourceVersion=101&limit=1", Wait(101)),
        ("resourceVersion=101&resourceVersionMatch=Exact", Wait(101)),
        (f"continue={token(101)}", Wait(101)),
        ("resourceVersion=89&limit=1", Reason.EXACT),
        ("resourceVersion=89&resourceVersionMatch=Exact", Reason.EXACT),
        (f"continue={token(89)}", Reason.EXACT),
        ("resourceVersionMatch=NotOlderThan", Reason.INVALID),
        ("resourceVersionMatch=Exact", Reason.INVALID),
        ("resourceVersionMatch=Exact&resourceVersion=0", Reason.INVALID),
        ("resourceVersionMatch=Other&resourceVersion=7", Reason.INVALID),
        (f"continue={token(95)}&resourceVersion=7", Reason.INVALID),
        (f"continue={token(95)}&resourceVersionMatch=NotOlderThan", Reason.INVALID),
        ("continue=junk", Reason.INVALID),
        ("sendInitialEvents=false", Reason.INVALID),
        ("fieldSelector=spec.unknown=x", Reason.FIELDS),
    ],
)
def test_lists_that_are_not(query: str, expected: Plan) -> None:
    assert planned(f"{PODS}?{query}") == expected


def test_events_honour_a_limit_at_version_zero() -> None:
    found = planned("/api/v1/namespaces/a/events?resourceVersion=0&limit=1", view_of("events"))
    assert isinstance(found, ServeList)
    assert (found.limit, found.slash) == (1, False)


@pytest.mark.parametrize(
    ("query", "initial", "after"),
    [
        ("", True, 0),
        ("resourceVersion=0", True, 0),
        ("sendInitialEvents=true&resourceVersionMatch=NotOlderThan", True, 0),
        ("resourceVersion=7&sendInitialEvents=true&resourceVersionMatch=NotOlderThan", True, 0),
        ("sendInitialEvents=false&resourceVersionMatch=NotOlderThan", False, 0),
        ("resourceVersion=50", False, 50),
        ("resourceVersion=90", False, 90),
        ("resourceVersion=500", False, 500),
        ("resourceVersion=60&limit=1", False, 60),
    ],
)
def test_watches(query: str, after: int, *, initial: bool) -> None:
    found = planned(f"{PODS}?watch=1&{query}")
    assert isinstance(found, ServeWatch)
    assert (found.initial is not None, found.after) == (initial, after)
    assert found.cursor == (0 if 0 < after < 90 else 1)


def test_a_watch_from_before_the_history_has_no_cursor() -> None:
    found = planned(f"{PODS}?watch=1&resourceVersion=49")
    assert isinstance(found, ServeWatch)
    assert (found.cursor, found.after) == (None, 49)


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("sendInitialEvents=true", Reason.INVALID),
        ("sendInitialEvents=false", Reason.INVALID),
        ("resourceVersionMatch=NotOlderThan", Reason.INVALID),
        ("sendInitialEvents=true&resourceVersionMatch=Exact", Reason.INVALID),
        ("continue=x", Reason.INVALID),
        ("timeoutSeconds=-1", Reason.INVALID),
        ("fieldSelector=spec.unknown=x", Reason.FIELDS),
        (
            "resourceVersion=101&sendInitialEvents=true&resourceVersionMatch=NotOlderThan",
            Wait(101),
        ),
    ],
)
def test_watches_that_are_not_served(query: str, expected: Plan) -> None:
    assert planned(f"{PODS}?watch=1&{query}") == expected


@pytest.mark.parametrize(
    ("query", "served"),
    [
        ("", True),
        ("allowWatchBookmarks=true", False),
        ("sendInitialEvents=true&resourceVersionMatch=NotOlderThan", False),
        ("allowWatchBookmarks=true&resourceVersion=60", True),
    ],
)
def test_initial_events_are_marked_as_the_apiserver_would(query: str, *, served: bool) -> None:
    """One without WatchList marks no end, and refuses who asks for it."""
    found = planned(f"{PODS}?watch=1&{query}", view_of(watch_list=False))
    assert isinstance(found, ServeWatch) if served else found is Reason.BOOKMARK


@pytest.mark.parametrize(
    ("path", "query", "served"),
    [
        ("/api/v1/pods", "fieldSelector=metadata.namespace%3Da&limit=1", False),
        ("/api/v1/pods", f"fieldSelector=metadata.namespace%3Da&continue={token(95)}", False),
        ("/api/v1/pods", "fieldSelector=metadata.namespace%3Da", True),
        ("/api/v1/pods", "fieldSelector=metadata.namespace!%3Da&limit=1", True),
        (PODS, "fieldSelector=metadata.namespace%3Da&limit=1", True),
        ("/api/v1/pods", "fieldSelector=metadata.name%3Da&limit=1", True),
    ],
)
def test_pages_of_a_namespace_named_by_field_are_forwarded(
    path: str, query: str, *, served: bool
) -> None:
    """kube-apiserver's own tokens contradict each other there."""
    found = planned(f"{path}?{query}")
    assert isinstance(found, ServeList) if served else found is Reason.FIELDS


def test_a_page_goes_on_behind_its_token() -> None:
    for path, start, low in ((PODS, "p\0", "a/p\0"), ("/api/v1/pods", "a/p\0", "a/p\0")):
        found = planned(f"{path}?continue={token(NOW, start)}")
        assert isinstance(found, ServeList)
        assert found.keys.low == low
        assert [each.key for each in found.snapshot.range(found.keys)] == []


def test_every_reason_says_how_and_why() -> None:
    """RFC 9211's words for why a request goes on, and details that can be told apart."""
    assert {reason.fwd for reason in Reason} <= {
        "bypass",
        "method",
        "uri-miss",
        "vary-miss",
        "request",
        "stale",
    }
    assert len({reason.detail for reason in Reason}) == len(Reason)
