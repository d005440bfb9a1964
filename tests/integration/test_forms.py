"""Each form that is cached against kube-apiserver: the same requests, the same bytes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import permutations
from typing import NamedTuple

import pytest

from proxy.forms.bookmarks import INITIAL_END
from proxy.forms.json import JsonForm
from proxy.forms.protobuf import protobuf_form
from proxy.kube.errors import Expired
from proxy.kube.negotiation import JSON, PROTOBUF, FormName, Representation
from proxy.kube.protobuf import wrap
from proxy.kube.resources import Resource, ResourceInfo
from proxy.kube.selectable import selectable_fields, wire_paths
from tests.harness.apiserver import ApiServer
from tests.harness.caching import eventually, hit
from tests.harness.differential import (
    assert_source,
    cache_status,
    compare_in_time,
    differences,
    exact_target,
)
from tests.harness.forms import (
    CLIENT_GO,
    METADATA,
    WHOLE,
    Asked,
    frames,
    list_meta,
    metadata,
    plain,
)
from tests.harness.http import Answer, Server, ask, get, watch
from tests.harness.objects import Object, configmap, crd, create, define, node, patch, pod
from tests.harness.proxy import Proxy, forms_held
from tests.integration.selector_objects import fill

_RBAC = "rbac.authorization.k8s.io"
_RULES = [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}]
_POD = {"containers": [{"name": "c", "image": "i"}]}
_ONCE = {"spec": {**_POD, "restartPolicy": "Never"}}
_LABELS = {"app": "x"}
_TEMPLATE = {"metadata": {"labels": _LABELS}, "spec": _POD}
_WORKLOAD = {"selector": {"matchLabels": _LABELS}, "template": _TEMPLATE}


class Kind(NamedTuple):
    """A resource, by its group's path and its name, and what its objects have beside metadata."""

    root: str
    plural: str
    members: Object
    namespaced: bool = True

    def path(self, namespace: str) -> str:
        within = f"/namespaces/{namespace}" if self.namespaced else ""
        return f"{self.root}{within}/{self.plural}"

    @property
    def setting(self) -> str:
        _, _, rest = self.root.partition("/apis/")
        group, _, version = rest.partition("/")
        return f"{self.plural}.{version}.{group}" if group else self.plural


BUILT_IN = [
    Kind("/api/v1", "pods", pod("x-1-1")),
    Kind("/api/v1", "configmaps", configmap("", {"key": "<&>"})),
    Kind("/api/v1", "secrets", {"stringData": {"a": "b"}}),
    Kind("/api/v1", "services", {"spec": {"ports": [{"port": 80}]}}),
    Kind("/api/v1", "nodes", node(""), namespaced=False),
    Kind("/api/v1", "namespaces", {}, namespaced=False),
    Kind("/apis/apps/v1", "deployments", {"spec": _WORKLOAD}),
    Kind("/apis/apps/v1", "replicasets", {"spec": _WORKLOAD}),
    Kind("/apis/apps/v1", "daemonsets", {"spec": _WORKLOAD}),  # whose bookmarks have annotations
    Kind(
        "/apis/batch/v1",
        "jobs",
        {"spec": {"template": _ONCE}},
    ),
    Kind("/apis/coordination.k8s.io/v1", "leases", {"spec": {"holderIdentity": "me"}}),
    Kind(f"/apis/{_RBAC}/v1", "clusterroles", {"rules": _RULES}, namespaced=False),
    Kind("/apis/policy/v1", "poddisruptionbudgets", {"spec": {"minAvailable": 1}}),
    Kind("/apis/discovery.k8s.io/v1", "endpointslices", {"addressType": "IPv4", "endpoints": []}),
]
CUSTOM = Kind("/apis/forms.kubecache.dev/v1", "gadgets", {"spec": {"color": "red"}})

_ONLY_SELECTED = [
    Kind("/api/v1", "replicationcontrollers", {}),
    Kind("/api/v1", "events", {}),
    Kind("/apis/events.k8s.io/v1", "events", {}),
    Kind("/apis/certificates.k8s.io/v1", "certificatesigningrequests", {}, namespaced=False),
    Kind("/apis/resource.k8s.io/v1", "resourceslices", {}, namespaced=False),
]

