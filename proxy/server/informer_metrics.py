"""Metric families of informers: one series each, by what they hold."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TypeVar

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)

from proxy.cache.histogram import BUCKETS, Histogram
from proxy.cache.informer import Informer
from proxy.cache.recovery import Trigger

_Key = TypeVar("_Key", bound=str | tuple[str, str])

RESOURCE = ("group", "version", "resource")
"""Labels of a resource."""

_SCOPE = (*RESOURCE, "namespace", "form")

# What may be counted is there from the start, as 0: a rate knows no first event otherwise.
_RESTARTS = (Trigger.ENDED, Trigger.SILENT, Trigger.BROKEN, Trigger.ERROR)
_RELISTS = tuple(each for each in Trigger if each not in _RESTARTS)
_ENDINGS = ("client", "deadline", "slow", "expired", "upstream", "stopped")
_PROBES = (
    ("probe", "proven"),
    ("probe", "ahead"),
    ("probe", "failed"),
    ("barrier", "proven"),
    ("barrier", "busy"),
    ("barrier", "needless"),
    ("barrier", "failed"),
)


def informer_families(informers: Sequence[Informer]) -> Iterator[Metric]:
    """Yield all families of *informers*."""
    yield from _gauges(informers)
    yield from _counters(informers)
    yield from _proofs(informers)


def add_counts(
    family: CounterMetricFamily,
    labels: tuple[str, ...],
    counts: Mapping[_Key, int],
    known: Iterable[_Key] = (),
) -> None:
    """Add a series for each of *counts* below *labels*, and 0 for what is *known* beside them."""
    for key, count in {**dict.fromkeys(known, 0), **counts}.items():
        family.add_metric((*labels, *((key,) if isinstance(key, str) else key)), count)


def cumulative(histogram: Histogram) -> list[tuple[str, float]]:
    """Buckets by their upper bound, each with all that is below."""
    total = 0
    buckets = []
    for bound, count in zip((*BUCKETS, float("inf")), histogram.counts, strict=True):
        total += count
        buckets.append(("+Inf" if bound == float("inf") else str(bound), float(total)))
    return buckets


def _gauges(informers: Iterable[Informer]) -> Iterator[Metric]:
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


def _counters(informers: Iterable[Informer]) -> Iterator[Metric]:
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
        add_counts(relists, scope, informer.reflector.relists, _RELISTS)
        add_counts(restarts, scope, informer.reflector.restarts, _RESTARTS)
        for event_type, count in informer.events.items():
            events.add_metric((*scope, event_type), count)
        events.add_metric((*scope, "RELISTED"), informer.relisted)
        sent.add_metric(scope, informer.sent)
        add_counts(terminated, scope, informer.terminated, _ENDINGS)
    yield from (relists, restarts, events, sent, terminated)


def _proofs(informers: Iterable[Informer]) -> Iterator[Metric]:
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
        lag.add_metric(scope, cumulative(seconds), seconds.sum)
        add_counts(probes, scope, informer.prover.counts, _PROBES)
    yield from (lag, probes)


def _scope(informer: Informer) -> tuple[str, ...]:
    resource = informer.scope.resource
    namespace, form = informer.scope.namespace, informer.scope.form
    return resource.group, resource.version, resource.plural, namespace, form
