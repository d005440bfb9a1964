"""A write that names the version it's based on: when it's sure to conflict, and with what. Pure."""

from typing import NamedTuple

from proxy.cache.informer import Informer
from proxy.forms.objects import Object
from proxy.kube.envelope import (
    MERGE_PATCH,
    STRATEGIC_PATCH,
    Envelope,
    media_type,
    read_envelope,
    read_precondition,
)
from proxy.kube.negotiation import JSON, PROTOBUF
from proxy.kube.options import MAX_QUERY, TIMEOUT, parse_query
from proxy.kube.paths import ResourcePath
from proxy.kube.requests import Headers, Request, content_type_of, header_of

MAX_MANAGER = 128
"""Characters of a fieldManager (``FieldManagerMaxLength``)."""

_OPTIONS = frozenset({"dryRun", "fieldManager", "fieldValidation", "pretty", "timeout"})

_PARAMETERS = frozenset({"", "charset=utf-8"})
"""Parameters of a content type that the API server is sure to take."""

_WHOLE = frozenset({"", "status"})
"""Subresources whose bodies are the object itself."""


class Attempt(NamedTuple):
    """A write of one object, as it was when it had *version*.

    *envelope* is that of a body which is the object or a merge patch of it, else None.
    """

    request: Request
    target: ResourcePath
    headers: Headers
    media_type: str
    body: bytes
    version: int
    envelope: Envelope | None

    @property
    def key(self) -> str:
        """The object's key."""
        return self.target.key

    @property
    def is_mergeable(self) -> bool:
        """Tell whether the body can be merged with what another has written."""
        is_json = self.media_type in (JSON, MERGE_PATCH, STRATEGIC_PATCH)
        is_whole = self.envelope is not None and self.target.subresource in _WHOLE
        return is_json and is_whole and self.request.method in ("PUT", "PATCH")


def read_attempt(request: Request, headers: Headers, body: bytes) -> Attempt | None:
    """Read a write; None for one that conflicts with nothing, or that isn't understood."""
    target = request.target
    if target is None or not target.name or header_of(headers, b"content-encoding"):
        return None
    content_type = content_type_of(headers) or JSON
    if request.method == "DELETE":
        version, envelope = read_precondition(body), None
    elif request.method in ("PUT", "PATCH"):
        envelope = read_envelope(content_type, body)
        version = envelope.version if envelope else None
    else:
        return None
    if not version:
        return None
    return Attempt(request, target, headers, media_type(content_type), body, version, envelope)


def certain_conflict(attempt: Attempt, informer: Informer) -> Object | None:
    """Find the newer object that a write is sure to conflict with.

    What the API server would refuse for another reason first is left to it.
    """
    envelope, target, view = attempt.envelope, attempt.target, informer.view
    if envelope is None or target.subresource not in _WHOLE or view is None:
        return None
    if "\ufffd" in target.name:
        return None  # it may stand for bytes that are no text, which name nothing
    if target.subresource and not view.form.has_status:
        return None  # there is no such subresource
    if not (_is_taken(attempt, is_custom=view.form.is_custom) and _is_plain(attempt.request)):
        return None
    if informer.is_stalled or informer.expectations.of(attempt.key, ""):
        return None  # of what is held, something is or may be old
    found = view.store.get(attempt.key)
    if found is None or found.version <= attempt.version:
        return None
    return found if _is_of(envelope, found, attempt, view.form.kind) else None


def _is_taken(attempt: Attempt, *, is_custom: bool) -> bool:
    """Tell whether the API server takes a body of this type for this method."""
    parameters = content_type_of(attempt.headers).partition(";")[2].strip().lower()
    if parameters not in _PARAMETERS:
        return False
    if attempt.request.method == "PUT":
        return attempt.media_type == JSON or (attempt.media_type == PROTOBUF and not is_custom)
    return attempt.media_type == MERGE_PATCH or (
        attempt.media_type == STRATEGIC_PATCH and not is_custom
    )


def _is_plain(request: Request) -> bool:
    """Tell whether a write's options are beyond doubt; those that aren't are refused first."""
    if len(request.query) > MAX_QUERY or request.query.count(b"dryRun") > 1:
        return False
    options = parse_query(request.query)
    manager = options.get("fieldManager", "")
    return (
        options.keys() <= _OPTIONS
        and options.get("dryRun", "All") == "All"
        and TIMEOUT.fullmatch(options.get("timeout", "")) is not None
        and options.get("fieldValidation", "") in ("", "Ignore", "Warn")
        and len(manager) <= MAX_MANAGER
        and manager.isprintable()
    )


def _is_of(envelope: Envelope, found: Object, attempt: Attempt, kind: str) -> bool:
    """Tell whether a body is of the object that the URL names."""
    is_patch = attempt.request.method == "PATCH"
    named = envelope.name == found.name or (is_patch and not envelope.name)
    return (
        named
        and envelope.namespace in ("", found.namespace)
        and envelope.uid in ("", found.uid)
        and envelope.kind in ("", kind)
        and envelope.api_version in ("", attempt.target.resource.group_version)
    )