_FORMS = ["json", "protobuf", "metadata", "metadata-protobuf"]


class World(NamedTuple):
    """A proxy that holds everything in every form, and what is behind it."""

    apiserver: Server
    proxy: Server


@pytest.fixture(scope="module")
def world(apiserver: ApiServer) -> Iterator[World]:
    define(apiserver.server, crd("Gadget", group="forms.kubecache.dev"))
    named = [{"resource": each.setting, "forms": _FORMS} for each in (*BUILT_IN, *_ONLY_SELECTED)]
    custom = {"resource": CUSTOM.setting, "forms": [f for f in _FORMS if f != "protobuf"]}
    config = {"cache": {"resources": [*named, custom]}}
    with Proxy(apiserver.kubeconfig(), config=config) as running:
        yield World(apiserver.server, running.read)


@pytest.fixture(scope="module")
def whole(apiserver: ApiServer, world: World) -> Iterator[Proxy]:
    """A proxy that holds whole objects, where their metadata is not asked for by a watch."""
    forms = ["json", "protobuf"]
    named = [{"resource": each.setting, "forms": forms} for each in BUILT_IN]
    resources = [*named, {"resource": CUSTOM.setting}]
    with Proxy(apiserver.kubeconfig(), config={"cache": {"resources": resources}}) as running:
        yield running


class Scene(NamedTuple):
    """Objects of a kind, written through the proxy, and the version that their changes follow.

    Labels are `of` the scene, and `in` or out of a selection.
    """

    kind: Kind
    path: str
    label: str
    before: int
    present: str
    absent: str


def stage(world: World, kind: Kind, namespace: str) -> Scene:
    """Create four objects; then one leaves the selection, one enters it, one goes, one comes.

    Something else is written last, so that no informer has reached the API server's version.
    """
    path = kind.path(namespace)
    for name in ("a", "b", "c", "d"):
        _create(world, kind, namespace, name, selected="no" if name == "c" else "yes")
    last = get(world.proxy, f"{path}/{namespace}-d", headers=[("Accept", JSON)])
    patch(world.proxy, f"{path}/{namespace}-a", {"metadata": {"labels": {"in": "no"}}})
    patch(world.proxy, f"{path}/{namespace}-c", {"metadata": {"labels": {"in": "yes"}}})
    ask(world.proxy, "DELETE", f"{path}/{namespace}-b?gracePeriodSeconds=0").ok()
    _create(world, kind, namespace, "e", selected="yes")
    patch(world.proxy, f"{path}/{namespace}-d", {"metadata": {"annotations": {"changed": "<so>"}}})
    accounts = f"/api/v1/namespaces/{namespace}/serviceaccounts"
    create(world.apiserver, accounts, {"metadata": {"name": "last"}})
    return Scene(
        kind, path, f"of={namespace}", int(last.version), f"{namespace}-a", f"{namespace}-absent"
    )


def _create(world: World, kind: Kind, namespace: str, name: str, *, selected: str) -> None:
    metadata = {"name": f"{namespace}-{name}", "labels": {"of": namespace, "in": selected}}
    body = {**kind.members, "metadata": metadata}
    if kind is CUSTOM:
        body |= {"apiVersion": "forms.kubecache.dev/v1", "kind": "Gadget"}
    ask(world.proxy, "POST", kind.path(namespace), body=body).ok()


def _same(world: World, target: str, accept: str, *, source: str = "hit") -> Answer:
    """Ask the proxy and kube-apiserver; returns what both answered.

    With "" as *source* either may have answered: a busy proxy may be late.
    """
    headers = [("Accept", accept)]
    actual = get(world.proxy, target, headers=headers)
    if source:
        assert_source(actual, source)
    expected = get(world.apiserver, target, headers=headers)
    assert differences(expected, actual) == [], (target, accept)
    return actual


def _same_list(world: World, target: str, accept: str, *, source: str = "hit") -> Answer:
    """Compare a list with kube-apiserver's at the same version."""
    actual = get(world.proxy, target, headers=[("Accept", accept)])
    if source:
        assert_source(actual, source)
    expected = get(
        world.apiserver, exact_target(target, list_meta(actual)[0]), headers=[("Accept", accept)]
    )
    assert differences(expected, actual) == [], (target, accept)
    return actual


