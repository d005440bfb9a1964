"""Lists: whatever index finds the candidates, and whatever pages they come in, as a scan would."""

import json
import time
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from proxy.cache.store import CHUNK, Store
from proxy.cache.view import View
from proxy.forms.form import plainly
from proxy.forms.json import JsonForm
from proxy.forms.objects import Object
from proxy.kube.continuation import decode_token
from proxy.kube.options import parse_options
from proxy.kube.paths import ResourcePath
from proxy.kube.requests import Verb
from proxy.kube.resources import Resource, ResourceInfo
from proxy.reads.listing import BATCH, MAX_SHAPES, PART, SCAN, SMALL, SMALL_BYTES, Listing, Tally
from proxy.reads.plan import Read, ServeList, plan
from proxy.reads.query import MAX_JUDGED, MAX_PICKED

PODS = Resource("", "v1", "pods")
INFO = ResourceInfo(PODS, "Pod", namespaced=True)
EMPTY = b'{"kind":"PodList","metadata":{"resourceVersion":"1"},"items":[]}'

NAMESPACES = ("a", "a-b", "a.b", "b")
"""``a-b/x`` and ``a.b/x`` come before ``a/x``, bytewise."""

pods = st.builds(
    lambda namespace, name, labels, node: (namespace, name, labels, node),
    st.sampled_from(NAMESPACES),
    st.sampled_from([f"p{n}" for n in range(12)]),
    st.dictionaries(st.sampled_from(["app", "tier"]), st.sampled_from(["x", "y", ""])),
    st.sampled_from(["n1", "n2", ""]),
)
Pod = tuple[str, str, dict[str, str], str]

QUERIES = [
    "",
    "labelSelector=app%3Dx",
    "labelSelector=app%3Dx,tier%3Dy",
    "labelSelector=app+in+(x,y),tier!%3Dx",
    "labelSelector=!app",
    "labelSelector=app",
    "fieldSelector=spec.nodeName%3Dn1",
    "fieldSelector=spec.nodeName!%3Dn1",
    "fieldSelector=spec.nodeName%3Dn1&labelSelector=app%3Dx",
    "fieldSelector=metadata.name%3Dp3",
    "fieldSelector=metadata.name!%3Dp3",
    "fieldSelector=metadata.namespace%3Da",
    "fieldSelector=status.phase%3DRunning",
]


def decode(form: JsonForm, pod: Pod, version: int) -> Object:
    namespace, name, labels, node = pod
    item = {
        "metadata": {
            "name": name,
            "namespace": namespace,
            "uid": f"{namespace}-{name}",
            "resourceVersion": str(version),
            "labels": labels,
        },
        "spec": {"nodeName": node},
        "status": {"phase": "Running"},
    }
    page = {"metadata": {"resourceVersion": "1"}, "items": [item]}
    return form.decode_page(json.dumps(page, separators=(",", ":")).encode()).objects[0]


def view_of(found: list[Pod]) -> View:
    form = JsonForm(INFO, EMPTY)
    store = Store(form.indexed)
    for version, pod in enumerate(found, start=1):
        store.put(decode(form, pod, version))
    store.version = store.changed = len(found)
    return View(form, store, time.monotonic)


def listing(
    view: View, query: str, namespace: str = "", tally: Tally | None = None, weight: int = 0
) -> Listing:
    read = Read(
        Verb.LIST,
        ResourcePath(PODS, namespace, "", ""),
        parse_options(query.encode()),
        indent=False,
    )
    decided = plan(read, view)
    assert isinstance(decided, ServeList), decided
    candidates = decided.selection.candidates(view.store, decided.snapshot, decided.keys)
    return Listing(
        decided, plainly(view.form), candidates, weight, view.snapshots, tally or Tally()
    )


def answer(view: View, query: str, namespace: str = "") -> dict[str, Any]:
    body = b"".join(listing(view, query, namespace).parts())
    assert body.endswith(b"\n")
    whole: dict[str, Any] = json.loads(body)
    return whole


def keys(body: dict[str, Any]) -> list[str]:
    return [f"{each['metadata']['namespace']}/{each['metadata']['name']}" for each in body["items"]]


def scan(view: View, query: str, namespace: str) -> list[str]:
    """The plainest way: every object, one by one."""
    selection = listing(view, query, namespace).plan.selection
    return [
        found.key for found in sorted(view.store.snapshot(), key=_key) if selection.matches(found)
    ]


_key: Callable[[Object], bytes] = lambda found: found.key.encode()  # noqa: E731


@given(st.lists(pods, max_size=60), st.sampled_from(QUERIES), st.sampled_from(["", *NAMESPACES]))
def test_every_list_is_what_a_scan_finds(found: list[Pod], query: str, namespace: str) -> None:
    view = view_of(found)
    assert keys(answer(view, query, namespace)) == scan(view, query, namespace)


