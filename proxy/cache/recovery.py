"""The states that a reflector goes through, and where a failure in one of them leads."""

from dataclasses import dataclass
from enum import StrEnum
from math import inf
from typing import NamedTuple

from proxy.cache.source import Lines
from proxy.cache.store import Store
from proxy.forms.form import Form, UnknownLayoutError
from proxy.kube.errors import (
    BadRequest,
    Expired,
    Forbidden,
    Invalid,
    MethodNotAllowed,
    NotAcceptable,
    NotFound,
    ServiceUnavailable,
    pause_wanted,
)


class Witness(NamedTuple):
    """What changed last: the object of a *key* is at *version*, or with 0 gone."""

    key: str
    version: int


class Trigger(StrEnum):
    """What made a reflector list or watch anew."""

    START = "start"
    ENDED = "ended"
    SILENT = "silent"
    BROKEN = "broken"
    EXPIRED = "expired"
    REWOUND = "rewound"
    LAYOUT = "layout"
    ASKED = "asked"
    ERROR = "error"


@dataclass(frozen=True, slots=True)
class Unsynced:
    """Everything must be listed; by WatchList unless the server has refused one.

    ``ended``: the last one has ended without its mark, as it does where the server stops.
    """

    reason: Trigger = Trigger.START
    watch_list: bool = True
    ended: bool = False


@dataclass(frozen=True, slots=True)
class Syncing:
    """A WatchList is open, and its initial events are being collected."""

    stream: Lines
    form: Form
    store: Store
    asked: float
    reason: Trigger
    ended: bool


@dataclass(frozen=True, slots=True)
class Disconnected:
    """The sink holds a state, and no watch is open; the last one ended well after *lasted* s."""

    form: Form
    reason: Trigger
    lasted: float = inf


class Missing(NamedTuple):
    """The last change was of this object, which the API server hadn't any more at version *by*."""

    witness: Witness
    by: int


@dataclass(frozen=True, slots=True)
class Streaming:
    """A watch is open, and everything that it sent has been applied.

    ``missing``: a deletion that it has yet to tell, or else it's of another history.
    """

    stream: Lines
    form: Form
    since: float
    missing: Missing | None = None


State = Unsynced | Syncing | Disconnected | Streaming


class RefusedError(Exception):
    """The resource can't be cached: not allowed, not there, or in a shape that isn't known."""

    def __init__(self, cause: Exception) -> None:
        super().__init__(str(cause))
        self.cause = cause


class EndedError(TimeoutError):
    """A WatchList has ended before its mark came."""


class Recovery(NamedTuple):
    """What to do after a failure: the next state, and whether to pause before it."""

    state: State
    pause: bool
    at_least: float = 0.0


def after_failure(state: State, error: Exception) -> Recovery:
    """Decide what a failure in *state* leads to. Raises RefusedError when retrying can't help."""
    if isinstance(error, Forbidden | NotFound | MethodNotAllowed | NotAcceptable):
        raise RefusedError(error)
    if isinstance(error, UnknownLayoutError) and isinstance(state, Unsynced | Syncing):
        raise RefusedError(error)
    if isinstance(state, Unsynced):
        return Recovery(state, True, pause_wanted(error))
    if isinstance(state, Syncing):
        if isinstance(error, EndedError) and not state.ended:
            return Recovery(Unsynced(state.reason, ended=True), pause=True)
        # A server without WatchList refuses its parameters, or never marks the end.
        unknown = isinstance(error, Invalid | BadRequest | TimeoutError)
        return Recovery(Unsynced(state.reason, not unknown), not unknown, pause_wanted(error))
    if isinstance(error, Expired):
        return Recovery(Unsynced(Trigger.EXPIRED), pause=False)
    if isinstance(error, UnknownLayoutError):
        return Recovery(Unsynced(Trigger.LAYOUT), pause=True)
    if isinstance(state, Disconnected):  # what has led to it still has to be looked into
        return Recovery(state, True, pause_wanted(error))
    return Recovery(Disconnected(state.form, _reason(error)), True, pause_wanted(error))


def _reason(error: Exception) -> Trigger:
    match error:
        case TimeoutError():
            return Trigger.SILENT
        case ServiceUnavailable():
            return Trigger.BROKEN
        case UnknownLayoutError():
            return Trigger.LAYOUT
        case _:
            return Trigger.ERROR
