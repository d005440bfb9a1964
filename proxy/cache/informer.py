"""One informer: a reflector's sink that readers read.

The reflector is the only writer. What it writes is a ``View``, whole from the first sync on; a
resource that is lost or set back gets a new view, and readers of the old one see it ended.
"""

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from itertools import chain
from math import inf

from proxy.cache.backoff import Backoff
from proxy.cache.difference import (
    NoHistoryError,
    Pair,
    RereadError,
    changed_pairs,
    differences,
    let_go,
)
from proxy.cache.evidence import has_deleted, holds, shows
from proxy.cache.expectations import Expectation, Expectations
from proxy.cache.health import Health
from proxy.cache.lag import Lag, Write
from proxy.cache.proofs import Proofs
from proxy.cache.prover import Prover
from proxy.cache.recovery import Witness
from proxy.cache.reflector import Reflector
from proxy.cache.scope import Scope
from proxy.cache.signal import Signal
from proxy.cache.source import Source
from proxy.cache.store import Store
from proxy.cache.supervisor import Supervisor
from proxy.cache.view import Ending, View
from proxy.forms.form import Change, EventType, Form, UnknownLayoutError
from proxy.kube.resources import collection_key

log = logging.getLogger(__name__)

MANY = 1000
"""Changes that are told in a thread, since sorting them would hold up the event loop."""


