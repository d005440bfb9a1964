"""Selections: whom they select, which index finds them, and what their watchers are told."""

from __future__ import annotations

import weakref
from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.cache.history import Event
from proxy.cache.store import EVERYTHING, Store
from proxy.forms.form import EventType, Form
from proxy.forms.objects import Object
from proxy.kube.selectable import declared_field
from proxy.kube.selectors import parse_field_selector, parse_label_selector
from proxy.reads.query import MAX_JUDGED, MIN_SETS, Selection, select_by
from tests.unit.builders import NODES, PODS, WIDGETS, item, store_of

ADDED, MODIFIED, DELETED = EventType.ADDED, EventType.MODIFIED, EventType.DELETED
IMAGE = declared_field("spec.containers[*].image")
FORM = PODS.form(IMAGE)


def selection(namespace: str = "", labels: str = "", fields: str = "") -> Selection:
    found = select_by(FORM, namespace, parse_label_selector(labels), parse_field_selector(fields))
    assert found is not None
    return found


def pod(
    name: str = "x",
    namespace: str = "a",
    *,
    version: int = 1,
    labels: Mapping[str, str] | None = None,
    node: str = "n1",
    images: tuple[str, ...] = (),
) -> Object:
    spec = {"nodeName": node, "containers": [{"image": image} for image in images]}
    written = item(name, namespace, version=version, labels=labels, spec=spec)
    return FORM.decode_page(PODS.page(written)).objects[0]


# --- whom they select ------------------------------------------------------------------------

APP = {"app": "x"}


@pytest.mark.parametrize(
    ("namespace", "labels", "fields", "selected"),
    [
        ("", "", "", True),
        ("a", "", "", True),
        ("b", "", "", False),
        ("a-", "", "", False),
        ("", "app=x", "", True),
        ("", "app=y", "", False),
        ("", "app,!tier", "", True),
        ("b", "app=x", "", False),
        ("", "", "metadata.name=x", True),
        ("", "", "metadata.name=y", False),
        ("", "", "metadata.name!=x", False),
        ("", "", "metadata.namespace=a", True),
        ("", "", "metadata.namespace!=a", False),
        ("b", "", "metadata.namespace=a", False),
        ("", "", "spec.nodeName=n1", True),
        ("", "", "spec.nodeName!=n1", False),
        ("", "", "spec.nodeName=n1,metadata.name=x", True),
        ("", "", "spec.nodeName=n1,metadata.name=y", False),
        ("", "app=y", "spec.nodeName=n1", False),
        ("", "", "spec.schedulerName=", True),
        # One of several is enough; a negation needs that none is.
        ("", "", "spec.containers[*].image=one", True),
        ("", "", "spec.containers[*].image=two", True),
        ("", "", "spec.containers[*].image=three", False),
        ("", "", "spec.containers[*].image!=one", False),
        ("", "", "spec.containers[*].image!=three", True),
    ],
)
def test_selecting(namespace: str, labels: str, fields: str, *, selected: bool) -> None:
    found = pod(labels=APP, images=("one", "two"))
    chosen = selection(namespace, labels, fields)
    assert chosen.matches(found) is selected
    store = store_of([found])
    candidates = chosen.candidates(store, store.snapshot(), chosen.keys)
    assert chosen.select(candidates.objects) == ([found] if selected else [])


@pytest.mark.parametrize(
    ("form", "field", "known"),
    [
        (FORM, "metadata.name", True),
        (FORM, "metadata.namespace", True),
        (FORM, "spec.nodeName", True),
        (FORM, "spec.containers[*].image", True),
        (FORM, "spec.nodename", False),
        (FORM, "metadata.labels", False),
        (FORM, "", False),
        (NODES.form(), "metadata.name", True),
        (NODES.form(), "metadata.namespace", False),
        (NODES.form(), "spec.unschedulable", True),
        (NODES.form(), "spec.nodeName", False),
        (WIDGETS.form(), "metadata.namespace", True),
        (WIDGETS.form(), "spec.color", False),
        (WIDGETS.form(declared_field("spec.color")), "spec.color", True),
    ],
)
def test_fields_that_are_known(form: Form, field: str, *, known: bool) -> None:
    for text in (f"{field}=x", f"{field}!=x", f"metadata.name=x,{field}=x"):
        fields = parse_field_selector(text)
        found = select_by(form, "", parse_label_selector(""), fields)
        assert (found is not None) is known


