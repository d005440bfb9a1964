"""What no cache answers goes to the API server and back, unchanged and unbuffered."""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from tests.harness.apiserver import ApiServer, token
from tests.harness.caching import cached, eventually
from tests.harness.differential import assert_source, compare, relevant_headers
from tests.harness.faults import FaultProxy
from tests.harness.http import Answer, Body, Headers, Server, ask, get, watch
from tests.harness.objects import Object, configmap, crd, create, create_pods, define, pod
from tests.harness.proxy import Proxy

APPLY = ("Content-Type", "application/apply-patch+yaml")
JSON_PATCH = ("Content-Type", "application/json-patch+json")
MERGE_PATCH = ("Content-Type", "application/merge-patch+json")
STRATEGIC_PATCH = ("Content-Type", "application/strategic-merge-patch+json")

_VARYING = (
    rb'"(resourceVersion|uid|creationTimestamp|time|deletionTimestamp)":"[^"]*"',
    rb"test-[a-z0-9]{5}(-proxy)?",
    rb"in record \(\d+\)",
)


@pytest.fixture
def twins(apiserver: ApiServer, namespace: str) -> tuple[str, str]:
    """Two namespaces: one for writes at the API server, one for those through the proxy."""
    return namespace, apiserver.new_namespace(f"{namespace}-proxy")


class Writer:
    """Sends each write twice, to one namespace directly, to its twin through the proxy."""

    def __init__(self, apiserver: ApiServer, proxy: Proxy, twins: tuple[str, str]) -> None:
        self._places = [(apiserver.server, twins[0]), (proxy.read, twins[1])]

    def __call__(
        self, method: str, target: str, body: Body = None, headers: Headers = ()
    ) -> Answer:
        """The proxy's answer, once it is found equal but for what differs between objects."""
        answers = [
            ask(server, method, target.format(ns=namespace), headers=headers, body=body)
            for server, namespace in self._places
        ]
        expected, actual = answers
        assert actual.status == expected.status, actual.body
        if _is_stale(expected):
            assert _same(_without_causes(actual.content)) == _same(expected.content)
        else:
            assert relevant_headers(actual) == relevant_headers(expected)
            assert _same(actual.content) == _same(expected.content)
            assert_source(actual, "fwd=method")
        return actual


def _is_stale(answer: Answer) -> bool:
    """Tells a conflict of versions, which the proxy explains and may see itself."""
    return answer.status == 409 and (
        b"has been modified" in answer.body or b"ResourceVersion in the precond" in answer.body
    )


def _without_causes(content: bytes) -> bytes:
    status = json.loads(content)
    assert status["details"].pop("causes")
    return json.dumps(status, separators=(",", ":")).encode() + b"\n"


def _same(content: bytes) -> bytes:
    for pattern in _VARYING:
        content = re.sub(pattern, b"*", content)
    return content


@pytest.fixture
def write(apiserver: ApiServer, proxy: Proxy, twins: tuple[str, str]) -> Writer:
    cached(proxy.read, "/api/v1/configmaps")
    return Writer(apiserver, proxy, twins)


CONFIGMAPS = "/api/v1/namespaces/{ns}/configmaps"
DEPLOYMENTS = "/apis/apps/v1/namespaces/{ns}/deployments"
PODS = "/api/v1/namespaces/{ns}/pods"


def test_create_update_delete(write: Writer) -> None:
    created = write("POST", CONFIGMAPS, configmap("a", {"k": "<1>"})).json()
    write("POST", CONFIGMAPS, configmap("a"))  # 409 AlreadyExists
    write("PUT", f"{CONFIGMAPS}/a", configmap("a", {"k": "2"}))
    stale = {**configmap("a"), "metadata": {"name": "a", "resourceVersion": "1"}}
    assert write("PUT", f"{CONFIGMAPS}/a", stale).json()["reason"] == "Conflict"
    write("PUT", f"{CONFIGMAPS}/none", configmap("none"))
    write("DELETE", f"{CONFIGMAPS}/a", {"preconditions": {"resourceVersion": "1"}})
    write("DELETE", f"{CONFIGMAPS}/a?propagationPolicy=Foreground&dryRun=All")
    deleted = write("DELETE", f"{CONFIGMAPS}/a").json()
    assert deleted["details"]["uid"] == created["metadata"]["uid"]
    write("DELETE", f"{CONFIGMAPS}/a")