def check_lists(world: World, scene: Scene, asked: Asked) -> None:
    """Lists of all kinds, and pages of them."""
    accept, path = asked.listing, scene.path
    mine = f"labelSelector={scene.label}"
    for query in (
        mine,
        f"{mine},in%3Dyes",
        f"{mine},in+notin+(yes)",
        f"{mine},nothing",
        f"{mine}&resourceVersion=0",
        f"{mine}&resourceVersion={scene.before}&resourceVersionMatch=NotOlderThan",
        f"fieldSelector=metadata.name%3D{scene.present}",
        f"fieldSelector=metadata.name%3D{scene.absent}",
        f"{mine}&fieldSelector=metadata.name!%3D{scene.present}",
        "",
        "pretty=1",
    ):
        _same_list(world, f"{path}?{query}", accept)
    version = list_meta(_same_list(world, f"{path}?{mine}", accept))[0]
    _same(world, f"{path}?{mine}&resourceVersion={version}&resourceVersionMatch=Exact", accept)
    if scene.kind.namespaced:
        _same_list(world, f"{scene.kind.path('nobody')}?limit=2", accept)
        _same_list(world, f"{scene.kind.path('nobody')}", accept)
    check_pages(world, f"{path}?limit=2", accept)
    check_pages(world, f"{path}?limit=1&{mine}", accept)


def check_pages(world: World, target: str, accept: str) -> None:
    """All pages of a list, each by the token of the one before."""
    page = _same_list(world, target, accept)
    count = 0
    while (token := list_meta(page)[1]) and count < 4:
        page = _same(world, f"{target}&continue={token}", accept)
        count += 1
    assert count


def check_gets(world: World, scene: Scene, accept: str) -> None:
    for query in ("", "?resourceVersion=0", f"?resourceVersion={scene.before}", "?pretty=1"):
        _same(world, f"{scene.path}/{scene.present}{query}", accept)
    can_be_told = accept.endswith(JSON) or accept == PROTOBUF
    for query in ("", "?pretty=1"):
        source = "hit" if can_be_told else "fwd"
        _same(world, f"{scene.path}/{scene.absent}{query}", accept, source=source)


_BOOKMARK_VERSION = re.compile(
    rb"(?<=resourceVersion\":\")\d+|(?<=\x2a\x002[\x02-\x06])\d+(?=8\x00B)"
)


def check_watches(world: World, scene: Scene, accept: str) -> None:
    """What came after a version, for several selections; and all that is there, with its end."""
    mine = f"labelSelector={scene.label}"
    initial = "sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"
    queries = [
        f"{mine}&resourceVersion={scene.before}",
        f"{mine},in%3Dyes&resourceVersion={scene.before}",
        f"{mine}&fieldSelector=metadata.name%3D{scene.present}&resourceVersion={scene.before}",
        f"{mine}&resourceVersion=0",
        f"{mine}&{initial}",
    ]
    with ThreadPoolExecutor(2 * len(queries)) as pool:
        pairs = [
            [pool.submit(_watched, server, f"{scene.path}?{query}", accept) for server in world]
            for query in queries
        ]
        for query, (expected, actual) in zip(queries, pairs, strict=True):
            assert_source(actual.result(), "hit")
            seen = [_frames(each.result()) for each in (expected, actual)]
            assert len(seen[0]) > 1, query
            assert seen[0] == seen[1], query


def _watched(server: Server, target: str, accept: str) -> Answer:
    return get(server, f"{target}&watch=1&timeoutSeconds=1", headers=[("Accept", accept)])


def _frames(answer: Answer) -> list[bytes]:
    """The frames of a finished watch, without later bookmarks and the version of the first."""
    assert answer.status == 200
    content_type = answer.header("Content-Type") or ""
    found = frames(answer.body, content_type)
    return [content_type.encode()] + [
        _BOOKMARK_VERSION.sub(b"N", each) if b"BOOKMARK" in each[:24] else each
        for each in found
        if b"BOOKMARK" not in each[:24] or INITIAL_END.encode() in each
    ]


