"""What reads have to see after a write, by what was asked and answered."""

from __future__ import annotations

import pytest

from proxy.cache.expectations import Expectation
from proxy.cache.lag import Write
from proxy.kube.envelope import Envelope
from proxy.kube.protobuf import wrap
from proxy.kube.requests import parse_request
from proxy.writes.effects import Effect, Sent, effects

PODS = "/api/v1/namespaces/a/pods"
SENT, ARRIVED = 1.0, 2.0


def shown(
    name: str = "x",
    version: int | None = 12,
    *,
    kind: str = "Pod",
    uid: str = "u",
    is_last: bool = False,
) -> Envelope:
    return Envelope("v1", kind, "a", name, uid, version, is_last)


DELETED = shown(version=None, kind="Status")


def effects_of(
    line: str, status: int = 200, envelope: Envelope | None = None, body: bytes = b""
) -> list[tuple[str, Effect]]:
    method, _, target = line.partition(" ")
    path, _, query = target.partition("?")
    request = parse_request(method, path.encode(), query.encode(), [])
    found = effects(Sent(request, status, envelope, SENT, ARRIVED, body))
    return [(effect.resource.plural, effect) for effect in found]


@pytest.mark.parametrize(
    ("line", "status", "envelope", "key", "version", "uid"),
    [
        (f"POST {PODS}", 201, shown(), "a/x", 12, ""),
        (f"POST {PODS}", 201, shown("x-7fg2z"), "a/x-7fg2z", 12, ""),  # generateName
        (f"PUT {PODS}/x", 200, shown(), "a/x", 12, ""),
        (f"PUT {PODS}/x", 201, shown(), "a/x", 12, ""),
        (f"PUT {PODS}/x/status", 200, shown(), "a/x", 12, ""),
        (f"PATCH {PODS}/x?fieldManager=me", 200, shown(), "a/x", 12, ""),
        (f"PATCH {PODS}/x/ephemeralcontainers", 200, shown(), "a/x", 12, ""),
        (f"PUT {PODS}/x/scale", 200, shown(kind="Scale"), "a/x", 12, ""),
        ("PUT /api/v1/namespaces/n/finalize", 200, shown("n"), "n", 12, ""),
        ("POST /api/v1/nodes", 201, shown("n"), "n", 12, ""),
        # A deletion that is finished names the object; one that has begun shows its new version.
        (f"DELETE {PODS}/x", 200, DELETED, "a/x", 0, "u"),
        (f"DELETE {PODS}/x", 200, shown(), "a/x", 12, ""),
        (f"DELETE {PODS}/x", 202, shown(is_last=True), "a/x", 12, ""),
        # An update that lets go of a deletion shows the old version.
        (f"PATCH {PODS}/x", 200, shown(is_last=True), "a/x", 0, "u"),
        (f"PUT {PODS}/x", 200, shown(is_last=True), "a/x", 0, "u"),
        # What isn't shown has to be proven.
        (f"DELETE {PODS}", 200, shown(kind="PodList"), "a/", 0, ""),
        (f"DELETE {PODS}", 200, None, "a/", 0, ""),
        (f"PUT {PODS}/x", 200, None, "a/x", 0, ""),
        (f"POST {PODS}", 201, None, "a/", 0, ""),
        (f"PUT {PODS}/x", 200, shown(version=None), "a/x", 0, ""),
        (f"POST {PODS}/x/eviction", 201, shown(version=None, kind="Status"), "a/x", 0, ""),
        (f"POST {PODS}/x/binding", 201, shown(version=None, kind="Status"), "a/x", 0, ""),
        # So does what may have happened or not, or in part.
        (f"DELETE {PODS}", 409, None, "a/", 0, ""),
        (f"DELETE {PODS}", 403, None, "a/", 0, ""),
        (f"POST {PODS}/x/eviction", 429, None, "a/x", 0, ""),
        ("PUT /api/v1/namespaces/n/status", 200, shown("n", is_last=True), "n", 12, ""),
        (f"PUT {PODS}/x", 504, None, "a/x", 0, ""),
        (f"POST {PODS}", 500, None, "a/", 0, ""),
    ],
)
def test_reads_have_to_see(
    line: str, status: int, envelope: Envelope | None, key: str, version: int, uid: str
) -> None:
    (_, effect), *_ = effects_of(line, status, envelope)
    assert effect.expected == Expectation(key, ARRIVED, "", version, uid)
    assert effect.write == (Write(version, SENT, ARRIVED) if version else None)


