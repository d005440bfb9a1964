"""Which fields the field selectors of built-in resources know, and how their values are read.

The table is kube-apiserver's, scattered there over conversions and strategies
(``AddFieldLabelConversionFunc``, ``ToSelectableFields``, ``GetAttrs``). Beside these every resource
knows ``metadata.name``, and a namespaced one ``metadata.namespace``.
"""

import re
from typing import NamedTuple

Path = tuple[str, ...]

EACH = "[*]"
"""The step of a path that goes to every element of an array."""


class SelectableField(NamedTuple):
    """A field label; its value is the first of *paths* that is set, else *default*.

    *indexed* are those that clients look objects up by.
    """

    label: str
    paths: tuple[Path, ...]
    default: str = ""
    indexed: bool = False

    @property
    def is_multiple(self) -> bool:
        """Tell whether an object may have several values of it."""
        return any(EACH in path for path in self.paths)


_STEP = re.compile(r"\.?([A-Za-z_][A-Za-z0-9_-]*)|(\[\*\])|\['([^']+)'\]")


def declared_field(text: str) -> SelectableField:
    """Read an index of the settings or a CRD's: ``spec.containers[*].image``.

    A key with dots is quoted: ``metadata.annotations['example.com/owner']``. Raises ValueError.
    """
    path: list[str] = []
    at = 0
    while at < len(text):
        step = _STEP.match(text, at)
        if step is None:
            raise ValueError(f"{text!r} is not a path like spec.containers[*].image")
        path.append(step[1] or step[2] or step[3])
        at = step.end()
    if not path or path[0] == EACH or path[:2] == ["metadata", "labels"]:
        raise ValueError(f"{text!r} can't be indexed as a field")
    return SelectableField(text.removeprefix("."), (tuple(path),), indexed=True)


def _fields(*labels: str, **defaults: str) -> tuple[SelectableField, ...]:
    """Fields whose label is their path; *defaults* by the label's last step."""
    return tuple(
        SelectableField(
            label,
            (tuple(label.split(".")),),
            defaults.get(label.split(".")[-1], ""),
            indexed=label == "spec.nodeName",
        )
        for label in labels
    )


def _reference(label: str, member: str) -> tuple[SelectableField, ...]:
    """The fields of an event's object reference, whose member differs between the versions."""
    steps = ("kind", "namespace", "name", "uid", "apiVersion", "resourceVersion", "fieldPath")
    return tuple(
        SelectableField(f"{label}.{step}", ((member, step),), indexed=step in ("name", "uid"))
        for step in steps
    )


_BY_RESOURCE: dict[tuple[str, str], tuple[SelectableField, ...]] = {
    ("", "pods"): (
        *_fields(
            "spec.nodeName",
            "spec.restartPolicy",
            "spec.schedulerName",
            "spec.serviceAccountName",
            "spec.hostNetwork",
            "status.phase",
            "status.podIP",
            "status.nominatedNodeName",
            hostNetwork="false",
        ),
        SelectableField("spec.host", (("spec", "nodeName"),)),
        SelectableField("status.podIPs", ()),  # accepted, and never set
    ),
    ("", "nodes"): _fields("spec.unschedulable", unschedulable="false"),
    ("", "namespaces"): _fields("status.phase"),
    ("", "secrets"): _fields("type"),
    ("", "services"): _fields("spec.clusterIP", "spec.type"),
    ("", "replicationcontrollers"): _fields("status.replicas", replicas="0"),
    ("", "events"): (
        *_reference("involvedObject", "involvedObject"),
        *_fields("reason", "reportingComponent", "type"),
        SelectableField("source", (("source", "component"), ("reportingComponent",))),
    ),
    ("events.k8s.io", "events"): (
        *_reference("regarding", "regarding"),
        *_fields("reason", "reportingController", "type"),
    ),
    ("batch", "jobs"): (SelectableField("status.successful", (("status", "succeeded"),), "0"),),
    ("certificates.k8s.io", "certificatesigningrequests"): _fields("spec.signerName"),
    ("certificates.k8s.io", "clustertrustbundles"): _fields("spec.signerName"),
    ("certificates.k8s.io", "podcertificaterequests"): _fields(
        "spec.signerName", "spec.podName", "spec.nodeName"
    ),
    ("resource.k8s.io", "resourceslices"): _fields("spec.nodeName", "spec.driver"),
}

