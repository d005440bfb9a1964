"""The registry of informers: starts what is named or earned, finds, stops what is idle."""

import asyncio
import logging
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from proxy.cache.demand import Demand
from proxy.cache.evidence import contradicts
from proxy.cache.expectations import Expectation
from proxy.cache.informer import Informer
from proxy.cache.lag import Write
from proxy.cache.recovery import RefusedError, Trigger
from proxy.cache.scope import Scope
from proxy.cache.source import Source
from proxy.cache.supervisor import Supervisor
from proxy.cache.view import Ending
from proxy.kube.errors import Forbidden, NotAcceptable
from proxy.kube.negotiation import FormName
from proxy.kube.requests import Verb
from proxy.kube.resources import Resource, storage_of

MAX_NAMESPACES = 4
"""Namespaced informers of a resource at the most; one more earns the whole resource."""

LEFT = 256
"""Changes that an informer leaves to others when it goes, which may have them still to come."""

REFUSED_PAUSE = 60.0
"""Seconds until a scope that the API server refused is tried again."""

LACKING_PAUSE = 600.0
"""Seconds until a form that a resource wasn't shown in is tried again: APIs are upgraded."""

_NEVER_EARNED = frozenset({("", "secrets")})
"""Resources that are cached only when named."""

_WHOLE = {FormName.METADATA: FormName.JSON, FormName.METADATA_PROTOBUF: FormName.PROTOBUF}
"""Forms of whole objects whose metadata are written as these are."""

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Policy:
    """Which informers are earned, and for how long: the settings below ``cache``.

    *own_namespace* stands in for a named resource that may not be listed cluster-wide.
    *idle_ttl* is in seconds, and so is *probe_interval*, 0 for probes on demand only.
    """

    thresholds: dict[Verb, int] = field(
        default_factory=lambda: {Verb.WATCH: 1, Verb.LIST: 2, Verb.GET: 10}
    )
    idle_ttl: float = 1800.0
    own_namespace: str = ""
    probe_interval: float = 0.0