@pytest.mark.parametrize(
    ("line", "status"),
    [
        (f"PUT {PODS}/x", 409),
        (f"PUT {PODS}/x", 404),
        (f"POST {PODS}", 422),
        (f"DELETE {PODS}/x", 403),
        (f"DELETE {PODS}", 401),
        (f"PUT {PODS}/x", 301),
        (f"PUT {PODS}/x?dryRun=All", 200),
        (f"POST {PODS}?fieldManager=me&dryRun=All", 201),
        (f"POST {PODS}/x/exec?command=a", 200),
        (f"POST {PODS}/x/proxy/a/b", 200),
        ("POST /api/v1/namespaces/a/serviceaccounts/x/token", 201),
        ("POST /healthz", 200),
    ],
)
def test_reads_have_nothing_to_see(line: str, status: int) -> None:
    assert effects_of(line, status, shown()) == []


@pytest.mark.parametrize(
    ("line", "others"),
    [
        ("POST /api/v1/namespaces/a/bindings", [("pods", "a/")]),
        ("POST /api/v1/namespaces/a/services", [("ipaddresses", "")]),
        ("DELETE /api/v1/namespaces/a/services/x", [("ipaddresses", "")]),
        ("PUT /api/v1/namespaces/a/services/x/status", []),
        (f"POST {PODS}/x/eviction", [("poddisruptionbudgets", "a/")]),
        (f"POST {PODS}/x/binding", []),
        (f"POST {PODS}", []),
    ],
)
def test_some_writes_change_other_resources_too(line: str, others: list[tuple[str, str]]) -> None:
    found = [(plural, effect.expected.key) for plural, effect in effects_of(line, 201, shown())]
    assert found[1:] == others


def test_an_empty_dry_run_is_none() -> None:
    assert len(effects_of(f"PUT {PODS}/x?dryRun=", 200, shown())) == 1


@pytest.mark.parametrize(
    ("line", "body", "is_dry"),
    [
        (f"DELETE {PODS}/x?dryRun=All", b"", True),
        (f"DELETE {PODS}/x", b'{"dryRun":["All"]}', True),
        (f"DELETE {PODS}", b'{"kind":"DeleteOptions","apiVersion":"v1","dryRun":["All"]}', True),
        (f"DELETE {PODS}/x", wrap("v1", "DeleteOptions", b"\x2a\x03All"), True),
        # Where there's a body the query counts for nothing.
        (f"DELETE {PODS}/x?dryRun=All", b"{}", False),
        (f"DELETE {PODS}/x?dryRun=All", b'{"dryRun":[]}', False),
        (f"DELETE {PODS}/x?dryRun=All", wrap("v1", "DeleteOptions", b""), False),
        (f"DELETE {PODS}/x?dryRun=All", b"dryRun: [All]", False),  # not understood
        (f"PUT {PODS}/x?dryRun=All", b"{}", True),
        (f"PUT {PODS}/x", b'{"dryRun":["All"]}', False),
    ],
)
def test_where_a_dry_run_is_asked_for(line: str, body: bytes, is_dry: bool) -> None:
    assert (effects_of(line, 200, DELETED, body) == []) is is_dry


def test_who_is_told_that_a_name_is_taken_has_to_see_the_object() -> None:
    status = shown("x", None, kind="Status", uid="")
    [(_, effect)] = effects_of(f"POST {PODS}", 409, status)
    assert effect.expected == Expectation("a/x", ARRIVED, "-")
