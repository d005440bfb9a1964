"""Informers start when they are earned, in the scope that earned them, and stop when idle."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from tests.harness.apiserver import ApiServer
from tests.harness.caching import caught_up, eventually, hit
from tests.harness.differential import assert_source, cache_status, compare
from tests.harness.faults import FaultProxy
from tests.harness.http import Answer, Server, Watch, ask, get, watch
from tests.harness.objects import configmap, crd, create, define
from tests.harness.proxy import Proxy, metrics

CONFIGMAPS = "/api/v1/configmaps"
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
ENDLESS = {"cache": {"on_demand": {"watch": 0, "list": 0, "get": 0}}}


def in_namespace(namespace: str, plural: str = "configmaps") -> str:
    return f"/api/v1/namespaces/{namespace}/{plural}"


def informers(proxy: Proxy) -> dict[str, Any]:
    """Those that run now, by id."""
    found = get(proxy.admin, "/status.json").ok().json()["informers"]
    return {each["id"]: each for each in found}


def synced(proxy: Proxy, name: str) -> None:
    eventually(lambda: informers(proxy).get(name, {}).get("synced"), f"{name} is synced")


@pytest.fixture
def fresh(apiserver: ApiServer) -> Iterator[Proxy]:
    """A proxy that nobody has asked anything."""
    with Proxy(apiserver.kubeconfig()) as proxy:
        yield proxy


def test_a_watch_earns_an_informer_at_once(fresh: Proxy) -> None:
    with watch(fresh.read, f"{CONFIGMAPS}?watch=1") as stream:
        assert_source(_head(stream), "fwd=uri-miss")
        synced(fresh, "configmaps.v1")
        assert_source(get(fresh.read, CONFIGMAPS), "hit")
        with watch(fresh.read, f"{CONFIGMAPS}?watch=1") as second:
            assert_source(_head(second), "hit")


def _head(stream: Watch) -> Answer:
    return Answer(stream.status, stream.headers, b"")


def test_the_second_list_earns_one(fresh: Proxy) -> None:
    assert_source(get(fresh.read, CONFIGMAPS), "fwd=uri-miss")
    assert informers(fresh) == {}
    assert_source(get(fresh.read, CONFIGMAPS), "fwd=uri-miss")
    synced(fresh, "configmaps.v1")
    assert_source(get(fresh.read, CONFIGMAPS), "hit")


def test_tables_earn_one_of_their_own(fresh: Proxy) -> None:
    tables = fresh.read.adding(("Accept", "application/json;as=Table;v=v1;g=meta.k8s.io"))
    for _ in range(2):
        assert_source(get(tables, CONFIGMAPS), "fwd=uri-miss")
    synced(fresh, "configmaps.v1:table")
    assert_source(get(tables, CONFIGMAPS), "hit")
    assert_source(get(fresh.read, CONFIGMAPS), "fwd=uri-miss")


def test_the_tenth_get_earns_one(fresh: Proxy, apiserver: ApiServer, namespace: str) -> None:
    target = in_namespace(namespace)
    create(apiserver.server, target, configmap("a"))
    for number in range(10):
        assert informers(fresh) == {}, number
        assert_source(get(fresh.read, f"{target}/{('a', 'none')[number % 2]}"), "fwd=uri-miss")
    synced(fresh, f"configmaps.v1/{namespace}")
    assert_source(get(fresh.read, f"{target}/a"), "hit")
    assert_source(get(fresh.read, target), "hit")
    assert_source(get(fresh.read, CONFIGMAPS), "fwd=uri-miss")


def test_live_reads_and_those_of_others_earn_nothing(fresh: Proxy, apiserver: ApiServer) -> None:
    other = fresh.read.adding(*apiserver.as_user("nobody").headers)
    for _ in range(3):
        get(fresh.read, f"/live{CONFIGMAPS}").ok()
        get(fresh.read, CONFIGMAPS, headers=(("Cache-Control", "no-cache"),)).ok()
        get(fresh.read, CONFIGMAPS, headers=(("Accept", "application/yaml"),)).ok()
        assert get(other, CONFIGMAPS).status == 403
        with watch(other, f"{CONFIGMAPS}?watch=1") as stream:
            assert stream.status == 403
    assert informers(fresh) == {}


def test_unknown_resources_earn_nothing_for_long(fresh: Proxy) -> None:
    for _ in range(3):
        with watch(fresh.read, "/api/v1/unknowns?watch=1") as stream:
            assert stream.status == 404
    eventually(lambda: informers(fresh) == {}, "the informer is given up")
    assert get(fresh.read, "/api/v1/unknowns").status == 404


def test_a_namespace_until_a_fifth_asks(fresh: Proxy, apiserver: ApiServer) -> None:
    namespaces = [apiserver.new_namespace() for _ in range(5)]
    with ExitStack() as stack:
        for number, namespace in enumerate(namespaces):
            stack.enter_context(watch(fresh.read, f"{in_namespace(namespace)}?watch=1"))
            if number < 4:
                synced(fresh, f"configmaps.v1/{namespace}")
        synced(fresh, "configmaps.v1")
        assert f"configmaps.v1/{namespaces[4]}" not in informers(fresh)
    for namespace in namespaces:
        _assert_current(apiserver.server, fresh.read, namespace)


def test_a_request_for_all_earns_all(fresh: Proxy, apiserver: ApiServer, namespace: str) -> None:
    with watch(fresh.read, f"{in_namespace(namespace)}?watch=1"):
        synced(fresh, f"configmaps.v1/{namespace}")
    with watch(fresh.read, f"{CONFIGMAPS}?watch=1"):
        synced(fresh, "configmaps.v1")
    _assert_current(apiserver.server, fresh.read, namespace)


def _assert_current(apiserver: Server, proxy: Server, namespace: str) -> None:
    """Reads of a namespace are cached, whichever informer has it, and see a write."""
    target = in_namespace(namespace)
    version = create(apiserver, target, configmap("new"))["metadata"]["resourceVersion"]
    caught_up(proxy, target, version)
    compare(apiserver, proxy, "GET", target, exact=True, source="hit")


def test_secrets_are_not_cached_unless_named(
    fresh: Proxy, apiserver: ApiServer, namespace: str
) -> None:
    secrets = in_namespace(namespace, "secrets")
    for _ in range(3):
        assert_source(get(fresh.read, secrets), "fwd=uri-miss")
        with watch(fresh.read, f"{secrets}?watch=1") as stream:
            assert_source(_head(stream), "fwd=uri-miss")
    assert informers(fresh) == {}
    named = {"cache": {"resources": [{"resource": "secrets", "namespaces": [namespace]}]}}
    with Proxy(apiserver.kubeconfig(), config=named) as proxy:
        create(apiserver.server, secrets, {"metadata": {"name": "s"}, "stringData": {"a": "b"}})
        caught_up(proxy.read, secrets, get(apiserver.server, f"{secrets}/s").version)
        compare(apiserver.server, proxy.read, "GET", secrets, exact=True, source="hit")
        assert_source(get(proxy.read, "/api/v1/secrets"), "fwd=uri-miss")


def test_thresholds_of_0_earn_nothing(apiserver: ApiServer, namespace: str) -> None:
    with Proxy(apiserver.kubeconfig(), config=ENDLESS) as proxy:
        for _ in range(12):
            get(proxy.read, in_namespace(namespace)).ok()
            get(proxy.read, f"{in_namespace(namespace)}/a")
        with watch(proxy.read, f"{CONFIGMAPS}?watch=1"):
            assert informers(proxy) == {}


def test_who_may_list_one_namespace_only(apiserver: ApiServer) -> None:
    """All is forbidden, and stays the API server's to refuse; the namespace is cached."""
    with Proxy(apiserver.kubeconfig("limited")) as proxy:
        limited = apiserver.as_user("limited")
        for _ in range(3):
            compare(limited, proxy.read, "GET", CONFIGMAPS, source="fwd=uri-miss")
        eventually(lambda: informers(proxy) == {}, "the informer of all is given up")
        with watch(proxy.read, f"{in_namespace('limited')}?watch=1"):
            synced(proxy, "configmaps.v1/limited")
        _assert_current(limited, proxy.read, "limited")
        compare(limited, proxy.read, "GET", CONFIGMAPS, source="fwd=uri-miss")
        compare(limited, proxy.read, "GET", in_namespace("default"), source="fwd=uri-miss")