@pytest.mark.parametrize(
    ("namespace", "fields", "key"),
    [
        ("a", "metadata.name=x", "a/x"),
        ("a", "spec.nodeName=n,metadata.name=x", "a/x"),
        ("", "metadata.name=x", None),
        ("a", "metadata.name!=x", None),
        ("a", "spec.nodeName=x", None),
        ("a", "", None),
    ],
)
def test_selectors_that_name_one_object(namespace: str, fields: str, key: str | None) -> None:
    assert selection(namespace, "", fields).single_key == key


def test_a_name_alone_is_the_key_where_there_are_no_namespaces() -> None:
    fields = parse_field_selector("metadata.name=n")
    found = select_by(NODES.form(), "", parse_label_selector(""), fields)
    assert found is not None
    assert found.single_key == "n"


@pytest.mark.parametrize(
    ("labels", "fields", "shape"),
    [
        ("", "", ""),
        ("app=x", "", "app in"),
        ("app in (x,y),tier!=z,!gone,there", "", "app in, tier notin, gone !, there exists"),
        ("", "spec.nodeName=n,metadata.name!=x", "spec.nodeName=, metadata.name!="),
        ("app=secret", "spec.nodeName=secret", "app in, spec.nodeName="),
    ],
)
def test_a_shape_tells_no_values(labels: str, fields: str, shape: str) -> None:
    found = selection("a", labels, fields).shape
    assert sorted(found.split(", ")) == sorted(shape.split(", "))


# --- which index finds them ------------------------------------------------------------------

COUNT = 1000


@pytest.fixture(scope="module")
def store() -> Store:
    """A thousand pods: in ten namespaces, each labelled with its number, on a hundred nodes."""
    return store_of(
        (
            pod(
                f"p{number:04}",
                f"ns{number % 10}",
                version=number + 1,
                labels={"all": "same", "number": str(number), "zone": "same"},
                node=f"n{number % 100}",
                images=(f"i{number % 50}",),
            )
            for number in range(COUNT)
        ),
        indexed=FORM.indexed,
    )


