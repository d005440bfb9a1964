"""Selectors against kube-apiserver: what our parser takes it takes, and both select the same."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple
from urllib.parse import quote

import pytest

from proxy.cache.store import Snapshot, Store
from proxy.forms.json import JsonForm
from proxy.kube.resources import Resource, ResourceInfo
from proxy.kube.selectors import (
    FieldSelector,
    LabelSelector,
    SelectorError,
    parse_field_selector,
    parse_label_selector,
)
from proxy.reads.query import select_by
from tests.harness.apiserver import ApiServer
from tests.harness.http import Session
from tests.harness.objects import create
from tests.integration.selector_objects import fill

FIXED = "10.0.77.7"
"""Asked for by nobody else: the API server is shared."""

_INFOS = (
    ResourceInfo(Resource("", "v1", "configmaps"), "ConfigMap", True),
    ResourceInfo(Resource("", "v1", "events"), "Event", True),
    ResourceInfo(Resource("", "v1", "namespaces"), "Namespace", False),
    ResourceInfo(Resource("", "v1", "nodes"), "Node", False),
    ResourceInfo(Resource("", "v1", "pods"), "Pod", True),
    ResourceInfo(Resource("", "v1", "replicationcontrollers"), "ReplicationController", True),
    ResourceInfo(Resource("", "v1", "secrets"), "Secret", True),
    ResourceInfo(Resource("", "v1", "services"), "Service", True),
    ResourceInfo(Resource("apps", "v1", "replicasets"), "ReplicaSet", True),
    ResourceInfo(Resource("batch", "v1", "jobs"), "Job", True),
    ResourceInfo(Resource("events.k8s.io", "v1", "events"), "Event", True),
    ResourceInfo(
        Resource("certificates.k8s.io", "v1", "certificatesigningrequests"),
        "CertificateSigningRequest",
        False,
    ),
    ResourceInfo(Resource("resource.k8s.io", "v1", "resourceslices"), "ResourceSlice", False),
    ResourceInfo(Resource("test.kubecache.dev", "v1", "sorters"), "Sorter", True),
)
_BY_NAME = {f"{info.resource.plural}.{info.resource.group}".rstrip("."): info for info in _INFOS}


class Collection(NamedTuple):
    """A resource's objects, as the proxy would hold them."""

    path: str
    form: JsonForm
    objects: Snapshot

    def select(self, labels: LabelSelector, fields: FieldSelector) -> list[str] | None:
        """The names that our code selects; None for a selector that it forwards."""
        selection = select_by(self.form, "", labels, fields)
        return None if selection is None else [each.name for each in selection.select(self.objects)]


class World(NamedTuple):
    session: Session
    namespace: str
    collections: dict[str, Collection]

    def ask(self, name: str, parameter: str, selector: str) -> list[str] | None:
        """The names that kube-apiserver selects; None for a selector that it refuses."""
        path = self.collections[name].path
        answer = self.session.ask("GET", f"{path}?{parameter}={quote(selector, safe='')}")
        assert answer.status in (200, 400), answer
        if answer.status == 400:
            return None
        return [each["metadata"]["name"] for each in answer.json()["items"]]


@pytest.fixture(scope="module")
def world(apiserver: ApiServer) -> Iterator[World]:
    namespace = apiserver.new_namespace()
    fill(apiserver.server, namespace)
    service = {"metadata": {"name": "fixed"}, "spec": {"clusterIP": FIXED, "ports": [{"port": 80}]}}
    create(apiserver.server, f"/api/v1/namespaces/{namespace}/services", service)
    with Session(apiserver.server) as session:
        collections = {
            name: _collection(session, info, namespace) for name, info in _BY_NAME.items()
        }
        yield World(session, namespace, collections)


def _collection(session: Session, info: ResourceInfo, namespace: str) -> Collection:
    path = info.resource.path(namespace if info.namespaced else "")
    body = session.ask("GET", path).ok().body
    form = JsonForm(info, body)
    store = Store()
    for found in form.decode_page(body).objects:
        store.put(found)
    assert len(store) > 1, f"too few {info.resource}"
    return Collection(path, form, store.snapshot())


# --- labels ---------------------------------------------------------------------------------

_LONG = "a" * 63
_PREFIX = f"{'a' * 63}.{'b' * 63}.{'c' * 63}.{'d' * 61}"  # 253 characters

