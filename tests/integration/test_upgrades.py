"""An upgrade that is offered: a tunnel where kube-apiserver may take it, and nothing elsewhere."""

from __future__ import annotations

import base64

import pytest

from tests.harness.apiserver import ApiServer, token
from tests.harness.caching import cached, caught_up, eventually
from tests.harness.differential import assert_source, compare, differences
from tests.harness.http import Answer, Body, Headers, Server, ask, get
from tests.harness.objects import configmap, create, pod
from tests.harness.proxy import Proxy, metrics

MERGE_PATCH = ("Content-Type", "application/merge-patch+json")
PROTOCOLS = ["websocket", "WebSocket", "SPDY/3.1", "h2c", "websocket, x", "x"]


def offering(protocol: str) -> Headers:
    return (
        ("Connection", "Upgrade"),
        ("Upgrade", protocol),
        ("Sec-WebSocket-Version", "13"),
        ("Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ=="),
    )


@pytest.fixture(scope="module")
def place(apiserver: ApiServer, proxy: Proxy) -> str:
    """A namespace with a ConfigMap a and a pod p, which the proxy serves from its cache."""
    namespace = f"/api/v1/namespaces/{apiserver.new_namespace()}"
    for plural, body in (("configmaps", configmap("a")), ("pods", pod("p"))):
        version = create(apiserver.server, f"{namespace}/{plural}", body)["metadata"]
        cached(proxy.read, f"/api/v1/{plural}")
        caught_up(proxy.read, f"/api/v1/{plural}", version["resourceVersion"])
    return namespace


def _tunnels(proxy: Proxy) -> float:
    return metrics(proxy).total("kubecache_requests_total", source="tunnel")


# --- what no upgrade is meant for --------------------------------------------------------------

PLAIN: list[tuple[str, str, Body, str]] = [
    ("GET", "/configmaps", None, "hit"),
    ("GET", "/configmaps?limit=1", None, "hit"),
    ("GET", "/configmaps/a", None, "hit"),
    ("GET", "/configmaps/a?watch=1", None, "hit"),
    ("GET", "/configmaps/none", None, "hit"),
    ("GET", "/pods/p/status", None, "fwd=bypass"),
    ("HEAD", "/configmaps/a", None, "fwd=method"),
    ("OPTIONS", "/configmaps", None, "fwd=method"),
    ("POST", "/configmaps?dryRun=All", configmap("a"), "fwd=method"),
    ("PUT", "/configmaps/none?dryRun=All", configmap("none"), "fwd=method"),
    ("PATCH", "/configmaps/none", {"data": {}}, "fwd=method"),
    ("DELETE", "/configmaps/none", None, "fwd=method"),
    ("DELETE", "/configmaps?labelSelector=none", None, "fwd=method"),
    ("POST", "/pods/none/eviction", {"metadata": {"name": "none"}}, "fwd=method"),
    ("PATCH", "/pods/none/status", {"status": {}}, "fwd=method"),
]


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize(("method", "suffix", "body", "source"), PLAIN)
def test_an_offer_changes_nothing(
    apiserver: ApiServer,
    proxy: Proxy,
    place: str,
    method: str,
    suffix: str,
    body: Body,
    source: str,
    protocol: str,
) -> None:
    headers = offering(protocol)
    if method == "PATCH":
        headers = (*headers, MERGE_PATCH)
    compare(
        apiserver.server,
        proxy.read,
        method,
        place + suffix,
        headers=headers,
        body=body,
        exact=source == "hit" and "/configmaps/" not in suffix,
        source=source,
    )


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_write_is_seen_by_the_next_read(proxy: Proxy, place: str, protocol: str) -> None:
    headers = offering(protocol)
    collection = f"{place}/configmaps"
    number = PROTOCOLS.index(protocol)
    target = f"{collection}/b{number}"

    def seen() -> Answer:
        answer = get(proxy.read, target)
        assert_source(answer, "hit")
        return answer

    ask(proxy.read, "POST", collection, headers=headers, body=configmap(f"b{number}")).ok()
    assert seen().status == 200
    for turn in range(10):
        patch = {"data": {"turn": str(turn)}}
        ask(proxy.read, "PATCH", target, headers=(*headers, MERGE_PATCH), body=patch).ok()
        assert seen().json()["data"] == patch["data"]
    ask(proxy.read, "DELETE", target, headers=headers).ok()
    assert seen().status == 404


