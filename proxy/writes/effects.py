"""What an answered write has changed, so that reads can wait for it. Pure."""

from collections.abc import Iterator
from typing import NamedTuple

from proxy.cache.expectations import Expectation, collection_key
from proxy.cache.lag import Write
from proxy.kube.envelope import Envelope, read_dry_run
from proxy.kube.options import parse_query
from proxy.kube.paths import ResourcePath
from proxy.kube.requests import Request
from proxy.kube.resources import Resource, object_key

_CHANGE_NOTHING = frozenset({"attach", "exec", "log", "portforward", "proxy", "token"})
"""Subresources that lead elsewhere, or issue something."""

_CHANGE_THE_OBJECT = frozenset({"binding", "eviction"})
"""Subresources that change the object above them, and whose answers don't show it."""

_CHANGE_OTHERS = {
    ("", "bindings"): Resource("", "v1", "pods"),
    ("", "services"): Resource("networking.k8s.io", "v1", "ipaddresses"),
}
"""Resources by whose writes the API server changes another resource before it answers."""


class Sent(NamedTuple):
    """A write and its answer: *moment* of each in seconds; *envelope* None for one not readable.

    *body* is the write's own, as far as it was read.
    """

    request: Request
    status: int
    envelope: Envelope | None
    sent: float
    arrived: float
    body: bytes = b""


class Effect(NamedTuple):
    """What reads of *resource* have to see from now on; *write* where a lag can be measured."""

    resource: Resource
    expected: Expectation
    write: Write | None = None


def effects(write: Sent) -> Iterator[Effect]:
    """Tell what reads have to see after a write; one that failed or was a dry run changes nothing.

    An answer of 500 and more leaves open whether it did.
    """
    target = write.request.target
    if target is None or 300 <= write.status < 500 or is_dry_run(write.request, write.body):
        return
    subresource = target.subresource.partition("/")[0]
    if subresource in _CHANGE_NOTHING:
        return
    if write.status < 300 and subresource not in _CHANGE_THE_OBJECT:
        yield _shown(write, target)
    else:
        yield Effect(target.resource, Expectation(_key(target), write.arrived))
    other = _CHANGE_OTHERS.get((target.resource.group, target.resource.plural))
    if other is not None:
        key = collection_key(target.namespace) if other.plural == "pods" else ""
        yield Effect(other, Expectation(key, write.arrived))


def is_dry_run(request: Request, body: bytes) -> bool:
    """Tell whether a write asks not to be one.

    A DELETE that has a body has all its options there, and those of its query count for nothing
    (``endpoints/handlers/delete.go``).
    """
    if request.method == "DELETE" and body:
        return read_dry_run(body)
    return b"dryRun" in request.query and bool(parse_query(request.query).get("dryRun"))


def _shown(write: Sent, target: ResourcePath) -> Effect:
    """Read from a successful answer what has become of the object.

    An update that removes the last finalizer deletes the object, and shows it at its old version.
    """
    shown = write.envelope
    key = _key(target)
    if shown is None or (not target.name and write.request.method == "DELETE"):
        return Effect(target.resource, Expectation(key, write.arrived))
    if not target.name and shown.name:
        key = object_key(target.namespace, shown.name)
    if shown.kind == "Status" or (shown.is_last and write.request.method != "DELETE"):
        return Effect(target.resource, Expectation(key, write.arrived, uid=shown.uid))
    if not shown.version:
        return Effect(target.resource, Expectation(key, write.arrived))
    return Effect(
        target.resource,
        Expectation(key, write.arrived, version=shown.version),
        Write(shown.version, write.sent, write.arrived),
    )


def _key(target: ResourcePath) -> str:
    if target.name:
        return object_key(target.namespace, target.name)
    return collection_key(target.namespace)
