"""Prometheus metrics, collected from the rooms' plain counters at scrape time.

Names and labels are public; ``docs/metrics.md`` lists them.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Protocol

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from proxy.cache.histogram import BUCKETS, Histogram
from proxy.cache.informer import Informer
from proxy.cache.informers import Informers
from proxy.reads.reader import Reader
from proxy.server.pulse import Pulse
from proxy.server.stats import Stats
from proxy.upstream.budget import Budget
from proxy.writes.conflicts import Conflicts

_RESOURCE = ("group", "version", "resource")
_SCOPE = (*_RESOURCE, "namespace")


class Measured(Protocol):
    """What is measured of a proxy."""

    stats: Stats
    informers: Informers
    reader: Reader
    conflicts: Conflicts
    pulse: Pulse
    budgets: Mapping[str, Budget]


class ProxyCollector(Collector):
    """Turns counters and informers into metric families."""

    def __init__(self, served: Measured) -> None:
        self._served = served

    def collect(self) -> Iterator[Metric]:
        """Yield all families."""
        yield from self._requests()
        yield self._live_reads()
        yield self._pauses()
        yield from self._held()
        yield from self._lists()
        yield from self._conflicts()
        yield self._waits()
        yield from _informer_gauges(list(self._served.informers))
        yield from _informer_counters(list(self._served.informers))
        yield from _informer_proofs(list(self._served.informers))

    def _requests(self) -> Iterator[Metric]:
        labels = ("verb", "group", "resource", "source")
        requests = CounterMetricFamily(
            "kubecache_requests",
            "Requests by where their answer came from.",
            labels=(*labels, "code"),
        )
        for (request, code), count in self._served.stats.requests.items():
            requests.add_metric((*request, str(code)), count)
        yield requests
        durations = HistogramMetricFamily(
            "kubecache_request_duration_seconds",
            "Seconds from a request's headers to the end of its answer.",
            labels=labels,
        )
        for request, histogram in self._served.stats.durations.items():
            durations.add_metric(request, _cumulative(histogram), histogram.sum)
        yield durations
        forwards = CounterMetricFamily(
            "kubecache_cache_forwards",
            "Requests sent to the API server, by the reason why no informer answered.",
            labels=("reason", "group", "resource"),
        )
        for (reason, group, resource), count in self._served.stats.forwards.items():
            forwards.add_metric((reason.detail, group, resource), count)
        yield forwards

    def _live_reads(self) -> Metric:
        reads = CounterMetricFamily(
            "kubecache_live_reads",
            "Gets and lists that the API server answered, by client and by whether it was shared.",
            labels=("user_agent_family", "collapsed"),
        )
        for (family, collapsed), count in self._served.stats.live_reads.items():
            reads.add_metric((family, str(collapsed).lower()), count)
        return reads

    def _pauses(self) -> Metric:
        pauses = HistogramMetricFamily(
            "kubecache_event_loop_pause_seconds",
            "Seconds by which the event loop was late.",
            labels=(),
        )
        histogram = self._served.pulse.pauses
        pauses.add_metric((), _cumulative(histogram), histogram.sum)
        return pauses

    def _held(self) -> Iterator[Metric]:
        held = GaugeMetricFamily(
            "kubecache_held_bytes", "Bytes of messages that are held whole.", labels=("kind",)
        )
        refusals = CounterMetricFamily(
            "kubecache_held_refusals", "Messages that found no room to be held.", labels=("kind",)
        )
        for kind, budget in self._served.budgets.items():
            held.add_metric((kind,), budget.held)
            refusals.add_metric((kind,), budget.refusals)
        yield from (held, refusals)

    def _waits(self) -> Metric:
        waits = HistogramMetricFamily(
            "kubecache_read_your_writes_wait_seconds",
            "Seconds that reads have waited for a write that they must see.",
            labels=(),
        )
        histogram = self._served.reader.waits
        waits.add_metric((), _cumulative(histogram), histogram.sum)
        return waits

    def _conflicts(self) -> Iterator[Metric]:
        conflicts = CounterMetricFamily(
            "kubecache_conflicts", "Writes of an old version, by who saw it.", labels=("detected",)
        )
        for detected, count in self._served.conflicts.counts.items():
            conflicts.add_metric((detected,), count)
        merges = CounterMetricFamily(
            "kubecache_conflict_merges", "Merges that clients asked for.", labels=("result",)
        )
        for result, count in self._served.conflicts.merges.items():
            merges.add_metric((result,), count)
        yield from (conflicts, merges)

    def _lists(self) -> Iterator[Metric]:
        scanned = CounterMetricFamily(
            "kubecache_list_scanned_objects", "Objects that lists looked at.", labels=_RESOURCE
        )
        returned = CounterMetricFamily(
            "kubecache_list_returned_objects", "Objects that lists returned.", labels=_RESOURCE
        )
        for resource, tally in self._served.reader.tallies.items():
            labels = (resource.group, resource.version, resource.plural)
            scanned.add_metric(labels, tally.scanned)
            returned.add_metric(labels, tally.returned)
        yield from (scanned, returned)


def _cumulative(histogram: Histogram) -> list[tuple[str, float]]:
    total = 0
    buckets = []
    for bound, count in zip((*BUCKETS, float("inf")), histogram.counts, strict=True):
        total += count
        buckets.append(("+Inf" if bound == float("inf") else str(bound), float(total)))
    return buckets


def _informer_gauges(informers: Iterable[Informer]) -> Iterator[Metric]:
    gauges = {
        name: GaugeMetricFamily(f"kubecache_{name}", text, labels=_SCOPE)
        for name, text in (
            ("informer_synced", "1 once the informer holds a complete state."),
            ("informer_resource_version", "Newest resourceVersion that the informer holds."),
            ("informer_objects", "Objects that the informer holds."),
            ("informer_stalled", "1 while the API server gives no sign."),
            ("staleness_seconds", "Seconds since the informer was last known to be current."),
            ("watchers", "Watches that the informer serves now."),
            ("informer_snapshots", "Earlier states kept for clients that page through lists."),
        )
    }
    size = GaugeMetricFamily(
        "kubecache_informer_bytes", "Bytes of the objects held.", labels=(*_SCOPE, "kind")
    )
    for informer in informers:
        scope = _scope(informer)
        store = informer.view.store if informer.view else None
        gauges["informer_synced"].add_metric(scope, float(store is not None))
        gauges["informer_stalled"].add_metric(scope, float(informer.is_stalled))
        gauges["informer_resource_version"].add_metric(scope, informer.version)
        gauges["informer_objects"].add_metric(scope, len(store) if store else 0)
        gauges["staleness_seconds"].add_metric(scope, informer.staleness)
        gauges["watchers"].add_metric(scope, informer.watchers)
        snapshots = len(informer.view.snapshots) if informer.view else 0
        gauges["informer_snapshots"].add_metric(scope, snapshots)
        size.add_metric((*scope, "raw"), store.raw_bytes if store else 0)
    yield from gauges.values()
    yield size


def _informer_counters(informers: Iterable[Informer]) -> Iterator[Metric]:
    relists = CounterMetricFamily(
        "kubecache_informer_relists", "Complete lists, by reason.", labels=(*_SCOPE, "reason")
    )
    restarts = CounterMetricFamily(
        "kubecache_informer_restarts", "Watches resumed, by reason.", labels=(*_SCOPE, "reason")
    )
    events = CounterMetricFamily(
        "kubecache_informer_watch_events", "Events applied, by type.", labels=(*_SCOPE, "type")
    )
    sent = CounterMetricFamily(
        "kubecache_watch_events_sent", "Events told to watchers.", labels=_SCOPE
    )
    terminated = CounterMetricFamily(
        "kubecache_watchers_terminated",
        "Watches that have ended, by how.",
        labels=(*_SCOPE, "reason"),
    )
    for informer in informers:
        scope = _scope(informer)
        for reason, count in informer.reflector.relists.items():
            relists.add_metric((*scope, reason), count)
        for reason, count in informer.reflector.restarts.items():
            restarts.add_metric((*scope, reason), count)
        for event_type, count in informer.events.items():
            events.add_metric((*scope, event_type), count)
        events.add_metric((*scope, "RELISTED"), informer.relisted)
        sent.add_metric(scope, informer.sent)
        for ending, count in informer.terminated.items():
            terminated.add_metric((*scope, ending), count)
    yield from (relists, restarts, events, sent, terminated)


def _informer_proofs(informers: Iterable[Informer]) -> Iterator[Metric]:
    lag = HistogramMetricFamily(
        "kubecache_lag_seconds",
        "Seconds from the answer to a write until its event had arrived.",
        labels=_SCOPE,
    )
    probes = CounterMetricFamily(
        "kubecache_probes",
        "Requests that prove the informer current, by what they showed.",
        labels=(*_SCOPE, "kind", "result"),
    )
    for informer in informers:
        scope = _scope(informer)
        seconds = informer.lag.seconds
        lag.add_metric(scope, _cumulative(seconds), seconds.sum)
        for (kind, result), count in informer.prover.counts.items():
            probes.add_metric((*scope, kind, result), count)
    yield from (lag, probes)


def _scope(informer: Informer) -> tuple[str, str, str, str]:
    resource = informer.scope.resource
    return resource.group, resource.version, resource.plural, informer.scope.namespace


def render(served: Measured) -> bytes:
    """Render all metrics in Prometheus' text format."""
    registry = CollectorRegistry()
    registry.register(ProxyCollector(served))
    return generate_latest(registry)
