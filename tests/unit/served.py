"""A proxy's insides without its listeners: real informers in front of sources that behave."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import cast

from proxy.cache.informer import Informer
from proxy.cache.informers import Informers, Policy
from proxy.cache.scope import Scope
from proxy.cache.source import Lines
from proxy.kube.negotiation import FormName
from proxy.kube.requests import Verb
from proxy.reads.freshness import Guarantees
from proxy.reads.reader import Reader
from proxy.server.pulse import Pulse
from proxy.server.stats import Stats
from proxy.upstream.budget import Budget
from proxy.upstream.client import Client
from proxy.writes.conflicts import Conflicts
from tests.unit.builders import PODS, Clock
from tests.unit.cache.sources import ServedSource


def no_lines(form: FormName, target: str) -> Lines:
    raise AssertionError(target)


class Served:
    """What the admin listener shows and measures; informers hold one pod, at version 10."""

    def __init__(self, guarantees: Guarantees = Guarantees()) -> None:  # noqa: B008
        self.clock = Clock()
        self.stats = Stats()
        self.pulse = Pulse()
        self.unreached = ""
        self.budgets: Mapping[str, Budget] = {"answers": Budget(100), "bodies": Budget(100)}
        self.sources: dict[Scope, ServedSource] = {}
        self.informers = Informers(self._source_of, Policy(), clock=self.clock)
        self.reader = Reader(
            self.informers, lambda: "", no_lines, guarantees=guarantees, clock=self.clock
        )
        self.conflicts = Conflicts(cast(Client, None), self.informers, lambda: "")

    def _source_of(self, scope: Scope) -> ServedSource:
        return self.sources.setdefault(scope, ServedSource(PODS))

    @property
    def unready(self) -> dict[str, str]:
        return {str(each.scope): each.why_unready for each in self.informers.unready}

    def name(self, namespace: str = "") -> Informer:
        """Start an informer, whose first step is yet to come."""
        scope = Scope(PODS.info.resource, namespace)
        self.informers.name(scope)
        return next(each for each in self.informers if each.scope == scope)

    async def synced(self, namespace: str = "") -> Informer:
        """Start an informer and wait until it's synced."""
        return await self._until_synced(self.name(namespace))

    async def earned(self, namespace: str = "") -> Informer:
        """Let a watch earn an informer, and wait until it's synced."""
        self.informers.note(Scope(PODS.info.resource, namespace), Verb.WATCH)
        return await self._until_synced(*self.informers)

    async def _until_synced(self, informer: Informer) -> Informer:
        while informer.version < 10:
            await asyncio.wait({informer.signal.next()}, timeout=1)
        return informer
