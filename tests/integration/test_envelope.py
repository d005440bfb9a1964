"""Statuses and objects of a real kube-apiserver in both encodings, against what is read of them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple
from urllib.parse import quote

import pytest

from proxy.kube.envelope import (
    Envelope,
    decode_status,
    encode_status,
    read_envelope,
    read_precondition,
)
from proxy.kube.errors import ApiError, already_exists, conflict, not_found
from proxy.kube.negotiation import JSON, PROTOBUF
from proxy.kube.resources import Resource
from tests.harness.apiserver import ApiServer
from tests.harness.http import Answer, ask
from tests.harness.objects import CustomResource, Object, configmap, crd, define

CONFIGMAPS = Resource("", "v1", "configmaps")
RULE = {"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}
pytestmark = pytest.mark.parametrize("encoding", [JSON, PROTOBUF])


class Known(NamedTuple):
    """A collection, an object to create in it, and the resource that both are of."""

    resource: Resource
    path: str
    object: Object


@pytest.fixture(scope="module")
def things(apiserver: ApiServer) -> CustomResource:
    return define(apiserver.server, crd("Thing", group="envelope.kubecache.dev"))


@pytest.fixture(params=["configmaps", "things"])
def known(request: pytest.FixtureRequest, apiserver: ApiServer, namespace: str) -> Iterator[Known]:
    if request.param == "configmaps":
        yield Known(CONFIGMAPS, CONFIGMAPS.path(namespace), configmap("x", {"a": "1"}))
        return
    things: CustomResource = request.getfixturevalue("things")
    resource = Resource(things.group, "v1", things.plural)
    yield Known(resource, resource.path(namespace), things.object("x"))


def _ask(
    apiserver: ApiServer, encoding: str, method: str, path: str, body: Object | None = None
) -> Answer:
    headers = (("Accept", f"{encoding}, application/json"),)
    return ask(apiserver.server, method, path, headers=headers, body=body)


def _assert_same(answer: Answer, encoding: str, error: ApiError) -> None:
    """The error is what was answered, byte for byte, and reading it loses nothing."""
    assert answer.status == error.code
    content_type = answer.header("Content-Type") or ""
    assert content_type == encoding
    assert encode_status(error, content_type) == answer.body
    assert decode_status(content_type, answer.body) == error.status()


def test_a_stale_update(apiserver: ApiServer, known: Known, encoding: str) -> None:
    created = ask(apiserver.server, "POST", known.path, body=known.object).ok()
    path = f"{known.path}/x"
    stale = created.json()
    stale["metadata"]["labels"] = {"a": "b"}
    ask(apiserver.server, "PUT", path, body=stale).ok()
    answer = _ask(apiserver, encoding, "PUT", path, stale)
    _assert_same(answer, encoding, conflict(known.resource, "x"))


ODD_NAMES = (
    'a"b',
    "a\\b",
    "a b",
    "\xe9",
    "\U0001f600",
    "<&>",
    "a\nb",
    "\x07",
    "\x7f",
    "\xa0",
    "\u2028",
)


@pytest.mark.parametrize("name", ODD_NAMES, ids=ascii)
def test_a_name_that_messages_quote(apiserver: ApiServer, encoding: str, name: str) -> None:
    """Names of roles are free but for slashes and percent signs."""
    roles = Resource("rbac.authorization.k8s.io", "v1", "clusterroles")
    role = (
        ask(apiserver.server, "POST", roles.path(), body={"metadata": {"name": name}}).ok().json()
    )
    path = f"{roles.path()}/{quote(name)}"
    ask(apiserver.server, "PUT", path, body={**role, "rules": [RULE]}).ok()
    answers = [
        _ask(apiserver, encoding, "PUT", path, role),
        _ask(apiserver, encoding, "POST", roles.path(), {"metadata": {"name": name}}),
    ]
    ask(apiserver.server, "DELETE", path).ok()
    answers.append(_ask(apiserver, encoding, "GET", path))
    for answer, error in zip(answers, (conflict, already_exists, not_found), strict=True):
        _assert_same(answer, encoding, error(roles, name))


def test_an_absent_object(apiserver: ApiServer, known: Known, encoding: str) -> None:
    answer = _ask(apiserver, encoding, "GET", f"{known.path}/absent")
    _assert_same(answer, encoding, not_found(known.resource, "absent"))


def test_a_name_that_is_taken(apiserver: ApiServer, known: Known, encoding: str) -> None:
    ask(apiserver.server, "POST", known.path, body=known.object).ok()
    answer = _ask(apiserver, encoding, "POST", known.path, known.object)
    _assert_same(answer, encoding, already_exists(known.resource, "x"))


def test_a_status_with_causes_and_one_without_details(
    apiserver: ApiServer, namespace: str, encoding: str
) -> None:
    path = CONFIGMAPS.path(namespace)
    for body in (configmap("X_"), {**configmap("x"), "kind": "Pod"}):
        answer = _ask(apiserver, encoding, "POST", path, body)
        assert answer.status in (400, 422)
        status = decode_status(encoding, answer.body)
        assert status is not None
        assert ("causes" in status.get("details", {})) is (answer.status == 422)
        assert encode_status(status, encoding) == answer.body


def test_a_deletion(apiserver: ApiServer, known: Known, encoding: str) -> None:
    """That of a custom resource is told in JSON all the same."""
    created = ask(apiserver.server, "POST", known.path, body=known.object).ok().json()
    uid = created["metadata"]["uid"]
    answer = _ask(apiserver, encoding, "DELETE", f"{known.path}/x").ok()
    content_type = answer.header("Content-Type") or ""
    assert content_type == (encoding if known.resource == CONFIGMAPS else JSON)
    assert read_envelope(content_type, answer.body) == Envelope("v1", "Status", "", "x", uid, None)
    status = decode_status(content_type, answer.body)
    assert status is not None
    assert status["status"] == "Success"
    assert encode_status(status, content_type) == answer.body


def test_an_object(apiserver: ApiServer, namespace: str, encoding: str) -> None:
    """Written, held by a finalizer, and with it gone."""
    path = CONFIGMAPS.path(namespace)
    body = configmap("x", {"a": "1"})
    body["metadata"]["finalizers"] = ["kubecache.dev/test"]
    created = ask(apiserver.server, "POST", path, body=body).ok().json()
    metadata = created["metadata"]
    version = int(metadata["resourceVersion"])
    expected = Envelope("v1", "ConfigMap", namespace, "x", metadata["uid"], version)
    answer = _ask(apiserver, encoding, "GET", f"{path}/x").ok()
    assert read_envelope(encoding, answer.body) == expected

    answer = _ask(apiserver, encoding, "DELETE", f"{path}/x").ok()
    held = read_envelope(encoding, answer.body)
    assert held is not None
    assert held.version is not None
    assert held.version > version
    assert held == expected._replace(version=held.version)

    del created["metadata"]["finalizers"], created["metadata"]["resourceVersion"]
    answer = _ask(apiserver, encoding, "PUT", f"{path}/x", created).ok()
    assert read_envelope(encoding, answer.body) == held._replace(is_last=True)


def test_a_list(apiserver: ApiServer, namespace: str, encoding: str) -> None:
    answer = _ask(apiserver, encoding, "GET", CONFIGMAPS.path(namespace)).ok()
    assert read_envelope(encoding, answer.body) is None


def test_a_precondition(apiserver: ApiServer, namespace: str, encoding: str) -> None:
    path = CONFIGMAPS.path(namespace)
    ask(apiserver.server, "POST", path, body=configmap("x")).ok()
    options = b'{"kind":"DeleteOptions","apiVersion":"v1","preconditions":{"resourceVersion":"1"}}'
    assert read_precondition(options) == 1
    headers = (("Accept", encoding), ("Content-Type", JSON))
    answer = ask(apiserver.server, "DELETE", f"{path}/x", headers=headers, body=options)
    assert answer.status == 409
    status = decode_status(encoding, answer.body)
    assert status is not None
    assert status["details"] == {"name": "x", "kind": "ConfigMap"} | status["details"]
    assert encode_status(status, encoding) == answer.body
