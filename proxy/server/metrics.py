"""Prometheus metrics, collected from the rooms' plain counters at scrape time.

Names and labels are public; ``docs/metrics.md`` lists them.
"""

from collections.abc import Iterator, Mapping
from typing import Protocol

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from proxy.cache.informers import Informers
from proxy.reads.reader import Reader
from proxy.server.informer_metrics import RESOURCE, add_counts, cumulative, informer_families
from proxy.server.pulse import Pulse
from proxy.server.stats import Stats
from proxy.upstream.budget import Budget
from proxy.writes.conflicts import Conflicts


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
        yield from informer_families(list(self._served.informers))

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
            durations.add_metric(request, cumulative(histogram), histogram.sum)
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
        live_reads = self._served.stats.live_reads
        for family in dict.fromkeys(family for family, _ in live_reads):
            for collapsed in (False, True):
                labels = (family, str(collapsed).lower())
                reads.add_metric(labels, live_reads[family, collapsed])
        return reads

    def _pauses(self) -> Metric:
        pauses = HistogramMetricFamily(
            "kubecache_event_loop_pause_seconds",
            "Seconds by which the event loop was late.",
            labels=(),
        )
        histogram = self._served.pulse.pauses
        pauses.add_metric((), cumulative(histogram), histogram.sum)
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
        waits.add_metric((), cumulative(histogram), histogram.sum)
        return waits

    def _conflicts(self) -> Iterator[Metric]:
        conflicts = CounterMetricFamily(
            "kubecache_conflicts", "Writes of an old version, by who saw it.", labels=("detected",)
        )
        add_counts(conflicts, (), self._served.conflicts.counts)
        merges = CounterMetricFamily(
            "kubecache_conflict_merges", "Merges that clients asked for.", labels=("result",)
        )
        add_counts(merges, (), self._served.conflicts.merges)
        yield from (conflicts, merges)

    def _lists(self) -> Iterator[Metric]:
        scanned = CounterMetricFamily(
            "kubecache_list_scanned_objects", "Objects that lists looked at.", labels=RESOURCE
        )
        returned = CounterMetricFamily(
            "kubecache_list_returned_objects", "Objects that lists returned.", labels=RESOURCE
        )
        for resource, tally in self._served.reader.tallies.items():
            labels = (resource.group, resource.version, resource.plural)
            scanned.add_metric(labels, tally.scanned)
            returned.add_metric(labels, tally.returned)
        yield from (scanned, returned)


def render(served: Measured) -> bytes:
    """Render all metrics in Prometheus' text format."""
    registry = CollectorRegistry()
    registry.register(ProxyCollector(served))
    return generate_latest(registry)
