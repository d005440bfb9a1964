"""What the stand-in API server holds: objects, one revision for all of them, and a bounded log.

A stand-in for the demo and for unit tests. It behaves like kube-apiserver where it can, and proves
nothing about it.
"""

import uuid
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from itertools import dropwhile
from typing import Any, NamedTuple

from proxy.cache.signal import Signal
from proxy.forms.form import EventType
from proxy.kube.errors import Expired, already_exists, conflict, not_found
from proxy.kube.resources import Resource, object_key

Json = dict[str, Any]

LOG = 2_000
"""Changes remembered; a watch or a list from before them has expired."""


class Kind(NamedTuple):
    """A resource that the stand-in knows."""

    resource: Resource
    kind: str
    namespaced: bool


KINDS = (
    Kind(Resource("", "v1", "namespaces"), "Namespace", namespaced=False),
    Kind(Resource("", "v1", "configmaps"), "ConfigMap", namespaced=True),
    Kind(Resource("", "v1", "pods"), "Pod", namespaced=True),
    Kind(Resource("apps", "v1", "deployments"), "Deployment", namespaced=True),
)
BY_RESOURCE = {each.resource: each for each in KINDS}


class Change(NamedTuple):
    """One write; *before* is None for a creation, *after* the last state for a deletion."""

    revision: int
    resource: Resource
    type: EventType
    before: Json | None
    after: Json


class Storage:
    """All objects; every write gets the next revision. Stored objects are never changed."""

    def __init__(self) -> None:
        self.revision = 1
        self.changed = Signal()
        self._objects: dict[Resource, dict[str, Json]] = {each.resource: {} for each in KINDS}
        self._log: list[Change] = []
        self._floor = 1

    def get(self, resource: Resource, namespace: str, name: str) -> Json:
        """Find an object. Raises NotFound."""
        found = self._objects[resource].get(object_key(namespace, name))
        if found is None:
            raise not_found(resource, name)
        return found

    def list(self, resource: Resource, revision: int) -> list[Json]:
        """All objects at *revision*, in key order. Raises Expired."""
        objects = dict(self._objects[resource])
        for change in reversed(self.since(resource, revision)):
            key = _key(change.after)
            if change.before is None:
                del objects[key]
            else:
                objects[key] = change.before
        return [objects[key] for key in sorted(objects)]

    def since(self, resource: Resource, revision: int) -> Sequence[Change]:
        """The changes of a resource after *revision*, in order. Raises Expired."""
        if revision < self._floor:
            raise Expired(f"too old resource version: {revision} ({self._floor})")
        late = dropwhile(lambda change: change.revision <= revision, self._log)
        return [change for change in late if change.resource == resource]

    def create(self, resource: Resource, body: Json) -> Json:
        """Add an object. Raises Conflict when its name is taken."""
        metadata = body["metadata"]
        key = object_key(metadata.get("namespace", ""), metadata["name"])
        if key in self._objects[resource]:
            raise already_exists(resource, metadata["name"])
        fresh = {
            **metadata,
            "uid": str(uuid.uuid4()),
            "creationTimestamp": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        }
        return self._write(EventType.ADDED, resource, None, {**body, "metadata": fresh})

    def update(self, resource: Resource, body: Json) -> Json:
        """Replace an object. Raises Conflict when the body's resourceVersion is not the current."""
        metadata = body["metadata"]
        before = self.get(resource, metadata.get("namespace", ""), metadata["name"])
        given = metadata.get("resourceVersion", "")
        if given not in ("", before["metadata"]["resourceVersion"]):
            raise conflict(resource, metadata["name"])
        kept = {key: before["metadata"][key] for key in ("uid", "creationTimestamp")}
        return self._write(
            EventType.MODIFIED, resource, before, {**body, "metadata": {**metadata, **kept}}
        )

    def change(
        self, resource: Resource, namespace: str, name: str, how: Callable[[Json], Json]
    ) -> Json:
        """Replace an object by what *how* makes of it."""
        return self.update(resource, how(self.get(resource, namespace, name)))

    def delete(self, resource: Resource, namespace: str, name: str) -> Json:
        """Take an object out; returns its last state, at the revision of the deletion."""
        before = self.get(resource, namespace, name)
        return self._write(EventType.DELETED, resource, before, before)

    def _write(
        self, event_type: EventType, resource: Resource, before: Json | None, after: Json
    ) -> Json:
        self.revision += 1
        metadata = {**after["metadata"], "resourceVersion": str(self.revision)}
        after = {**after, "metadata": metadata}
        if event_type is EventType.DELETED:
            del self._objects[resource][_key(after)]
        else:
            self._objects[resource][_key(after)] = after
        self._log.append(Change(self.revision, resource, event_type, before, after))
        for dropped in self._log[:-LOG]:
            self._floor = dropped.revision
        del self._log[:-LOG]
        self.changed.ring()
        return after


def _key(found: Json) -> str:
    return object_key(found["metadata"].get("namespace", ""), found["metadata"]["name"])
