"""URL paths: which resource, namespace, object and subresource a path names.

Mirrors ``apiserver/pkg/endpoints/request/requestinfo.go``. A path that could be read in two ways
(empty or encoded segments) is not understood here, and what isn't understood is forwarded. Of
writes, which are forwarded all the same, as much is understood as kube-apiserver does.
"""

import re
from typing import NamedTuple
from urllib.parse import unquote, unquote_to_bytes

from proxy.kube.resources import Resource, collection_key, object_key

LIVE_PREFIX = "/live"
"""The same paths below this prefix are always answered by the API server."""

MAX_PATH = 4096
"""Characters of a path that is looked at; no resource's is longer than a few names."""

MAX_WRITE_PATH = 64 * 1024
"""Characters of a write's path that is looked at, in some milliseconds."""

# Visible ASCII without quotes and backslashes, which no name has and which messages escape.
_PLAIN = re.compile(r"[!#-\[\]-~]+")

_NAMESPACE_SUBRESOURCES = frozenset({"status", "finalize"})


class ResourcePath(NamedTuple):
    """A path below ``/api`` or ``/apis``; *name* is empty for a collection."""

    resource: Resource
    namespace: str
    name: str
    subresource: str

    @property
    def key(self) -> str:
        """The key of the object, or of the collection."""
        if self.name:
            return object_key(self.namespace, self.name)
        return collection_key(self.namespace)


def split_target(target: bytes) -> tuple[bytes, bytes]:
    """Split a request's target into path and query, as Go's ``url.ParseRequestURI`` does.

    The absolute form (``http://host/path``) loses its scheme and host.
    """
    path, _, query = target.partition(b"?")
    if not path.startswith(b"/") and b"://" in path:
        path = b"/" + path.partition(b"://")[2].partition(b"/")[2]
    return path, query


def split_live(path: str) -> tuple[bool, str]:
    """Take the ``/live`` prefix off *path*; tell whether it was there."""
    if path.startswith(LIVE_PREFIX) and path[5:6] in ("/", ""):
        return True, path[5:] or "/"
    return False, path


def parse_path(path: str) -> ResourcePath | None:
    """Read a raw (percent-encoded) path; None for anything but a resource's."""
    if len(path) > MAX_PATH:
        return None
    if "%" in path:
        path = _decode(path)
    if not _PLAIN.fullmatch(path):
        return None
    return _split(path.rstrip("/"))


def _split(path: str) -> ResourcePath | None:
    """Read a decoded path that ends without a slash."""
    segments = path.removeprefix("/").split("/")
    if "" in segments or "." in segments or ".." in segments:
        return None
    if segments[0] == "api" and len(segments) > 2:
        return _below(Resource("", segments[1], ""), segments[2:])
    if segments[0] == "apis" and len(segments) > 3:
        return _below(Resource(segments[1], segments[2], ""), segments[3:])
    return None


def parse_write_path(path: str) -> ResourcePath | None:
    """Read the raw path of a write as kube-apiserver does, which decodes all of it first.

    Unlike a read's it can't be left aside: whatever object it writes, reads have to see that.
    """
    path = path.rstrip("/")
    plain = parse_path(path)
    if plain is not None or len(path) > MAX_WRITE_PATH:
        return plain
    decoded = unquote_to_bytes(path.encode("latin-1")).decode(errors="replace")
    return _split(decoded.rstrip("/"))


def _decode(path: str) -> str:
    """Decode %XX; one that hides a slash or a percent gives a path of no resource."""
    decoded = unquote(path, encoding="latin-1")
    return decoded if decoded.count("/") == path.count("/") and "%" not in decoded else ""


def _below(root: Resource, rest: list[str]) -> ResourcePath | None:
    """Read what follows the group and version."""
    namespace = ""
    if rest[0] == "watch":  # the deprecated prefix
        return None
    if rest[0] == "namespaces" and len(rest) > 2 and rest[2] not in _NAMESPACE_SUBRESOURCES:
        namespace, rest = rest[1], rest[2:]
    plural, name, *subresource = [*rest, ""][: max(len(rest), 2)]
    return ResourcePath(root._replace(plural=plural), namespace, name, "/".join(subresource))
