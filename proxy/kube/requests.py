"""Requests as clients send them, read once: URL, method and the headers that matter."""

from collections.abc import Sequence
from enum import StrEnum
from hmac import compare_digest
from math import inf
from string import printable
from urllib.parse import quote

import msgspec

from proxy.kube.paths import ResourcePath, parse_path, parse_write_path, split_live

Headers = Sequence[tuple[bytes, bytes]]
"""Names and values as bytes; names of requests are in lower case, as ASGI gives them."""

WRITES = frozenset({"POST", "PUT", "PATCH", "DELETE"})
"""Methods that change something."""

MAX_CLIENT = 256
"""Characters of a User-Agent that clients are told apart by."""

LONGEST = 1024
"""Characters of a list of directives that is looked at; a head may have a megabyte of them."""

_SHOWN = 100  # characters of a word that a message repeats

_SENT_AS_THEY_ARE = printable.strip().replace("#", "")  # Go takes a "#" literally


def header_of(headers: Headers, name: bytes) -> bytes:
    """The first header of a *name*, which is in lower case; empty for none."""
    return next((value for each, value in headers if each.lower() == name), b"")


def content_type_of(headers: Headers) -> str:
    """The content type of a message; empty for none."""
    return header_of(headers, b"content-type").decode("latin-1")


class Verb(StrEnum):
    """What a request does to a resource (``requestinfo.go``)."""

    GET = "get"
    LIST = "list"
    WATCH = "watch"
    CREATE = "create"
    UPDATE = "update"
    PATCH = "patch"
    DELETE = "delete"
    DELETE_COLLECTION = "deletecollection"
    OTHER = "other"


class Request(msgspec.Struct, frozen=True, gc=False):
    """A request's first line and headers; *path* is raw and has lost the ``/live`` prefix.

    ``live``: the client asks for the API server's own answer. ``only_if_cached``: it asks for none
    but a cached one. ``max_age``: it asks for one that has been proven current within so many
    seconds; ``max_stale``: how much older it may be while the API server is away. ``authorization``
    is what it shows, None for nothing; ``impersonates``: it asks to be somebody else.
    ``merges``: it asks for its write to be merged with what it conflicts with. ``mistake`` says
    which word of the proxy's own headers there isn't; empty for none.
    """

    method: str
    path: str
    query: bytes
    target: ResourcePath | None
    live: bool = False
    only_if_cached: bool = False
    max_age: float | None = None
    max_stale: float | None = None
    accept: str = ""
    user_agent: str = ""
    authorization: str | None = None
    impersonates: bool = False
    merges: bool = False
    mistake: str = ""

    @property
    def client(self) -> str:
        """Who asks, for what clients are shown in turn: all that have a User-Agent in common."""
        return self.user_agent[:MAX_CLIENT] or "-"

    def is_own(self, own: str) -> bool:
        """Tell whether the proxy may answer as itself, who shows *own* as its credentials.

        A client that shows nothing, or the same, is taken for it.
        """
        shown = self.authorization
        if self.impersonates:
            return False
        return shown is None or (own != "" and compare_digest(shown.encode(), own.encode()))

    @property
    def raw_target(self) -> str:
        """The path and query to send upstream; bytes beyond ASCII are percent-encoded, and "#"."""
        query = f"?{self.query.decode('latin-1')}" if self.query else ""
        return quote(self.path + query, safe=_SENT_AS_THEY_ARE, encoding="latin-1")


def parse_request(method: str, raw_path: bytes, query: bytes, headers: Headers) -> Request:
    """Read a request; never fails: what it can't read stays for the API server to refuse, or is a
    ``mistake``.

    Of a repeated header the first counts, as with Go's ``Header.Get``; only lines that are lists
    are joined (RFC 9110 §5.3).
    """
    prefixed, path = split_live(raw_path.decode("latin-1"))
    found: dict[bytes, str] = {}
    impersonates = False
    for name, value in headers:
        if name in _LISTS and name in found:
            if len(found[name]) <= LONGEST:
                found[name] += "," + value.decode("latin-1")
        elif name in _LISTS or name in _SINGLE:
            found.setdefault(name, value.decode("latin-1"))
        elif name.startswith(b"impersonate-"):
            impersonates = True
    freshness = _freshness(found) if _CACHE_CONTROL in found else {}
    wanted = _words(found, _READ) if _READ in found else ()
    return Request(
        method=method,
        path=path,
        query=query,
        target=parse_write_path(path) if method in WRITES else parse_path(path),
        live=prefixed or "live" in wanted or not freshness.keys().isdisjoint(_LIVE),
        only_if_cached="cache" in wanted or "only-if-cached" in freshness,
        max_age=_seconds(freshness, "max-age", 0.0),
        max_stale=_seconds(freshness, "max-stale", inf),
        accept=found.get(b"accept", ""),
        user_agent=found.get(b"user-agent", ""),
        authorization=found.get(b"authorization"),
        impersonates=impersonates,
        merges=_ON_CONFLICT in found and "merge" in _words(found, _ON_CONFLICT),
        mistake=_mistake(found),
    )


_CACHE_CONTROL = b"cache-control"
_READ = b"x-kubecache-read"
_ON_CONFLICT = b"x-kubecache-on-conflict"
_WORDS = {_READ: ("live", "cache"), _ON_CONFLICT: ("merge",)}
_LISTS = frozenset({_CACHE_CONTROL, *_WORDS})
_SINGLE = frozenset({b"accept", b"user-agent", b"authorization"})

_LIVE = frozenset({"no-cache", "no-store"})


def _freshness(found: dict[bytes, str]) -> dict[str, str]:
    """Collect the directives of Cache-Control (RFC 9111).

    More than anybody means is not looked at, and answered live.
    """
    if len(found[_CACHE_CONTROL]) > LONGEST:
        return {"no-cache": ""}
    directives: dict[str, str] = {}
    for each in found[_CACHE_CONTROL].lower().split(","):
        name, _, value = each.partition("=")
        directives.setdefault(name.strip(), value.strip().strip('"'))
    return directives


def _words(found: dict[bytes, str], name: bytes) -> list[str]:
    """Split one of the proxy's own headers, which is in *found*, into its words."""
    return [each.strip() for each in found[name][: LONGEST + 1].lower().split(",")]


def _mistake(found: dict[bytes, str]) -> str:
    """Say what word the proxy's own headers don't have; a wish that isn't understood isn't met."""
    for name, known in _WORDS.items():
        for each in _words(found, name) if name in found else ():
            if each and each not in known:
                spelled = name.decode().title()
                return f'{spelled}: "{each[:_SHOWN]}" is none of the words that it may be: ' + (
                    ", ".join(known)
                )
    return ""


def _seconds(directives: dict[str, str], name: str, default: float) -> float | None:
    """Read a directive in seconds; what isn't a number asks for the strictest (RFC 9111 §4.2.1)."""
    if name not in directives:
        return None
    value = directives[name]
    if not value:
        return default
    return float(value) if value.isascii() and value.isdigit() else 0.0


_VERBS = {
    "POST": Verb.CREATE,
    "PUT": Verb.UPDATE,
    "PATCH": Verb.PATCH,
}


def verb_of(method: str, target: ResourcePath | None, *, watch: bool = False) -> Verb:
    """Name what *method* does to *target*; a GET of a collection may be a watch."""
    if target is None:
        return Verb.OTHER
    if method == "GET":
        return Verb.GET if target.name else Verb.WATCH if watch else Verb.LIST
    if method == "DELETE":
        return Verb.DELETE if target.name else Verb.DELETE_COLLECTION
    return _VERBS.get(method, Verb.OTHER)
