"""Events, which the API server lets expire: many at a time, at one resourceVersion."""

from __future__ import annotations

import pytest

from tests.harness.apiserver import ApiServer
from tests.harness.caching import cached
from tests.harness.differential import compare
from tests.harness.http import watch
from tests.harness.objects import create
from tests.harness.proxy import Proxy, metrics

COUNT = 8
TTL = 20
"""Seconds; kube-apiserver puts what is created within a twentieth of it on one lease of etcd."""


@pytest.mark.slow
def test_events_that_expire_together() -> None:
    with ApiServer(flags=[f"--event-ttl={TTL}s"]) as own, Proxy(own.kubeconfig()) as proxy:
        namespace = own.new_namespace()
        collection = f"/api/v1/namespaces/{namespace}/events"
        cached(proxy.read, collection)
        target = f"{collection}?watch=1"
        with watch(own.server, target) as theirs, watch(proxy.read, target) as ours:
            about = {"namespace": namespace}
            for number in range(COUNT):
                body = {"metadata": {"name": f"e{number}"}, "involvedObject": about}
                create(own.server, collection, body)
            told = theirs.events(2 * COUNT, timeout=3 * TTL)
            assert ours.events(2 * COUNT, timeout=10) == told
        deleted = [each["object"]["metadata"] for each in told if each["type"] == "DELETED"]
        assert len(deleted) == COUNT
        assert len({each["resourceVersion"] for each in deleted}) < COUNT, "some went together"
        compare(own.server, proxy.read, "GET", collection, source="hit")
        assert metrics(proxy).total("kubecache_informer_relists_total") == 1
