"""Objects whose labels and selectable fields vary, for selectors to choose from."""

from __future__ import annotations

from base64 import b64encode
from typing import Any

from tests.harness.http import Server
from tests.harness.objects import Object, crd, create, define, patch, pod

_LABELS: dict[str, dict[str, str]] = {
    "none": {},
    "empty": {"tier": "", "n": ""},
    "web1": {"tier": "web", "n": "1", "example.com/team": "a"},
    "web10": {"tier": "web", "n": "10", "example.com/team": "b"},
    "db": {"tier": "db", "n": "007"},
    "max": {"n": "9223372036854775807"},
    "over": {"n": "9223372036854775808"},
    "text": {"n": "1a", "tier": "WEB"},
    "float": {"n": "1.5", "tier": "a-b_c.D"},
    "words": {"in": "notin", "notin": "in", "exists": "true"},
}

_REQUEST = b64encode(b"""-----BEGIN CERTIFICATE REQUEST-----
MIHGMG4CAQAwDDEKMAgGA1UEAwwBeDBZMBMGByqGSM49AgEGCCqGSM49AwEHA0IA
BCxNL4f3nE9+RcA6R++14W3J6bCrtoV2T1aGit85pC0Rzg09etO/B2cP6CdJGmg0
AFr5MkxMbM4n54JqqS/20N+gADAKBggqhkjOPQQDAgNIADBFAiBH/QVZARfgjiKg
L1RiTYBSzXuEKEpX+rWC0TrLyFaIEgIhAMnxPGpVWfkl4ry6KUYBxPh92X3tHlZ6
OVHbEBxblk5z
-----END CERTIFICATE REQUEST-----
""").decode()


def fill(server: Server, namespace: str) -> None:
    """Creates them; those without a namespace are named after it, as the API server is shared."""
    for part in (_fill_core, _fill_pods, _fill_workloads, _fill_events, _fill_cluster):
        part(server, namespace)
    sorter = define(server, crd("Sorter"))
    for color in ("red", "blue"):
        create(server, sorter.path(namespace), sorter.object(color, color))


def _create(server: Server, collection: str, name: str, **members: Any) -> None:
    create(server, collection, {"metadata": {"name": name}, **members})


def _fill_core(server: Server, namespace: str) -> None:
    core = f"/api/v1/namespaces/{namespace}"
    for name, labels in _LABELS.items():
        create(server, f"{core}/configmaps", {"metadata": {"name": name, "labels": labels}})
    for name, members in _SECRETS.items():
        _create(server, f"{core}/secrets", name, **members)
    for name, spec in _SERVICES.items():
        _create(server, f"{core}/services", name, spec={"ports": [{"port": 80}], **spec})


_SECRETS: dict[str, Object] = {
    "opaque": {},
    "basic": {"type": "kubernetes.io/basic-auth", "stringData": {"username": "u"}},
    "odd": {"type": r"a,b=c\d"},
}
_SERVICES: dict[str, Object] = {
    "plain": {},
    "headless": {"clusterIP": "None"},
    "balanced": {"type": "LoadBalancer"},
    "named": {"type": "ExternalName", "externalName": "example.com"},
}


def _fill_pods(server: Server, namespace: str) -> None:
    pods = f"/api/v1/namespaces/{namespace}/pods"
    for name, changes in _PODS.items():
        body = pod(name)
        body["spec"] |= changes
        if changes.get("hostNetwork"):
            for container in body["spec"]["containers"]:
                container["ports"] = []
        create(server, pods, body)
    ips = {"podIP": "10.1.0.7", "podIPs": [{"ip": "10.1.0.7"}, {"ip": "fd00::7"}]}
    patch(server, f"{pods}/a-1-1/status", {"status": {"phase": "Running", **ips}})
    patch(server, f"{pods}/c-1-1/status", {"status": {"nominatedNodeName": "node-9"}})


_PODS: dict[str, Object] = {
    "a-1-1": {},
    "b-1-1": {"hostNetwork": True, "restartPolicy": "Never"},
    "c-1-1": {"nodeName": None, "schedulerName": "other", "serviceAccountName": "robot"},
    "d-1-1": {"hostNetwork": False, "restartPolicy": "OnFailure"},
}


def _fill_workloads(server: Server, namespace: str) -> None:
    within = f"namespaces/{namespace}"
    labels = {"app": "x"}
    template = {"metadata": {"labels": labels}, "spec": pod("x-1-1")["spec"]}
    once = {"spec": {**template["spec"], "restartPolicy": "Never"}}
    replicas = {"replicas": 3}
    workloads: list[tuple[str, Object, Object]] = [
        (f"/api/v1/{within}/replicationcontrollers", {"template": template}, replicas),
        (
            f"/apis/apps/v1/{within}/replicasets",
            {"selector": {"matchLabels": labels}, "template": template},
            replicas,
        ),
        (f"/apis/batch/v1/{within}/jobs", {"template": once, "completions": 5}, {"succeeded": 2}),
    ]
    for collection, spec, status in workloads:
        for name in ("idle", "busy"):
            create(server, collection, {"metadata": {"name": name, "labels": labels}, "spec": spec})
        patch(server, f"{collection}/busy/status", {"status": status})


def _fill_events(server: Server, namespace: str) -> None:
    pod_a = {"kind": "Pod", "namespace": namespace, "name": "a-1-1"}
    container = {
        **pod_a,
        "uid": "u-1",
        "apiVersion": "v1",
        "resourceVersion": "7",
        "fieldPath": "spec.containers{app}",
    }
    for name, members in _EVENTS.items():
        about = container if name == "both" else pod_a
        events = f"/api/v1/namespaces/{namespace}/events"
        _create(server, events, name, involvedObject=about, **members)
    events = f"/apis/events.k8s.io/v1/namespaces/{namespace}/events"
    _create(server, events, "modern", regarding=container, **_MODERN_EVENT)


_EVENTS: dict[str, Object] = {
    "kubelet": {"reason": "Started", "type": "Normal", "source": {"component": "kubelet"}},
    "silent": {"reason": "Odd", "type": "Warning"},
    "reported": {"reason": "Odd", "type": "Normal", "reportingComponent": "kubelet"},
    "both": {"source": {"component": "a"}, "reportingComponent": "b"},
}
_MODERN_EVENT: Object = {
    "eventTime": "2026-01-05T08:00:00.000000Z",
    "reason": "Bound",
    "action": "Binding",
    "type": "Normal",
    "reportingController": "example.com/scheduler",
    "reportingInstance": "s-0",
}


def _fill_cluster(server: Server, namespace: str) -> None:
    for name, unschedulable in {"open": False, "closed": True}.items():
        spec: Object = {"unschedulable": unschedulable}
        _create(server, "/api/v1/nodes", f"{namespace}-{name}", spec=spec)
    requests = "/apis/certificates.k8s.io/v1/certificatesigningrequests"
    for name, signer in {"x": "example.com/x", "y": "kubernetes.io/kube-apiserver-client"}.items():
        spec = {"request": _REQUEST, "signerName": signer, "usages": ["client auth"]}
        _create(server, requests, f"{namespace}-{name}", spec=spec)
    slices = "/apis/resource.k8s.io/v1/resourceslices"
    pool = {"name": "p", "generation": 1, "resourceSliceCount": 1}
    for name, nodes in _SLICES.items():
        spec = {"driver": f"{name}.example.com", "pool": pool, **nodes}
        _create(server, slices, f"{namespace}-{name}", spec=spec)


_SLICES: dict[str, Object] = {"one": {"nodeName": "node-1"}, "all": {"allNodes": True}}
