"""The harness itself: what the other integration tests take for granted."""

from __future__ import annotations

import http.client
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.harness import kubectl
from tests.harness.apiserver import ApiServer
from tests.harness.differential import cache_status, compare, exact_target
from tests.harness.faults import FaultProxy
from tests.harness.http import Answer, Server, ask, get, watch
from tests.harness.objects import configmap, crd, create, create_pods, define, patch
from tests.harness.proxy import parse_metrics

Find = Callable[[], Path]


def test_users_have_the_rights_that_their_names_say(apiserver: ApiServer) -> None:
    def statuses(user: str) -> tuple[int, int]:
        own, everywhere = "/api/v1/namespaces/limited/pods", "/api/v1/pods"
        server = apiserver.as_user(user)
        return get(server, own).status, get(server, everywhere).status

    assert statuses("admin") == (200, 200)
    assert statuses("limited") == (200, 403)
    assert statuses("nobody") == (403, 403)
    assert get(apiserver.anonymous(), "/api/v1/pods").status == 403


def test_the_revision_is_that_of_the_newest_write(apiserver: ApiServer, namespace: str) -> None:
    target = f"/api/v1/namespaces/{namespace}/configmaps"
    answer = ask(apiserver.server, "POST", target, body=configmap("a")).ok()
    assert apiserver.revision() >= int(answer.version)


def test_a_watch_gives_events_then_silence(apiserver: ApiServer, namespace: str) -> None:
    target = f"/api/v1/namespaces/{namespace}/configmaps"
    with watch(apiserver.server, f"{target}?watch=1") as stream:
        stream.quiet(0.2)
        create(apiserver.server, target, configmap("a"))
        event = stream.event()
        stream.quiet(0.2)
    assert (event["type"], event["object"]["metadata"]["name"]) == ("ADDED", "a")


def test_pods_are_of_realistic_size_and_spread(apiserver: ApiServer) -> None:
    namespaces = [apiserver.new_namespace() for _ in range(2)]
    keys = create_pods(apiserver.server, namespaces, 20)
    lists = [get(apiserver.server, f"/api/v1/namespaces/{name}/pods") for name in namespaces]
    pods = [pod for answer in lists for pod in answer.json()["items"]]
    assert sorted(f"{p['metadata']['namespace']}/{p['metadata']['name']}" for p in pods) == sorted(
        keys
    )
    assert {pod["status"]["phase"] for pod in pods} == {"Running"}
    assert 10_000 < sum(len(answer.body) for answer in lists) / 20 < 13_000


@pytest.mark.parametrize(("kind", "scope"), [("Widget", "Namespaced"), ("Gadget", "Cluster")])
def test_custom_resources_can_be_used_at_once(
    apiserver: ApiServer, namespace: str, kind: str, scope: str
) -> None:
    resource = define(apiserver.server, crd(kind, scope=scope))
    collection = resource.path(namespace if scope == "Namespaced" else "")
    create(apiserver.server, collection, resource.object("one", color="blue"))
    patch(apiserver.server, f"{collection}/one/status", {"status": {"phase": "Done"}})
    found = get(apiserver.server, f"{collection}?fieldSelector=spec.color%3Dblue").json()["items"]
    assert [each["status"]["phase"] for each in found] == ["Done"]


def test_the_apiserver_can_be_restarted_compacted_and_killed() -> None:
    with ApiServer() as own:
        first = own.revision()
        own.new_namespace("a")
        own.restart()
        own.compact()
        _assert_expired(own, first)
        _assert_shutdown_ends_watches_cleanly(own)
        _assert_a_crash_cuts_watches(own)


def _assert_expired(own: ApiServer, version: int) -> None:
    exact = exact_target("/api/v1/namespaces", str(version))
    assert get(own.server, exact).status == 410
    with watch(own.server, f"/api/v1/namespaces?watch=1&resourceVersion={version}") as stream:
        assert stream.event()["object"]["code"] == 410
        assert stream.line() == b""


def _assert_shutdown_ends_watches_cleanly(own: ApiServer) -> None:
    with watch(own.server, "/api/v1/secrets?watch=1") as stream:
        own.restart()
        assert stream.line() == b""


def _assert_a_crash_cuts_watches(own: ApiServer) -> None:
    with watch(own.server, "/api/v1/secrets?watch=1") as stream:
        own.kill()
        with pytest.raises((http.client.HTTPException, OSError)):
            stream.line()


@pytest.fixture
def faults(apiserver: ApiServer) -> Iterator[FaultProxy]:
    with FaultProxy(apiserver.port) as proxy:
        yield proxy


@pytest.fixture
def faulty(apiserver: ApiServer, faults: FaultProxy) -> Server:
    return replace(apiserver.server, port=faults.port)


