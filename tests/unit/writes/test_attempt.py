"""Writes that conflict for certain, and those that are left to the API server."""

from __future__ import annotations

import json
from typing import Any

import pytest

from proxy.cache.expectations import Expectation
from proxy.cache.informer import Informer
from proxy.cache.store import Store
from proxy.forms.json import JsonForm
from proxy.kube.requests import Request, parse_request
from proxy.writes.attempt import Attempt, certain_conflict, read_attempt
from tests.unit import virtual_time
from tests.unit.builders import PODS, item
from tests.unit.served import Served

X = "/api/v1/namespaces/a/pods/x"
MERGE, STRATEGIC = "application/merge-patch+json", "application/strategic-merge-patch+json"
HELD = 20
"""The version of the pod x that the informer holds."""


def body_of(version: str | None = "19", **metadata: str) -> dict[str, Any]:
    given = {"name": "x", "resourceVersion": version, **metadata}
    return {"metadata": {key: value for key, value in given.items() if value is not None}}


def attempt_of(
    body: object,
    line: str = f"PUT {X}",
    media_type: str = "application/json",
) -> Attempt | None:
    method, _, target = line.partition(" ")
    path, _, query = target.partition("?")
    headers = [(b"content-type", media_type.encode())]
    request: Request = parse_request(method, path.encode(), query.encode(), headers)
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    return read_attempt(request, headers, content)


def informer_of(*expected: Expectation, has_status: bool = True) -> Informer:
    """An informer of one pod, x."""
    served = Served()

    async def run() -> Informer:
        informer = served.name()
        store = Store()
        for found in PODS.objects(item("x", version=HELD)):
            store.put(found)
        form = JsonForm(PODS.info._replace(has_status=has_status), PODS.page())
        await informer.replace(form, store, HELD)
        for each in expected:
            informer.acknowledge(each)
        await served.informers.stop()
        await informer.replace(form, store, HELD)
        return informer

    return virtual_time.run(run(), served.clock)


CERTAIN = [
    (body_of(), f"PUT {X}", "application/json"),
    (body_of("1"), f"PUT {X}?fieldManager=me&dryRun=All", "application/json"),
    (body_of(), f"PUT {X}/status", "application/json"),
    (body_of(namespace="a", uid="uid-x"), f"PUT {X}", "application/json; charset=utf-8"),
    ({"kind": "Pod", "apiVersion": "v1", **body_of()}, f"PUT {X}", "application/json"),
    (body_of(), f"PATCH {X}", MERGE),
    (body_of(name=""), f"PATCH {X}", MERGE),
    ({"metadata": {"resourceVersion": "19"}}, f"PATCH {X}", STRATEGIC),
]
LEFT = [
    (body_of(str(HELD)), f"PUT {X}", "application/json"),
    (body_of(str(HELD + 1)), f"PUT {X}", "application/json"),  # newer than the cache
    (body_of(name="y"), f"PUT {X}", "application/json"),
    (body_of(name=""), f"PUT {X}", "application/json"),
    (body_of(namespace="b"), f"PUT {X}", "application/json"),
    (body_of(uid="another"), f"PUT {X}", "application/json"),
    ({"kind": "Node", **body_of()}, f"PUT {X}", "application/json"),
    ({"apiVersion": "v2", **body_of()}, f"PUT {X}", "application/json"),
    (body_of(), f"PUT {X}?fieldValidation=Strict", "application/json"),
    (body_of(), f"PUT {X}/scale", "application/json"),
    (body_of(), f"PUT {X}", MERGE),
    (body_of(), f"PATCH {X}", "application/json"),
    (body_of(), f"PUT {X}?dryRun=bogus", "application/json"),
    (body_of(), f"PUT {X}?fieldValidation=bogus", "application/json"),
    (body_of(), f"PUT {X}?fieldManager={'x' * 129}", "application/json"),
    (body_of(), f"PUT {X}?fieldManager=%07", "application/json"),
    (body_of(), f"PUT {X}?force=true", "application/json"),
    (body_of(), "PUT /api/v1/namespaces/a/pods/y", "application/json"),
]


@pytest.mark.parametrize(("body", "line", "media_type"), CERTAIN)
def test_certain_conflicts(body: object, line: str, media_type: str) -> None:
    attempt = attempt_of(body, line, media_type)
    assert attempt is not None
    found = certain_conflict(attempt, informer_of())
    assert found is not None
    assert found.version == HELD


@pytest.mark.parametrize(("body", "line", "media_type"), LEFT)
def test_what_the_api_server_has_to_say(body: object, line: str, media_type: str) -> None:
    attempt = attempt_of(body, line, media_type)
    assert attempt is not None
    assert certain_conflict(attempt, informer_of()) is None


def test_a_status_that_is_no_subresource_is_the_api_servers_404() -> None:
    attempt = attempt_of(body_of(), f"PUT {X}/status")
    assert attempt is not None
    assert certain_conflict(attempt, informer_of(has_status=False)) is None


def test_nothing_is_certain_of_what_is_known_to_be_old() -> None:
    """The pod may have been deleted by now."""
    attempt = attempt_of(body_of())
    assert attempt is not None
    assert certain_conflict(attempt, informer_of(Expectation("a/x", 2000.0))) is None


@pytest.mark.parametrize(
    ("body", "line", "media_type"),
    [
        (body_of(None), f"PUT {X}", "application/json"),
        (body_of("0"), f"PUT {X}", "application/json"),
        (body_of("abc"), f"PUT {X}", "application/json"),
        (b"{", f"PUT {X}", "application/json"),
        (b"metadata: {}", f"PUT {X}", "application/yaml"),
        (body_of(), f"PATCH {X}", "application/json-patch+json"),
        (body_of(), f"PATCH {X}", "application/apply-patch+yaml"),
        (body_of(), "POST /api/v1/namespaces/a/pods", "application/json"),
        (body_of(), f"POST {X}/eviction", "application/json"),
        (body_of(), "PUT /healthz", "application/json"),
        (body_of(), f"DELETE {X}", "application/json"),
    ],
)
def test_writes_that_name_no_version(body: object, line: str, media_type: str) -> None:
    assert attempt_of(body, line, media_type) is None


def test_a_deletion_names_one_as_a_precondition() -> None:
    attempt = attempt_of({"preconditions": {"resourceVersion": "7"}}, f"DELETE {X}")
    assert attempt is not None
    assert (attempt.version, attempt.key, attempt.is_mergeable) == (7, "a/x", False)


@pytest.mark.parametrize(
    ("line", "media_type", "mergeable"),
    [
        (f"PUT {X}", "application/json", True),
        (f"PUT {X}/status", "application/json", True),
        (f"PATCH {X}", MERGE, True),
        (f"PATCH {X}", STRATEGIC, True),
        (f"PUT {X}/scale", "application/json", False),
    ],
)
def test_what_can_be_merged(line: str, media_type: str, *, mergeable: bool) -> None:
    attempt = attempt_of(body_of(), line, media_type)
    assert attempt is not None
    assert attempt.is_mergeable is mergeable
