"""An API server without WatchList: informers list page by page, and then watch."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from proxy.cache.reflector import PAGE
from tests.harness.apiserver import ApiServer
from tests.harness.caching import caught_up
from tests.harness.differential import compare
from tests.harness.http import Session, get, watch
from tests.harness.objects import configmap, create, patch
from tests.harness.proxy import Proxy, metrics

CONFIGMAPS = "/api/v1/configmaps"
DEFAULT = "/api/v1/namespaces/default/configmaps"
QUERIES = ("", "?labelSelector=parity%3De", "?limit=7", "?fieldSelector=metadata.name%3Dc9")
WATCH_LIST = (
    f"{CONFIGMAPS}?watch=1&allowWatchBookmarks=true"
    "&sendInitialEvents=true&resourceVersionMatch=NotOlderThan"
)
COUNT = 2 * PAGE + 10
NAMED = {"cache": {"resources": [{"resource": "configmaps"}]}}


@pytest.fixture(scope="module")
def own() -> Iterator[ApiServer]:
    """A kube-apiserver as those before 1.34 are, with three pages of ConfigMaps."""
    with ApiServer(flags=["--feature-gates=WatchList=false"]) as server:
        with Session(server.server) as session:
            for number in range(COUNT):
                session.ask("POST", DEFAULT, body=configmap(f"c{number}", parity="eo"[number % 2]))
        yield server


def test_the_apiserver_refuses_a_watch_list(own: ApiServer) -> None:
    """So the informers of this module can't have had one."""
    answer = get(own.server, WATCH_LIST)
    assert answer.status == 422
    assert "sendInitialEvents" in answer.json()["message"]


def test_an_informer_syncs_by_pages_and_serves(own: ApiServer) -> None:
    server = own.server
    with Proxy(own.kubeconfig(), config=NAMED) as proxy:
        for query in QUERIES:
            compare(server, proxy.read, "GET", CONFIGMAPS + query, exact=True, source="hit")
        compare(server, proxy.read, "GET", WATCH_LIST, source="fwd")
        assert len(get(proxy.read, DEFAULT).json()["items"]) == COUNT
        version = get(proxy.read, CONFIGMAPS).version
        with watch(proxy.read, f"{DEFAULT}?watch=1&resourceVersion={version}") as stream:
            changed = patch(server, f"{DEFAULT}/c7", {"data": {"a": "b"}})
            event = stream.event()
            assert (event["type"], event["object"]) == ("MODIFIED", changed)
        last = create(server, DEFAULT, configmap("last"))["metadata"]["resourceVersion"]
        caught_up(proxy.read, CONFIGMAPS, last)
        compare(server, proxy.read, "GET", DEFAULT, exact=True, source="hit")
        seen = metrics(proxy)
        # The watch-list that was refused, and the list that was not.
        assert seen.total("kubecache_informer_relists_total", reason="start") == 2
        assert seen.total("kubecache_informer_relists_total") == 2
        assert seen.total("kubecache_informer_restarts_total") == 0
