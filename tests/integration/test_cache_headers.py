"""What clients ask of the cache by headers and prefix, and what it says of its answers."""

from __future__ import annotations

import pytest

from tests.harness.apiserver import ApiServer
from tests.harness.caching import cached, caught_up, eventually
from tests.harness.differential import assert_source, cache_status, compare
from tests.harness.http import Answer, Headers, ask, get, watch
from tests.harness.objects import configmap, create, patch
from tests.harness.proxy import Proxy


@pytest.fixture
def target(apiserver: ApiServer, proxy: Proxy, namespace: str) -> str:
    """A ConfigMap that the proxy has in its cache."""
    collection = f"/api/v1/namespaces/{namespace}/configmaps"
    version = create(apiserver.server, collection, configmap("a"))["metadata"]["resourceVersion"]
    cached(proxy.read, "/api/v1/configmaps")
    caught_up(proxy.read, "/api/v1/configmaps", version)
    return f"{collection}/a"


LIVE = [
    (("Cache-Control", "no-cache"),),
    (("Cache-Control", "no-store"),),
    (("Cache-Control", "No-Cache, foo"),),
    (("X-Kubecache-Read", "live"),),
    (("X-Kubecache-Read", "LIVE"),),
]


@pytest.mark.parametrize("headers", LIVE)
def test_a_live_read_is_the_apiservers(
    apiserver: ApiServer, proxy: Proxy, target: str, headers: Headers
) -> None:
    compared = compare(
        apiserver.server, proxy.read, "GET", target, headers=headers, source="fwd=request"
    )
    assert compared.proxy.header("Audit-Id")
    assert compared.proxy.header("Age") is None


def test_a_live_read_sees_a_write_at_once(apiserver: ApiServer, proxy: Proxy, target: str) -> None:
    for turn in range(20):
        patch(apiserver.server, target, {"data": {"turn": str(turn)}})
        answer = get(proxy.read, target, headers=(("Cache-Control", "no-cache"),))
        assert answer.json()["data"] == {"turn": str(turn)}


def test_the_live_prefix_is_the_same_api(apiserver: ApiServer, proxy: Proxy, target: str) -> None:
    collection = target.rpartition("/")[0]
    for path in (target, f"{collection}?limit=1", f"{collection}/none", "/apis", "/version"):
        answer = get(proxy.read, f"/live{path}")
        expected = get(apiserver.server, path)
        assert (answer.status, answer.content) == (expected.status, expected.content)
        assert cache_status(answer).forwarded in {"request", "bypass"}
    body = configmap("b")
    assert ask(proxy.read, "POST", f"/live{collection}", body=body).status == 201
    assert ask(proxy.read, "DELETE", f"/live{collection}/b").status == 200


def test_a_live_watch_is_the_apiservers(apiserver: ApiServer, proxy: Proxy, target: str) -> None:
    collection = target.rpartition("/")[0]
    with watch(proxy.read, f"/live{collection}?watch=1") as stream:
        assert stream.event()["type"] == "ADDED"
        assert 'fwd=request; detail="live"' in dict(stream.headers)["cache-status"]
        patch(apiserver.server, target, {"data": {"k": "v"}})
        assert stream.event()["type"] == "MODIFIED"


@pytest.mark.parametrize("path", ["/lively/api/v1/pods", "/live", "/live/", "/live/nothing"])
def test_paths_like_the_prefix(apiserver: ApiServer, proxy: Proxy, path: str) -> None:
    stripped = path.removeprefix("/live") if path.startswith("/live/") else path
    answer = get(proxy.read, path)
    expected = get(apiserver.server, "/" if path == "/live" else stripped)
    assert (answer.status, answer.content) == (expected.status, expected.content)


ONLY_CACHED = [("Cache-Control", "only-if-cached"), ("X-Kubecache-Read", "cache")]


@pytest.mark.parametrize("header", ONLY_CACHED)
def test_only_if_cached_is_served_from_the_cache(
    proxy: Proxy, target: str, header: tuple[str, str]
) -> None:
    for path in (target, target.rpartition("/")[0], f"{target}-none"):
        assert_source(get(proxy.read, path, headers=(header,)), "hit")


@pytest.mark.parametrize("header", ONLY_CACHED)
def test_a_client_that_reads_from_the_cache_alone_can_write(
    apiserver: ApiServer, proxy: Proxy, target: str, header: tuple[str, str]
) -> None:
    collection, _, name = target.rpartition("/")
    body = configmap(name)
    for method, path in (("POST", collection), ("PUT", target), ("DELETE", f"{target}-none")):
        dry = f"{path}?dryRun=All"
        answer = ask(proxy.read, method, dry, headers=(header,), body=body)
        assert_source(answer, "fwd")
        assert answer.status == ask(apiserver.server, method, dry, body=body).status


