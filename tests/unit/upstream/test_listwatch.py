"""What a reflector's source asks the API server, and what it makes of the answers."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar
from urllib.parse import parse_qsl, urlsplit

import pytest

from proxy.cache.reflector import WATCH_SECONDS
from proxy.cache.scope import Scope
from proxy.forms.form import Form, UnknownLayoutError
from proxy.kube.errors import Expired, Forbidden, MethodNotAllowed, NotFound, TooManyRequests
from proxy.kube.negotiation import FormName, Representation
from proxy.kube.resources import Resource
from proxy.kube.selectable import SelectableField, declared_field
from proxy.upstream.listwatch import ListWatch
from tests.unit.builders import PODS, WIDGETS, item
from tests.unit.upstream.routes import Routes, refused, serving_routes
from tests.unit.upstream.servers import Server, client_of

Write = Callable[..., str]
T = TypeVar("T")

POD, WIDGET = PODS.info.resource, WIDGETS.info.resource
CRD = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/widgets.example.com"


def discovered(*resources: tuple[str, str, bool, list[str]]) -> bytes:
    names = ("name", "kind", "namespaced", "verbs")
    listed = [dict(zip(names, each, strict=True)) for each in resources]
    return json.dumps({"kind": "APIResourceList", "resources": listed}).encode()


VERBS = ["get", "list", "watch"]
ROUTES: Routes = {
    "/api/v1": discovered(
        ("pods/status", "Pod", True, VERBS),
        ("pods", "Pod", True, ["create", *VERBS]),
        ("bindings", "Binding", True, ["create"]),
    ),
    "/apis/example.com/v1": discovered(("widgets", "Widget", True, VERBS)),
    "/api/v1/pods": PODS.page(item("x", version=7), version=41),
    "/api/v1/namespaces/a/pods": PODS.page(version=41),
    "/apis/example.com/v1/widgets": WIDGETS.page(version=41),
}


def play(
    kubeconfig: Write,
    story: Callable[[Callable[[Scope], ListWatch], Server], Coroutine[Any, Any, T]],
    routes: Routes | None = None,
) -> T:
    """Run a story with sources of a server that answers by path."""

    async def run() -> T:
        async with (
            serving_routes({**ROUTES, **(routes or {})}) as server,
            client_of(kubeconfig(server.url)) as client,
        ):
            return await story(lambda scope: ListWatch(client, scope), server)

    return asyncio.run(run())


Source = Callable[[Scope], ListWatch]


# --- what is asked ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("scope", "path"),
    [
        (Scope(POD), "/api/v1/pods"),
        (Scope(POD, "a"), "/api/v1/namespaces/a/pods"),
        (Scope(WIDGET), "/apis/example.com/v1/widgets"),
    ],
    ids=str,
)
def test_pages_of_a_scope(kubeconfig: Write, scope: Scope, path: str) -> None:
    async def story(source: Source, server: Server) -> list[bytes]:
        pages = [
            await source(scope).list_page(250, ""),
            await source(scope).list_page(250, "a/b+c=&d"),
        ]
        assert server.first_lines == [
            f"GET {path}?limit=250 HTTP/1.1",
            f"GET {path}?limit=250&continue=a%2Fb%2Bc%3D%26d HTTP/1.1",
        ]
        return pages

    assert play(kubeconfig, story) == [ROUTES[path], ROUTES[path]]


def test_the_current_version_costs_no_object(kubeconfig: Write) -> None:
    async def story(source: Source, server: Server) -> int:
        version = await source(Scope(POD)).current_version()
        path = "/api/v1/pods?fieldSelector=metadata.name%3D-&limit=1"
        assert server.first_lines == [f"GET {path} HTTP/1.1"]
        return version

    assert play(kubeconfig, story) == 41


@pytest.mark.parametrize(
    ("version", "start"),
    [
        (None, {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan"}),
        (17, {"resourceVersion": "17"}),
    ],
)
def test_watches(kubeconfig: Write, version: int | None, start: dict[str, str]) -> None:
    lines = PODS.added("x", version=18) + PODS.bookmark(19)
    routes = {"/api/v1/namespaces/a/pods": lines}

    async def story(source: Source, server: Server) -> list[bytes]:
        watch = source(Scope(POD, "a")).watch(version)
        told = [line async for batch in watch for line in batch]
        target = urlsplit(server.first_lines[0].split()[1])
        query = dict(parse_qsl(target.query))
        assert target.path == "/api/v1/namespaces/a/pods"
        assert WATCH_SECONDS <= int(query.pop("timeoutSeconds")) <= 2 * WATCH_SECONDS
        assert query == {"watch": "true", "allowWatchBookmarks": "true", **start}
        assert server.headers()["accept"] == "application/json"
        assert server.headers()["accept-encoding"] == "identity"
        return told

    assert b"\n".join(play(kubeconfig, story, routes)) + b"\n" == lines


_V1 = ";g=meta.k8s.io;v=v1"
_PROTO = "application/vnd.kubernetes.protobuf"
_LISTS, _OBJECTS = f";as=PartialObjectMetadataList{_V1}", f";as=PartialObjectMetadata{_V1}"
_TABLE = f"application/json;as=Table{_V1}"
_LINES = b"a\nb\n", [b"a", b"b"]
_LENGTHS = b"\0\0\0\3a\nb\0\0\0\0", [b"a\nb", b""]


@pytest.mark.parametrize(
    ("form", "listing", "watching", "told"),
    [
        (FormName.JSON, "application/json", "application/json", _LINES),
        (FormName.TABLE, _TABLE, _TABLE, _LINES),
        (FormName.METADATA, f"application/json{_LISTS}", f"application/json{_OBJECTS}", _LINES),
        (FormName.PROTOBUF, _PROTO, _PROTO, _LENGTHS),
        (FormName.METADATA_PROTOBUF, f"{_PROTO}{_LISTS}", f"{_PROTO}{_OBJECTS}", _LENGTHS),
    ],
    ids=list(FormName),
)
def test_how_each_form_is_asked_for_and_cut(
    kubeconfig: Write, form: FormName, listing: str, watching: str, told: tuple[bytes, list[bytes]]
) -> None:
    """kube-apiserver refuses a list as PartialObjectMetadata, and an object as a list of them."""
    stream, frames = told

    async def story(source: Source, server: Server) -> None:
        asked = source(Scope(POD, form=form))
        assert await asked.list_page(1, "") == stream
        assert [frame async for batch in asked.watch(1) for frame in batch] == frames
        assert [server.headers(number)["accept"] for number in (0, 1)] == [listing, watching]
        whole = ["includeObject=Object" in line for line in server.first_lines]
        assert whole == [form is FormName.TABLE] * 2

    play(kubeconfig, story, {"/api/v1/pods": stream})


def test_timeouts_of_many_watches_are_spread(kubeconfig: Write) -> None:
    async def story(source: Source, server: Server) -> set[str]:
        for _ in range(8):
            async for _batch in source(Scope(POD)).watch(1):
                pass
        return {line.partition("timeoutSeconds=")[2] for line in server.first_lines}

    assert len(play(kubeconfig, story)) > 1


# --- what is learnt --------------------------------------------------------------------------


def describe(kubeconfig: Write, scope: Scope, routes: Routes | None = None) -> Form:
    async def story(source: Source, _: Server) -> Form:
        return await source(scope).describe()

    return play(kubeconfig, story, routes)


def test_a_built_in_resource_is_described_by_discovery_and_one_object(kubeconfig: Write) -> None:
    async def story(source: Source, server: Server) -> Form:
        form = await source(Scope(POD)).describe()
        assert [line.split()[1] for line in server.first_lines] == [
            "/api/v1",
            "/api/v1/pods?limit=1",
        ]
        return form

    form = play(kubeconfig, story)
    assert form.shape == PODS.form().shape
    assert form.namespaced


@pytest.mark.parametrize(
    ("versions", "fields"),
    [
        ([{"name": "v1", "selectableFields": [{"jsonPath": ".spec.color"}]}], ["spec.color"]),
        (
            [
                {"name": "v0", "selectableFields": [{"jsonPath": ".spec.old"}]},
                {"name": "v1", "selectableFields": [{"jsonPath": ".spec.a"}, {"jsonPath": ".b"}]},
            ],
            ["spec.a", "b"],
        ),
        ([{"name": "v1"}], []),
        ([{"name": "v2", "selectableFields": [{"jsonPath": ".spec.color"}]}], []),
        ([{"name": "v1", "selectableFields": [{"jsonPath": "?"}, {"jsonPath": ".b"}]}], ["b"]),
    ],
)
def test_a_custom_resource_declares_its_fields(
    kubeconfig: Write, versions: list[dict[str, Any]], fields: list[str]
) -> None:
    crd = definition_of(versions)
    assert list(describe(kubeconfig, Scope(WIDGET), {CRD: crd}).field_labels) == fields


TABLE = (
    b'{"kind":"Table","apiVersion":"meta.k8s.io/v1","metadata":{"resourceVersion":"41"},'
    b'"columnDefinitions":[{"name":"Name"},{"name":"Born"}],"rows":%s}'
)
OLD = (
    b'{"cells":["x","5d"],"object":{"apiVersion":"example.com/v1","kind":"Widget","metadata":'
    b'{"name":"x","resourceVersion":"7","creationTimestamp":"2026-01-01T00:00:00Z"}}}'
)
BORN = {"name": "Born", "type": "date", "jsonPath": ".metadata.creationTimestamp"}


def test_tables_are_described_by_one_without_rows(kubeconfig: Write) -> None:
    async def story(source: Source, server: Server) -> Form:
        form = await source(Scope(POD, form=FormName.TABLE)).describe()
        nobody = "fieldSelector=metadata.name%3D-&limit=1&includeObject=Object"
        assert server.first_lines[1].split()[1] == f"/api/v1/namespaces/default/pods?{nobody}"
        return form

    path = "/api/v1/namespaces/default/pods"
    form = play(kubeconfig, story, {path: TABLE % b"null"})
    assert form.name is FormName.TABLE


def test_tables_of_an_api_without_field_selectors(kubeconfig: Write) -> None:
    routes = {
        "/apis/example.com/v1/namespaces/default/widgets": refused(400),
        "/apis/example.com/v1/widgets": TABLE % b"[]",
        CRD: refused(404),
    }
    form = describe(kubeconfig, Scope(WIDGET, form=FormName.TABLE), routes)
    assert form.name is FormName.TABLE


@pytest.mark.parametrize(
    ("columns", "is_written"),
    [([BORN], True), ([{**BORN, "name": "Made"}], False), (None, False)],
    ids=["known", "changed", "unreadable"],
)
def test_a_definition_tells_which_columns_are_dates(
    kubeconfig: Write, columns: list[dict[str, str]] | None, *, is_written: bool
) -> None:
    version = {"name": "v1", "additionalPrinterColumns": columns}
    routes = {
        "/apis/example.com/v1/namespaces/default/widgets": TABLE % b"[]",
        CRD: definition_of([version]) if columns else refused(403),
    }
    form = describe(kubeconfig, Scope(WIDGET, form=FormName.TABLE), routes)
    form.decode_page(TABLE % (b"[%s]" % OLD))
    rendering = form.rendering(Representation(FormName.TABLE, "v1"), "")
    assert (rendering is not None) is is_written


def test_another_generation_of_a_definition_is_another_shape(kubeconfig: Write) -> None:
    """Its objects may be read differently, at the versions that they have."""
    shapes = [
        describe(kubeconfig, Scope(WIDGET), {CRD: definition_of([{"name": "v1"}], number)}).shape
        for number in (1, 1, 2)
    ]
    assert shapes[0] == shapes[1] != shapes[2]


def definition_of(versions: list[dict[str, Any]], generation: int = 1) -> bytes:
    definition = {"metadata": {"generation": generation}, "spec": {"versions": versions}}
    return json.dumps(definition).encode()


@pytest.mark.parametrize("code", [403, 404])
def test_a_definition_that_may_not_be_read_declares_nothing(kubeconfig: Write, code: int) -> None:
    form = describe(kubeconfig, Scope(WIDGET), {CRD: refused(code)})
    assert form.shape == WIDGETS.form().shape


def test_fields_of_the_settings_are_known_once_they_are(kubeconfig: Write) -> None:
    async def run() -> list[Form]:
        fields: list[SelectableField] = []
        async with (
            serving_routes(ROUTES) as server,
            client_of(kubeconfig(server.url)) as client,
        ):
            source = ListWatch(client, Scope(POD), lambda: fields)
            before = await source.describe()
            fields.append(declared_field("spec.containers[*].image"))
            return [before, await source.describe()]

    before, after = asyncio.run(run())
    assert before.shape == PODS.form().shape
    assert after.shape == PODS.form(declared_field("spec.containers[*].image")).shape


@pytest.mark.parametrize(
    ("scope", "routes", "error"),
    [
        (Scope(Resource("", "v1", "gadgets")), {}, NotFound),
        (Scope(Resource("", "v9", "pods")), {}, NotFound),
        (Scope(Resource("", "v1", "bindings")), {}, MethodNotAllowed),
        (Scope(POD), {"/api/v1/pods": refused(403)}, Forbidden),
        (Scope(POD), {"/api/v1": refused(403)}, Forbidden),
        (Scope(POD), {"/api/v1/pods": b'{"items":[]}'}, UnknownLayoutError),
        (Scope(POD), {"/api/v1/pods": b"<html>"}, UnknownLayoutError),
    ],
)
def test_resources_that_cannot_be_described(
    kubeconfig: Write,
    scope: Scope,
    routes: Routes,
    error: type[Exception],
) -> None:
    with pytest.raises(error):
        describe(kubeconfig, scope, routes)


def test_refusals_keep_what_they_say(kubeconfig: Write) -> None:
    routes = {"/api/v1/pods": refused(429, details={"retryAfterSeconds": 7})}

    async def page(source: Source, _: Server) -> None:
        await source(Scope(POD)).list_page(1, "")

    async def watch(source: Source, _: Server) -> None:
        async for _batch in source(Scope(POD)).watch(1):
            raise AssertionError("accepted")

    for ask in (page, watch):
        with pytest.raises(TooManyRequests, match="refused with 429") as raised:
            play(kubeconfig, ask, routes)
        assert raised.value.retry_after == 7
    with pytest.raises(Expired):
        play(kubeconfig, page, {"/api/v1/pods": refused(410)})
