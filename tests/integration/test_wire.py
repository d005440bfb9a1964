"""What a client puts on the wire means to the proxy what it means to kube-apiserver.

Who asks, what is asked, and where a request ends: a gateway that checks requests before it sends
them on must not be told otherwise by what it can't see.
"""

from __future__ import annotations

import base64
import json
import socket
import time
from collections.abc import Iterator
from contextlib import closing

import pytest

from tests.harness.apiserver import ApiServer, token
from tests.harness.caching import cached, eventually
from tests.harness.differential import compare
from tests.harness.http import Answer, Headers, Server, ask, get
from tests.harness.objects import configmap, create
from tests.harness.proxy import Proxy, metrics

NOBODY = ("Authorization", f"Bearer {token('nobody')}")
PREFIX = "base64url.bearer.authorization.k8s.io."
JSON = ("Content-Type", "application/json")


@pytest.fixture
def collection(apiserver: ApiServer, proxy: Proxy, namespace: str) -> str:
    """Configmaps a and b, which the proxy serves from its cache."""
    target = f"/api/v1/namespaces/{namespace}/configmaps"
    for name in "ab":
        create(apiserver.server, target, configmap(name))
    cached(proxy.read, target)
    return target


# --- who asks --------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["GET", "DELETE"])
@pytest.mark.parametrize(
    ("shown", "named"),
    [
        (NOBODY, "authorization"),
        (NOBODY, "close, Authorization"),
        (("Impersonate-User", "joe"), "close, impersonate-user"),
        (("Impersonate-User", "joe"), "keep-alive, Impersonate-User"),
    ],
)
def test_a_client_is_who_it_says_whatever_connection_names(
    apiserver: ApiServer,
    proxy: Proxy,
    collection: str,
    shown: tuple[str, str],
    named: str,
    method: str,
) -> None:
    headers = (shown, ("Connection", named))
    compared = compare(
        apiserver.server, proxy.read, method, f"{collection}/a", headers=headers, source="fwd"
    )
    assert compared.proxy.status == 403


def test_a_browsers_token_is_who_asks(apiserver: ApiServer, proxy: Proxy, collection: str) -> None:
    shown = base64.urlsafe_b64encode(token("nobody").encode()).decode().rstrip("=")
    headers = (
        ("Connection", "Upgrade"),
        ("Upgrade", "websocket"),
        ("Sec-WebSocket-Version", "13"),
        ("Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ=="),
        (
            "Sec-WebSocket-Protocol",
            f"v5.channel.k8s.io, {PREFIX}{shown}",
        ),
    )
    target = f"{collection.replace('configmaps', 'pods')}/x/exec?command=a&stdout=1"
    anybody = Server(apiserver.server.host, apiserver.server.port, apiserver.server.ca)
    expected, actual = (
        ask(server, "GET", target, headers=headers) for server in (anybody, proxy.read)
    )
    assert (actual.status, actual.body) == (expected.status, expected.body)
    assert actual.status == 403
    assert actual.json()["message"].startswith('pods "x" is forbidden: User "nobody"')


# --- what is asked ---------------------------------------------------------------------------

ODD_TARGETS = [
    ("GET", "/a#b"),
    ("GET", "#/a"),
    ("GET", "?limit=1#&resourceVersion=junk"),
    ("GET", "?x=#&labelSelector=junk+in"),
    ("GET", "?labelSelector=a%3Db#c"),
    ("GET", f"?labelSelector=x+notin+({','.join(f'name-{n}' for n in range(10_000))})&limit=x"),
    ("GET", f"/{'a' * 200_000}"),
    ("PUT", "/a#b"),
    ("PATCH", "/a#b"),
    ("DELETE", "/a#b"),
    ("DELETE", "/a#"),
    ("DELETE", "#/a"),
    ("DELETE", "?x=#&labelSelector=a%3Db"),
    ("DELETE", "?labelSelector=a%3Db#&dryRun=All"),
]