# --- what it may be meant for ------------------------------------------------------------------

# Nobody runs pods here, so each stream ends with what kube-apiserver says of that.
STREAMS = [
    ("GET", "/pods/p/exec?command=a&stdout=1"),
    ("POST", "/pods/p/exec?command=a&stdout=1"),
    ("POST", "/pods/none/attach"),
    ("GET", "/pods/none/portforward?ports=80"),
    ("GET", "/pods/none/log"),
    ("GET", "/pods/p/ephemeralcontainers"),
    ("GET", "/pods/none/unheard/of"),
    *((method, "/pods/p/proxy/x") for method in ("GET", "POST", "PUT", "PATCH", "DELETE")),
    ("GET", "/pods/p/proxy//x%2Fy"),
    ("DELETE", "/pods/p/proxy//x"),
    ("PATCH", "/services/none:80/proxy"),
    ("GET", "/configmaps?watch=1&timeoutSeconds=1&labelSelector=a,,b"),
]
ELSEWHERE = [
    ("GET", "/version"),
    ("GET", "/healthz"),
    ("GET", "/apis/apps/v1"),
    ("POST", "/version"),
    ("GET", "/nothing"),
    ("DELETE", "/apis/none/v1/none/none"),
]


@pytest.mark.parametrize("protocol", ["websocket", "SPDY/3.1"])
@pytest.mark.parametrize(("method", "suffix"), STREAMS)
def test_a_stream_is_a_tunnel(
    apiserver: ApiServer, proxy: Proxy, place: str, method: str, suffix: str, protocol: str
) -> None:
    before = _tunnels(proxy)
    judged = _both(apiserver.server, proxy.read, method, place + suffix, offering(protocol))
    assert not differences(*judged)
    assert judged[1].header("Cache-Status") is None
    eventually(lambda: _tunnels(proxy) == before + 1, "it's counted as a tunnel")


@pytest.mark.parametrize("protocol", ["websocket", "SPDY/3.1"])
@pytest.mark.parametrize(("method", "target"), ELSEWHERE)
def test_other_paths(
    apiserver: ApiServer, proxy: Proxy, method: str, target: str, protocol: str
) -> None:
    assert not differences(*_both(apiserver.server, proxy.read, method, target, offering(protocol)))


def _both(
    apiserver: Server, proxy: Server, method: str, target: str, headers: Headers
) -> tuple[Answer, Answer]:
    direct, through = (ask(each, method, target, headers=headers) for each in (apiserver, proxy))
    return direct, through


# --- who asks ----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def shown() -> Headers:
    """The token of a user without rights, as browsers show theirs."""
    encoded = base64.urlsafe_b64encode(token("nobody").encode()).decode().rstrip("=")
    prefixed = f"base64url.bearer.authorization.k8s.io.{encoded}"
    return (*offering("websocket"), ("Sec-WebSocket-Protocol", f"v5.channel.k8s.io, {prefixed}"))


@pytest.mark.parametrize(
    "suffix",
    ["/configmaps/a", "/configmaps", "/configmaps?watch=1", "/pods/p/status", "/pods/p/log"],
)
def test_a_read_is_asked_by_whom_its_token_names(
    apiserver: ApiServer, proxy: Proxy, place: str, shown: Headers, suffix: str
) -> None:
    anybody = Server(apiserver.server.host, apiserver.server.port, apiserver.server.ca)
    judged = _both(anybody, proxy.read, "GET", place + suffix, shown)
    assert not differences(*judged)
    assert judged[1].status == 403
    assert 'User "nobody"' in judged[1].json()["message"]


@pytest.mark.parametrize("method", ["PUT", "PATCH", "DELETE"])
def test_a_write_with_such_a_token_is_refused(
    apiserver: ApiServer, proxy: Proxy, place: str, shown: Headers, method: str
) -> None:
    """Never done as the proxy."""
    target = f"{place}/configmaps/a"
    before = get(apiserver.server, target).ok().version
    answer = ask(proxy.read, method, target, headers=(*shown, MERGE_PATCH), body={})
    assert (answer.status, answer.json()["reason"]) == (400, "BadRequest")
    assert get(apiserver.server, target).version == before
