"""Serve or forward: the one decision, and its reasons.

``as_read`` looks at the request alone, ``plan`` at the informer's view too. Whatever is not
provably the API server's own answer is forwarded; the API server also words every refusal.
"""

from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from proxy.cache.store import KeyRange, Snapshot
from proxy.cache.view import View
from proxy.kube.continuation import LATEST, decode_token
from proxy.kube.negotiation import PLAIN, FormName, Representation, negotiate, wants_indent
from proxy.kube.options import MAX_QUERY, ReadOptions, parse_options
from proxy.kube.paths import ResourcePath
from proxy.kube.requests import Request, Verb, verb_of
from proxy.kube.resources import has_no_watch_cache, object_key
from proxy.reads.query import Selection, select_by

MAX_TERMS = 64
"""Terms of selectors that are compared here. Go does it ten times as fast; beyond what anybody
writes by hand that is worth the way, and a batch of objects takes no more than 4 ms here."""


class Reason(Enum):
    """Why a request is forwarded: the RFC 9211 ``fwd`` parameter and our own detail."""

    METHOD = ("method", "write")
    PATH = ("bypass", "not-a-resource")
    SUBRESOURCE = ("bypass", "subresource")
    IDENTITY = ("bypass", "other-identity")
    LIVE = ("request", "live")
    INVALID = ("bypass", "invalid-options")
    LARGE_QUERY = ("bypass", "large-query")
    REPRESENTATION = ("vary-miss", "representation")
    NOT_CACHED = ("uri-miss", "no-informer")
    SYNCING = ("uri-miss", "syncing")
    SCOPE = ("uri-miss", "scope")
    FIELDS = ("uri-miss", "field-selector")
    EXACT = ("uri-miss", "exact-version")
    BOOKMARK = ("uri-miss", "bookmark-unknown")
    AHEAD = ("stale", "version-ahead")
    UNSEEN = ("stale", "unseen-write")
    UNPROVEN = ("stale", "unproven")
    UNCONFIRMED = ("uri-miss", "unconfirmed-miss")
    LARGE_INDENT = ("vary-miss", "indent")

    def __init__(self, fwd: str, detail: str) -> None:
        self.fwd = fwd
        self.detail = detail


@dataclass(frozen=True, slots=True)
class Read:
    """A get, list or watch that an informer might answer.

    *status* is the form of a failure's Status, which isn't transformed: that of the first choice
    without a transformation, also where the resource isn't shown in it. None is none that's sure.
    """

    verb: Verb
    target: ResourcePath
    options: ReadOptions
    indent: bool
    representations: tuple[Representation, ...] = (PLAIN,)
    status: FormName | None = FormName.JSON

    @property
    def representation(self) -> Representation:
        """The first choice."""
        return self.representations[0]


@dataclass(frozen=True, slots=True)
class ServeGet:
    """Answer with the object of a key, or 404."""

    key: str


@dataclass(frozen=True, slots=True)
class ServeList:
    """Answer with a page of a selection: of the objects of *snapshot* within *keys*.

    A *limit* below 1 is none; *slash* is how the resource's continue tokens are written.
    """

    selection: Selection
    snapshot: Snapshot
    keys: KeyRange
    limit: int
    slash: bool


@dataclass(frozen=True, slots=True)
class ServeWatch:
    """Stream a selection: the objects of *initial* first, then the events from *cursor* on.

    Nothing at or below *after* is sent: a watch may start at a version still to come. Without a
    cursor the history begins after *after*, and the API server has to tell what lies between.
    """

    selection: Selection
    initial: Snapshot | None
    cursor: int | None
    after: int
    options: ReadOptions
    representation: Representation = PLAIN


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
    if not request.is_own(own_authorization):
        return Reason.IDENTITY
    representations = negotiate(request.accept)
    if not representations:
        return Reason.REPRESENTATION
    options = _options(request.query)
    if isinstance(options, Reason):
        return options
    verb = verb_of(request.method, target, watch=options.watch)
    indent = wants_indent(options.pretty, request.user_agent)
    status = next((each.form for each in representations if not each.meta), None)
    return Read(verb, target, options, indent, representations, status)


_METADATA = frozenset({FormName.METADATA, FormName.METADATA_PROTOBUF})
_INCLUDED = frozenset({"", "None", "Metadata", "Object"})


def misfit(read: Read) -> Reason | None:
    """Tell what's wrong with the first choice of a representation, which the API server refuses.

    A list is no object, and an object no list.
    """
    representation = read.representation
    if representation.form in _METADATA and representation.is_list is not (read.verb is Verb.LIST):
        return Reason.REPRESENTATION
    if representation.form is FormName.TABLE and read.options.include_object not in _INCLUDED:
        return Reason.INVALID
    return None