def test_a_named_resource_that_is_forbidden_is_not_ready(apiserver: ApiServer) -> None:
    config = {"cache": {"resources": [{"resource": "configmaps"}]}}
    with Proxy(apiserver.kubeconfig("limited"), config=config, wait="livez") as proxy:
        eventually(
            lambda: "forbidden" in informers(proxy).get("configmaps.v1", {}).get("last_error", ""),
            "the informer is refused",
        )
        assert get(proxy.admin, "/readyz").status == 500
        assert get(proxy.read, in_namespace("limited")).status == 200


def test_an_idle_informer_stops(apiserver: ApiServer, namespace: str) -> None:
    with Proxy(apiserver.kubeconfig(), config={"cache": {"idle_ttl": "1s"}}) as proxy:
        with watch(proxy.read, f"{in_namespace(namespace)}?watch=1") as first:
            synced(proxy, f"configmaps.v1/{namespace}")
            first.close()
        with watch(proxy.read, f"{in_namespace(namespace)}?watch=1") as stream:
            assert_source(_head(stream), "hit")
            stream.quiet(2.5)  # longer than idle_ttl, but it is in use
            assert informers(proxy)
        eventually(lambda: informers(proxy) == {}, "the informer has stopped")
        assert_source(get(proxy.read, in_namespace(namespace)), "fwd=uri-miss")


