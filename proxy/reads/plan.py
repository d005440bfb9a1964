"""Serve or forward: the one decision, and its reasons.

``as_read`` looks at the request alone, ``plan`` at the informer's view too. Whatever is not
provably the API server's own answer is forwarded; the API server also words every refusal.
"""

from dataclasses import dataclass
from enum import Enum
from hmac import compare_digest

from proxy.cache.informer import View
from proxy.cache.store import Snapshot
from proxy.kube.negotiation import prefers_json, wants_indent
from proxy.kube.options import ReadOptions, parse_options
from proxy.kube.paths import ResourcePath
from proxy.kube.requests import Request, Verb, verb_of
from proxy.kube.resources import object_key
from proxy.reads.query import Selection, select_by


class Reason(Enum):
    """Why a request is forwarded: the RFC 9211 ``fwd`` parameter and our own detail."""

    METHOD = ("method", "write")
    PATH = ("bypass", "not-a-resource")
    SUBRESOURCE = ("bypass", "subresource")
    IDENTITY = ("bypass", "other-identity")
    LIVE = ("request", "live")
    INVALID = ("bypass", "invalid-options")
    REPRESENTATION = ("vary-miss", "representation")
    NOT_CACHED = ("uri-miss", "no-informer")
    SYNCING = ("uri-miss", "syncing")
    SCOPE = ("uri-miss", "scope")
    FIELDS = ("uri-miss", "field-selector")
    EXACT = ("uri-miss", "exact-version")
    PAGES = ("uri-miss", "pages")
    BEHIND = ("uri-miss", "version-before-history")
    BOOKMARK = ("uri-miss", "bookmark-unknown")
    AHEAD = ("stale", "version-ahead")
    LARGE_INDENT = ("vary-miss", "indent")

    def __init__(self, fwd: str, detail: str) -> None:
        self.fwd = fwd
        self.detail = detail


@dataclass(frozen=True, slots=True)
class Read:
    """A get, list or watch that an informer might answer."""

    verb: Verb
    target: ResourcePath
    options: ReadOptions
    indent: bool


@dataclass(frozen=True, slots=True)
class ServeGet:
    """Answer with the object of a key, or 404."""

    key: str


@dataclass(frozen=True, slots=True)
class ServeList:
    """Answer with a selection, if it has no more than *limit* objects; 0 is no limit."""

    selection: Selection
    limit: int


@dataclass(frozen=True, slots=True)
class ServeWatch:
    """Stream a selection: the objects of *initial* first, then the events from *cursor* on.

    Nothing at or below *after* is sent: a watch may start at a version still to come.
    """

    selection: Selection
    initial: Snapshot | None
    cursor: int
    after: int


@dataclass(frozen=True, slots=True)
class Wait:
    """The informer has not reached a version that the client knows."""

    version: int


Plan = ServeGet | ServeList | ServeWatch | Wait | Reason


def as_read(request: Request, own_authorization: str) -> Read | Reason:
    """Decide from the request alone whether it may be answered from an informer."""
    target = request.target
    if target is None:
        return Reason.PATH
    if request.method != "GET":
        return Reason.METHOD
    if target.subresource:
        return Reason.SUBRESOURCE
    if request.live:
        return Reason.LIVE
    if request.impersonates or not _is_own(request.authorization, own_authorization):
        return Reason.IDENTITY
    if not prefers_json(request.accept):
        return Reason.REPRESENTATION
    try:
        options = parse_options(request.query)
    except ValueError:
        return Reason.INVALID
    verb = verb_of(request.method, target, watch=options.watch)
    return Read(verb, target, options, wants_indent(options.pretty, request.user_agent))


def _is_own(shown: str | None, own: str) -> bool:
    """A client that shows nothing, or the proxy's own credentials, reads as the proxy."""
    return shown is None or (own != "" and compare_digest(shown.encode(), own.encode()))


def plan(read: Read, view: View) -> Plan:
    """Decide how *view* answers a read, or why it doesn't."""
    if bool(read.target.namespace) and not view.form.namespaced:
        return Reason.SCOPE
    match read.verb:
        case Verb.GET:
            return _plan_get(read, view)
        case Verb.LIST:
            return _plan_list(read, view)
        case _:
            return _plan_watch(read, view)


def _plan_get(read: Read, view: View) -> Plan:
    target = read.target
    if view.form.namespaced and not target.namespace:
        return Reason.SCOPE
    wanted = read.options.resource_version or 0
    if wanted > view.store.version:
        return Wait(wanted)
    return ServeGet(object_key(target.namespace, target.name))


def _plan_list(read: Read, view: View) -> Plan:
    options = read.options
    wanted = options.resource_version
    if options.send_initial_events is not None or options.limit < 0:
        return Reason.INVALID
    if options.continue_token:
        return Reason.PAGES
    match options.resource_version_match, wanted:
        case ("", None | 0) | ("NotOlderThan", int()):
            pass
        case ("", int()) if not options.limit:
            pass
        case _:  # exact, exact by default, or not allowed
            return Reason.EXACT
    selection = select_by(view.form, read.target.namespace, options.labels, options.fields)
    if selection is None:
        return Reason.FIELDS
    if (wanted or 0) > view.store.version:
        return Wait(wanted or 0)
    ignores_limit = wanted == 0 and read.target.resource.plural != "events"
    return ServeList(selection, 0 if ignores_limit else options.limit)


def _plan_watch(read: Read, view: View) -> Plan:
    options = read.options
    wanted = options.resource_version or 0
    if _breaks_watch_rules(options):
        return Reason.INVALID
    selection = select_by(view.form, read.target.namespace, options.labels, options.fields)
    if selection is None:
        return Reason.FIELDS
    asked = options.send_initial_events
    if asked or (asked is None and not wanted):
        if (asked or options.allow_watch_bookmarks) and not view.form.has_watch_list:
            return Reason.BOOKMARK
        if wanted > view.store.version:
            return Wait(wanted)
        return ServeWatch(selection, view.store.snapshot(), view.history.end, after=0)
    cursor = view.history.cursor_after(wanted) if wanted else view.history.end
    if cursor is None:
        return Reason.BEHIND
    return ServeWatch(selection, None, cursor, after=wanted)


def _breaks_watch_rules(options: ReadOptions) -> bool:
    """``ValidateListOptions`` for watches: sendInitialEvents and NotOlderThan go together."""
    allowed = "" if options.send_initial_events is None else "NotOlderThan"
    return (
        options.resource_version_match != allowed
        or options.continue_token != ""
        or (options.timeout_seconds or 0) < 0
    )
