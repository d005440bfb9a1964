"""What clients write at random to objects of several kinds, and how the event of each is found."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum
from itertools import count
from random import Random
from typing import Any, NamedTuple

from tests.harness.http import Headers
from tests.harness.objects import CustomResource, Object, configmap

_MERGE = (("Content-Type", "application/merge-patch+json"),)
_APPLY = (("Content-Type", "application/apply-patch+yaml"),)
_TIERS = ("web", "batch")
_NOW = "gracePeriodSeconds=0"
_numbers = count(1)

LABEL = "tier=web"
"""What some lists select by; writes give it and take it away."""


class Shows(Enum):
    """Where the event of a write that succeeded is found."""

    ANSWER = "in the answer"
    NOTHING = "there is none"
    GONE = "the deletion of the object of that uid"
    END = "the first event in which the object of that uid is going or gone"
    BOUND = "the first event in which the object of that uid has a node"


class Place(NamedTuple):
    """An object that may be there, and the uid that the client saw last under its name."""

    kind: Kind
    namespace: str
    name: str
    uid: str = ""

    @property
    def collection(self) -> str:
        return self.kind.path(self.namespace)

    @property
    def target(self) -> str:
        return f"{self.collection}/{self.name}"

    @property
    def key(self) -> str:
        return f"{self.kind.plural}/{self.namespace}/{self.name}"

    def object(self, random: Random) -> Object:
        found = self.kind.object(self.name)
        found["metadata"]["labels"] = {"tier": random.choice(_TIERS)}
        return found


class Move(NamedTuple):
    """A write."""

    method: str
    target: str
    body: Any = None
    headers: Headers = ()
    shows: Shows = Shows.ANSWER


Maker = Callable[[Place, Random], Move]


class Kind(NamedTuple):
    """A resource, its objects by name, and the writes to them besides those that all have."""

    group_version: str
    plural: str
    singular: str
    object: Callable[[str], Object]
    moves: Sequence[Maker] = ()

    def path(self, namespace: str = "") -> str:
        """The collection's path; without a namespace that of the cluster."""
        root = "apis" if "/" in self.group_version else "api"
        within = f"/namespaces/{namespace}" if namespace else ""
        return f"/{root}/{self.group_version}{within}/{self.plural}"

    def move(self, place: Place, random: Random) -> Move:
        """One write at random."""
        return random.choice((*_EVERYWHERE, *self.moves))(place, random)


def kinds(custom: CustomResource) -> Sequence[Kind]:
    """ConfigMaps, Pods, Deployments, and a custom resource with a status."""
    return (
        Kind("v1", "configmaps", "ConfigMap", configmap),
        Kind("v1", "pods", "Pod", _pod, (*(_bind, _evict) * 3, _end, _set_status)),
        Kind("apps/v1", "deployments", "Deployment", _deployment, (_scale, _scale)),
        Kind(
            f"{custom.group}/v1",
            custom.plural,
            custom.kind,
            custom.object,
            (_hold, _hold, _release, _set_phase),
        ),
    )


def _pod(name: str) -> Object:
    spec = {"containers": [{"name": "app", "image": "registry.example.com/app:v1"}]}
    return {"metadata": {"name": name}, "spec": spec}


def _deployment(name: str) -> Object:
    labels = {"app": name}
    template = {"metadata": {"labels": labels}, "spec": _pod(name)["spec"]}
    spec = {"replicas": 1, "selector": {"matchLabels": labels}, "template": template}
    return {"metadata": {"name": name}, "spec": spec}


# --- writes to objects of every kind ---


def _create(place: Place, random: Random) -> Move:
    return Move("POST", place.collection, place.object(random))


def _label(place: Place, random: Random) -> Move:
    metadata = {"annotations": {"patched": str(next(_numbers))}}
    labels = {"labels": {"tier": random.choice(_TIERS)}}
    return Move("PATCH", place.target, {"metadata": {**metadata, **labels}}, _MERGE)


def _apply(place: Place, random: Random) -> Move:
    del random
    applied = {
        "apiVersion": place.kind.group_version,
        "kind": place.kind.singular,
        "metadata": {"name": place.name, "annotations": {"applied": str(next(_numbers))}},
    }
    return Move("PATCH", f"{place.target}?fieldManager=applier&force=true", applied, _APPLY)


def _delete(place: Place, random: Random) -> Move:
    del random
    return Move("DELETE", f"{place.target}?{_NOW}")


def _sweep(place: Place, random: Random) -> Move:
    del random
    return Move("DELETE", f"{place.collection}?labelSelector=tier%3Dbatch&{_NOW}")


def _rehearse(place: Place, random: Random) -> Move:
    """A dry run: it changes nothing."""
    move = random.choice((_label, _delete))(place, random)
    mark = "&" if "?" in move.target else "?"
    return move._replace(target=f"{move.target}{mark}dryRun=All", shows=Shows.NOTHING)


def _be_late(place: Place, random: Random) -> Move:
    """An update of a version that is long gone: it fails."""
    body = place.object(random)
    body["metadata"]["resourceVersion"] = "1"
    return Move("PUT", place.target, body)


_EVERYWHERE: Sequence[Maker] = (
    *(_create,) * 4,
    *(_label,) * 3,
    *(_delete,) * 2,
    _apply,
    _sweep,
    _rehearse,
    _be_late,
)


# --- pods ---


def _bind(place: Place, random: Random) -> Move:
    body = {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": place.name, "uid": place.uid},
        "target": {"apiVersion": "v1", "kind": "Node", "name": "node-0"},
    }
    if not place.uid:  # whose pod it was wouldn't be known
        return _create(place, random)
    return Move("POST", f"{place.target}/binding", body, shows=Shows.BOUND)


def _evict(place: Place, random: Random) -> Move:
    if not place.uid:
        return _create(place, random)
    body = {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": place.name},
        "deleteOptions": {"preconditions": {"uid": place.uid}},
    }
    return Move("POST", f"{place.target}/eviction", body, shows=Shows.END)


def _end(place: Place, random: Random) -> Move:
    """With grace, which a pod that is bound to a node is given."""
    return Move("DELETE", f"{place.target}?gracePeriodSeconds={random.choice((10, 30))}")


def _set_status(place: Place, random: Random) -> Move:
    del random
    status = {"phase": "Running", "message": str(next(_numbers))}
    return Move("PATCH", f"{place.target}/status", {"status": status}, _MERGE)


# --- deployments ---


def _scale(place: Place, random: Random) -> Move:
    body = {"spec": {"replicas": random.randrange(1000)}}
    return Move("PATCH", f"{place.target}/scale", body, _MERGE)


# --- custom resources ---


def _hold(place: Place, random: Random) -> Move:
    del random
    return Move("PATCH", place.target, {"metadata": {"finalizers": ["a.b/c"]}}, _MERGE)


def _release(place: Place, random: Random) -> Move:
    """What is to be deleted then goes."""
    del random
    return Move("PATCH", place.target, {"metadata": {"finalizers": None}}, _MERGE)


def _set_phase(place: Place, random: Random) -> Move:
    del random
    return Move(
        "PATCH", f"{place.target}/status", {"status": {"phase": str(next(_numbers))}}, _MERGE
    )
