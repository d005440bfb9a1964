"""What a cached answer must reflect before it's given: own writes, and proofs of currency.

``session``: all writes that went through this proxy, and what the client was shown before.
``strict``: what kube-apiserver's own reads reflect, everything committed before the read.
``max-age`` and ``--max-staleness`` allow for a number of seconds; strict is the same with none.
"""

from collections.abc import Callable
from enum import StrEnum
from math import inf
from typing import NamedTuple

from proxy.cache.expectations import Expectation
from proxy.cache.informer import Informer
from proxy.cache.informers import Informers
from proxy.cache.prover import PROBE_TIMEOUT
from proxy.kube.requests import Request
from proxy.reads.plan import Read, Reason, asks_latest

WRITE_WAIT = 1.0
"""Seconds that a read waits for a write that it must see, or for a proof; then it goes live."""

AHEAD_WAIT = 0.15
"""Seconds a read waits for a version that its informer has not seen. A write to the resource
arrives within milliseconds; a version from elsewhere may not arrive for a minute."""

LEAD = 2.0
"""Seconds before a proof expires from which on it's renewed: a barrier takes a little over one, and
on a busy machine more."""

PROBED_AFTER = 0.05
"""Seconds after a deletion was acknowledged within which its event is awaited without a probe."""


class Consistency(StrEnum):
    """What reads without wishes of their own are sure of."""

    SESSION = "session"
    EVENTUAL = "eventual"
    STRICT = "strict"


class Guarantees(NamedTuple):
    """The settings that reads follow; *max_staleness* is in seconds, 0 for none.

    *confirm_misses*: a cached 404 is not believed before the API server says it too.
    """

    consistency: Consistency = Consistency.SESSION
    max_staleness: float = 0.0
    confirm_misses: bool = False

    def bound(self, read: Read, request: Request) -> float:
        """How many seconds ago the state must have been current; infinite for any."""
        bound = self.max_staleness or inf
        if request.max_age is not None:
            bound = min(bound, request.max_age)
        if self.consistency is Consistency.STRICT and read.options.resource_version is None:
            bound = 0.0
        return bound


class Lack(NamedTuple):
    """Why an informer can't answer yet; *limit* is how many seconds that is worth waiting for.

    *moment* is one at which its state must have been current, *bound* how old that may make it. At
    *look_again* it may take a proof after all.
    """

    reason: Reason
    limit: float
    moment: float = -inf
    bound: float = inf
    look_again: float = inf


class Freshness:
    """Decides what reads of an informer have to wait for, and sees to it that it comes."""

    def __init__(
        self, informers: Informers, guarantees: Guarantees, clock: Callable[[], float]
    ) -> None:
        self.guarantees = guarantees
        self._informers = informers
        self._clock = clock
        self._remembers = guarantees.consistency is not Consistency.EVENTUAL
        self._always_bounded = bool(guarantees.max_staleness) or (
            guarantees.consistency is Consistency.STRICT
        )

    def lack(self, read: Read, request: Request, informer: Informer, arrived: float) -> Lack | None:
        """Tell what is missing for a request that *arrived* at that moment; mostly nothing."""
        siblings = self._informers.of(informer.scope.resource) if self._remembers else ()
        bounded = self._always_bounded or request.max_age is not None
        if not (informer.expectations or bounded or len(siblings) > 1) or not asks_latest(read):
            return None
        if self._remembers and informer.expectations:
            unmet = informer.unmet(read.target.key, request.client)
            if unmet:
                return self._unseen(unmet)
        if any(_is_ahead(each, informer) for each in siblings if each is not informer):
            return Lack(Reason.AHEAD, AHEAD_WAIT)
        return self._unproven(read, request, informer, arrived) if bounded else None

    def _unseen(self, unmet: list[Expectation]) -> Lack:
        """Wait for the event of a write, or where no version is known for a proof.

        What a client was shown elsewhere may be without an event that comes.
        """
        now = self._clock()
        moment = max(
            (
                each.moment
                for each in unmet
                if not each.version and (not each.uid or now - each.moment > PROBED_AFTER)
            ),
            default=-inf,
        )
        deleted = [each.moment + PROBED_AFTER for each in unmet if each.uid]
        look_again = min((each for each in deleted if each >= now), default=inf)
        if all(each.client for each in unmet):
            return Lack(Reason.AHEAD, WRITE_WAIT if moment == -inf else AHEAD_WAIT, moment)
        return Lack(Reason.UNSEEN, WRITE_WAIT, moment, look_again=look_again)

    def _unproven(
        self, read: Read, request: Request, informer: Informer, arrived: float
    ) -> Lack | None:
        bound = self.guarantees.bound(read, request)
        proven = informer.proofs.proven
        if proven < arrived - bound:
            limit = WRITE_WAIT
            if request.max_stale is not None:  # it takes what is held, if nothing else comes
                limit = PROBE_TIMEOUT + AHEAD_WAIT
            return Lack(Reason.UNPROVEN, limit, arrived - bound, bound)
        if bound and proven < arrived - bound + LEAD:
            informer.prover.refresh()
        return None

    def urge(self, lack: Lack, informer: Informer, request: Request) -> None:
        """See to it that what is missing comes."""
        is_idle = informer.prover.is_idle and request.max_stale is None
        if lack.moment > -inf and not (lack.reason is Reason.UNPROVEN and is_idle):
            informer.prover.ask(lack.moment)
        elif lack.reason is Reason.AHEAD or is_idle:  # no event need come of it
            informer.prover.refresh()

    def patience(self, lack: Lack, informer: Informer, arrived: float) -> float:
        """How many seconds more it's worth waiting, apart from the limit."""
        prover = informer.prover
        if lack.reason is Reason.UNPROVEN:
            return prover.patience(lack.moment)
        if lack.reason is Reason.AHEAD and lack.moment == -inf:
            event = 0.0 if prover.sees_nothing else arrived + AHEAD_WAIT - self._clock()
            return max(prover.due, event)
        if lack.moment == -inf:
            return max(lack.look_again - self._clock(), 0.001)
        return 0.0 if prover.is_mute else inf

    def allows_stale(self, lack: Lack, informer: Informer, request: Request) -> bool:
        """Tell whether the client takes an older answer, since the API server gives none."""
        unanswered = informer.prover.is_away or request.only_if_cached
        return (
            lack.reason is Reason.UNPROVEN
            and request.max_stale is not None
            and unanswered
            and informer.staleness <= lack.bound + request.max_stale
        )


def _is_ahead(other: Informer, informer: Informer) -> bool:
    """Tell whether another informer of the same objects shows a change that this one doesn't."""
    spaces = {other.scope.namespace, informer.scope.namespace}
    is_shared = len(spaces) == 1 or "" in spaces
    return is_shared and other.view is not None and other.view.store.changed > informer.version