@pytest.mark.parametrize(("method", "suffix"), ODD_TARGETS, ids=lambda value: value[:30])
def test_a_target_is_taken_whole(
    apiserver: ApiServer, proxy: Proxy, collection: str, method: str, suffix: str
) -> None:
    body = configmap("a") if method in ("PUT", "PATCH") else None
    headers = (("Content-Type", "application/merge-patch+json"),) if method == "PATCH" else ()
    compare(apiserver.server, proxy.read, method, collection + suffix, headers=headers, body=body)
    names = [each["metadata"]["name"] for each in get(apiserver.server, collection).json()["items"]]
    assert set(names) >= {"a", "b"}


# --- where a request ends --------------------------------------------------------------------

H2C = (
    ("Connection", "Upgrade, HTTP2-Settings"),
    ("Upgrade", "h2c"),
    ("HTTP2-Settings", "AAMAAABk"),
)


@pytest.mark.parametrize("chunked", [False, True], ids=["length", "chunked"])
@pytest.mark.parametrize("offer", [H2C, ()], ids=["h2c", "plain"])
def test_a_body_may_come_with_an_offer_of_http2(
    apiserver: ApiServer, proxy: Proxy, collection: str, offer: Headers, *, chunked: bool
) -> None:
    """As Java's HttpClient and ``curl --http2`` send their first request."""
    body = json.dumps(configmap("a", {"k": "v" * 5000})).encode()
    headers = (JSON, *offer)
    if chunked:
        headers = (*headers, ("Transfer-Encoding", "chunked"))
        body = b"%x\r\n%s\r\n0\r\n\r\n" % (len(body), body)
    target = f"{collection}/a?dryRun=All"
    answers = [
        ask(server, "PUT", target, headers=headers, body=body).ok().json()
        for server in (apiserver.server, proxy.read)
    ]
    assert answers[0]["data"] == answers[1]["data"]


@pytest.mark.parametrize("pause", [False, True], ids=["at once", "later"])
@pytest.mark.parametrize("chunked", [False, True], ids=["length", "chunked"])
@pytest.mark.parametrize("target", ["/api/v1/namespaces/default", "/version"])
def test_a_body_is_not_the_next_request(
    apiserver: ApiServer, proxy: Proxy, collection: str, target: str, *, chunked: bool, pause: bool
) -> None:
    hidden = f"DELETE {collection}/a HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()
    framing = f"Content-Length: {len(hidden)}"
    if chunked:
        hidden = b"%x\r\n%s\r\n0\r\n\r\n" % (len(hidden), hidden)
        framing = "Transfer-Encoding: chunked"
    offered = "".join(f"{name}: {value}\r\n" for name, value in H2C)
    head = f"GET {target} HTTP/1.1\r\nHost: localhost\r\n{offered}{framing}\r\n\r\n".encode()
    last = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    with closing(socket.create_connection((proxy.read.host, proxy.read.port), 10)) as raw:
        raw.sendall(head)
        if pause:
            time.sleep(0.05)  # for it to be parsed by itself
        raw.sendall(hidden + last)
        answer = b"".join(_received(raw))
    assert answer.count(b"HTTP/1.1 200 OK") == answer.count(b"HTTP/1.1 ") == 2
    assert answer.endswith(b"ok")
    assert get(apiserver.server, f"{collection}/a").status == 200


def _received(raw: socket.socket) -> Iterator[bytes]:
    while part := raw.recv(65_536):
        yield part


# --- how it is counted -----------------------------------------------------------------------


def test_a_refused_upgrade_is_counted_by_its_status(proxy: Proxy, collection: str) -> None:
    def refused() -> float:
        return metrics(proxy).total("kubecache_requests_total", source="tunnel", code="404")

    before = refused()
    headers = (("Connection", "Upgrade"), ("Upgrade", "SPDY/3.1"))
    target = f"{collection.replace('configmaps', 'pods')}/x/exec?command=a&stdout=1"
    answer: Answer = ask(proxy.read, "POST", target, headers=headers)
    assert answer.status == 404
    eventually(lambda: refused() == before + 1 or None, "it's counted")
