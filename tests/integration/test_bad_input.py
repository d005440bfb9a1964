"""Requests that are wrong or odd: the proxy answers as kube-apiserver, and never hangs."""

from __future__ import annotations

import http.client
import json
import socket
import time
from contextlib import ExitStack, closing, suppress
from functools import partial

import pytest

from proxy.writes.writer import MAX_BODIES
from tests.harness.apiserver import ApiServer
from tests.harness.caching import cached, eventually
from tests.harness.differential import assert_source, compare
from tests.harness.http import Answer, Body, Headers, Server, ask
from tests.harness.objects import configmap, create
from tests.harness.proxy import Proxy, metrics

_MIB = 1024 * 1024
_BODY_LIMIT = 3 * _MIB  # kube-apiserver's, for JSON
_JSON = ("Content-Type", "application/json")


@pytest.fixture(scope="module")
def collection(apiserver: ApiServer, proxy: Proxy) -> str:
    """ConfigMaps that the proxy has in its cache, one of them `a`."""
    target = f"/api/v1/namespaces/{apiserver.new_namespace()}/configmaps"
    create(apiserver.server, target, configmap("a"))
    cached(proxy.read, "/api/v1/configmaps")
    return target


PATHS = [
    "/{c}",
    "//{c}/a",
    "{c}/",
    "{c}//",
    "{c}/a/",
    "{c}/a//",
    "{c}//a",
    "{c}%2Fa",
    "{c}/%61",
    "{c}/a%2F",
    "{c}/a%00",
    "{c}/a%09",
    "{c}/a%22",
    "{c}/a%5C",
    "{c}/a%7F",
    "{c}/a%3C%26%27",
    "{c}/%2e%2e",
    "{c}/a%20b",
    "{c}/%C3%A4",
    "{c}/a%",
    "{c}/a%zz",
    "{c}/a%25",
    "{c}/.",
    "{c}/..",
    "{c}/./a",
    "{c}/../configmaps/a",
    "{c}/a/unknown",
    "{c}/a/status",
    "{c}/a;b",
    "{c}/a+b",
    "{c}/A",
    "/api/v1/namespaces//configmaps",
    "/api/v1/namespaces//configmaps/a",
    "/api//v1/configmaps",
    "/api/v1//configmaps",
    "/api/v1/namespaces/%2F/configmaps",
    "/API/v1/configmaps",
    "/api/v1/ConfigMaps",
    "/api/v2/configmaps",
    "/api/v1/configmap",
    "/apis/v1/configmaps",
    "/apis/apps/v1/configmaps",
    "/apis//v1/configmaps",
    "/apis/apps//deployments",
    "/api/v1/watch",
    "/api/v1/proxy/namespaces/default/pods/x",
    "/api/v1/namespaces/default/finalize",
    "/",
    "/api",
    "/apis/",
    "/api/v1/",
    "/nothing",
    "/apis/nothing",
    "/apis/nothing/v1",
    "/%61pi/v1/configmaps",
]

QUERIES = [
    "labelSelector=a;b",
    "limit=1;x",
    "limit=%zz",
    "limit=%",
    "limit=%4",
    "labelSelector=a%",
    "limit=x&limit=1",
    "limit=&limit=x",
    "limit=0&limit=x",
    "resourceVersion=0&resourceVersion=abc",
    "resourceVersion=abc&resourceVersion=0",
    "labelSelector=none&labelSelector=",
    "watch=false&watch=true",
    "watch=0&labelSelector=a%3Db",
    "pretty=1&pretty=0",
    "pretty=yes",
    "fieldSelector=metadata.name%3Da&fieldSelector=metadata.name%3Db",
    "LabelSelector=none",
    "labelSelector=none%20",
    "labelSelector=none+",
    "labelSelector=%00",
    "labelSelector=%ff",
    "labelSelector=%C3%A4",
    "labelselector%3D",
    "&&",
    "=",
    "?",
    "a=b?c=d",
    "resourceVersion=0%20",
    "resourceVersion=%2B5",
    "resourceVersion=0x10",
    "resourceVersion=1_000",
    "resourceVersion=%D9%A1",  # a digit, but not an ASCII one
    "limit=1_0",
    "timeoutSeconds=-1",
    "timeoutSeconds=1.5",
    "timeout=junk",
    "timeout=1",
    "timeout=1ns",
    "timeout=%2B5s",
    "timeout=-1s",
    "timeout=32s",
    "timeout=1h1m",
    "timeout=",
    "export=true",
    "export=",
    "export=0",
    "limit=",
    "limit",
    "timeoutSeconds=",
    "fieldSelector=%ff",
    "fieldSelector=metadata.name%3D%ff",
    "continue=%ff",
    "%ff=%ff",
    "sendInitialEvents=",
    "resourceVersionMatch=",
    "allowWatchBookmarks=junk",
]