def _options(query: bytes) -> ReadOptions | Reason:
    if len(query) > MAX_QUERY:
        return Reason.LARGE_QUERY
    try:
        options = parse_options(query)
    except ValueError:
        return Reason.INVALID
    terms = len(options.labels.requirements) + len(options.fields.terms)
    return options if terms <= MAX_TERMS else Reason.LARGE_QUERY


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
    selection = select_by(view.form, read.target.namespace, options.labels, options.fields)
    if selection is None:
        return Reason.FIELDS
    if (options.limit > 0 or options.continue_token) and _names_namespace(read):
        return Reason.FIELDS
    point = _point(options, view)
    if not isinstance(point, _Point):
        return point
    keys = selection.keys
    if point.start:
        keys = keys._replace(low=keys.low + point.start)
    etcd = has_no_watch_cache(read.target.resource)
    ignores_limit = options.resource_version == 0 and not etcd
    return ServeList(
        selection, point.snapshot, keys, 0 if ignores_limit else options.limit, slash=not etcd
    )


def _names_namespace(read: Read) -> bool:
    """Tell a cluster-wide list of one namespace by ``metadata.namespace=``.

    kube-apiserver writes the continue tokens of its pages relative to the namespace, and reads
    them relative to the cluster.
    """
    return not read.target.namespace and any(
        term.field == "metadata.namespace" and not term.negated
        for term in read.options.fields.terms
    )


class _Point(NamedTuple):
    """The state that a list is of, and the key within its scope that it starts at."""

    snapshot: Snapshot
    start: str = ""


def _point(options: ReadOptions, view: View) -> _Point | Wait | Reason:
    """The table of resourceVersion, resourceVersionMatch, continue and limit (KEP-2340)."""
    wanted = options.resource_version
    match (options.continue_token, options.resource_version_match, wanted):
        case _ if options.send_initial_events is not None:
            return Reason.INVALID
        case ("", "", None | 0):
            return _Point(view.store.snapshot())
        case ("", "", int(version)) if options.limit > 0:
            return _exactly(version, view)
        case ("", "" | "NotOlderThan", int(version)):
            late = version > view.store.version
            return Wait(version) if late else _Point(view.store.snapshot())
        case ("", "Exact", int(version)) if version:
            return _exactly(version, view)
        case (token, "", None | 0) if token:
            return _continued(token, view)
        case _:
            return Reason.INVALID


def _exactly(version: int, view: View) -> _Point | Wait | Reason:
    if version > view.store.version:
        return Wait(version)
    snapshot = view.snapshots.at(version)
    return _Point(snapshot) if snapshot is not None else Reason.EXACT


def _continued(text: str, view: View) -> _Point | Wait | Reason:
    try:
        token = decode_token(text)
    except ValueError:
        return Reason.INVALID
    if token.version == LATEST:
        return _Point(view.store.snapshot(), token.start)
    point = _exactly(token.version, view)
    return point._replace(start=token.start) if isinstance(point, _Point) else point


def _continues_latest(text: str) -> bool:
    """Tell a page of whatever there is now, as after a token that has expired."""
    try:
        return decode_token(text).version == LATEST
    except ValueError:
        return False


def asks_latest(read: Read) -> bool:
    """Tell a read of the present state from one of a past state, or of what came after it."""
    options = read.options
    if read.verb is Verb.LIST:
        exact = options.resource_version_match == "Exact"
        page = options.limit > 0 and not options.resource_version_match
        if options.continue_token:
            return _continues_latest(options.continue_token)
        return not (options.resource_version and (exact or page))
    if read.verb is Verb.WATCH:
        return not options.resource_version or options.send_initial_events is True
    return True


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
        snapshot, end = view.store.snapshot(), view.history.end
        return ServeWatch(selection, snapshot, end, 0, options, read.representation)
    cursor = view.history.cursor_after(wanted) if wanted else view.history.end
    return ServeWatch(selection, None, cursor, wanted, options, read.representation)


def _breaks_watch_rules(options: ReadOptions) -> bool:
    """``ValidateListOptions`` for watches: sendInitialEvents and NotOlderThan go together."""
    allowed = "" if options.send_initial_events is None else "NotOlderThan"
    return (
        options.resource_version_match != allowed
        or options.continue_token != ""
        or (options.timeout_seconds or 0) < 0
    )
