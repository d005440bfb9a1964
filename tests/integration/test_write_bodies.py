"""Bodies of writes: as large as can be, broken off, and what is never told of them."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Iterator
from contextlib import suppress

import pytest

from proxy.kube.envelope import MERGE_PATCH, STRATEGIC_PATCH
from proxy.writes.writer import MAX_BODY
from tests.harness.apiserver import ApiServer
from tests.harness.caching import caught_up
from tests.harness.http import Answer, Server, ask, get
from tests.harness.objects import Object, configmap, create, patch
from tests.harness.proxy import Proxy

JSON = ("Content-Type", "application/json")
MERGE = ("X-Kubecache-On-Conflict", "merge")


@pytest.fixture(scope="module")
def proxy(apiserver: ApiServer) -> Iterator[Proxy]:
    """One that has ConfigMaps and Secrets in its cache, and tells all it can in its log."""
    config = {"cache": {"resources": [{"resource": each} for each in ("configmaps", "secrets")]}}
    with Proxy(apiserver.kubeconfig(), "--log-level", "debug", config=config) as running:
        yield running


# --- sizes -----------------------------------------------------------------------------------


@pytest.mark.parametrize("is_old", [False, True], ids=["current", "old"])
@pytest.mark.parametrize(
    ("size", "status"), [(MAX_BODY - 1, 200), (MAX_BODY, 200), (MAX_BODY + 1, 413)]
)
def test_a_large_body_gets_the_api_servers_answer(
    apiserver: ApiServer, proxy: Proxy, namespace: str, size: int, status: int, *, is_old: bool
) -> None:
    collection = f"/api/v1/namespaces/{namespace}/configmaps"
    answers = []
    for server in (apiserver.server, proxy.read):
        seen = create(apiserver.server, collection, configmap("x"))
        now = patch(apiserver.server, f"{collection}/x", {"data": {"a": "1"}})
        caught_up(proxy.read, collection, now["metadata"]["resourceVersion"])
        body = json.dumps(seen if is_old else now).encode().ljust(size)
        answers.append(ask(server, "PUT", f"{collection}/x", headers=(JSON,), body=body))
        ask(apiserver.server, "DELETE", f"{collection}/x").ok()
    theirs, ours = map(_told, answers)
    assert ours == theirs
    assert ours[0] == (409 if is_old and status == 200 else status)


def _told(answer: Answer) -> tuple[int, Object | None]:
    """What an answer says, but for causes, and which object it is about."""
    found: Object = answer.json()
    if found["kind"] == "Status":
        found.get("details", {}).pop("causes", None)
        return answer.status, found
    return answer.status, found["data"]


# --- bodies that end early -------------------------------------------------------------------


@pytest.mark.parametrize(
    "framing", [("Content-Length", "1000"), ("Transfer-Encoding", "chunked")], ids=lambda f: f[0]
)
def test_a_body_that_breaks_off_writes_nothing(
    apiserver: ApiServer, proxy: Proxy, namespace: str, framing: tuple[str, str]
) -> None:
    """Though what has arrived is a whole object."""
    collection = f"/api/v1/namespaces/{namespace}/configmaps"
    seen = create(apiserver.server, collection, configmap("x"))
    body = json.dumps({**seen, "data": {"a": "1"}}).encode()
    if framing[1] == "chunked":
        body = b"%x\r\n%s\r\n" % (len(body), body)
    for server in (apiserver.server, proxy.read):
        _break_off(server, f"{collection}/x", framing, body)
    assert get(apiserver.server, f"{collection}/x").ok().json() == seen
    assert get(proxy.read, f"{collection}/x").ok().json() == seen
    ask(proxy.read, "PUT", f"{collection}/x", body=seen).ok()


def _break_off(server: Server, target: str, framing: tuple[str, str], body: bytes) -> None:
    """Send a part of a body, wait a moment for an answer, and leave."""
    connection = server.connect(timeout=0.5)
    connection.putrequest("PUT", target, skip_accept_encoding=True)
    for name, value in (*server.headers, JSON, framing):
        connection.putheader(name, value)
    connection.endheaders(body)
    with suppress(TimeoutError):
        connection.getresponse()
    connection.close()


# --- Secrets ---------------------------------------------------------------------------------

MARKERS = {each: f"{each}-marker-7d1f" for each in ("base", "theirs", "mine")}
"""Values that nobody but who reads the Secret may be told."""


@pytest.mark.parametrize("headers", [(), (MERGE,)], ids=["explained", "merging"])
@pytest.mark.parametrize("detected", ["local", "upstream"])
@pytest.mark.parametrize("content_type", ["application/json", MERGE_PATCH, STRATEGIC_PATCH])
def test_values_of_secrets_are_never_told(
    apiserver: ApiServer,
    proxy: Proxy,
    namespace: str,
    content_type: str,
    detected: str,
    headers: tuple[tuple[str, str], ...],
) -> None:
    """What conflicts is named, in the answer; what it was and is, nowhere."""
    collection = f"/api/v1/namespaces/{namespace}/secrets"
    target = f"{collection}/x"
    base, theirs, mine = ({"key": b64encode(each.encode()).decode()} for each in MARKERS.values())
    seen = create(apiserver.server, collection, {"metadata": {"name": "x"}, "data": base})
    now = patch(apiserver.server, target, {"data": theirs})
    if detected == "local":
        caught_up(proxy.read, collection, now["metadata"]["resourceVersion"])
    version = {"resourceVersion": seen["metadata"]["resourceVersion"]}
    is_update = content_type == "application/json"
    body = {**seen, "data": mine} if is_update else {"metadata": version, "data": mine}
    method = "PUT" if is_update else "PATCH"
    kind = ("Content-Type", content_type)
    answer = ask(proxy.read, method, target, headers=(kind, *headers), body=body)
    assert answer.status == 409
    assert [cause["field"] for cause in answer.json()["details"]["causes"]] == ["data[key]"]
    _assert_untold(answer.body)
    for page in ("metrics", "status.json"):
        _assert_untold(get(proxy.admin, f"/{page}").ok().body)
    _assert_untold(proxy.process.log.read_bytes())


def _assert_untold(text: bytes) -> None:
    for marker in (each.encode() for each in MARKERS.values()):
        assert marker not in text
        assert b64encode(marker) not in text
