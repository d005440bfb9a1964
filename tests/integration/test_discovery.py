"""Discovery documents that change, and clients that ask for them at the same time."""

from __future__ import annotations

from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from threading import Event

import pytest

from tests.harness.apiserver import ApiServer
from tests.harness.caching import eventually
from tests.harness.differential import compare, differences
from tests.harness.http import Headers, Server, Session, ask, get
from tests.harness.objects import Object, create
from tests.harness.proxy import Proxy

SERVICES = "/apis/apiregistration.k8s.io/v1/apiservices"
PLAIN: Headers = (("Accept", "application/json"),)
AGGREGATED: Headers = (
    ("Accept", "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"),
)
ROUNDS = 30


def _api_service(group: str) -> Object:
    """An API whose server there isn't."""
    spec = {
        "group": group,
        "version": "v1",
        "service": {"name": "none", "namespace": "default"},
        "insecureSkipTLSVerify": True,
        "groupPriorityMinimum": 1000,
        "versionPriority": 15,
    }
    return {"metadata": {"name": f"v1.{group}"}, "spec": spec}


@pytest.mark.parametrize("headers", [PLAIN, AGGREGATED], ids=["plain", "aggregated"])
def test_an_api_service_is_seen_as_soon_as_at_the_apiserver(
    apiserver: ApiServer, proxy: Proxy, headers: Headers
) -> None:
    servers = apiserver.server, proxy.read
    group = f"aggregated{len(headers[0][1])}.kubecache.dev"
    before = get(proxy.read, "/apis", headers=headers).ok()
    assert group.encode() not in before.body
    create(apiserver.server, SERVICES, _api_service(group))
    try:
        eventually(lambda: _lists(apiserver.server, headers, group), f"{group} is there")
        assert _lists(proxy.read, headers, group)
        _compare_soon(*servers, headers)
        compare(*servers, "GET", f"/apis/{group}")
    finally:
        ask(apiserver.server, "DELETE", f"{SERVICES}/v1.{group}").ok()
    eventually(lambda: not _lists(apiserver.server, headers, group), f"{group} is gone")
    assert not _lists(proxy.read, headers, group)
    _compare_soon(*servers, headers)


def _lists(server: Server, headers: Headers, group: str) -> bool:
    return group.encode() in get(server, "/apis", headers=headers).ok().body


def _compare_soon(apiserver: Server, proxy: Server, headers: Headers) -> None:
    """The API server learns of an API and of its state one after the other."""

    def same() -> bool:
        answers = [get(server, "/apis", headers=headers) for server in (apiserver, proxy)]
        return not differences(*answers)

    eventually(same, "both say the same of /apis")


def test_clients_that_ask_at_the_same_time_dont_disturb_each_other(
    apiserver: ApiServer, proxy: Proxy
) -> None:
    """Some know a document, one knows an old one, one has no rights at all, and it changes."""
    stranger = proxy.read.bearer("wrong")
    clients: list[tuple[Server, Headers, set[int]]] = [
        (proxy.read, PLAIN, {200}),
        (proxy.read, PLAIN, {200}),
        (proxy.read, AGGREGATED, {200}),
        (stranger, PLAIN, {401}),
        (stranger, AGGREGATED, {401}),
        (proxy.read, (*AGGREGATED, ("If-None-Match", '"OLD"')), {200}),
        (proxy.read, (*AGGREGATED, ("If-None-Match", _etag(apiserver.server))), {200, 304}),
    ]
    over = Event()
    with ThreadPoolExecutor(len(clients)) as pool:
        asking = [pool.submit(_ask_on, server, headers, over) for server, headers, _ in clients]
        try:
            for number in range(ROUNDS):
                _come_and_go(apiserver.server, f"round{number}.kubecache.dev")
        finally:
            over.set()
        seen = [each.result(30) for each in asking]
    for (server, headers, expected), statuses in zip(clients, seen, strict=True):
        assert set(statuses) <= expected, (server, headers, statuses)
        assert statuses.total() > ROUNDS
    for headers in (PLAIN, AGGREGATED):
        _compare_soon(apiserver.server, proxy.read, headers)


def _etag(server: Server) -> str:
    return get(server, "/apis", headers=AGGREGATED).header("ETag") or ""


def _ask_on(server: Server, headers: Headers, over: Event) -> Counter[int]:
    statuses: Counter[int] = Counter()
    with Session(server) as session:
        while not over.is_set():
            statuses[session.ask("GET", "/apis", headers=headers).status] += 1
    return statuses


def _come_and_go(server: Server, group: str) -> None:
    create(server, SERVICES, _api_service(group))
    eventually(lambda: _lists(server, AGGREGATED, group), f"{group} is there")
    ask(server, "DELETE", f"{SERVICES}/v1.{group}").ok()