TAKEN = [
    *("", " ", "\t\r\n", "tier", " tier ", "!tier", "! tier", "\t!\ntier\r"),
    *("tier=web", "tier==web", "tier!=web", "tier = web", "tier\t==\nweb", "tier=\rweb"),
    *("tier=", "tier==", "tier!=", "tier= ", "tier=,n", "n,tier=", "tier==,tier!="),
    *("tier=missing", "tier!=missing", "missing=web", "missing!=web", "missing", "!missing"),
    *("missing=", "missing!="),
    *("tier in (web)", "tier in (web,db)", "tier in(web , db)", "tier  in\t(db,db)"),
    *("tier in ()", "tier in ( )", "tier in (,)", "tier in (,,)", "tier in (a,)", "tier in (,web)"),
    *("tier in (web,,db)", "tier in (WEB)", "missing in ()", "missing in (a)"),
    *("tier notin (web)", "tier notin (web,db)", "tier notin ()", "tier notin (,)"),
    *("tier notin (,db)", "missing notin ()", "missing notin (a)"),
    *("n>1", "n<10", "n > 1", "n<8", "n>0,n<8", "n>007", "n<0", "n>9223372036854775806"),
    *("n<9223372036854775807", "n>00000000000000000000000000000000001", "missing>1", "tier<1"),
    *("in", "notin", "!in", "! notin", "in=notin", "notin=in", "in in (notin)", "in notin (in)"),
    *("in,notin", "notin in (in,notin)", "in in (in)", "tier in (in)", "tier=notin", "in!=in"),
    *("tier=web,n=1", "tier=web , n!=1", "tier,!n", "!tier,!n", "n=1,n=10", "tier=db,tier=db"),
    *("example.com/team", "!example.com/team", "example.com/team=a", "example.com/team in (a,b)"),
    *("n=1.5", "tier=a-b_c.D", "A_b.c-D=1", "1=1", f"{_LONG}={_LONG}", f"{_PREFIX}/{_LONG}"),
    *("a.b-c.1/x", f"{'a' * 200}/x"),
]  # fmt: skip

REFUSED = [
    *(",", ",tier", "tier,", "tier,,n", "tier=web,", "tier , ,n", "=", "=web", "!=web", "!", "!,"),
    *("!!tier", "!tier=web", "!tier in (web)", "tier!", "tier n", "tier=web n=1", "tier=web db"),
    *("tier===web", "tier=!web", "tier!==web", "tier=>1", "tier>=1", "tier<=1", "tier<>1", "~tier"),
    *("tier in", "tier in web", "tier in (", "tier in (web", "tier in (web,", "tier in )"),
    *("tier in (web db)", "tier in (web)n", "tier in ((web))", "tier in (!web)", "tier in (a=b)"),
    *("tier notin", "tier notin web", "tier not in (web)", "in (web)", "notin (web)", "(tier)"),
    *("tier IN (web)", "tier exists", "tier=(web)", "()", "in in", "in in in (a)"),
    *("n>", "n<", "n>,n<2", "n>x", "n>1.5", "n>-1", "n<+1", "n>9223372036854775808", "n>0x1"),
    *("n>1_0", "n> (1)", "n in >"),
    *("-tier", "tier-", "_tier=x", "tier=-web", "tier=web-", "tier=we/b", "tier=web@", "a/b/c"),
    *("/tier", "example.com/", "Example.com/team", "a..b/x", "-a/x", "a_b/x", "tier='web'"),
    *('tier="web"', "tier;n", "tier&n", "é=1", "tier=é", "tier\u00a0", "tier\v", "tier=web\f"),
    *(f"{_LONG}a", f"tier={_LONG}a", f"{_PREFIX}e/x", "tier\\", "ti\x00er", "\u0661=1", "n>\u0661"),
]  # fmt: skip

# Which kube-apiserver takes all the same: to its lexer NUL is the end.
STRICTER = ["\x00", "tier\x00", "tier=web\x00", "\x00,,,(("]


def _parsed_labels(selector: str) -> LabelSelector | None:
    try:
        return parse_label_selector(selector)
    except SelectorError:
        return None


@pytest.mark.parametrize("selector", TAKEN)
def test_label_selectors(world: World, selector: str) -> None:
    for name in ("configmaps", "sorters.test.kubecache.dev"):
        parsed = parse_label_selector(selector)
        expected = world.ask(name, "labelSelector", selector)
        assert world.collections[name].select(parsed, FieldSelector()) == expected


@pytest.mark.parametrize("selector", REFUSED)
def test_label_selectors_that_both_refuse(world: World, selector: str) -> None:
    assert _parsed_labels(selector) is None
    assert world.ask("configmaps", "labelSelector", selector) is None


