"""An object of nearly every kind, so that kube-apiserver's printers have something to print."""

from __future__ import annotations

from typing import Any

from tests.harness.objects import crd

Object = dict[str, Any]

_TEMPLATE: Object = {
    "metadata": {"labels": {"app": "x"}},
    "spec": {"containers": [{"name": "c", "image": "i:1"}, {"name": "d", "image": "j"}]},
}
_ONCE: Object = {**_TEMPLATE, "spec": {**_TEMPLATE["spec"], "restartPolicy": "Never"}}
_SELECTOR = {"matchLabels": {"app": "x"}}
_ROLE_REF = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "admin"}
_RULES = [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}]
_PAST = "2026-01-05T08:00:00Z"
_WEBHOOKS = [
    {
        "name": "a.example.com",
        "clientConfig": {"url": "https://127.0.0.1:1/x"},
        "admissionReviewVersions": ["v1"],
        "sideEffects": "None",
        "objectSelector": {"matchLabels": {"nothing": "at-all"}},
    }
]
_MATCH = {
    "resourceRules": [
        {"apiGroups": ["none"], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["x"]}
    ]
}
_CLAIM = {"devices": {"requests": [{"name": "a", "exactly": {"deviceClassName": "c"}}]}}
_VOLUME = {
    "capacity": {"storage": "1Gi"},
    "accessModes": ["ReadWriteOnce"],
    "hostPath": {"path": "/x"},
    "claimRef": {"namespace": "a", "name": "b"},
}
_EVENT = {"reason": "R", "type": "Normal", "metadata": {"labels": {"app": "x"}}}

NAMESPACED: dict[str, Object] = {
    "/api/v1/configmaps": {"data": {"a": "<&>\u2028é"}},
    "/api/v1/endpoints": {"subsets": [{"addresses": [{"ip": "1.2.3.4"}], "ports": [{"port": 1}]}]},
    "/api/v1/events": {
        **_EVENT,
        "message": "it was 5m ago",
        "firstTimestamp": _PAST,
        "lastTimestamp": "2026-11-30T08:00:00Z",
        "count": 3,
        "involvedObject": {"kind": "Pod", "name": "p", "namespace": "{ns}"},
    },
    "/api/v1/limitranges": {"spec": {"limits": []}},
    "/api/v1/persistentvolumeclaims": {
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": "1Gi"}},
        }
    },
    "/api/v1/pods": _TEMPLATE,
    "/api/v1/podtemplates": {"template": _TEMPLATE},
    "/api/v1/replicationcontrollers": {"spec": {"selector": {"app": "x"}, "template": _TEMPLATE}},
    "/api/v1/resourcequotas": {"spec": {"hard": {"pods": "100", "limits.cpu": "900"}}},
    "/api/v1/secrets": {"stringData": {"a": "b"}},
    "/api/v1/serviceaccounts": {},
    "/api/v1/services": {"spec": {"ports": [{"port": 80}], "selector": {"app": "x"}}},
    "/apis/apps/v1/controllerrevisions": {"revision": 1, "data": {}},
    "/apis/apps/v1/daemonsets": {"spec": {"selector": _SELECTOR, "template": _TEMPLATE}},
    "/apis/apps/v1/deployments": {"spec": {"selector": _SELECTOR, "template": _TEMPLATE}},
    "/apis/apps/v1/replicasets": {"spec": {"selector": _SELECTOR, "template": _TEMPLATE}},
    "/apis/apps/v1/statefulsets": {
        "spec": {"selector": _SELECTOR, "template": _TEMPLATE, "serviceName": "s"}
    },
    "/apis/autoscaling/v2/horizontalpodautoscalers": {
        "spec": {
            "maxReplicas": 3,
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "x"},
        }
    },
    "/apis/batch/v1/cronjobs": {
        "spec": {"schedule": "1 2 3 4 5", "jobTemplate": {"spec": {"template": _ONCE}}}
    },
    "/apis/batch/v1/jobs": {"spec": {"template": _ONCE}},
    "/apis/coordination.k8s.io/v1/leases": {"spec": {"holderIdentity": "5m"}},
    "/apis/discovery.k8s.io/v1/endpointslices": {
        "addressType": "IPv4",
        "endpoints": [{"addresses": ["1.2.3.4"]}],
        "ports": [{"port": 1}],
    },
    "/apis/events.k8s.io/v1/events": {
        **_EVENT,
        "note": "n",
        "action": "A",
        "eventTime": "2026-11-01T08:00:00.123456Z",
        "reportingController": "example.com/c",
        "reportingInstance": "i",
        "regarding": {"kind": "Pod", "name": "p", "namespace": "{ns}"},
        "series": {"count": 2, "lastObservedTime": "2026-12-01T08:00:00.999999Z"},
    },
    "/apis/networking.k8s.io/v1/ingresses": {
        "spec": {"defaultBackend": {"service": {"name": "x", "port": {"number": 1}}}}
    },
    "/apis/networking.k8s.io/v1/networkpolicies": {"spec": {"podSelector": _SELECTOR}},
    "/apis/policy/v1/poddisruptionbudgets": {"spec": {"minAvailable": 1, "selector": _SELECTOR}},
    "/apis/rbac.authorization.k8s.io/v1/rolebindings": {"roleRef": _ROLE_REF},
    "/apis/rbac.authorization.k8s.io/v1/roles": {"rules": _RULES},
    "/apis/resource.k8s.io/v1/resourceclaims": {"spec": _CLAIM},
    "/apis/resource.k8s.io/v1/resourceclaimtemplates": {"spec": {"spec": _CLAIM}},
    "/apis/storage.k8s.io/v1/csistoragecapacities": {"storageClassName": "x"},
}
"""By collection, without its namespace; ``{ns}`` stands for that."""