def test_every_kind_of_patch(write: Writer) -> None:
    write("POST", CONFIGMAPS, configmap("a", {"k": "1"}))
    write("PATCH", f"{CONFIGMAPS}/a", {"data": {"m": "2"}}, (MERGE_PATCH,))
    write("PATCH", f"{CONFIGMAPS}/a", {"data": {"k": None}}, (STRATEGIC_PATCH,))
    for op in (b'{"op":"add","path":"/data/j","value":"3"}', b'{"op":"remove","path":"/x"}'):
        write("PATCH", f"{CONFIGMAPS}/a", b"[%s]" % op, (JSON_PATCH,))
    applied = b"{apiVersion: v1, kind: ConfigMap, metadata: {name: a}, data: {j: '5'}}"
    write("PATCH", f"{CONFIGMAPS}/a?fieldManager=x", applied, (APPLY,))  # 409: another manager's
    write("PATCH", f"{CONFIGMAPS}/a?fieldManager=x&force=true", applied, (APPLY,))
    final = write(
        "PATCH", f"{CONFIGMAPS}/b?fieldManager=x", applied.replace(b"a}", b"b}"), (APPLY,)
    )
    assert final.status == 201
    write("PATCH", f"{CONFIGMAPS}/a", b'{"data":', (MERGE_PATCH,))
    write("PATCH", f"{CONFIGMAPS}/a", b"{}", (("Content-Type", "application/json"),))  # 415


def test_a_conflict_comes_back_byte_for_byte(
    apiserver: ApiServer, proxy: Proxy, namespace: str
) -> None:
    collection = CONFIGMAPS.format(ns=namespace)
    read = create(apiserver.server, collection, configmap("a"))
    ask(apiserver.server, "PUT", f"{collection}/a", body={**read, "data": {"k": "1"}}).ok()
    stale = {**read, "data": {"k": "2"}}
    direct, through = (
        ask(server, "PUT", f"{collection}/a", body=stale)
        for server in (apiserver.server, proxy.read)
    )
    assert direct.status == through.status == 409
    assert _without_causes(through.content) == direct.content


def test_dry_runs_change_nothing(
    write: Writer, apiserver: ApiServer, twins: tuple[str, str]
) -> None:
    write("POST", f"{CONFIGMAPS}?dryRun=All", configmap("dry"))
    write("POST", f"{CONFIGMAPS}?dryRun=Some", configmap("dry"))
    for namespace in twins:
        assert get(apiserver.server, f"{CONFIGMAPS.format(ns=namespace)}/dry").status == 404


def test_delete_collections(write: Writer, apiserver: ApiServer, twins: tuple[str, str]) -> None:
    for name in ("a", "b"):
        write("POST", CONFIGMAPS, configmap(name, kind=name))
    write("DELETE", f"{CONFIGMAPS}?labelSelector=kind%3Da")
    write("DELETE", CONFIGMAPS)
    for namespace in twins:
        found = get(apiserver.server, CONFIGMAPS.format(ns=namespace)).json()["items"]
        assert found == []


def test_subresources(write: Writer) -> None:
    write("POST", DEPLOYMENTS, _deployment())
    write("PUT", f"{DEPLOYMENTS}/web/scale", {"metadata": {"name": "web"}, "spec": {"replicas": 3}})
    write("PATCH", f"{DEPLOYMENTS}/web/status", {"status": {"replicas": 2}}, (MERGE_PATCH,))
    write("PATCH", f"{DEPLOYMENTS}/web/unknown", {}, (MERGE_PATCH,))
    unbound = pod("app-0-0")
    del unbound["spec"]["nodeName"]
    write("POST", PODS, unbound)
    binding = {"metadata": {"name": "app-0-0"}, "target": {"kind": "Node", "name": "n"}}
    write("POST", f"{PODS}/app-0-0/binding", binding)
    write("POST", f"{PODS}/app-0-0/eviction", {"metadata": {"name": "app-0-0"}})
    write("POST", "/api/v1/namespaces/{ns}/serviceaccounts/none/token", {"spec": {}})
    review = {"spec": {"resourceAttributes": {"verb": "get", "resource": "pods"}}}
    write("POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", review)


