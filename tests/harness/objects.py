"""Realistic objects, and ways to create many of them fast."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from typing import Any, NamedTuple

from tests.harness.http import Server, Session, ask, get

Object = dict[str, Any]

_STARTED = "2026-01-05T08:00:00Z"
_MERGE_PATCH = ("Content-Type", "application/merge-patch+json")


def configmap(name: str, data: Mapping[str, str] | None = None, **labels: str) -> Object:
    """A ConfigMap."""
    return {"metadata": {"name": name, "labels": labels}, "data": dict(data or {})}


def node(name: str, **labels: str) -> Object:
    """A Node that a kubelet might have registered."""
    labels = {"kubernetes.io/hostname": name, "kubernetes.io/os": "linux", **labels}
    spec = {"podCIDR": "10.1.0.0/24", "providerID": f"test:///{name}"}
    return {"metadata": {"name": name, "labels": labels}, "spec": spec}


def pod(name: str, *, node_name: str = "node-0", **labels: str) -> Object:
    """A Deployment's pod as its ReplicaSet creates it: with `pod_status`, 11 KB of JSON."""
    app = name.rsplit("-", 2)[0]
    return {
        "metadata": {
            "name": name,
            "labels": {"app.kubernetes.io/name": app, "pod-template-hash": "6c9f7d5b4", **labels},
            "annotations": {
                "checksum/config": "9b74c9897bac770ffc029102a200c5de",
                "prometheus.io/port": "9090",
                "prometheus.io/scrape": "true",
            },
        },
        "spec": {
            "nodeName": node_name,
            "serviceAccountName": app,
            "terminationGracePeriodSeconds": 30,
            "securityContext": {"runAsNonRoot": True, "runAsUser": 1000, "fsGroup": 1000},
            "containers": [_container("app", app, 8080, 9), _container("sidecar", app, 9090, 4)],
            "volumes": [
                {"name": "config", "configMap": {"name": f"{app}-config"}},
                {"name": "tls", "secret": {"secretName": f"{app}-tls"}},
                {"name": "scratch", "emptyDir": {}},
            ],
            "tolerations": [
                {"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}
                for key in ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
            ],
        },
    }


def pod_status(phase: str = "Running", *, ip: str = "10.1.0.7") -> Object:
    """A patch of a pod's status, as its kubelet writes it once both containers run."""
    conditions = ("PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady")
    return {
        "status": {
            "phase": phase,
            "hostIP": "192.168.1.10",
            "podIP": ip,
            "podIPs": [{"ip": ip}],
            "startTime": _STARTED,
            "conditions": [
                {"type": name, "status": "True", "lastTransitionTime": _STARTED}
                for name in (*conditions, "PodScheduled")
            ],
            "containerStatuses": [_container_status(name) for name in ("app", "sidecar")],
        }
    }


def crd(kind: str, *, scope: str = "Namespaced", group: str = "test.kubecache.dev") -> Object:
    """A CustomResourceDefinition with a status subresource and a selectable `.spec.color`."""
    plural = f"{kind.lower()}s"
    text, number = {"type": "string"}, {"type": "integer"}
    spec = {"type": "object", "properties": {"color": text, "size": number}}
    status = {"type": "object", "properties": {"phase": text, "observedGeneration": number}}
    schema = {"type": "object", "properties": {"spec": spec, "status": status}}
    version = {
        "name": "v1",
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": schema},
        "subresources": {"status": {}},
        "selectableFields": [{"jsonPath": ".spec.color"}],
        "additionalPrinterColumns": [
            {"name": "Color", "type": "string", "jsonPath": ".spec.color"}
        ],
    }
    names = {"plural": plural, "singular": kind.lower(), "kind": kind}
    return {
        "metadata": {"name": f"{plural}.{group}"},
        "spec": {"group": group, "scope": scope, "names": names, "versions": [version]},
    }


class CustomResource(NamedTuple):
    """A resource that a CRD defined."""

    group: str
    plural: str
    kind: str

    def object(self, name: str, color: str = "red", **labels: str) -> Object:
        return {
            "apiVersion": f"{self.group}/v1",
            "kind": self.kind,
            "metadata": {"name": name, "labels": labels},
            "spec": {"color": color, "size": 1},
        }

    def path(self, namespace: str = "") -> str:
        """The collection's path; without a namespace that of the cluster."""
        within = f"/namespaces/{namespace}" if namespace else ""
        return f"/apis/{self.group}/v1{within}/{self.plural}"


def define(server: Server, definition: Object, timeout: float = 20) -> CustomResource:
    """Creates a CRD, unless it is there already, and waits until it is served."""
    definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    answer = ask(server, "POST", definitions, body=definition)
    assert answer.status in {201, 409}, answer
    spec = definition["spec"]
    resource = CustomResource(spec["group"], spec["names"]["plural"], spec["names"]["kind"])
    deadline = time.monotonic() + timeout
    served = 0
    while served < 10:  # on a busy machine it may be served, and then not, and then for good
        served = served + 1 if get(server, resource.path()).status == 200 else 0
        assert time.monotonic() < deadline, f"{resource.path()} is not served"
        time.sleep(0.05)
    return resource


class Write(NamedTuple):
    """A request that changes something."""

    method: str
    target: str
    body: Object | None = None


def create(server: Server, target: str, body: Object) -> Object:
    """Creates one object and returns it as stored."""
    created: Object = ask(server, "POST", target, body=body).ok().json()
    return created


def patch(server: Server, target: str, body: Object) -> Object:
    """Merges `body` into one object and returns it as stored."""
    patched: Object = ask(server, "PATCH", target, headers=(_MERGE_PATCH,), body=body).ok().json()
    return patched


def write_all(server: Server, writes: Iterable[Iterable[Write]], *, threads: int = 6) -> None:
    """Sends many writes at once; those of one group in their order, each must succeed."""
    groups = iter(writes)
    shares: list[list[Iterable[Write]]] = [[] for _ in range(threads)]
    while batch := list(islice(groups, threads)):
        for share, group in zip(shares, batch, strict=False):
            share.append(group)
    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(lambda share: _write_share(server, share), shares))