def check(world: World, scene: Scene, asked: Asked) -> None:
    """All that a form is asked for, once the last write of the scene has reached the cache."""
    headers = asked.headers(listing=True)
    eventually(lambda: hit(world.proxy, scene.path, headers=headers), f"{scene.path} is cached")
    check_gets(world, scene, asked.other)
    check_lists(world, scene, asked)
    check_watches(world, scene, asked.other)


@pytest.mark.parametrize("kind", BUILT_IN, ids=[each.plural for each in BUILT_IN])
def test_whole_objects(world: World, kind: Kind, namespace: str) -> None:
    scene = stage(world, kind, namespace)
    for asked in (WHOLE["protobuf"], CLIENT_GO):
        check(world, scene, asked)


@pytest.mark.parametrize("asked", METADATA.values(), ids=METADATA)
@pytest.mark.parametrize(
    "kind", [BUILT_IN[0], BUILT_IN[1], CUSTOM], ids=["pods", "configmaps", "custom"]
)
def test_metadata(world: World, kind: Kind, asked: Asked, namespace: str) -> None:
    check(world, stage(world, kind, namespace), asked)


_DERIVED = {
    "pods": (BUILT_IN[0], ["metadata", "metadata-v1beta1", "metadata-client"]),
    "daemonsets": (BUILT_IN[8], ["metadata"]),  # which have annotations only where they're whole
    "custom": (CUSTOM, ["metadata", "metadata-v1beta1"]),
}


_NOT_IN_PROTOBUF = {"deployments", "daemonsets", CUSTOM.plural}
"""Kinds whose metadata in protobuf have an informer, for their annotations or as custom ones."""


@pytest.mark.parametrize(("kind", "names"), _DERIVED.values(), ids=_DERIVED)
def test_metadata_of_whole_objects(
    world: World, whole: Proxy, kind: Kind, names: list[str], namespace: str
) -> None:
    """Where whole objects are held, no informer of their metadata is started."""
    through = world._replace(proxy=whole.read)
    scene = stage(through, kind, namespace)
    for name in names:
        check(through, scene, METADATA[name])
    assert forms_held(whole, kind.plural) <= {"json", "protobuf"}


@pytest.mark.parametrize("kind", [*BUILT_IN, CUSTOM], ids=lambda kind: kind.setting)
def test_metadata_of_every_kind(world: World, whole: Proxy, kind: Kind, namespace: str) -> None:
    through = world._replace(proxy=whole.read)
    scene = stage(through, kind, namespace)
    for asked in METADATA.values():
        _same(through, f"{scene.path}/{scene.present}", asked.other, source="")
        query = f"{scene.path}?labelSelector={scene.label}"
        _same_list(through, query, asked.listing, source="")
    if kind.plural not in _NOT_IN_PROTOBUF:
        assert forms_held(whole, kind.plural) <= {"json", "protobuf"}


@pytest.mark.parametrize(
    ("kind", "annotation"),
    [
        (BUILT_IN[6], "deprecated.deployment.rollback.to"),
        (BUILT_IN[8], "deprecated.daemonset.template.generation"),
    ],
    ids=["deployments", "daemonsets"],
)
def test_annotations_that_only_whole_objects_have(
    world: World, whole: Proxy, kind: Kind, annotation: str, namespace: str
) -> None:
    """They are fields of what kube-apiserver holds, and metadata are made of that."""
    through = world._replace(proxy=whole.read)
    body = {**kind.members, "metadata": {"name": "x", "annotations": {annotation: "3"}}}
    create(through.proxy, kind.path(namespace), body)
    target = f"{kind.path(namespace)}/x"
    shown = _same(through, target, JSON).json()["metadata"]["annotations"]
    assert annotation in shown
    for version in ("v1", "v1beta1"):
        found = _same(through, target, metadata(JSON, version=version).other).json()["metadata"]
        assert found.get("annotations", {}).keys() == shown.keys() - {annotation}


