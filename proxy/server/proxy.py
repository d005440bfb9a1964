"""The whole proxy, put together: credentials, informers, the two listeners, start and stop."""

import asyncio
import logging
from collections.abc import Iterable, Mapping
from functools import partial
from itertools import product

from proxy.access.hosts import HostCheck
from proxy.cache.backoff import Backoff
from proxy.cache.informers import Informers, Policy
from proxy.cache.scope import Scope
from proxy.cache.supervisor import Supervisor
from proxy.kube.errors import ApiError
from proxy.kube.resources import Resource
from proxy.kube.selectable import SelectableField, declared_field
from proxy.reads.freshness import Guarantees
from proxy.reads.reader import Reader
from proxy.reads.shown import Shown
from proxy.server.addresses import Address
from proxy.server.admin import admin_app
from proxy.server.app import ReadApp
from proxy.server.forward import Forwarder
from proxy.server.listener import Listener
from proxy.server.live import LiveReads
from proxy.server.pulse import Pulse
from proxy.server.settings import ResourceSettings, Settings
from proxy.server.stats import Stats
from proxy.upstream.budget import Budget
from proxy.upstream.client import Client
from proxy.upstream.collapse import MAX_HELD
from proxy.upstream.contact import Contact
from proxy.upstream.credentials import Credentials
from proxy.upstream.discovery import resolve
from proxy.upstream.limit import RateLimit
from proxy.upstream.listwatch import ListWatch
from proxy.upstream.wires import open_watch
from proxy.writes.conflicts import Conflicts
from proxy.writes.writer import MAX_BODIES, Writer

log = logging.getLogger(__name__)


class Proxy:
    """One proxy in front of one API server; ``start`` returns once both listeners are open."""

    def __init__(self, settings: Settings, credentials: Credentials) -> None:
        self._settings = settings
        self._client = Client(credentials)
        self._contact = Contact(self._client)
        self._supervisor = Supervisor()
        self._indexes: dict[Resource, tuple[SelectableField, ...]] = {}
        self.informers = Informers(
            lambda scope: ListWatch(
                self._client, scope, lambda: self._indexes.get(scope.resource, ())
            ),
            _policy(settings, credentials.namespace),
            supervisor=self._supervisor,
        )
        self.stats = Stats()
        self._unresolved = dict.fromkeys((each.resource for each in settings.cache.resources), "")
        self.pulse = Pulse()
        self.reader = Reader(
            self.informers,
            lambda: credentials.last_authorization,
            partial(open_watch, self._client),
            guarantees=_guarantees(settings),
        )
        self.conflicts = Conflicts(
            self._client,
            self.informers,
            lambda: credentials.last_authorization,
            is_local=settings.conflict_check == "local",
        )
        self.budgets: Mapping[str, Budget] = {
            "answers": Budget(MAX_HELD),
            "bodies": Budget(MAX_BODIES),
        }
        self._forwarder = self._forwarding()
        app = ReadApp(self.reader, self._forwarder, _hosts(settings.listen), self.stats)
        self.read_listener = Listener(app, settings.listen)
        self.admin_listener = Listener(admin_app(self, _hosts(settings.admin)), settings.admin)
        self._tasks: list[asyncio.Task[None]] = []

    def _forwarding(self) -> Forwarder:
        """Put together what passes requests on."""
        writer = Writer(self._client, self.informers, self.conflicts, self.budgets["bodies"])
        limit = RateLimit(self._settings.live_rate)
        live = LiveReads(self._client, self.stats, limit, self.budgets["answers"])
        return Forwarder(self._client, live, writer, Shown(self.informers), self.stats)

    @property
    def unready(self) -> dict[str, str]:
        """The named resources that can't be served from an informer now, and why."""
        unresolved = {
            name: error or "not found yet" for name, error in sorted(self._unresolved.items())
        }
        return unresolved | {str(each.scope): each.why_unready for each in self.informers.unready}

    @property
    def unreached(self) -> str:
        """Why the API server hasn't answered since ``greet``; empty once it has."""
        return self._contact.error

    def start(self) -> None:
        """Open the listeners and start the named informers. Raises OSError."""
        self.informers.start()
        self.admin_listener.open(self._supervisor)
        self.read_listener.open(self._supervisor)
        self._tasks = [
            self._supervisor.spawn(self.pulse.beat(), name="pulse"),
            *self._name_resources(),
        ]

    def greet(self) -> None:
        """Have the log and the status tell whether the API server answers, before it's asked."""
        self._tasks.append(self._supervisor.spawn(self._contact.make(), name="first contact"))

    def _name_resources(self) -> list[asyncio.Task[None]]:
        return [
            self._supervisor.spawn(self._name(each), name=f"resolve {each.resource}")
            for each in self._settings.cache.resources
        ]

    async def _name(self, wanted: ResourceSettings) -> None:
        """Find out which resource a setting names, however long the API server is away."""
        resource = await self._resolve(wanted.resource)
        self._declare(resource, map(declared_field, wanted.indexes))
        for namespace, form in product(wanted.namespaces or ("",), wanted.forms):
            self.informers.name(Scope(resource, namespace, form))
        self._unresolved.pop(wanted.resource, None)

    async def _resolve(self, name: str) -> Resource:
        """Ask until the API server knows it; the log tells of each error once."""
        backoff = Backoff()
        told = ""
        while True:
            try:
                resource = await resolve(self._client, name)
            except ApiError as error:
                if str(error) != told:
                    log.warning("resource %s isn't found, and tried on: %s", name, error)
                told = self._unresolved[name] = str(error)
                await asyncio.sleep(backoff.next())
                continue
            if told:
                log.info("resource %s is found: %s", name, resource)
            return resource

    def _declare(self, resource: Resource, fields: Iterable[SelectableField]) -> None:
        """Add fields to those of a resource; the settings may name it more than once."""
        known = {field.label: field for field in self._indexes.get(resource, ())}
        merged = known | {field.label: field for field in fields}
        self._indexes[resource] = tuple(merged.values())
        for informer in self.informers:
            if informer.scope.resource == resource and len(merged) > len(known):
                self.informers.relist(informer)

    async def failure(self) -> None:
        """Wait until something fails that the proxy can't do without. Raises its error."""
        await self._supervisor.failure()

    async def stop(self) -> None:
        """End watches cleanly, let requests finish, close everything."""
        for task in self._tasks:
            task.cancel()
        self._forwarder.drain()
        await asyncio.gather(self.read_listener.close(), self.informers.stop())
        await self.admin_listener.close()
        await self._client.close()


def _policy(settings: Settings, own_namespace: str) -> Policy:
    return Policy(
        thresholds=settings.cache.on_demand.thresholds,
        idle_ttl=settings.cache.idle_ttl,
        own_namespace=own_namespace,
        probe_interval=settings.probe_interval,
    )


def _guarantees(settings: Settings) -> Guarantees:
    return Guarantees(
        settings.consistency, settings.max_staleness, settings.cache.on_miss == "confirm"
    )


def _hosts(listen: Address) -> HostCheck:
    """Check what a listener is called; a Unix socket is this machine's own."""
    return HostCheck(listen.host or "localhost")