class Informers:
    """All informers. ``start`` needs a running loop; ``stop`` ends them all."""

    def __init__(
        self,
        source_of: Callable[[Scope], Source],
        policy: Policy,
        *,
        supervisor: Supervisor | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._source_of = source_of
        self._policy = policy
        self._clock = clock
        self._supervisor = supervisor or Supervisor()
        self._demand = Demand(policy.thresholds, clock)
        self._informers: dict[Scope, Informer] = {}
        self._stored: dict[tuple[str, str], list[Informer]] = {}
        self._tasks: dict[Scope, asyncio.Task[None]] = {}
        self._refused: dict[Scope, float] = {}
        self._lacking: dict[tuple[Resource, FormName], float] = {}
        self._background: list[asyncio.Task[None]] = []

    def __iter__(self) -> Iterator[Informer]:
        return iter(list(self._informers.values()))

    @property
    def unready(self) -> list[Informer]:
        """The named informers that are not synced, or stalled, and have no stand-in."""
        return [
            each
            for each in self._informers.values()
            if each.named and not each.is_ready and not self._has_stand_in(each)
        ]

    def error(self, informer: Informer) -> str:
        """Say what fails at *informer*, and who stands in for it; empty while all works."""
        if self._has_stand_in(informer):
            return f"{self._stand_in(informer)} stands in: {informer.last_error}"
        return informer.last_error

    def _has_stand_in(self, informer: Informer) -> bool:
        """Tell whether the own namespace stands in for a resource that is forbidden as a whole."""
        own = self._stand_in(informer)
        return own is not None and own in self._informers and self._informers[own].is_ready

    def _stand_in(self, informer: Informer) -> Scope | None:
        """Name the scope that may stand in for *informer*, which may not list everything."""
        if not informer.forbidden or informer.scope.namespace or not self._policy.own_namespace:
            return None
        return informer.scope._replace(namespace=self._policy.own_namespace)

    def start(self) -> None:
        """Start the sweep of idle informers, and regular proofs of the others."""
        self._background.append(self._supervisor.spawn(self._sweep(), name="informers sweep"))
        if self._policy.probe_interval:
            self._background.append(self._supervisor.spawn(self._prove(), name="regular proofs"))

    def name(self, scope: Scope) -> None:
        """Start the informer of a scope that the settings name; it never idles out.

        One that was earned already lists anew, since the settings may declare indexes.
        """
        if (earned := self._informers.get(scope)) is not None:
            earned.named = True
            self.relist(earned)
        else:
            self._open(scope, named=True)

    async def stop(self) -> None:
        """End every informer; their watches end cleanly."""
        tasks = [*self._tasks.values(), *self._background]
        for informer in self:
            self.stop_informer(informer)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def find(self, scope: Scope) -> Informer | None:
        """Find the informer that covers a namespace, or with "" the whole resource.

        Of two that do, the one that is further on, so that versions never go backwards.
        """
        whole = self._informers.get(scope.whole)
        part = self._informers.get(scope) if scope.namespace else None
        if part is None or (whole is not None and whole.view and whole.version >= part.version):
            return whole
        return part

    def find_whole(self, scope: Scope) -> Informer | None:
        """Find the informer of whole objects whose metadata answer what those of *scope* would.

        One that hasn't synced yet may turn out not to.
        """
        form = _WHOLE.get(scope.form)
        found = self.find(scope._replace(form=form)) if form else None
        if found is None or found.view is None or scope.form in found.view.form.shows:
            return found
        return None

    def of(self, resource: Resource) -> Sequence[Informer]:
        """The informers of the objects that *resource* shows, in whatever scope, version, form."""
        return self._stored.get(storage_of(resource), ())

    def acknowledge(
        self, resource: Resource, expected: Expectation, write: Write | None = None
    ) -> None:
        """Let the informers that hold an object or a collection expect what happened to it."""
        for informer in self.of(resource):
            if not informer.scope.namespace or expected.concerns(informer.key, expected.client):
                if contradicts(informer.view, expected, write):
                    informer.drop(Ending.REWOUND)
                    self._rerun(informer, Trigger.REWOUND)
                informer.acknowledge(expected, write)

    def lacks(self, resource: Resource, form: FormName) -> bool:
        """Tell whether the API server has refused to show a resource in a form of late: 406."""
        since = self._lacking.get((resource, form))
        return since is not None and self._clock() - since < LACKING_PAUSE

    def note(self, scope: Scope, read: Verb) -> None:
        """Count a read that no informer answered, and start one when it's earned."""
        if (scope.resource.group, scope.resource.plural) in _NEVER_EARNED:
            return
        if self._is_covered(scope) or not self._demand.earns(scope, read):
            return
        self._demand.forget(scope)
        wanted = self._widened(scope)
        if wanted not in self._informers and not self._is_refused(wanted):
            self._open(wanted, named=False)

    def _is_covered(self, scope: Scope) -> bool:
        """Tell whether an informer holds *scope*, or will once it's synced."""
        whole = self._informers.get(scope.whole)
        return (
            scope in self._informers
            or (whole is not None and not whole.forbidden)
            or ((other := self.find_whole(scope)) is not None and not other.last_error)
        )

    def _widened(self, scope: Scope) -> Scope:
        """The whole resource, once a fifth of its namespaces is asked for and it may be listed."""
        whole = scope.whole
        known = self._informers.get(whole)
        forbidden = self._is_refused(whole) or (known is not None and known.forbidden)
        parts = sum(each.whole == whole and each != whole for each in self._informers)
        return scope if parts < MAX_NAMESPACES or forbidden else whole

    def _is_refused(self, scope: Scope) -> bool:
        return self._clock() - self._refused.get(scope, float("-inf")) < REFUSED_PAUSE

    def _open(self, scope: Scope, *, named: bool) -> None:
        informer = Informer(
            scope,
            self._source_of(scope),
            named=named,
            supervisor=self._supervisor,
            clock=self._clock,
        )
        self._informers[scope] = informer
        self._stored.setdefault(storage_of(scope.resource), []).append(informer)
        self._run(informer, Trigger.START)
        log.debug("informer %s started (%s)", scope, "named" if named else "earned")

    def _run(self, informer: Informer, reason: Trigger) -> None:
        keeping = self._keep(informer, reason)
        self._tasks[informer.scope] = self._supervisor.spawn(
            keeping, name=f"informer {informer.scope}"
        )

    def relist(self, informer: Informer) -> None:
        """List a resource anew; what is new becomes events, so reads and watches go on."""
        self._rerun(informer, Trigger.ASKED)

    def _rerun(self, informer: Informer, reason: Trigger) -> None:
        self._tasks[informer.scope].cancel()
        self._run(informer, reason)

    async def _keep(self, informer: Informer, reason: Trigger) -> None:
        """Run a reflector for ever; while it is refused or has failed, reads are forwarded."""
        told = ""
        while True:
            try:
                await informer.reflector.run(reason)
            except RefusedError as error:
                is_news = informer.view is not None or str(error) != told
                # Anybody may ask for what isn't named.
                level = logging.WARNING if informer.named and is_news else logging.DEBUG
                log.log(level, "informer %s refused: %s", informer.scope, error)
                told = str(error)
                if self._gives_up(informer, error):
                    return
            except Exception as error:
                informer.reflector.last_error = repr(error)
                log.exception("informer %s failed", informer.scope)
            self._leave(informer)
            await asyncio.sleep(REFUSED_PAUSE / 2)

    def _gives_up(self, informer: Informer, error: RefusedError) -> bool:
        """Close an informer that was earned; a named one is tried again.

        Until the whole resource may be listed, the proxy's own namespace stands in for it.
        """
        scope = informer.scope
        if isinstance(error.cause, NotAcceptable):
            self._lacking[scope.resource, scope.form] = self._clock()
            informer.reflector.last_error = f"{scope.resource} isn't shown as {scope.form}: {error}"
        if informer.named:
            informer.forbidden = isinstance(error.cause, Forbidden)
            own = self._stand_in(informer)
            if own is not None and own not in self._informers:
                self.name(own)
            return False
        self._refused = {
            each: since for each, since in self._refused.items() if self._is_refused(each)
        }
        self._refused[scope] = self._clock()
        self._close(informer)
        return True

    def _leave(self, informer: Informer) -> None:
        """Drop what an informer holds; what it has shown, others of the same objects must hold."""
        view = informer.view
        informer.drop(Ending.STOPPED)
        for event in view.history.newest(LEFT) if view else ():
            shown = Expectation(event.object.key, self._clock(), version=event.version)
            for other in self.of(informer.scope.resource):
                if other is not informer and shown.concerns(other.key, ""):
                    other.acknowledge(shown)

    def _close(self, informer: Informer) -> None:
        self._leave(informer)
        informer.prover.close()
        if self._informers.pop(informer.scope, None) is not None:
            stored = storage_of(informer.scope.resource)
            self._stored[stored].remove(informer)
            if not self._stored[stored]:
                del self._stored[stored]
        self._tasks.pop(informer.scope, None)

    async def _prove(self) -> None:
        """Let no informer go unproven for longer than the interval."""
        while True:
            await asyncio.sleep(self._policy.probe_interval)
            for informer in self:
                if informer.view is not None:
                    informer.prover.refresh()

    async def _sweep(self) -> None:
        """Stop the earned informers that nobody watches, and nobody has used or needs to."""
        while True:
            await asyncio.sleep(min(max(self._policy.idle_ttl / 2, 1.0), 60.0))
            for informer in self:
                if not informer.named and not informer.watchers and self._is_spare(informer):
                    self.stop_informer(informer)

    def _is_spare(self, informer: Informer) -> bool:
        """Tell whether it was idle for ``idle_ttl``, or another one shows all that it does."""
        if self._clock() - informer.last_used > self._policy.idle_ttl:
            return True
        scope, view = informer.scope, informer.view
        others = (self._informers.get(scope.whole), self.find_whole(scope))
        return view is not None and any(
            other is not None
            and other is not informer
            and other.view is not None
            and other.version >= view.store.changed
            for other in others
        )

    def stop_informer(self, informer: Informer) -> None:
        """Stop one informer; reads of its scope are forwarded until it's earned again.

        One that is named is wanted as long as the proxy runs: list it anew instead.
        """
        log.info("informer %s stopped", informer.scope)
        task = self._tasks[informer.scope]
        self._close(informer)
        task.cancel()