def _deployment() -> Object:
    template = {"metadata": {"labels": {"app": "web"}}, "spec": pod("web-1-1")["spec"]}
    spec = {"selector": {"matchLabels": {"app": "web"}}, "template": template}
    return {"metadata": {"name": "web"}, "spec": spec}


def test_a_write_through_the_proxy_reaches_its_cache(
    apiserver: ApiServer, proxy: Proxy, namespace: str
) -> None:
    cached(proxy.read, "/api/v1/configmaps")
    collection = CONFIGMAPS.format(ns=namespace)
    with watch(proxy.read, f"{collection}?watch=1") as stream:
        created = create(proxy.read, collection, configmap("a"))
        event = stream.event()
    assert event["object"] == created
    compare(apiserver.server, proxy.read, "GET", f"{collection}/a", source="hit")


DOCUMENTS = ["/api", "/apis", "/api/v1", "/apis/apps", "/apis/apps/v1", "/openapi/v3", "/version"]
AGGREGATED = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
OPENAPI = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"


@pytest.mark.parametrize("path", DOCUMENTS)
def test_discovery_and_version(apiserver: ApiServer, proxy: Proxy, path: str) -> None:
    compare(apiserver.server, proxy.read, "GET", path, source="fwd")


@pytest.mark.parametrize("path", ["/api", "/apis"])
def test_aggregated_discovery_and_its_etag(apiserver: ApiServer, proxy: Proxy, path: str) -> None:
    accept = ("Accept", f"{AGGREGATED},application/json")
    compared = compare(apiserver.server, proxy.read, "GET", path, headers=(accept,), source="fwd")
    etag = compared.proxy.header("ETag") or ""
    again = (accept, ("If-None-Match", etag))
    compared = compare(apiserver.server, proxy.read, "GET", path, headers=again, source="fwd")
    assert (compared.proxy.status, compared.proxy.body) == (304, b"")


def test_openapi(apiserver: ApiServer, proxy: Proxy) -> None:
    servers = apiserver.server, proxy.read
    compare(*servers, "GET", "/openapi/v2", source="fwd")
    compared = compare(*servers, "GET", "/openapi/v2", headers=(("Accept", OPENAPI),), source="fwd")
    known = (("If-None-Match", compared.proxy.header("ETag") or ""), ("Accept", OPENAPI))
    assert compare(*servers, "GET", "/openapi/v2", headers=known).proxy.status == 304
    paths = get(proxy.read, "/openapi/v3").ok().json()["paths"]
    hashed = paths["apis/apps/v1"]["serverRelativeURL"]
    _compare_hashed(apiserver.server, proxy.read, hashed)
    redirect = compare(*servers, "GET", re.sub("hash=.*", "hash=old", hashed), source="fwd")
    assert redirect.proxy.status == 301


def _compare_hashed(apiserver: Server, proxy: Server, target: str) -> None:
    """`Expires` is of the second of the answer."""
    answers = [get(server, target) for server in (apiserver, proxy)]
    headers = [
        [header for header in relevant_headers(answer) if header[0] != "expires"]
        for answer in answers
    ]
    assert headers[0] == headers[1]
    assert answers[0].body == answers[1].body


@pytest.mark.parametrize("path", ["/healthz", "/livez", "/readyz?verbose", "/livez/ping"])
def test_health_is_the_apiservers(apiserver: ApiServer, proxy: Proxy, path: str) -> None:
    compare(apiserver.server, proxy.read, "GET", path, source="fwd=bypass")


def test_metrics_are_the_apiservers(proxy: Proxy) -> None:
    answer = get(proxy.read, "/metrics").ok()
    assert_source(answer, "fwd=bypass")
    assert b"apiserver_request_total" in answer.body


@pytest.mark.parametrize(
    "accept",
    [
        "application/json;as=Table;v=v1;g=meta.k8s.io,application/json",
        "application/vnd.kubernetes.protobuf,application/json",
        "application/vnd.kubernetes.protobuf",
        "application/yaml",
        "text/plain",
    ],
)
def test_other_representations(
    apiserver: ApiServer, proxy: Proxy, namespace: str, accept: str
) -> None:
    collection = CONFIGMAPS.format(ns=namespace)
    version = create(apiserver.server, collection, configmap("a"))["metadata"]["resourceVersion"]
    cached(proxy.read, "/api/v1/configmaps")
    exact = f"?resourceVersion={version}&resourceVersionMatch=Exact"
    headers = (("Accept", accept),)
    compare(
        apiserver.server, proxy.read, "GET", f"{collection}{exact}", headers=headers, source="fwd"
    )