@pytest.mark.parametrize("kind", [BUILT_IN[1], CUSTOM], ids=["configmaps", "custom"])
def test_a_session_sees_its_writes_in_every_form(world: World, kind: Kind, namespace: str) -> None:
    whole = {} if kind is CUSTOM else WHOLE
    for name, asked in (whole | METADATA).items():
        _create(world, kind, namespace, name, selected="yes")
        target = f"{kind.path(namespace)}/{namespace}-{name}"
        _same(world, target, asked.other, source="")
        changed = patch(world.proxy, target, {"metadata": {"labels": {"now": "changed"}}})
        _same(world, target, asked.other, source="")
        query = f"{kind.path(namespace)}?labelSelector=now"
        listed = _same_list(world, query, asked.listing, source="")
        assert int(list_meta(listed)[0]) >= int(changed["metadata"]["resourceVersion"])
        ask(world.proxy, "DELETE", target).ok()
        assert get(world.proxy, target, headers=[("Accept", asked.other)]).status == 404


def test_custom_resources_have_no_protobuf(world: World, namespace: str) -> None:
    """What client-go asks for is forwarded until it's known that JSON will be the answer."""
    scene = stage(world, CUSTOM, namespace)

    def is_cached() -> bool:
        answer = get(world.proxy, scene.path, headers=[("Accept", CLIENT_GO.listing)])
        assert answer.header("Content-Type") == JSON
        return cache_status(answer).hit

    assert not is_cached()
    eventually(is_cached, "known to have no protobuf")
    check_lists(world, scene, CLIENT_GO)
    check_watches(world, scene, CLIENT_GO.other)
    _same(world, f"{scene.path}/{scene.present}", CLIENT_GO.other)
    missing = _same(world, f"{scene.path}/{scene.absent}", CLIENT_GO.other)
    assert missing.header("Content-Type") == PROTOBUF
    _same(world, scene.path, PROTOBUF, source="fwd=vary-miss")


@pytest.mark.parametrize("media", [JSON, PROTOBUF])
def test_a_form_that_does_not_fit_is_refused(world: World, media: str, namespace: str) -> None:
    path = BUILT_IN[1].path(namespace)
    _create(world, BUILT_IN[1], namespace, "x", selected="yes")
    asked = metadata(media)
    for target, accept in ((path, asked.other), (f"{path}/{namespace}-x", asked.listing)):
        answer = _same(world, target, accept, source="fwd=vary-miss")
        assert answer.status == 406


_TABLE = f"{JSON};as=Table;g=meta.k8s.io;v=v1"
_CLAUSES = [
    *map(plain, (JSON, PROTOBUF, _TABLE, "text/x", "*/*")),
    *(METADATA[name] for name in ("metadata", "metadata-protobuf")),
]
_IN_EVERY_ORDER = [order for length in (1, 2, 3) for order in permutations(_CLAUSES, length)]
_QUALITIES = ("", ";q=0.5", ";q=0.9")


@pytest.mark.parametrize("qualities", [("",) * 3, _QUALITIES], ids=["in order", "by quality"])
@pytest.mark.parametrize("kind", [BUILT_IN[1], CUSTOM], ids=["configmaps", "custom"])
def test_accept_in_every_order(
    world: World, kind: Kind, qualities: tuple[str, ...], namespace: str
) -> None:
    """What can be met first is answered, and what can't be at all is 406, by whoever answers."""
    scene = stage(world, kind, namespace)
    for order in _IN_EVERY_ORDER:
        for target, is_list in ((f"{scene.path}/{scene.present}", False), (scene.path, True)):
            clauses = (each.listing if is_list else each.other for each in order)
            pairs = zip(clauses, qualities, strict=False)
            headers = [("Accept", ",".join(map("".join, pairs)))]
            compare_in_time(world.apiserver, world.proxy, target, headers, exact=is_list)


@pytest.mark.parametrize("asked", [*WHOLE.values(), *METADATA.values(), plain(_TABLE)])
def test_what_is_deprecated_says_so_in_every_form(
    world: World, asked: Asked, namespace: str
) -> None:
    target = f"/api/v1/namespaces/{namespace}/endpoints"
    create(world.apiserver, target, {"metadata": {"name": "x"}})
    headers = asked.headers(listing=True)
    eventually(lambda: hit(world.proxy, target, headers=headers), "it is cached")
    for each, accept in ((target, asked.listing), (f"{target}/x", asked.other)):
        asking = [("Accept", accept)]
        answer = compare_in_time(world.apiserver, world.proxy, each, asking, source="hit")
        assert "deprecated" in (answer.header("Warning") or "")
    with watch(world.proxy, f"{target}?watch=1", headers=[("Accept", asked.other)]) as stream:
        answer = Answer(stream.status, stream.headers, b"")
    assert_source(answer, "hit")
    assert "deprecated" in (answer.header("Warning") or "")