@pytest.mark.parametrize("selector", STRICTER)
def test_label_selectors_that_only_we_refuse(world: World, selector: str) -> None:
    assert _parsed_labels(selector) is None
    assert world.ask("configmaps", "labelSelector", selector) is not None


# --- fields ---------------------------------------------------------------------------------

# Of each resource: what both take, what both refuse, and what only we don't answer.
FIELDS: dict[str, tuple[list[str], list[str], list[str]]] = {
    "configmaps": (
        [
            *("", ",", ",,", "metadata.name=web1", "metadata.name==web1", "metadata.name!=web1"),
            *("metadata.name=", "metadata.name!=", "metadata.name=none", "metadata.name= web1"),
            *("metadata.name=web1,", ",metadata.name=web1", "metadata.name=db,,metadata.name=db"),
            *("metadata.name=db,metadata.name=web1", "metadata.name!=db,metadata.name!=web1"),
            *("metadata.name=WEB1", r"metadata.name=a\,b", r"metadata.name=a\=b"),
            *(r"metadata.name=a\\b", "metadata.name=!db", "metadata.name=a/b", "metadata.name=é"),
            *("metadata.namespace={ns}", "metadata.namespace!={ns}", "metadata.namespace=other"),
            "metadata.namespace={ns},metadata.name=db",
        ],
        [
            *("metadata.name", "=x", "!=x", " metadata.name=x", "metadata.name =x", "name=x"),
            *("metadata.name=a=b", "metadata.name===x", "metadata.name!==x", "metadata.name=x\\"),
            *(r"metadata.name=\x", r"metadata.name=x\ ,", "metadata.uid=x", "metadata.labels.n=1"),
            *("spec.nodeName=x", "data.text=x", "metadata.name in (web1)", "!metadata.name"),
            *("metadata.name>1", r"metadata\.name=x", r"a\,metadata.name=x", "Metadata.name=x"),
        ],
        ["=", "==", "!="],  # no field and no value: everything
    ),
    "pods": (
        [
            *("spec.nodeName=node-0", "spec.nodeName!=node-0", "spec.nodeName=", "spec.nodeName!="),
            *("spec.host=node-0", "spec.host!=", "spec.host=,spec.nodeName="),
            *("spec.restartPolicy=Always", "spec.restartPolicy!=Always", "spec.restartPolicy="),
            *("spec.schedulerName=default-scheduler", "spec.schedulerName==other"),
            *("spec.serviceAccountName=robot", "spec.serviceAccountName!=robot"),
            *("spec.hostNetwork=true", "spec.hostNetwork=false", "spec.hostNetwork!=true"),
            *("spec.hostNetwork=", "spec.hostNetwork=True", "spec.hostNetwork=1"),
            *("status.phase=Running", "status.phase!=Running", "status.phase=Pending"),
            *("status.podIP=10.1.0.7", "status.podIP=", "status.podIP!=", "status.podIP=fd00::7"),
            *("status.podIPs=10.1.0.7", "status.podIPs=", "status.podIPs!="),
            *("status.nominatedNodeName=node-9", "status.nominatedNodeName="),
            "spec.nodeName=node-0,status.phase!=Running,metadata.namespace={ns}",
        ],
        ["spec.hostname=x", "status.hostIP=x", "spec.serviceAccount=x", "spec.hostPID=true"],
        [],
    ),
    "nodes": (
        [
            *("metadata.name={ns}-closed", "spec.unschedulable=true", "spec.unschedulable=false"),
            *("spec.unschedulable!=false", "spec.unschedulable=", "spec.unschedulable!=True"),
        ],
        ["metadata.namespace=", "spec.podCIDR=x"],
        [],
    ),
    "events": (
        [
            *("source=kubelet", "source!=kubelet", "source=", "source=a", "source=b"),
            *("reportingComponent=kubelet", "reportingComponent=b", "reportingComponent="),
            *("reason=Odd", "reason=", "reason!=Odd", "type=Warning", "type!=Normal", "type="),
            *("involvedObject.kind=Pod", "involvedObject.kind!=Pod"),
            *("involvedObject.name=a-1-1", "involvedObject.namespace={ns}"),
            *("involvedObject.uid=u-1", "involvedObject.uid=", "involvedObject.apiVersion=v1"),
            *("involvedObject.resourceVersion=7", "involvedObject.resourceVersion="),
            "involvedObject.fieldPath=spec.containers{{app}},type!=Warning",
            "involvedObject.name=a-1-1,involvedObject.uid=u-1,metadata.namespace={ns}",
        ],
        ["regarding.name=x", "reportingController=x", "source.component=x", "action=x", "count=1"],
        [],
    ),
    "events.events.k8s.io": (
        [
            *("regarding.kind=Pod", "regarding.name=a-1-1", "regarding.namespace!={ns}"),
            *("regarding.uid=u-1", "regarding.apiVersion=v1", "regarding.resourceVersion=7"),
            *("regarding.fieldPath!=", "reportingController=kubelet", "reportingController="),
            *("reportingController=example.com/scheduler", "reason=Odd,type=Normal", "reason="),
            *("type=", "type!=Normal", "metadata.namespace={ns}"),
        ],
        ["source=kubelet", "involvedObject.name=x", "reportingComponent=x", "action=x"],
        [],
    ),
    "jobs.batch": (
        [
            *("status.successful=2", "status.successful=0", "status.successful!=2"),
            *("status.successful=", "metadata.namespace={ns},status.successful=02"),
        ],
        ["status.succeeded=2", "status.active=0"],
        [],
    ),
    "secrets": (
        [
            *("type=Opaque", "type!=Opaque", "type=kubernetes.io/basic-auth", "type="),
            *(r"type=a\,b\=c\\d", r"type!=a\,b\=c\\d"),
        ],
        ["data=x", r"type=a,b=c\d", r"type=a\d"],
        [],
    ),
    "namespaces": (
        ["status.phase=Active", "status.phase!=Active", "metadata.name={ns}", "status.phase="],
        ["metadata.namespace=", "name={ns}"],
        [],
    ),
    "services": (
        [
            *("spec.clusterIP=None", f"spec.clusterIP={FIXED}", "spec.clusterIP="),
            *("spec.clusterIP!=", "spec.type=ClusterIP", "spec.type!=ClusterIP", "spec.type="),
            "spec.type=LoadBalancer",
        ],
        ["spec.clusterIPs=None", "spec.externalName=x"],
        [],
    ),
    "replicationcontrollers": (
        ["status.replicas=3", "status.replicas=0", "status.replicas!=0", "status.replicas="],
        ["spec.replicas=1"],
        [],
    ),
    "certificatesigningrequests.certificates.k8s.io": (
        ["spec.signerName=example.com/x", "spec.signerName!=example.com/x", "spec.signerName="],
        ["metadata.namespace=", "spec.username=admin"],
        [],
    ),
    "resourceslices.resource.k8s.io": (
        ["spec.nodeName=node-1", "spec.nodeName=", "spec.driver=all.example.com", "spec.driver!="],
        ["metadata.namespace=", "spec.allNodes=true", "spec.pool=p"],
        ["spec.pool.name=p"],  # new in 1.37
    ),
    "sorters.test.kubecache.dev": (
        ["metadata.name=red", "metadata.name!=red,metadata.namespace={ns}"],
        ["spec.size=1", ".spec.color=red", "color=red"],
        ["spec.color=red", "spec.color!=red"],  # its definition says so, and may be changed
    ),
    "replicasets.apps": (
        ["metadata.name=busy", "metadata.namespace={ns}"],
        ["status.replicas=3", "status.replicas=0"],
        [],
    ),
}  # fmt: skip