@pytest.mark.parametrize("header", ONLY_CACHED)
def test_only_if_cached_never_goes_upstream(
    proxy: Proxy, target: str, header: tuple[str, str]
) -> None:
    collection = target.rpartition("/")[0]
    for path in (
        target.replace("configmaps", "secrets"),
        f"{collection}?limit=1&continue=x",
        f"{collection}?labelSelector=a,,b",
        f"{collection}?resourceVersion=999999999",
        f"{collection}?watch=1&resourceVersion=1&timeoutSeconds=1",
        "/version",
    ):
        answer = get(proxy.read, path, headers=(header,))
        assert (answer.status, answer.header("Content-Type")) == (504, "application/json"), path
        status = answer.json()
        assert (status["kind"], status["reason"], status["code"]) == ("Status", "Timeout", 504)
        assert "fwd" not in (answer.header("Cache-Status") or "fwd")


@pytest.mark.parametrize("method", ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"])
@pytest.mark.parametrize(
    ("name", "word", "known"),
    [
        ("X-Kubecache-Read", "bogus", "live, cache"),
        ("X-Kubecache-Read", "cache, no-cache", "live, cache"),
        ("X-Kubecache-On-Conflict", "bogus", "merge"),
    ],
)
def test_a_wish_that_is_not_understood_is_refused(
    apiserver: ApiServer, proxy: Proxy, target: str, name: str, word: str, known: str, method: str
) -> None:
    before = get(apiserver.server, target).ok().version
    collection = target.rpartition("/")[0]
    body = {"data": {"k": "new"}} | configmap("b") if method in ("POST", "PUT", "PATCH") else None
    for path in (collection if method == "POST" else target, "/version", f"/live{target}"):
        answer = ask(proxy.read, method, path, headers=((name, word),), body=body)
        assert (answer.status, answer.header("Content-Type")) == (400, "application/json")
        if method != "HEAD":
            status = answer.json()
            assert (status["kind"], status["reason"], status["code"]) == (
                "Status",
                "BadRequest",
                400,
            )
            assert name in status["message"]
            assert known in status["message"]
    assert get(apiserver.server, target).version == before
    assert get(apiserver.server, f"{collection}/b").status == 404


def test_every_answer_says_where_it_comes_from(proxy: Proxy, namespace: str, target: str) -> None:
    collection = target.rpartition("/")[0]
    requests = [
        ("GET", target, "hit"),
        ("GET", collection, "hit"),
        ("GET", f"{target}/unknown", "fwd=bypass"),
        ("GET", f"/api/v1/namespaces/{namespace}/secrets", "fwd=uri-miss"),
        ("GET", f"{collection}?resourceVersion=x", "fwd=bypass"),
        ("HEAD", target, "fwd=method"),
        ("DELETE", f"{target}?dryRun=All", "fwd=method"),
        ("OPTIONS", target, "fwd=method"),
        ("GET", "/version", "fwd=bypass"),
        ("GET", "/nothing", "fwd=bypass"),
    ]
    for method, path, source in requests:
        answer = ask(proxy.read, method, path)
        assert_source(answer, source)
        assert (answer.header("Age") is not None) == (source == "hit"), path


def test_a_hit_names_its_version_and_its_age(proxy: Proxy, target: str) -> None:
    answer = get(proxy.read, target.rpartition("/")[0])
    assert cache_status(answer).detail == f"rv={answer.version}"
    assert 0 <= int(answer.header("Age") or "-1") < 90


def test_a_cached_watch_says_so_before_its_first_event(proxy: Proxy, target: str) -> None:
    collection = target.rpartition("/")[0]
    with watch(
        proxy.read,
        f"{collection}?watch=1&sendInitialEvents=false&resourceVersionMatch=NotOlderThan",
    ) as stream:
        headers = dict(stream.headers)
        assert headers["cache-status"].startswith("kubecache; hit")
        assert int(headers["age"]) >= 0


def test_age_grows_while_nothing_is_proven(proxy: Proxy, target: str) -> None:
    """The proxy's own watch proves it current: once a minute on a quiet resource."""

    def age() -> int:
        return int(get(proxy.read, target).header("Age") or "-1")

    eventually(lambda: age() >= 1, "an age of a second")


@pytest.mark.parametrize(
    "target", ["/api/v1/endpoints", "/api/v1/namespaces/default/endpoints/kubernetes"]
)
def test_what_is_deprecated_says_so(apiserver: ApiServer, proxy: Proxy, target: str) -> None:
    cached(proxy.read, "/api/v1/endpoints")
    judged = compare(apiserver.server, proxy.read, "GET", target, exact=True, source="hit")
    assert "deprecated" in (judged.proxy.header("Warning") or "")


def test_a_watch_of_what_is_deprecated_says_so(proxy: Proxy) -> None:
    cached(proxy.read, "/api/v1/endpoints")
    with watch(proxy.read, "/api/v1/endpoints?watch=1&timeoutSeconds=1") as stream:
        answer = Answer(stream.status, stream.headers, b"")
    assert_source(answer, "hit")
    assert "deprecated" in (answer.header("Warning") or "")
