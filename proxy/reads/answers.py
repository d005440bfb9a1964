"""Cached answers: bodies in parts, joined from stored bytes."""

from collections.abc import Iterable

from proxy.cache.informer import View
from proxy.kube import gojson
from proxy.kube.errors import not_found
from proxy.kube.resources import Resource

MAX_INDENT = 1024 * 1024
"""Bytes of a body that is indented here, in about a millisecond; larger ones are forwarded."""


def get_answer(view: View, resource: Resource, key: str) -> tuple[int, bytes]:
    """Encode an object, or the 404 of one that isn't there; returns status and body."""
    found = view.store.get(key)
    if found is not None:
        return 200, view.form.encode_object(found)
    return 404, not_found(resource, key.rpartition("/")[2]).status_body()


def indented(parts: Iterable[bytes]) -> bytes:
    """Indent a whole body, for a person."""
    return gojson.indent(b"".join(parts))
