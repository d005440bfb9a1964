"""A proxy that is stopped and started: clients go on, and relist nothing."""

from __future__ import annotations

import base64
import json
from contextlib import ExitStack

import pytest

from proxy.kube.negotiation import FormName
from tests.harness.apiserver import ApiServer
from tests.harness.caching import cached, caught_up, eventually
from tests.harness.differential import assert_source, cache_status, compare, differences
from tests.harness.follower import Follower
from tests.harness.http import Answer, Watch, ask, get, watch
from tests.harness.objects import configmap, create, patch
from tests.harness.proxy import Proxy, metrics


def test_a_watch_from_before_the_start_is_caught_up(apiserver: ApiServer) -> None:
    """By the API server, then locally; both tell the same as the API server alone."""
    server = apiserver.server
    namespace = apiserver.new_namespace()
    collection = f"/api/v1/namespaces/{namespace}/configmaps"
    start = create(server, collection, configmap("a", tier="web"))["metadata"]["resourceVersion"]
    for tier in ("db", "web", None):
        patch(server, f"{collection}/a", {"metadata": {"labels": {"tier": tier}}})
    last = create(server, collection, configmap("b", tier="web"))["metadata"]["resourceVersion"]
    config = {"cache": {"resources": [{"resource": "configmaps"}]}}
    with Proxy(apiserver.kubeconfig(), config=config) as proxy:
        caught_up(proxy.read, collection, last)
        for selector in ("", "&labelSelector=tier%3Dweb", "&fieldSelector=metadata.name%3Da"):
            target = f"{collection}?watch=1&resourceVersion={start}{selector}"
            with watch(server, target) as direct, watch(proxy.read, target) as through:
                status = cache_status(Answer(200, through.headers, b""))
                assert status.source == "fwd=partial"
                expected = [direct.line() for _ in range(1 if "name" not in selector else 3)]
                assert [through.line() for _ in expected] == expected
                for number in range(3):
                    change = {"metadata": {"labels": {"tier": "web", "turn": str(number)}}}
                    patch(server, f"{collection}/a", change)
                    end = patch(server, f"{collection}/b", change)["metadata"]["resourceVersion"]
                wanted = "a" if "name" in selector else "b"
                told = [_until(stream, wanted, end) for stream in (direct, through)]
                assert told[0] == told[1]
        restarts = metrics(proxy).total("kubecache_informer_relists_total", reason="expired")
        assert restarts == 0


def _until(stream: Watch, name: str, version: str) -> list[bytes]:
    """Lines up to the last change of an object; *version* is that of ``b``."""
    last = f'"resourceVersion":"{version}"'.encode() if name == "b" else b'"turn":"2"'
    lines = [stream.line()]
    while last not in lines[-1]:
        lines.append(stream.line())
    return lines


def test_watches_in_each_form_go_on_after_a_restart(apiserver: ApiServer) -> None:
    """Clients come back from before the start, and are told what they missed, a deletion too."""
    collection = f"/api/v1/namespaces/{apiserver.new_namespace()}/configmaps"
    create(apiserver.server, collection, configmap("a"))
    create(apiserver.server, collection, configmap("b"))
    config = {"cache": {"resources": [{"resource": "configmaps", "forms": [*map(str, FormName)]}]}}
    with Proxy(apiserver.kubeconfig(), config=config) as proxy, ExitStack() as stack:
        servers = (apiserver.server, proxy.read)
        pairs = [
            [stack.enter_context(Follower(server, collection, form=form)) for server in servers]
            for form in FormName
        ]
        for end in (proxy.stop, proxy.kill):
            patch(apiserver.server, f"{collection}/a", {"data": {"seen": end.__name__}})
            end()
            patch(apiserver.server, f"{collection}/a", {"data": {"missed": end.__name__}})
            ask(apiserver.server, "DELETE", f"{collection}/b").ok()
            create(apiserver.server, collection, configmap("b"))
            proxy.start()
            last = patch(apiserver.server, f"{collection}/a", {"data": {"again": end.__name__}})
            for direct, through in pairs:
                for each in (direct, through):
                    each.wait(int(last["metadata"]["resourceVersion"]))
                assert through.lines == direct.lines, through
                assert through.relists == 0