def test_a_crd_goes_and_comes_back(fresh: Proxy, apiserver: ApiServer, namespace: str) -> None:
    definition = crd("Comet")
    comets = define(apiserver.server, definition)
    target = comets.path(namespace)
    create(apiserver.server, target, comets.object("halley"))
    with watch(fresh.read, f"{comets.path()}?watch=1"):
        eventually(lambda: hit(fresh.read, target), "comets are cached")
    compare(apiserver.server, fresh.read, "GET", f"{target}/halley", source="hit")
    ask(apiserver.server, "DELETE", f"{DEFINITIONS}/{definition['metadata']['name']}").ok()
    eventually(lambda: get(apiserver.server, target).status == 404, "comets are gone")
    eventually(lambda: get(fresh.read, target).status == 404, "comets are gone from the cache")
    for path in (target, f"{target}/halley", comets.path()):
        compare(apiserver.server, fresh.read, "GET", path, source="fwd=uri-miss")
    _come_back(apiserver.server, fresh.read, namespace)


def _come_back(apiserver: Server, proxy: Server, namespace: str) -> None:
    comets = define(apiserver, crd("Comet"))
    target = comets.path(namespace)
    create(apiserver, target, comets.object("encke"))
    compare(apiserver, proxy, "GET", f"{target}/encke")
    assert [each["metadata"]["name"] for each in get(proxy, target).ok().json()["items"]] == [
        "encke"
    ]


def test_levers_stop_and_relist(fresh: Proxy, namespace: str) -> None:
    with watch(fresh.read, f"{CONFIGMAPS}?watch=1"):
        synced(fresh, "configmaps.v1")
    with watch(fresh.read, f"{in_namespace(namespace)}?watch=1") as stream:
        assert_source(_head(stream), "hit")
        assert ask(fresh.admin, "POST", "/informers/configmaps.v1/relist").status == 202
        eventually(
            lambda: metrics(fresh).total("kubecache_informer_relists_total", reason="asked"),
            "relist",
        )
        synced(fresh, "configmaps.v1")
        ask(fresh.read, "POST", in_namespace(namespace), body=configmap("after")).ok()
        assert stream.event()["object"]["metadata"]["name"] == "after"
        assert ask(fresh.admin, "DELETE", "/informers/configmaps.v1").status == 204
        assert stream.line() == b""
    assert informers(fresh) == {}
    assert ask(fresh.admin, "DELETE", "/informers/configmaps.v1").status == 404


def _relists(proxy: Proxy, reason: str) -> float:
    return metrics(proxy).total("kubecache_informer_relists_total", reason=reason)


NAMED = {"cache": {"resources": [{"resource": "configmaps"}, {"resource": "deployments.apps"}]}}


def test_ready_once_the_named_are_synced_though_the_apiserver_comes_late() -> None:
    with ApiServer() as own:
        own.stop_apiserver()
        with Proxy(own.kubeconfig(), config=NAMED, wait="livez") as proxy:
            assert get(proxy.admin, "/readyz").status == 500
            answer = get(proxy.read, CONFIGMAPS)
            assert (answer.status, answer.header("Retry-After")) == (503, "1")
            own.start_apiserver()
            proxy.wait("readyz", timeout=60)
            for target in (CONFIGMAPS, "/apis/apps/v1/deployments"):
                assert_source(get(proxy.read, target), "hit")


def test_no_reads_are_cached_while_the_first_list_takes_long(apiserver: ApiServer) -> None:
    with FaultProxy(apiserver.port) as faults:
        kubeconfig = apiserver.kubeconfig(port=faults.port)
        faults.throttle(2000)
        with Proxy(kubeconfig, config=NAMED, wait="livez") as proxy:
            assert get(proxy.admin, "/readyz").status == 500
            verbose = get(proxy.admin, "/readyz?verbose").body.decode()
            assert "[-]informer" in verbose
            faults.resume()
            proxy.wait("readyz")
            assert cache_status(get(proxy.read, CONFIGMAPS)).hit
            assert get(proxy.admin, "/readyz?verbose").body.endswith(b"readyz check passed\n")