@pytest.mark.parametrize("path", PATHS)
def test_odd_paths(apiserver: ApiServer, proxy: Proxy, collection: str, path: str) -> None:
    _compare_lists(apiserver, proxy, path.format(c=collection))


@pytest.mark.parametrize("query", QUERIES)
def test_odd_queries(apiserver: ApiServer, proxy: Proxy, collection: str, query: str) -> None:
    _compare_lists(apiserver, proxy, f"{collection}?{query}")
    compare(apiserver.server, proxy.read, "GET", f"{collection}/a?{query}")


def _compare_lists(apiserver: ApiServer, proxy: Proxy, target: str) -> None:
    """A list is compared but for its version, which moves; the state does not."""
    expected, actual = (ask(server, "GET", target) for server in (apiserver.server, proxy.read))
    assert _unversioned(actual) == _unversioned(expected)


def _unversioned(answer: Answer) -> tuple[int, str | None, bytes]:
    content = answer.content
    with suppress(ValueError, KeyError, TypeError):
        version = json.loads(content)["metadata"].get("resourceVersion", "")
        content = content.replace(f'"resourceVersion":"{version}"'.encode(), b"", 1)
    return answer.status, answer.header("Content-Type"), content


METHODS = [
    ("POST", "{c}/a"),
    ("PUT", "{c}"),
    ("PATCH", "{c}"),
    ("HEAD", "{c}"),
    ("HEAD", "{c}/a"),
    ("OPTIONS", "{c}"),
    ("TRACE", "{c}/a"),
    ("POST", "/api/v1/unknowns"),
    ("DELETE", "/version"),
    ("POST", "/version"),
    ("PUT", "/apis/apps/v1/deployments"),
    ("DELETE", "/apis/nothing/v1/x"),
]


@pytest.mark.parametrize(("method", "path"), METHODS)
def test_wrong_methods(
    apiserver: ApiServer, proxy: Proxy, collection: str, method: str, path: str
) -> None:
    target = path.format(c=collection)
    body = configmap("a") if method in {"POST", "PUT", "PATCH"} else None
    compare(apiserver.server, proxy.read, method, target, body=body)


BODIES: list[tuple[str, Headers, Body]] = [
    ("broken JSON", (_JSON,), b'{"metadata":{"name":"x"'),
    ("no body", (_JSON,), b""),
    ("null", (_JSON,), b"null"),
    ("an array", (_JSON,), b"[]"),
    ("not UTF-8", (_JSON,), b'{"metadata":{"name":"\xff"}}'),
    ("another kind", (_JSON,), b'{"kind":"Pod","apiVersion":"v1","metadata":{"name":"x"}}'),
    ("no name", (_JSON,), b"{}"),
    ("a bad name", (_JSON,), b'{"metadata":{"name":"A b"}}'),
    ("an unknown type", (("Content-Type", "text/csv"),), b"a,b"),
    ("no type", (), b'{"metadata":{"name":"a"}}'),
    ("broken YAML", (("Content-Type", "application/yaml"),), b"a: [b"),
    ("broken protobuf", (("Content-Type", "application/vnd.kubernetes.protobuf"),), b"k8s\0x"),
    ("a name that is taken", (_JSON,), b'{"metadata":{"name":"a"}}'),
    ("too much", (_JSON,), b" " * (_BODY_LIMIT + 50_000)),
]