def test_a_stop_ends_watches_cleanly(apiserver: ApiServer) -> None:
    namespace = apiserver.new_namespace()
    collection = f"/api/v1/namespaces/{namespace}/configmaps"
    with Proxy(apiserver.kubeconfig()) as proxy:
        cached(proxy.read, collection)
        with (
            watch(proxy.read, f"{collection}?watch=1") as local,
            watch(proxy.read, f"/live{collection}?watch=1") as forwarded,
        ):
            proxy.stop()
            local.wait_end()
            forwarded.wait_end()


def test_pages_go_on_at_the_other_server(apiserver: ApiServer) -> None:
    """Tokens are kube-apiserver's own: either continues what the other began."""
    server = apiserver.server
    namespace = apiserver.new_namespace()
    collection = f"/api/v1/namespaces/{namespace}/configmaps"
    for number in range(6):
        create(server, collection, configmap(f"c{number}"))
    with Proxy(apiserver.kubeconfig()) as proxy:
        cached(proxy.read, collection)
        first = get(proxy.read, f"{collection}?limit=2").ok()
        assert_source(first, "hit")
        token = first.json()["metadata"]["continue"]
        create(server, collection, configmap("c00"))
        more = f"{collection}?limit=2&continue={token}"
        compare(server, proxy.read, "GET", more, source="hit")
        begun = get(server, f"{collection}?limit=2").ok().json()["metadata"]
        theirs = f"{collection}?limit=2&continue={begun['continue']}"
        compare(server, proxy.read, "GET", theirs)
        assert metrics(proxy).total("kubecache_informer_snapshots") >= 1
    with Proxy(apiserver.kubeconfig()) as proxy:
        cached(proxy.read, collection)
        compare(server, proxy.read, "GET", more, source="fwd=uri-miss")


@pytest.mark.parametrize("name", ["system:node", "system%3Anode", "system%3anode", "system%3Anone"])
def test_names_that_are_encoded(apiserver: ApiServer, proxy: Proxy, name: str) -> None:
    roles = "/apis/rbac.authorization.k8s.io/v1/clusterroles"
    cached(proxy.read, roles)
    compare(apiserver.server, proxy.read, "GET", f"{roles}/{name}", source="hit")


def test_pages_of_a_compacted_version_are_the_apiservers_410() -> None:
    with ApiServer() as own:
        collection = "/api/v1/namespaces/default/configmaps"
        for number in range(4):
            create(own.server, collection, configmap(f"c{number}"))
        token = get(own.server, f"{collection}?limit=2").json()["metadata"]["continue"]
        create(own.server, collection, configmap("c9"))
        own.restart()
        own.compact()
        more = f"{collection}?limit=2&continue={token}"
        eventually(lambda: get(own.server, more).status == 410, "the version is compacted")
        with Proxy(own.kubeconfig()) as proxy:
            cached(proxy.read, collection)
            expired = compare(own.server, proxy.read, "GET", more, source="fwd").proxy
            assert expired.json()["reason"] == "Expired"
            again = expired.json()["metadata"]["continue"]
            answer = get(proxy.read, f"{collection}?limit=2&continue={again}").ok()
            assert_source(answer, "hit")
            judged = f"{collection}?limit=2&continue={_at(again, answer.version)}"
            assert differences(get(own.server, judged), answer) == []
            assert _names(answer) == ["c2", "c3"]
            assert answer.json()["metadata"]["continue"]


def _at(token: str, version: str) -> str:
    """A token that goes on at the newest version, made one of the version that it has got."""
    content = json.loads(base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)))
    assert content["rv"] == -1
    content["rv"] = int(version)
    return base64.urlsafe_b64encode(json.dumps(content).encode()).rstrip(b"=").decode()


def _names(answer: Answer) -> list[str]:
    return [each["metadata"]["name"] for each in answer.json()["items"]]
