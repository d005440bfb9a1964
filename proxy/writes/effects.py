"""What an answered write has changed, so that reads can wait for it. Pure."""

from collections.abc import Iterator
from typing import NamedTuple

from proxy.cache.expectations import Expectation
from proxy.cache.lag import Write
from proxy.kube.envelope import Envelope, read_dry_run
from proxy.kube.options import MAX_QUERY, parse_query
from proxy.kube.paths import ResourcePath
from proxy.kube.requests import Request
from proxy.kube.resources import Resource, collection_key, object_key

_CHANGE_NOTHING = frozenset({"attach", "exec", "log", "portforward", "proxy", "token"})
"""Subresources that lead elsewhere, or issue something."""

_CHANGE_THE_OBJECT = frozenset({"binding", "eviction"})
"""Subresources that change the object above them, and whose answers don't show it."""

_NOT_BEGUN = frozenset({401, 405})
"""Failures before a write of several steps has begun; admission may refuse in the middle by 403."""

_IP_ADDRESSES = Resource("networking.k8s.io", "v1", "ipaddresses")

_CHANGE_OTHERS = {
    ("", "bindings", ""): Resource("", "v1", "pods"),
    ("", "pods", "eviction"): Resource("policy", "v1", "poddisruptionbudgets"),
    ("", "services", ""): _IP_ADDRESSES,
}
"""Groups, resources and subresources by whose writes the API server changes another resource before
it answers: in the same namespace, if it has one.

Left out are resourcequotas: which writes are charged to one only its admission knows, so that every
creation in a namespace would have to prove the quotas anew.
"""


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
    subresource = target.subresource.partition("/")[0] if target else ""
    if target is None or subresource in _CHANGE_NOTHING:
        return
    if write.status == 409 and write.request.method == "POST" and not target.name:
        yield from _taken(write, target)
    if is_dry_run(write.request, write.body) or not _may_have_changed(write, target, subresource):
        return
    if write.status < 300 and subresource not in _CHANGE_THE_OBJECT:
        yield _shown(write, target)
    else:
        yield Effect(target.resource, Expectation(target.key, write.arrived))
    other = _CHANGE_OTHERS.get((target.resource.group, target.resource.plural, subresource))
    if other is not None:
        key = "" if other == _IP_ADDRESSES else collection_key(target.namespace)
        yield Effect(other, Expectation(key, write.arrived))


def _may_have_changed(write: Sent, target: ResourcePath, subresource: str) -> bool:
    """Tell a write that may have had an effect; one of several steps may fail after the first."""
    if write.status < 300 or write.status >= 500:
        return True
    in_steps = write.request.method == "DELETE" and not target.name
    in_steps = in_steps or subresource == "eviction"
    return in_steps and write.status not in _NOT_BEGUN


def _taken(write: Sent, target: ResourcePath) -> Iterator[Effect]:
    """Tell a client whose name is taken that there is an object, which it may not have seen."""
    shown = write.envelope
    if shown is not None and shown.kind == "Status" and shown.name:
        key = object_key(target.namespace, shown.name)
        expected = Expectation(key, write.arrived, write.request.client)
        yield Effect(target.resource, expected)


def is_dry_run(request: Request, body: bytes) -> bool:
    """Tell whether a write asks not to be one.

    A DELETE that has a body has all its options there, and those of its query count for nothing
    (``endpoints/handlers/delete.go``). One whose query is too long to be read is taken for real.
    """
    if request.method == "DELETE" and body:
        return read_dry_run(body)
    if b"dryRun" not in request.query or len(request.query) > MAX_QUERY:
        return False
    return bool(parse_query(request.query).get("dryRun"))


def _shown(write: Sent, target: ResourcePath) -> Effect:
    """Read from a successful answer what has become of the object.

    An update that removes the last finalizer deletes the object, and shows it at its old version.
    Whether it was the last doesn't show in a Table, nor in a Namespace, which has others in its
    spec.
    """
    shown = write.envelope
    key = target.key
    deletes = write.request.method == "DELETE"
    if shown is None or (not target.name and deletes):
        return Effect(target.resource, Expectation(key, write.arrived))
    if not target.name and shown.name:
        key = object_key(target.namespace, shown.name)
    ends = shown.is_last and not deletes
    if shown.kind == "Status" or (ends and not _is_namespace(target)):
        return Effect(target.resource, Expectation(key, write.arrived, uid=shown.uid))
    if not shown.version or shown.kind == "Table" or (ends and target.subresource != "status"):
        return Effect(target.resource, Expectation(key, write.arrived))
    return Effect(
        target.resource,
        Expectation(key, write.arrived, version=shown.version),
        Write(shown.version, write.sent, write.arrived),
    )


def _is_namespace(target: ResourcePath) -> bool:
    return (target.resource.group, target.resource.plural) == ("", "namespaces")