# The other built-in resources of 1.34 to 1.37 that are at least beta; they know no fields of their
# own. Those in alpha may still become anything.
_PLAIN = {
    "": "configmaps endpoints limitranges persistentvolumeclaims persistentvolumes podtemplates "
    "resourcequotas serviceaccounts",
    "admissionregistration.k8s.io": "mutatingadmissionpolicies mutatingadmissionpolicybindings "
    "mutatingwebhookconfigurations validatingadmissionpolicies validatingadmissionpolicybindings "
    "validatingwebhookconfigurations",
    "apiextensions.k8s.io": "customresourcedefinitions",
    "apiregistration.k8s.io": "apiservices",
    "apps": "controllerrevisions daemonsets deployments replicasets statefulsets",
    "autoscaling": "horizontalpodautoscalers",
    "batch": "cronjobs",
    "coordination.k8s.io": "leasecandidates leases",
    "discovery.k8s.io": "endpointslices",
    "flowcontrol.apiserver.k8s.io": "flowschemas prioritylevelconfigurations",
    "networking.k8s.io": "ingressclasses ingresses ipaddresses networkpolicies servicecidrs",
    "node.k8s.io": "runtimeclasses",
    "policy": "poddisruptionbudgets",
    "rbac.authorization.k8s.io": "clusterrolebindings clusterroles rolebindings roles",
    "resource.k8s.io": "deviceclasses devicetaintrules resourceclaims resourceclaimtemplates",
    "scheduling.k8s.io": "podgroups priorityclasses workloads",
    "storage.k8s.io": "csidrivers csinodes csistoragecapacities storageclasses volumeattachments "
    "volumeattributesclasses",
    "storagemigration.k8s.io": "storageversionmigrations",
}
_BY_RESOURCE |= {(group, plural): () for group, names in _PLAIN.items() for plural in names.split()}


class WirePath(NamedTuple):
    """Where a field is in protobuf: the numbers on the way to it, and its type."""

    numbers: tuple[int, ...]
    type: str


_REFERENCE_NUMBERS = "kind 1 namespace 2 name 3 uid 4 apiVersion 5 resourceVersion 6 fieldPath 7"

_NUMBERS: dict[tuple[str, str], str] = {
    ("", "pods"): (
        "spec.nodeName 2.10 spec.restartPolicy 2.3 spec.schedulerName 2.19 "
        "spec.serviceAccountName 2.8 spec.hostNetwork 2.11:bool "
        "status.phase 3.1 status.podIP 3.6 status.nominatedNodeName 3.11"
    ),
    ("", "nodes"): "spec.unschedulable 2.4:bool",
    ("", "namespaces"): "status.phase 3.1",
    ("", "secrets"): "type 3",
    ("", "services"): "spec.clusterIP 2.3 spec.type 2.4",
    ("", "replicationcontrollers"): "status.replicas 3.1:int32",
    ("", "events"): "reason 3 source.component 5.1 type 9 reportingComponent 14",
    ("events.k8s.io", "events"): "reportingController 4 reason 7 type 11",
    ("batch", "jobs"): "status.succeeded 3.5:int32",
    ("certificates.k8s.io", "certificatesigningrequests"): "spec.signerName 2.7",
    ("certificates.k8s.io", "clustertrustbundles"): "spec.signerName 2.1",
    ("certificates.k8s.io", "podcertificaterequests"): (
        "spec.signerName 2.1 spec.podName 2.2 spec.nodeName 2.6"
    ),
    ("resource.k8s.io", "resourceslices"): "spec.driver 2.1 spec.nodeName 2.3",
}
"""The same paths in protobuf: ``path numbers:type``, strings by default; the numbers are those of
``generated.proto`` in k8s.io/api, the same in all versions that have the path."""

_REFERENCES = {("", "events"): ("involvedObject", 2), ("events.k8s.io", "events"): ("regarding", 8)}


def wire_paths(group: str, plural: str) -> dict[Path, WirePath]:
    """Tell where a resource's selectable fields are in protobuf; those not known are missing."""
    found = _wire_paths(_NUMBERS.get((group, plural), ""))
    if (group, plural) in _REFERENCES:
        member, number = _REFERENCES[group, plural]
        for path, (numbers, kind) in _wire_paths(_REFERENCE_NUMBERS).items():
            found[(member, *path)] = WirePath((number, *numbers), kind)
    return found


def _wire_paths(text: str) -> dict[Path, WirePath]:
    words = text.split()
    found = {}
    for path, place in zip(words[::2], words[1::2], strict=True):
        numbers, _, kind = place.partition(":")
        found[tuple(path.split("."))] = WirePath(
            tuple(map(int, numbers.split("."))), kind or "string"
        )
    return found


_NO_NAMESPACE = frozenset({("certificates.k8s.io", "podcertificaterequests")})


def selectable_fields(group: str, plural: str) -> tuple[SelectableField, ...] | None:
    """Return the fields of a built-in resource; None for one that isn't in the table."""
    return _BY_RESOURCE.get((group, plural))


def knows_namespace(group: str, plural: str) -> bool:
    """Tell whether a namespaced resource accepts ``metadata.namespace``."""
    return (group, plural) not in _NO_NAMESPACE


def field_text(value: str | float) -> str:
    """Write a leaf's value as selectors compare it."""
    return str(value).lower() if isinstance(value, bool) else str(value)