CLUSTER: dict[str, Object] = {
    "/api/v1/nodes": {"metadata": {"labels": {"node-role.kubernetes.io/a": ""}}},
    "/api/v1/persistentvolumes": {"spec": _VOLUME},
    "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations": {"webhooks": _WEBHOOKS},
    "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies": {
        "spec": {"validations": [{"expression": "true"}], "matchConstraints": _MATCH}
    },
    "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings": {
        "spec": {"policyName": "none", "validationActions": ["Warn"]}
    },
    "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations": {
        "webhooks": _WEBHOOKS
    },
    "/apis/networking.k8s.io/v1/ingressclasses": {"spec": {"controller": "example.com/c"}},
    "/apis/node.k8s.io/v1/runtimeclasses": {"handler": "runc"},
    "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings": {"roleRef": _ROLE_REF},
    "/apis/rbac.authorization.k8s.io/v1/clusterroles": {"rules": _RULES},
    "/apis/resource.k8s.io/v1/deviceclasses": {"spec": {}},
    "/apis/resource.k8s.io/v1/devicetaintrules": {
        "spec": {
            "deviceSelector": {"driver": "a.example.com"},
            "taint": {"key": "k", "effect": "None", "timeAdded": _PAST},
        }
    },
    "/apis/scheduling.k8s.io/v1/priorityclasses": {"value": 7},
    "/apis/storage.k8s.io/v1/csidrivers": {"spec": {}},
    "/apis/storage.k8s.io/v1/csinodes": {"spec": {"drivers": []}},
    "/apis/storage.k8s.io/v1/storageclasses": {"provisioner": "example.com/p"},
    "/apis/storage.k8s.io/v1/volumeattachments": {
        "spec": {"attacher": "a", "nodeName": "n", "source": {"persistentVolumeName": "v"}}
    },
}

_ENDED = {"terminated": {"exitCode": 1, "finishedAt": "2026-12-01T00:00:00Z"}}
STATUSES: dict[str, Object] = {
    "/api/v1/pods": {
        "phase": "Failed",
        "containerStatuses": [
            {
                "name": "c",
                "image": "i:1",
                "imageID": "",
                "ready": True,
                "restartCount": 3,
                "state": {"running": {"startedAt": _PAST}},
                "lastState": _ENDED,
            }
        ],
    },
    "/apis/batch/v1/jobs": {"startTime": "2026-12-01T00:00:00Z", "active": 1},
    "/apis/batch/v1/cronjobs": {"lastScheduleTime": "2026-12-01T00:00:00Z"},
}
"""What a controller would have written."""


def _defined(kind: str, scope: str, *columns: Object) -> Object:
    definition = crd(kind, scope=scope)
    [version] = definition["spec"]["versions"]
    schema = version["schema"]["openAPIV3Schema"]["properties"]
    schema["status"]["properties"]["lastRun"] = {"type": "string"}
    version["additionalPrinterColumns"] = list(columns)
    return definition


def column(name: str, kind: str, path: str, priority: int = 0) -> Object:
    """A printer column of a CRD."""
    return {"name": name, "type": kind, "jsonPath": path, "priority": priority}


CRDS = {
    "timely": _defined(
        "Timely",
        "Namespaced",
        column("Ran", "date", ".status.lastRun"),
        column("Size", "integer", ".spec.size"),
        column("Missing", "string", ".spec.none.at.all"),
        column("Color", "string", ".spec.color", 1),
        column("Born", "date", ".metadata.creationTimestamp", 1),
    ),
    "plain": _defined("Plain", "Cluster"),
    "odd": _defined(
        "Odd",
        "Namespaced",
        column("Never", "date", ".spec.color"),
        column("Absent", "date", ".status.lastRun"),
        column("Labelled", "string", ".metadata.labels.a\\.b/c"),
    ),
}
"""Definitions with columns of every type; those of none have an Age."""