@given(
    st.lists(pods, max_size=60),
    st.sampled_from(QUERIES),
    st.sampled_from(["", *NAMESPACES]),
    st.integers(1, 9),
    st.lists(pods, max_size=8),
)
def test_pages_are_one_state_cut_in_pieces(
    found: list[Pod], query: str, namespace: str, limit: int, later: list[Pod]
) -> None:
    """Whatever is written between the first page and the others."""
    assume(namespace or "metadata.namespace" not in query)  # pages of these are forwarded
    view = view_of(found)
    whole = scan(view, query, namespace)
    version = view.store.version
    page = answer(view, f"{query}&limit={limit}", namespace)
    for number, pod in enumerate(later, start=version + 1):
        view.store.put(decode(JsonForm(INFO, EMPTY), pod, number))
        view.store.version = view.store.changed = number
    got = keys(page)
    while token := page["metadata"].get("continue"):
        remaining = page["metadata"].get("remainingItemCount")
        assert remaining in (None, len(whole) - len(got))
        page = answer(view, f"{query}&limit={limit}&continue={token}", namespace)
        assert len(page["items"]) <= limit
        assert page["metadata"]["resourceVersion"] == str(version)
        got += keys(page)
    assert got == whole


def many(count: int, label: str = "x") -> list[Pod]:
    return [("a", f"p{n:06}", {"app": label if n % 2 else "z"}, "n1") for n in range(count)]


def test_a_full_page_of_a_selection_has_a_token_while_any_object_is_left() -> None:
    view = view_of([("a", "p0", {"app": "x"}, ""), ("a", "p1", {}, "")])
    first = answer(view, "labelSelector=app%3Dx&limit=1")
    assert decode_token(first["metadata"]["continue"]).start == "a/p0\0"
    assert "remainingItemCount" not in first["metadata"]
    last = answer(view, f"labelSelector=app%3Dx&limit=1&continue={first['metadata']['continue']}")
    assert (last["items"], "continue" in last["metadata"]) == ([], False)


def test_a_list_by_name_is_one_look() -> None:
    tally = Tally()
    view = view_of(many(500))
    whole = b"".join(listing(view, "fieldSelector=metadata.name%3Dp000007", "a", tally).parts())
    assert keys(json.loads(whole)) == ["a/p000007"]
    assert (tally.scanned, tally.returned) == (1, 1)


def test_a_large_list_comes_in_parts_with_room_between_them() -> None:
    count = max(SMALL, MAX_PICKED) + CHUNK
    view = view_of(many(count))
    large = listing(view, "labelSelector=app%3Dx")
    assert not large.is_small
    parts = list(large.parts())
    assert len(parts) >= count // 2 // BATCH
    assert keys(json.loads(b"".join(parts))) == scan(view, "labelSelector=app%3Dx", "")
    none = list(listing(view, "fieldSelector=status.phase%3DFailed").parts())
    assert json.loads(b"".join(none))["items"] == []
    assert none.count(b"") >= count // BATCH


def test_a_few_heavy_objects_are_no_small_list() -> None:
    view = view_of(many(20))
    assert listing(view, "", weight=SMALL_BYTES // 20).is_small
    assert not listing(view, "", weight=SMALL_BYTES // 20 + 1).is_small


def test_many_terms_are_no_small_list() -> None:
    view = view_of(many(SMALL))
    most = MAX_JUDGED // SMALL
    assert listing(view, "labelSelector=" + ",".join(["!a"] * most)).is_small
    assert not listing(view, "labelSelector=" + ",".join(["!a"] * (most + 1))).is_small


@pytest.mark.parametrize("query", ["", "limit=5"])
def test_objects_heavier_than_the_average_come_in_parts_too(query: str) -> None:
    view = view_of([("a", f"p{n}", {}, "x" * (PART // 2)) for n in range(10)])
    parts = list(listing(view, query, weight=1).parts())
    assert max(map(len, parts)) < PART * 2
    assert json.loads(b"".join(parts)) == answer(view, query)
    assert len(answer(view, query)["items"]) == (5 if query else 10)


def test_scans_are_remembered_by_the_shape_of_their_selector() -> None:
    tally = Tally()
    view = view_of(many(SCAN + 1))
    b"".join(listing(view, "fieldSelector=status.phase%3DFailed", tally=tally).parts())
    b"".join(listing(view, "fieldSelector=spec.nodeName%3Dn9", tally=tally).parts())
    assert tally.scans == {"status.phase=": 1}
    assert (tally.scanned, tally.returned) == (SCAN + 1, 0)
    for number in range(2 * MAX_SHAPES):
        tally.count(str(number), SCAN, 0)
    assert len(tally.scans) == MAX_SHAPES