@pytest.fixture(scope="module")
def large(apiserver: ApiServer) -> str:
    """A list of more than 300 kB, at one version."""
    namespace = apiserver.new_namespace()
    create_pods(apiserver.server, [namespace], 30)
    pods = PODS.format(ns=namespace)
    version = get(apiserver.server, pods).version
    return f"{pods}?resourceVersion={version}&resourceVersionMatch=Exact"


def test_large_answers_stay_compressed(apiserver: ApiServer, proxy: Proxy, large: str) -> None:
    headers = (("Accept-Encoding", "gzip"),)
    expected = get(apiserver.server, large, headers=headers)
    answer = get(proxy.read, f"/live{large}", headers=headers)
    assert answer.header("Content-Encoding") == expected.header("Content-Encoding") == "gzip"
    assert relevant_headers(answer) == relevant_headers(expected)
    assert answer.content == expected.content
    assert len(answer.body) < 128 * 1024 < len(answer.content)
    assert get(proxy.read, f"/live{large}").body == answer.content


def test_streams_are_not_buffered(apiserver: ApiServer, proxy: Proxy, namespace: str) -> None:
    collection = CONFIGMAPS.format(ns=namespace)
    with watch(proxy.read, f"/live{collection}?watch=1") as stream:
        for number in range(5):
            started = time.monotonic()
            create(apiserver.server, collection, configmap(f"a{number}"))
            assert stream.event()["object"]["metadata"]["name"] == f"a{number}"
            assert time.monotonic() - started < 1
        stream.quiet(0.1)


def test_large_answers_flow_while_they_are_produced(apiserver: ApiServer, large: str) -> None:
    """The head comes long before the end: the line is slow here."""
    with (
        FaultProxy(apiserver.port) as faults,
        Proxy(apiserver.kubeconfig(port=faults.port)) as proxy,
    ):
        size = len(get(proxy.read, f"/live{large}").body)
        faults.throttle(size / 2)
        with watch(proxy.read, f"/live{large}") as stream:
            started = time.monotonic()
            assert stream.status == 200
            assert len(stream.line(30)) == size  # all one line
            assert time.monotonic() - started > 1


def test_a_client_that_leaves_ends_its_stream_upstream(
    apiserver: ApiServer, namespace: str
) -> None:
    with (
        FaultProxy(apiserver.port) as faults,
        Proxy(apiserver.kubeconfig(port=faults.port)) as proxy,
    ):
        before = faults.connections
        target = f"/live{CONFIGMAPS.format(ns=namespace)}?watch=1"
        streams = [watch(proxy.read, target) for _ in range(5)]
        assert faults.connections >= 5  # of which one may have been open before
        for stream in streams:
            stream.close()
        eventually(lambda: faults.connections <= before + 1, "the streams end upstream")


def test_logs_of_a_pod_without_a_node(apiserver: ApiServer, proxy: Proxy, namespace: str) -> None:
    pods = PODS.format(ns=namespace)
    create(apiserver.server, pods, pod("app-0-0", node_name="nowhere"))
    for target in (
        f"{pods}/app-0-0/log?container=app&follow=true",
        f"{pods}/none/log",
        f"{pods}/app-0-0/exec?command=true&container=app",
        f"{pods}/app-0-0/proxy/metrics",
        "/api/v1/namespaces/default/services/none/proxy/",
    ):
        compared = compare(apiserver.server, proxy.read, "GET", target, source="fwd=bypass")
        assert compared.proxy.status >= 400


USERS = ["nobody", "limited"]


@pytest.mark.parametrize("user", USERS)
def test_who_shows_a_token_gets_the_apiservers_answer(
    apiserver: ApiServer, proxy: Proxy, namespace: str, user: str
) -> None:
    cached(proxy.read, "/api/v1/configmaps")
    for place in (namespace, "limited"):
        collection = CONFIGMAPS.format(ns=place)
        dry = f"{collection}?dryRun=All"
        for method, target, body in (
            ("GET", f"{collection}/none", None),
            ("GET", f"{collection}?fieldSelector=metadata.name%3Dnone&resourceVersion=0", None),
            ("GET", "/api/v1/configmaps?watch=1&timeoutSeconds=1", None),
            ("POST", dry, b"{}"),
        ):
            _compare_users(apiserver.as_user(user), proxy.read, method, target, body)