class Informer:
    """Store, history and readiness of one scope, kept by one reflector.

    ``forbidden``: the last attempt was refused with 403. ``watchers`` are served now, ``sent``
    counts the events told to them, ``terminated`` their ends; ``events`` counts what the watch
    brought, ``relisted`` the changes that only a relist showed.
    """

    def __init__(
        self,
        scope: Scope,
        source: Source,
        *,
        named: bool = False,
        supervisor: Supervisor | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.scope = scope
        self.named = named
        self.view: View | None = None
        self.signal = Signal()
        self.forbidden = False
        self.watchers = 0
        self.sent = 0
        self.relisted = 0
        self.terminated: Counter[str] = Counter()
        self.events: dict[EventType, int] = dict.fromkeys(EventType, 0)
        self.proofs = Proofs(clock())
        self.expectations = Expectations()
        self.lag = Lag()
        self.reflector = Reflector(
            source, self, Backoff(clock=clock), clock=clock, sleep=self.pause
        )
        self.prover = Prover(source, self, (supervisor or Supervisor()).spawn, clock)
        self.last_used = clock()
        self._clock = clock
        self._health = Health(scope, clock)

    def __repr__(self) -> str:
        state = f"at {self.version}" if self.view else "unsynced"
        return f"<Informer {self.scope} {state}>"

    @property
    def key(self) -> str:
        """The key of the collection that it holds."""
        return collection_key(self.scope.namespace)

    @property
    def is_listing(self) -> bool:
        """Tell whether another state is being gathered, to take the place of this one."""
        return self.reflector.is_listing

    @property
    def version(self) -> int:
        """The newest resourceVersion that it holds; 0 before the first sync."""
        return self.view.store.version if self.view else 0

    @property
    def witness(self) -> Witness | None:
        """What changed last of what it holds; None if that is not known."""
        if self.view is None:
            return None
        for event in self.view.history.newest(1):
            version = 0 if event.type is EventType.DELETED else event.version
            return Witness(event.object.key, version)
        newest = self.view.store.newest
        return Witness(newest.key, newest.version) if newest else None

    def version_of(self, key: str) -> int:
        """resourceVersion of an object that it holds; 0 for none."""
        found = self.view.store.get(key) if self.view else None
        return found.version if found else 0

    @property
    def staleness(self) -> float:
        """Seconds since this informer was last known to be current."""
        return self._clock() - self.proofs.last

    @property
    def unproven(self) -> float:
        """Seconds since the last moment at which it was proven current with etcd."""
        return self._clock() - self.proofs.proven

    @property
    def is_stalled(self) -> bool:
        """Tell whether no news come: the API server is silent, fails, or leaves probes alone."""
        return self._health.is_stalled

    @property
    def is_ready(self) -> bool:
        """Synced, not stalled, and readable for the proxy as far as probes show."""
        return self.view is not None and not self.is_stalled and not self._health.refusal

    @property
    def last_error(self) -> str:
        """Why the last attempt to list, watch or probe failed; empty once it has worked since."""
        return self.reflector.last_error or self._health.refusal

    @property
    def why_unready(self) -> str:
        """Say why it isn't ready."""
        if self.view is None:
            return self.last_error or "not synced yet"
        if self._health.refusal and not self.is_stalled:
            return self._health.refusal
        return f"stalled: {self.last_error or 'the API server gives no sign'}"

    def touch(self) -> None:
        """Note that somebody reads from it."""
        self.last_used = self._clock()

    async def replace(self, form: Form, store: Store, version: int, asked: float = -inf) -> None:
        """Take over a list; what is new in it becomes events, so that watches go on.

        It's a consistent read, so it's of all that was committed when it was *asked* for.
        """
        store.version = store.changed = version
        if version < self.version:
            self.drop(Ending.REWOUND)
        if self.view is not None and self.view.form.shape != form.shape:
            self.drop(
                Ending.STOPPED
            )  # watches select by the old form; the API server ends them too
        if self.view is not None:
            try:
                await self._continue(self.view, form, store)
            except NoHistoryError:
                self.drop(Ending.REWOUND)
            except RereadError:
                self.drop(Ending.STOPPED)
        self.forbidden = False
        self._health.refusal = ""
        if self.view is None:
            self.view = View(form, store, self._clock)
            log.info("informer %s synced: %d objects", self.scope, len(store))
        self.expectations.relisted(partial(holds, self.view))
        self.proofs.learn(version, asked, version)
        self._tell()

    async def _continue(self, view: View, form: Form, store: Store) -> None:
        """Tell the difference between two states, the new one's objects being those of *store*."""
        pairs: list[Pair] = []
        for pair in changed_pairs(view.store.snapshot(), store.snapshot()):
            if pair is None:
                await asyncio.sleep(0)
            else:
                pairs.append(pair)
        between = (pairs, view.store.version, store.version, self._clock())
        if len(pairs) > MANY:
            events = await asyncio.to_thread(differences, *between)
        else:
            events = differences(*between)
        old = view.store
        replaced = view.history.extend(events)
        view.relist(form, store)
        self.relisted += len(events)
        self._tell()
        for _ in chain(let_go(replaced), let_go(events), let_go(pairs), old.dismantle()):
            await asyncio.sleep(0)

    def apply(self, change: Change) -> None:
        """Take over one event of the watch. Raises UnknownLayoutError for one that isn't newer."""
        view = self._synced_view()
        event_type, found = change
        if found.version <= view.store.version and not _goes_along(change, view.store):
            raise UnknownLayoutError(f"version {found.version} after {view.store.version}")
        previous = (
            view.store.remove(found.key)
            if event_type is EventType.DELETED
            else view.store.put(found)
        )
        is_gone = event_type is EventType.DELETED
        if previous is not None and (is_gone or previous.uid != found.uid):
            self.expectations.lose(found.key)
        view.store.version = view.store.changed = found.version
        view.history.append(event_type, found.version, found, previous)
        self.events[event_type] += 1
        self._tell()

    def bookmark(self, version: int) -> None:
        """Take over a bookmark: the state is that of *version* too."""
        store = self._synced_view().store
        store.version = max(store.version, version)
        self._tell()

    async def pause(self, seconds: float) -> None:
        """Rest after an attempt that failed."""
        self._health.fail(self.last_error)
        await asyncio.sleep(seconds)

    def contact(self) -> None:
        """Note that a watch is accepted; a resource without bookmarks may be silent for long."""
        self._health.hear()
        self._health.work()
        self.reflector.last_error = ""

    def suspect(self, error: str) -> None:
        """Note that the API server doesn't answer, as long as it gives no sign."""
        self._health.suspect(error)

    def doubt(self, refusal: str) -> None:
        """Note that the API server refuses the proxy's probes.

        It goes on with a watch that is open when the right to it is revoked.
        """
        self._health.refuse(refusal)

    def reconnect(self, why: str) -> None:
        """Open another watch in place of one that doesn't bring what it should."""
        if self.reflector.interrupt():
            log.warning("informer %s: %s", self.scope, why)

    def learn(self, version: int, moment: float) -> None:
        """Note that the API server had *version* when it was asked at *moment*."""
        self._health.hear()  # a probe that succeeds doesn't say that watches do
        self._health.admit()
        self.proofs.learn(version, moment, self.version)
        self.expectations.prove(self.proofs.proven)

    def acknowledge(self, expected: Expectation, write: Write | None = None) -> None:
        """Expect what a write has changed to arrive, or what a live read has shown."""
        view = self.view
        if write is not None and view is not None:
            self.lag.expect(write, self.version, view.history)
        if expected.uid and not holds(self.view, expected):
            # Without it the state is either past the deletion, or before the creation.
            if has_deleted(view, expected):
                return
            expected = expected._replace(uid="")
        if 0 < expected.version <= self.version and not shows(view, expected):
            expected = expected._replace(version=0)  # deleted since, or of versions that went back
        if self._is_met(expected):
            return
        self.expectations.add(expected)
        needs_proof = not (expected.version or expected.uid)
        if needs_proof and not expected.client and view is not None:
            self.prover.ask(expected.moment)

    def unmet(self, key: str, client: str) -> list[Expectation]:
        """The expectations that a client's read of *key* has to wait for.

        Who was shown that an object isn't there is shown the same by a state without it; one with
        it may be older, for as long as that isn't proven.
        """
        return [
            each
            for each in self.expectations.of(key, client)
            if not each.absent or self.version_of(each.key)
        ]

    def _is_met(self, expected: Expectation) -> bool:
        return (
            0 < expected.version <= self.version
            or (expected.uid != "" and not holds(self.view, expected))
            or self.proofs.proven >= expected.moment
        )

    def drop(self, ending: Ending) -> None:
        """Forget the state; its readers end."""
        if ending is Ending.REWOUND:  # what is known of versions is void
            self.expectations.distrust()
            self.proofs.forget()
            self.lag.forget()
        if self.view is not None:
            self.view.ended = ending
            self.view = None
        self.signal.ring()

    def _synced_view(self) -> View:
        if self.view is None:
            raise RuntimeError(f"{self!r} was given a change before its first list")
        return self.view

    def _tell(self) -> None:
        """Note a sign of the watch, and wake whoever waits for one."""
        self.contact()
        self.lag.reach(self.version, self._health.heard)
        proven = self.proofs.proven
        self.proofs.tell(self.version, min(self._health.heard, self.lag.since))
        if self.expectations:
            self.expectations.reach(self.version)
            if self.proofs.proven > proven:
                self.expectations.prove(self.proofs.proven)
        self.signal.ring()


def _goes_along(change: Change, store: Store) -> bool:
    """Tell whether an object is deleted at the version of the event before, as Events are.

    Those of a minute share a lease of etcd; when it runs out, all go in one transaction.
    """
    event_type, found = change
    is_held = event_type is EventType.DELETED and store.get(found.key) is not None
    return is_held and found.version == store.version