def _cases(column: int) -> list[tuple[str, str]]:
    return [(name, selector) for name, table in FIELDS.items() for selector in table[column]]


def _selected(world: World, name: str, selector: str) -> list[str] | None:
    """The names that our code selects; None when it refuses or forwards the selector."""
    try:
        parsed = parse_field_selector(selector)
    except SelectorError:
        return None
    return world.collections[name].select(LabelSelector(), parsed)


@pytest.mark.parametrize(("name", "selector"), _cases(0))
def test_field_selectors(world: World, name: str, selector: str) -> None:
    named = selector.format(ns=world.namespace)
    expected = world.ask(name, "fieldSelector", named)
    assert expected is not None
    assert _selected(world, name, named) == expected


@pytest.mark.parametrize(("name", "selector"), _cases(1))
def test_field_selectors_that_both_refuse(world: World, name: str, selector: str) -> None:
    named = selector.format(ns=world.namespace)
    assert world.ask(name, "fieldSelector", named) is None
    assert _selected(world, name, named) is None


@pytest.mark.parametrize(("name", "selector"), _cases(2))
def test_field_selectors_that_only_we_do_not_answer(world: World, name: str, selector: str) -> None:
    named = selector.format(ns=world.namespace)
    assert world.ask(name, "fieldSelector", named) is not None
    assert _selected(world, name, named) is None