def _compare_users(user: Server, proxy: Server, method: str, target: str, body: Body) -> None:
    expected = ask(user, method, target, body=body)
    actual = ask(proxy.adding(*user.headers), method, target, body=body)
    assert (actual.status, _same(actual.body)) == (expected.status, _same(expected.body)), target
    assert_source(actual, "fwd")


@pytest.mark.parametrize(
    "headers",
    [
        (("Impersonate-User", "nobody"),),
        (("Impersonate-User", "limited"), ("Impersonate-Group", "limited")),
        (("Impersonate-User", "admin"), ("Impersonate-Group", "system:masters")),
        (("Impersonate-Group", "limited"),),  # without a user: 400
        (("impersonate-user", "nobody"), ("impersonate-extra-a%2fb", "c")),
        (("Authorization", f"Bearer {token('admin')}"), ("Impersonate-User", "nobody")),
        (("Authorization", f"Bearer {token('nobody')}"), ("Impersonate-User", "admin")),
    ],
)
def test_impersonation_is_the_apiservers(
    apiserver: ApiServer, proxy: Proxy, namespace: str, headers: Headers
) -> None:
    cached(proxy.read, "/api/v1/configmaps")
    create(apiserver.server, CONFIGMAPS.format(ns=namespace), configmap("a"))
    target = f"{CONFIGMAPS.format(ns=namespace)}/a"
    compare(apiserver.server, proxy.read, "GET", target, headers=headers, source="fwd=bypass")


@pytest.mark.unchained("who reaches its API server through a proxy has no token of its own")
def test_who_shows_the_proxys_own_token_is_served_from_the_cache(
    apiserver: ApiServer, proxy: Proxy
) -> None:
    cached(proxy.read, "/api/v1/configmaps")
    own = proxy.read.bearer(token("admin"))
    compare(apiserver.server, own, "GET", "/api/v1/configmaps", exact=True, source="hit")
    with watch(own, "/api/v1/configmaps?watch=1&timeoutSeconds=1") as stream:
        assert_source(Answer(stream.status, stream.headers, b""), "hit")
    assert_source(get(own, "/api/v1/configmaps"), "hit")


def test_many_writers_at_once(apiserver: ApiServer, proxy: Proxy, namespace: str) -> None:
    """Each write is done exactly once, each answer is its own."""
    collection = CONFIGMAPS.format(ns=namespace)
    _in_threads(8, lambda writer: _write_some(proxy.read, collection, writer))
    found = get(apiserver.server, collection).ok().json()["items"]
    names = {each["metadata"]["name"] for each in found}
    assert names == {f"w{writer}-{number}" for writer in range(8) for number in range(20)}


def _write_some(server: Server, collection: str, writer: int) -> None:
    for number in range(20):
        name = f"w{writer}-{number}"
        answer = ask(server, "POST", collection, body=configmap(name, {"k": "v" * 2000}))
        assert answer.status == 201
        assert answer.json()["metadata"]["name"] == name


def _in_threads(count: int, work: Callable[[int], None]) -> None:
    failures: list[BaseException] = []

    def run(number: int) -> None:
        try:
            work(number)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not failures, failures


def test_warnings_come_through(apiserver: ApiServer, proxy: Proxy, namespace: str) -> None:
    definition: dict[str, Any] = crd("Relic")
    version = definition["spec"]["versions"][0]
    version |= {"deprecated": True, "deprecationWarning": "relics are old"}
    relics = define(apiserver.server, definition)
    target = f"{relics.path(namespace)}?resourceVersion=0"
    answer = get(proxy.read, target).ok()
    assert answer.header("Warning") == get(apiserver.server, target).header("Warning")
    assert "relics are old" in (answer.header("Warning") or "")


@pytest.mark.parametrize("target", ["/api", "/apis/apps/v1", "/version"])
def test_a_document_may_be_asked_for_with_a_body(
    apiserver: ApiServer, proxy: Proxy, target: str
) -> None:
    compare(apiserver.server, proxy.read, "GET", target, body=b"hello")