@pytest.mark.parametrize(("what", "headers", "body"), BODIES)
def test_bad_bodies(
    apiserver: ApiServer, proxy: Proxy, collection: str, what: str, headers: Headers, body: Body
) -> None:
    del what
    compare(apiserver.server, proxy.read, "POST", collection, headers=headers, body=body)


@pytest.mark.parametrize("chunked", [False, True])
def test_a_body_far_too_large_is_refused_while_it_is_sent(
    proxy: Proxy, collection: str, chunked: bool
) -> None:
    """kube-apiserver stops reading at its limit, answers and closes."""
    started = time.monotonic()
    status = _post_large(proxy.read, collection, 8 * _MIB, chunked=chunked)
    assert status in {413, None}
    assert time.monotonic() - started < 10
    assert ask(proxy.read, "GET", collection).status == 200


def _post_large(server: Server, target: str, size: int, *, chunked: bool) -> int | None:
    """The status; None when the connection broke before it could be read."""
    with closing(server.connect(10)) as connection:
        connection.putrequest("POST", target)
        connection.putheader(*_JSON)
        if chunked:
            connection.putheader("Transfer-Encoding", "chunked")
        else:
            connection.putheader("Content-Length", str(size))
        connection.endheaders()
        part = b" " * 65_536
        with suppress(ConnectionError):
            for _ in range(size // len(part)):
                connection.send(b"%x\r\n%s\r\n" % (len(part), part) if chunked else part)
            if chunked:
                connection.send(b"0\r\n\r\n")
        with suppress(ConnectionError, http.client.BadStatusLine):
            return connection.getresponse().status
    return None


def test_chunked_bodies_pass(apiserver: ApiServer, proxy: Proxy, collection: str) -> None:
    whole = json.dumps(configmap("chunked", {"k": "v" * 5000})).encode()
    parts = [whole[n : n + 700] for n in range(0, len(whole), 700)]
    body = b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in (*parts, b""))
    headers = (_JSON, ("Transfer-Encoding", "chunked"))
    dry = f"{collection}?dryRun=All"
    answers = [
        ask(server, "POST", dry, headers=headers, body=body).ok().json()
        for server in (apiserver.server, proxy.read)
    ]
    assert answers[0]["data"] == answers[1]["data"] == {"k": "v" * 5000}


def test_expect_100_continue(proxy: Proxy, collection: str) -> None:
    body = json.dumps(configmap("continued")).encode()
    head = f"POST {collection}?dryRun=All HTTP/1.1\r\nHost: 127.0.0.1\r\nExpect: 100-continue\r\n"
    head += f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    with closing(socket.create_connection((proxy.read.host, proxy.read.port), 10)) as raw:
        raw.sendall(head.encode())
        assert raw.recv(1000).startswith(b"HTTP/1.1 100 ")
        raw.sendall(body)
        assert raw.recv(1000).startswith(b"HTTP/1.1 201 ")


BROKEN_HTTP = [
    b"GARBAGE\r\n\r\n",
    b"GET /api HTTP/1.1\r\nbroken header\r\n\r\n",
    b"GET /api HTTP/9.9\r\n\r\n",
    b"POST /api HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: x\r\n\r\n",
    b"POST /api HTTP/1.1\r\nHost: 127.0.0.1\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
]


@pytest.mark.parametrize("sent", BROKEN_HTTP)
def test_what_is_not_http_ends_its_own_connection_only(proxy: Proxy, sent: bytes) -> None:
    with closing(socket.create_connection((proxy.read.host, proxy.read.port), 10)) as raw:
        raw.sendall(sent)
        with suppress(ConnectionResetError):
            answer = raw.recv(1000)
            assert not answer or answer.split(b" ")[1].startswith(b"4"), answer
    assert ask(proxy.read, "GET", "/api").status == 200