@pytest.mark.parametrize(
    ("namespace", "labels", "fields", "size"),
    [
        ("", "", "", COUNT),
        ("ns3", "", "", COUNT // 10),
        ("nowhere", "", "", 0),
        ("", "number=7", "", 1),
        ("", "number in (7,8,9)", "", 3),
        ("", "number=none", "", 0),
        ("", "all=same", "", COUNT),  # a label that all carry: a scan
        ("", "number!=7", "", COUNT),
        ("", "all=same,number=7", "", 1),
        ("", "number=7,zone=same", "", 1),
        ("", "", "spec.nodeName=n7", COUNT // 100),
        ("", "", "spec.nodeName!=n7", COUNT),
        ("", "", "spec.containers[*].image=i7", COUNT // 50),
        ("", "", "spec.nodeName=n7,spec.containers[*].image=i7", COUNT // 100),
        ("", "", "spec.schedulerName=", COUNT),  # has no index
        ("ns7", "", "metadata.name=p0007", 1),
        ("ns8", "", "metadata.name=p0007", 0),
        ("", "", "metadata.name=p0007", COUNT),
        ("ns7", "number=7", "spec.nodeName=n7", 1),
        ("ns3", "", "spec.nodeName=n7", COUNT // 100),
    ],
)
def test_the_most_selective_index_gives_the_candidates(
    store: Store, namespace: str, labels: str, fields: str, size: int
) -> None:
    assert COUNT > MIN_SETS
    chosen = selection(namespace, labels, fields)
    candidates = chosen.candidates(store, store.snapshot(), chosen.keys)
    assert candidates.size == size
    found = chosen.select(candidates.objects)
    assert found == [each for each in store.snapshot() if chosen.matches(each)]


def test_an_earlier_state_has_no_indexes() -> None:
    store = store_of([pod("x", labels=APP), pod("y")], indexed=FORM.indexed)
    snapshot = store.snapshot()
    store.put(pod("x", version=2))
    store.version = store.changed = 2
    chosen = selection("", "app=x")
    candidates = chosen.candidates(store, snapshot, EVERYTHING)
    assert [found.version for found in chosen.select(candidates.objects)] == [1]
    assert candidates.size == 2


# --- what their watchers are told ------------------------------------------------------------


def event(event_type: EventType, found: Object, previous: Object | None) -> Event:
    return Event(event_type, 9, found, previous, 0.0)


YES, NO = pod(labels=APP), pod(labels={"app": "y"})


@pytest.mark.parametrize(
    ("event_type", "previous", "found", "told"),
    [
        (ADDED, None, YES, (ADDED, YES)),
        (ADDED, None, NO, None),
        (MODIFIED, YES, YES, (MODIFIED, YES)),
        (MODIFIED, NO, YES, (ADDED, YES)),
        (MODIFIED, YES, NO, (DELETED, YES)),
        (MODIFIED, NO, NO, None),
        (DELETED, YES, YES, (DELETED, YES)),
        (DELETED, NO, NO, None),
        (DELETED, YES, NO, (DELETED, NO)),  # the watcher knew it, whatever its end was
        (DELETED, NO, YES, None),
        # Types are what the server called them; what counts is what was there before.
        (ADDED, YES, YES, (MODIFIED, YES)),
        (MODIFIED, None, YES, (ADDED, YES)),
        (DELETED, None, YES, None),
    ],
)
def test_transitions(
    event_type: EventType,
    previous: Object | None,
    found: Object,
    told: tuple[EventType, Object] | None,
) -> None:
    assert selection("a", "app=x").transition(event(event_type, found, previous)) == told


steps = st.lists(
    st.tuples(
        st.sampled_from(["a/x", "a/y", "b/x", "a-b/x"]),
        st.one_of(st.none(), st.sampled_from([APP, {"app": "y"}, {}])),
        st.sampled_from(["n1", "n2"]),
    ),
    max_size=30,
)


@given(
    steps,
    st.sampled_from(["", "a", "b"]),
    st.sampled_from(["", "app=x", "app!=x", "!app"]),
    st.sampled_from(["", "spec.nodeName=n1", "metadata.name=x", "metadata.name!=x"]),
)
def test_who_follows_the_transitions_knows_who_is_selected(
    history: list[tuple[str, dict[str, str] | None, str]], namespace: str, labels: str, fields: str
) -> None:
    chosen = selection(namespace, labels, fields)
    present: dict[str, Object] = {}
    followed: dict[str, Object] = {}
    for version, (key, written, node) in enumerate(history, start=1):
        previous = present.get(key)
        if written is None and previous is None:
            continue
        space, _, name = key.partition("/")
        found = pod(name, space, version=version, labels=written or {}, node=node)
        if written is None:
            del present[key]
            happened = event(DELETED, found, previous)
        else:
            present[key] = found
            happened = event(ADDED if previous is None else MODIFIED, found, previous)
        told = chosen.transition(happened)
        if told is not None:
            event_type, shown = told
            assert (event_type is ADDED) is (shown.key not in followed)
            followed.pop(shown.key, None)
            if event_type is not DELETED:
                followed[shown.key] = shown
        assert followed == {key: each for key, each in present.items() if chosen.matches(each)}


@pytest.mark.parametrize(("terms", "judged"), [(1, True), (MAX_JUDGED // 200, True), (90, False)])
def test_label_sets_are_judged_in_one_go_if_that_is_soon_done(terms: int, *, judged: bool) -> None:
    pods = [pod(f"p{n}", labels={"app": f"{n % 5}", "n": f"{n}"}) for n in range(1000)]
    store = store_of(pods)
    selected = selection(labels=",".join(["app=1"] * terms))
    candidates = selected.candidates(store, store.snapshot(), EVERYTHING)
    assert candidates.size == (200 if judged else 1000)


def test_what_a_watch_has_seen_is_forgotten() -> None:
    watched = selection(labels="app=x")
    seen = pod(labels={"app": "x", "only": "this pod's"})
    label_set = weakref.ref(seen.labels)
    assert watched.transition(Event(ADDED, 1, seen, None, 0.0)) is not None
    del seen
    assert label_set() is None
