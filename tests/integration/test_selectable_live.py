"""The table of selectable fields against kube-apiserver: every built-in resource, every field."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import pytest

from proxy.forms.json import JsonForm
from proxy.forms.protobuf import protobuf_form
from proxy.kube.negotiation import PROTOBUF, FormName, Representation
from proxy.kube.resources import Resource, ResourceInfo
from proxy.kube.selectable import selectable_fields
from proxy.kube.selectors import FieldSelector, FieldTerm, LabelSelector
from proxy.reads.query import select_by
from tests.harness.apiserver import ApiServer
from tests.harness.http import Session

_DISCOVERY = (("Accept", "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"),)
_EVERYTHING = ("--runtime-config=api/all=true", "--feature-gates=AllAlpha=true,AllBeta=true")

# Served in alpha only, so not in the table: reads that select by a field are forwarded.
ALPHA = {
    ("internal.apiserver.k8s.io", "storageversions"),
    ("lifecycle.k8s.io", "evictionrequests"),
    ("lifecycle.k8s.io", "evictions"),
    ("resource.k8s.io", "resourcepoolstatusrequests"),
    ("scheduling.k8s.io", "compositepodgroups"),
}

# What kube-apiserver takes and we forward: a field that older ones don't have …
NEWER = {("resource.k8s.io", "resourceslices"): {"spec.pool.name"}}
# … and this one where there is no namespace, which it takes unless a resource has its own rules.
CLUSTER_SCOPED = {"metadata.namespace"}


class Listable(NamedTuple):
    info: ResourceInfo
    form: JsonForm

    @property
    def key(self) -> tuple[str, str]:
        return self.info.resource.group, self.info.resource.plural


class Everything(NamedTuple):
    """A kube-apiserver that serves all it has, and what that is."""

    session: Session
    listables: list[Listable]


@pytest.fixture(scope="module")
def everything() -> Iterator[Everything]:
    with ApiServer(flags=_EVERYTHING) as own, Session(own.server) as session:
        found = [
            Listable(info, JsonForm(info, session.ask("GET", info.resource.path()).ok().body))
            for root in ("/api", "/apis")
            for info in _listable(session, root)
        ]
        yield Everything(session, found)


def _listable(session: Session, root: str) -> Iterator[ResourceInfo]:
    for group in session.ask("GET", root, headers=_DISCOVERY).ok().json()["items"]:
        for version in group["versions"]:
            for each in version["resources"]:
                if {"list", "watch"} <= set(each["verbs"]):
                    name = group["metadata"].get("name", "")
                    resource = Resource(name, version["version"], each["resource"])
                    kind = each["responseKind"]["kind"]
                    yield ResourceInfo(resource, kind, each["scope"] == "Namespaced")


def test_the_table_has_all_built_in_resources(everything: Everything) -> None:
    missing = {each.key for each in everything.listables if selectable_fields(*each.key) is None}
    assert missing == ALPHA
    assert len(everything.listables) > 80


def test_the_apiserver_takes_the_fields_of_the_table_and_no_others(everything: Everything) -> None:
    labels = {"metadata.name", "metadata.namespace"}.union(*NEWER.values())
    for each in everything.listables:
        labels |= {field.label for field in selectable_fields(*each.key) or ()}
    wrong = {
        str(each.info.resource): differences
        for each in everything.listables
        if (differences := list(_differences(everything.session, each, sorted(labels))))
    }
    assert wrong == {}


def _differences(session: Session, each: Listable, labels: list[str]) -> Iterator[str]:
    """What we'd answer though it is refused, and what we'd forward without a reason listed here."""
    forwarded = set(labels) if each.key in ALPHA else NEWER.get(each.key, set())
    if not each.info.namespaced:
        forwarded = forwarded | CLUSTER_SCOPED
    path = each.info.resource.path()
    for label in labels:
        status = session.ask("GET", f"{path}?fieldSelector={label}%3Dx").status
        if _answered(each.form, label):
            if status != 200:
                yield f"{label} is answered, and kube-apiserver says {status}"
        elif status == 200 and label not in forwarded:
            yield f"{label} is forwarded"


def _answered(form: JsonForm, label: str) -> bool:
    selector = FieldSelector((FieldTerm(label, "x", negated=False),))
    return select_by(form, "", LabelSelector(), selector) is not None


def test_every_resource_is_read_and_written_in_protobuf(everything: Everything) -> None:
    """Lists as they came, of the objects that are there, and with the values that JSON has."""
    wrong = {
        str(each.info.resource): difference
        for each in everything.listables
        if (difference := _protobuf_difference(everything.session, each))
    }
    assert wrong == {}


def _protobuf_difference(session: Session, each: Listable) -> str:
    path = each.info.resource.path()
    listed = session.ask("GET", path, headers=(("Accept", PROTOBUF),)).ok()
    form = protobuf_form(each.info, listed.body)
    page = form.decode_page(listed.body)
    rendering = form.rendering(Representation(FormName.PROTOBUF), "")
    assert rendering is not None
    size = rendering.measure_items(page.objects)
    head, tail = rendering.encode_list_envelope(page.version, "", 0, size)
    if head + rendering.encode_items(page.objects) + tail != listed.body:
        return "is written in another way"
    held = each.form.decode_page(session.ask("GET", path).ok().body)
    if form.field_labels != each.form.field_labels:
        return f"has the fields {[*form.field_labels]}"
    pairs = zip(page.objects, held.objects, strict=True) if page.version == held.version else ()
    if any(one.fields != other.fields or one.key != other.key for one, other in pairs):
        return "has other values"
    return ""