def test_a_client_that_leaves_in_the_middle_of_its_body_changes_nothing(
    apiserver: ApiServer, proxy: Proxy, collection: str
) -> None:
    body = json.dumps(configmap("half")).encode()
    head = f"POST {collection} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
    head += f"Content-Length: {len(body) + 10}\r\n\r\n"
    with closing(socket.create_connection((proxy.read.host, proxy.read.port), 10)) as raw:
        raw.sendall(head.encode() + body)
    assert ask(proxy.read, "GET", "/api").status == 200
    assert ask(apiserver.server, "GET", f"{collection}/half").status == 404


def test_bodies_that_stall_hold_no_more_than_there_is_room_for(
    apiserver: ApiServer, proxy: Proxy, collection: str
) -> None:
    """Sixty MiB of them; other writes go on, and their clients read what they wrote."""
    head = f"PUT {collection}/a HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
    head += f"Content-Length: {_BODY_LIMIT}\r\n\r\n"
    held = partial(_bodies, proxy, "held_bytes")
    refused = _bodies(proxy, "held_refusals_total")
    with ExitStack() as stack:
        for _ in range(20):
            raw = socket.create_connection((proxy.read.host, proxy.read.port), 10)
            stack.enter_context(closing(raw)).sendall(head.encode() + b" " * (_BODY_LIMIT - 1024))
        eventually(lambda: _bodies(proxy, "held_refusals_total") > refused, "no more room")
        assert MAX_BODIES * 0.9 < held() <= MAX_BODIES
        create(proxy.read, collection, configmap("meanwhile"))
        found = ask(proxy.read, "GET", f"{collection}/meanwhile").ok()
        assert_source(found, "hit")
        assert ask(proxy.read, "GET", f"{collection}/a").status == 200
    eventually(lambda: not held(), "all have left")


def _bodies(proxy: Proxy, name: str) -> float:
    return metrics(proxy).total(f"kubecache_{name}", kind="bodies")


HEADERS: list[Headers] = [
    (("Accept", ""),),
    (("Accept", ";"),),
    (("Accept", "application/*"),),
    (("Accept", "application/*, application/json"),),
    (("Accept", "*"),),
    (("Accept", "application/json;q=x"),),
    (("Accept", "APPLICATION/JSON"),),
    (("Accept", "application/json;q=0"),),
    (("Accept", "application/json; charset=utf-8"),),
    (("Accept", "application/json"), ("Accept", "application/yaml")),
    (("Accept", "application/yaml"), ("Accept", "application/json")),
    (("Range", "bytes=0-9"),),
    (("If-None-Match", "*"),),
    (("If-Modified-Since", "Tue, 01 Dec 2099 00:00:00 GMT"),),
    (("X-Http-Method-Override", "DELETE"),),
    (("Cookie", "a=b"),),
    (("Authorization", ""),),
    (("Authorization", "Basic eDp5"),),
    (("Authorization", "Bearer wrong"),),
    (("X-Long", "x" * 20_000),),
    (("Impersonate-User", "jösé".encode().decode("latin-1")),),
]


@pytest.mark.parametrize("headers", HEADERS, ids=lambda headers: str(headers)[:60])
def test_odd_headers(apiserver: ApiServer, proxy: Proxy, collection: str, headers: Headers) -> None:
    for target in (f"{collection}/a", f"{collection}/none"):
        compare(apiserver.server, proxy.read, "GET", target, headers=headers)


@pytest.mark.parametrize(
    ("count", "source"), [(500, "hit"), (1500, "fwd=bypass")], ids=["served", "forwarded"]
)
def test_a_large_url_is_not_cut(
    apiserver: ApiServer, proxy: Proxy, collection: str, count: int, source: str
) -> None:
    names = ",".join(f"name-{number}" for number in range(count))
    target = f"{collection}?labelSelector=x+notin+({names})"
    _compare_lists(apiserver, proxy, target)
    assert_source(ask(proxy.read, "GET", target), source)