def _seconds(server: Server, target: str) -> float:
    started = time.monotonic()
    get(server, target).ok()
    return time.monotonic() - started


def test_bytes_can_be_delayed_in_each_direction(faults: FaultProxy, faulty: Server) -> None:
    faults.delay(up=0.2)
    assert _seconds(faulty, "/version") > 0.4  # TLS handshake, then request
    faults.delay(down=0.2)
    assert _seconds(faulty, "/version") > 0.4
    faults.resume()
    assert _seconds(faulty, "/version") < 0.4


def test_bytes_can_be_throttled(faults: FaultProxy, faulty: Server) -> None:
    size = len(get(faulty, "/openapi/v2").body)
    faults.throttle(size)
    assert _seconds(faulty, "/openapi/v2") > 0.8


def test_a_frozen_connection_is_silent_until_it_resumes(
    apiserver: ApiServer, namespace: str, faults: FaultProxy, faulty: Server
) -> None:
    target = f"/api/v1/namespaces/{namespace}/configmaps"
    with watch(faulty, f"{target}?watch=1") as stream:
        faults.freeze()
        create(apiserver.server, target, configmap("a"))
        stream.quiet(0.3)
        with pytest.raises(TimeoutError):
            ask(faulty, "GET", "/version", timeout=0.3)
        faults.resume()
        assert stream.event()["object"]["metadata"]["name"] == "a"


def test_connections_can_be_refused_and_cut(
    apiserver: ApiServer, namespace: str, faults: FaultProxy, faulty: Server
) -> None:
    target = f"/api/v1/namespaces/{namespace}/configmaps"
    with watch(faulty, f"{target}?watch=1") as stream:
        faults.refuse()
        with pytest.raises(ConnectionRefusedError):
            get(faulty, "/version")
        create(apiserver.server, target, configmap("a"))
        assert stream.event()["type"] == "ADDED"
        faults.cut()
        with pytest.raises((http.client.HTTPException, OSError)):
            stream.line()
    faults.resume()
    get(faulty, "/version").ok()


def test_equal_answers_compare_equal(apiserver: ApiServer, namespace: str, faulty: Server) -> None:
    target = f"/api/v1/namespaces/{namespace}/configmaps"
    create(apiserver.server, target, configmap("a"))
    compare(apiserver.server, faulty, "GET", f"{target}/a")
    compare(apiserver.server, faulty, "GET", f"{target}/b")
    compare(apiserver.server, faulty, "GET", f"{target}?labelSelector=!x", exact=True)
    dry = f"{target}/a?dryRun=All"
    merge = (("Content-Type", "application/merge-patch+json"),)
    compare(apiserver.server, faulty, "PATCH", dry, headers=merge, body={"data": {"k": "v"}})


def test_what_differs_is_shown(apiserver: ApiServer) -> None:
    other = apiserver.as_user("nobody")
    with pytest.raises(AssertionError) as caught:
        compare(apiserver.server, other, "GET", "/api/v1/nodes")
    assert "status: kube-apiserver 200, proxy 403" in str(caught.value)
    assert '+ "reason": "Forbidden",' in str(caught.value)


@pytest.mark.parametrize(
    ("header", "source", "detail"),
    [
        ('kubecache; hit; detail="rv=7"', "hit", "rv=7"),
        ('kubecache; fwd=uri-miss; detail="a; b"', "fwd=uri-miss", "a; b"),
        ("kubecache; fwd=bypass", "fwd=bypass", None),
        ('kubecache; hit; detail="rv=7, 8", kubecache; fwd=uri-miss', "fwd=uri-miss", None),
    ],
)
def test_cache_status_tells_the_source(header: str, source: str, detail: str | None) -> None:
    seen = cache_status(Answer(200, [("Cache-Status", header)], b""))
    assert (seen.source, seen.detail) == (source, detail)


def test_metrics_are_summed_over_labels() -> None:
    text = '# TYPE a_total counter\na_total{x="1",y="1"} 2\na_total{x="1",y="2"} 3\n'
    seen = parse_metrics(text)
    assert (seen.total("a_total", x="1"), seen.total("a_total", y="2"), seen.total("b")) == (
        5,
        3,
        0,
    )


@pytest.mark.parametrize("find", [kubectl.built, kubectl.older], ids=["built", "older"])
def test_kubectl_reads(apiserver: ApiServer, namespace: str, tmp_path: Path, find: Find) -> None:
    run = kubectl.Kubectl(apiserver.kubeconfig(), tmp_path, binary=find())
    run("create", "configmap", "a", f"--namespace={namespace}").ok()
    found = run("get", "configmaps", f"--namespace={namespace}", "--output=json").ok().json()
    assert [each["metadata"]["name"] for each in found["items"]] == ["a"]
    assert "not found" in run("get", "configmap", "b").stderr