def test_fields_are_selected_by_in_protobuf(world: World, namespace: str) -> None:
    """Every field that is known, by each value that objects have."""
    fill(world.proxy, namespace)
    unused = set()
    for kind in (*BUILT_IN, *_ONLY_SELECTED):
        group = kind.root.removeprefix("/apis/").partition("/")[0] if "apis" in kind.root else ""
        path = kind.path(namespace)
        if not (fields := selectable_fields(group, kind.plural)):
            continue
        items = get(world.apiserver, path).ok().json()["items"]
        for field in fields:
            values = {_value(item, one) for item in items for one in field.paths}
            if not values - {""}:
                unused.add((kind.setting, field.label))
            for value in {*values, "", "other", field.default} - {None}:
                escaped = (
                    re.sub(r"([,=\\])", r"\\\1", value).replace("\\", "%5C").replace(",", "%2C")
                )
                for operator in ("%3D", "!%3D"):
                    target = f"{path}?fieldSelector={field.label}{operator}{escaped}"
                    _same_list(world, target, PROTOBUF)
        assert wire_paths(group, kind.plural)
    assert unused <= {("pods", "status.podIPs")}


def _value(item: Object, path: tuple[str, ...]) -> str:
    found: object = item
    for step in path:
        found = found.get(step, "") if isinstance(found, dict) else ""
    return str(found).lower() if isinstance(found, bool) else str(found)


@pytest.mark.parametrize("asked", METADATA.values(), ids=METADATA)
def test_fields_beside_metadata_are_told_from_whole_objects(
    world: World, asked: Asked, namespace: str
) -> None:
    _create(world, BUILT_IN[0], namespace, "x", selected="yes")
    target = f"{BUILT_IN[0].path(namespace)}?fieldSelector=spec.nodeName%3D"
    answer = _same_list(world, f"{target}node-0", asked.listing, source="")
    assert namespace.encode() in answer.ok().body
    for value in ("node-0", "none"):
        _same_list(world, target + value, asked.listing)


def test_a_version_that_is_too_old() -> None:
    """The ERROR that ends a watch, passed on and written anew."""
    path = "/api/v1/namespaces/default/configmaps"
    with ApiServer() as own:
        _same_failures(own, path)


def _same_failures(own: ApiServer, path: str) -> None:
    old = ask(own.server, "POST", path, body=configmap("old")).ok().version
    ask(own.server, "POST", path, body=configmap("new")).ok()
    own.restart()
    own.compact()
    resources = [{"resource": "configmaps", "forms": _FORMS}]
    with Proxy(own.kubeconfig(), config={"cache": {"resources": resources}}) as running:
        target = f"{path}?resourceVersion={old}"
        told = _watched(own.server, target, JSON).json()["object"]["message"]
        for name, asked in (WHOLE | METADATA).items():
            expected, actual = (
                _watched(server, target, asked.other) for server in (own.server, running.read)
            )
            assert_source(actual, "fwd=partial")
            assert differences(expected, actual) == [], name
            [frame] = frames(expected.body, expected.header("Content-Type") or "")
            assert _error_frame(expected, Expired(told)) == frame, name


def _error_frame(answer: Answer, error: Expired) -> bytes:
    """An ERROR in the encoding of an answer."""
    info = ResourceInfo(Resource("", "v1", "configmaps"), "ConfigMap", namespaced=True)
    if (answer.header("Content-Type") or "").startswith(PROTOBUF):
        sample = wrap("v1", "ConfigMapList", b"\x0a\x03\x12\x011")
        rendering = protobuf_form(info, sample).rendering(Representation(FormName.PROTOBUF), "")
        assert rendering is not None
        return rendering.encode_error(error)
    sample = b'{"kind":"ConfigMapList","apiVersion":"v1","metadata":{"resourceVersion":"1"}}'
    return JsonForm(info, sample).encode_error(error)