def create_pods(
    server: Server, namespaces: Sequence[str], count: int, *, status: bool = True
) -> list[str]:
    """Creates running pods, spread over the namespaces, and returns their `namespace/name`."""
    places = [
        (namespaces[i % len(namespaces)], f"app-{i % 50}-6c9f7d5b4-{i:05}") for i in range(count)
    ]
    write_all(server, (_pod_writes(i, *place, status=status) for i, place in enumerate(places)))
    return [f"{namespace}/{name}" for namespace, name in places]


def _pod_writes(index: int, namespace: str, name: str, *, status: bool) -> Iterator[Write]:
    pods = f"/api/v1/namespaces/{namespace}/pods"
    body = pod(name, node_name=f"node-{index % 100}", tier=("web", "db", "batch")[index % 3])
    yield Write("POST", f"{pods}?fieldManager=kube-controller-manager", body)
    if status:
        ip = f"10.1.{index // 250}.{index % 250}"
        yield Write("PATCH", f"{pods}/{name}/status?fieldManager=kubelet", pod_status(ip=ip))


def _write_share(server: Server, share: Iterable[Iterable[Write]]) -> None:
    with Session(server) as session:
        for group in share:
            for write in group:
                headers = (_MERGE_PATCH,) if write.method == "PATCH" else ()
                session.ask(write.method, write.target, headers=headers, body=write.body).ok()


def _container(name: str, app: str, port: int, variables: int) -> Object:
    probe = {"path": "/healthz", "port": "http", "scheme": "HTTP"}
    return {
        "name": name,
        "image": f"registry.example.com/team/{app}-{name}:v1.27.4",
        "args": ["--config=/etc/app/config.yaml", "--log-format=json", f"--listen=:{port}"],
        "ports": [{"name": "http", "containerPort": port, "protocol": "TCP"}],
        "env": [*_environment(app, variables), _field_variable("POD_NAME", "metadata.name")],
        "resources": {
            "requests": {"cpu": "250m", "memory": "256Mi"},
            "limits": {"cpu": "1", "memory": "512Mi"},
        },
        "livenessProbe": {"httpGet": probe, "initialDelaySeconds": 10, "periodSeconds": 15},
        "readinessProbe": {"httpGet": probe, "periodSeconds": 5, "failureThreshold": 3},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
        "volumeMounts": [
            {"name": "config", "mountPath": "/etc/app", "readOnly": True},
            {"name": "tls", "mountPath": "/etc/tls", "readOnly": True},
            {"name": "scratch", "mountPath": "/tmp"},
        ],
    }


def _environment(app: str, count: int) -> Iterator[Object]:
    for number in range(count):
        value = f"http://{app}-backend-{number}.{app}.svc.cluster.local:8080/v1?a=<b>&c=d"
        yield {"name": f"{app.upper().replace('-', '_')}_SETTING_{number}", "value": value}


def _field_variable(name: str, path: str) -> Object:
    return {"name": name, "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": path}}}


def _container_status(name: str) -> Object:
    digest = "0123456789abcdef" * 4
    return {
        "name": name,
        "ready": True,
        "started": True,
        "restartCount": 0,
        "image": f"registry.example.com/team/app-{name}:v1.27.4",
        "imageID": f"registry.example.com/team/app-{name}@sha256:{digest}",
        "containerID": f"containerd://{digest}",
        "state": {"running": {"startedAt": _STARTED}},
        "lastState": {},
    }
