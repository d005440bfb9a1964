"""Metrics as Prometheus reads them: the names and labels are public, the values are the rooms'."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import NamedTuple

import pytest
from prometheus_client.parser import text_string_to_metric_families

from proxy.cache.histogram import BUCKETS
from proxy.cache.informer import Informer
from proxy.cache.recovery import Trigger
from proxy.kube.requests import Verb, parse_request
from proxy.reads.plan import Reason
from proxy.reads.reader import Answer
from proxy.server.metrics import render
from proxy.server.pulse import Pulse
from proxy.server.stats import Labels
from tests.unit.builders import Clock
from tests.unit.served import Served

LABELS = Labels(Verb.GET, "", "pods", "cache")
EVERYWHERE = {"group": "", "version": "v1", "resource": "pods", "namespace": "", "form": "json"}


class Scraped:
    """A parsed scrape."""

    def __init__(self, body: bytes) -> None:
        self.families = list(text_string_to_metric_families(body.decode()))
        self._values = {
            (sample.name, frozenset(sample.labels.items())): sample.value
            for family in self.families
            for sample in family.samples
        }

    def __getitem__(self, wanted: tuple[str, dict[str, str]]) -> float:
        name, labels = wanted
        return self._values[f"kubecache_{name}", frozenset(labels.items())]

    def names(self) -> set[str]:
        return {name for name, _ in self._values}


Change = Callable[[Informer, Served], None]


def scrape(change: Change | None = None) -> Scraped:
    """Scrape a proxy with one synced informer of all pods."""

    async def run() -> bytes:
        served = Served()
        informer = await served.synced()
        if change is not None:
            change(informer, served)
        body = render(served)
        await served.informers.stop()
        return body

    return Scraped(asyncio.run(run()))


# --- names and labels ------------------------------------------------------------------------


class Family(NamedTuple):
    type: str
    labels: str


SCOPE = "group version resource namespace form"
PUBLIC = {
    "requests_total": Family("counter", "verb group resource source code"),
    "request_duration_seconds": Family("histogram", "verb group resource source"),
    "cache_forwards_total": Family("counter", "reason group resource"),
    "live_reads_total": Family("counter", "user_agent_family collapsed"),
    "event_loop_pause_seconds": Family("histogram", ""),
    "held_bytes": Family("gauge", "kind"),
    "held_refusals_total": Family("counter", "kind"),
    "read_your_writes_wait_seconds": Family("histogram", ""),
    "conflicts_total": Family("counter", "detected"),
    "conflict_merges_total": Family("counter", "result"),
    "lag_seconds": Family("histogram", SCOPE),
    "probes_total": Family("counter", f"{SCOPE} kind result"),
    "list_scanned_objects_total": Family("counter", "group version resource"),
    "list_returned_objects_total": Family("counter", "group version resource"),
    "staleness_seconds": Family("gauge", SCOPE),
    "informer_synced": Family("gauge", SCOPE),
    "informer_stalled": Family("gauge", SCOPE),
    "informer_resource_version": Family("gauge", SCOPE),
    "informer_objects": Family("gauge", SCOPE),
    "informer_bytes": Family("gauge", f"{SCOPE} kind"),
    "informer_snapshots": Family("gauge", SCOPE),
    "informer_relists_total": Family("counter", f"{SCOPE} reason"),
    "informer_restarts_total": Family("counter", f"{SCOPE} reason"),
    "informer_watch_events_total": Family("counter", f"{SCOPE} type"),
    "watchers": Family("gauge", SCOPE),
    "watch_events_sent_total": Family("counter", SCOPE),
    "watchers_terminated_total": Family("counter", f"{SCOPE} reason"),
}
"""What dashboards and alerts hold on to: a change here breaks them."""


def count_everything(informer: Informer, served: Served) -> None:
    served.stats.count(LABELS, 200, 0.1)
    served.stats.count_forward(Reason.LIVE, LABELS)
    served.stats.count_live_read("kubectl", collapsed=True)
    listed = served.reader.read(parse_request("GET", b"/api/v1/pods", b"", []))
    assert isinstance(listed, Answer)
    informer.terminated["client"] += 1
    informer.reflector.restarts[Trigger.BROKEN] += 1
    informer.prover.counts["probe", "proven"] += 1
    served.conflicts.counts["local"] += 1
    served.conflicts.merges["merged"] += 1


def test_names_and_labels_are_the_public_ones() -> None:
    found = {}
    for family in scrape(count_everything).families:
        name = family.name.removeprefix("kubecache_")
        labels = {label for sample in family.samples for label in sample.labels} - {"le"}
        found[name + "_total" * (family.type == "counter")] = (family.type, labels)
        assert family.documentation.endswith(".")
    assert found == {name: (each.type, set(each.labels.split())) for name, each in PUBLIC.items()}


def test_every_name_is_ours() -> None:
    assert all(name.startswith("kubecache_") for name in scrape(count_everything).names())


def test_without_informers_or_requests_a_scrape_is_still_whole() -> None:
    scraped = Scraped(render(Served()))
    histograms = {
        f"kubecache_{name}_seconds_{part}"
        for name in ("event_loop_pause", "read_your_writes_wait")
        for part in ("bucket", "count", "sum")
    }
    held = {"kubecache_held_bytes", "kubecache_held_refusals_total"}
    conflicts = {"kubecache_conflicts_total", "kubecache_conflict_merges_total"}
    assert scraped.names() == histograms | held | conflicts


BOUNDED = {
    "probes_total": 7,
    "informer_relists_total": 5,
    "informer_restarts_total": 4,
    "informer_watch_events_total": 4,
    "watchers_terminated_total": 6,
    "conflicts_total": 2,
    "conflict_merges_total": 5,
}


@pytest.mark.parametrize("change", [None, count_everything], ids=["nothing", "everything"])
def test_what_may_be_counted_is_there_before_it_happens(change: Change | None) -> None:
    """And there's no more then: the sets are whole."""
    families = {each.name: each.samples for each in scrape(change).families}
    found = {name: len(families["kubecache_" + name.removesuffix("_total")]) for name in BOUNDED}
    assert found == BOUNDED


def test_whoever_has_read_live_has_both_series() -> None:
    def change(_: Informer, served: Served) -> None:
        served.stats.count_live_read("kubectl", collapsed=True)

    scraped = scrape(change)
    for collapsed, count in (("false", 0), ("true", 1)):
        labels = {"user_agent_family": "kubectl", "collapsed": collapsed}
        assert scraped["live_reads_total", labels] == count


# --- values ----------------------------------------------------------------------------------


def test_requests_and_forwards() -> None:
    def change(_: Informer, served: Served) -> None:
        for status in (200, 200, 404):
            served.stats.count(LABELS, status, 0.003)
        served.stats.count_forward(Reason.NOT_CACHED, LABELS)

    found = scrape(change)
    asked = {"verb": "get", "group": "", "resource": "pods", "source": "cache"}
    assert found["requests_total", asked | {"code": "200"}] == 2
    assert found["requests_total", asked | {"code": "404"}] == 1
    assert found["request_duration_seconds_count", asked] == 3
    assert found["request_duration_seconds_sum", asked] == pytest.approx(0.009)
    for bound in BUCKETS:
        within = found["request_duration_seconds_bucket", asked | {"le": str(bound)}]
        assert within == (3 if bound >= 0.003 else 0)
    assert found["request_duration_seconds_bucket", asked | {"le": "+Inf"}] == 3
    reason = {"reason": "no-informer", "group": "", "resource": "pods"}
    assert found["cache_forwards_total", reason] == 1


def test_live_reads_by_client() -> None:
    def change(_: Informer, served: Served) -> None:
        for collapsed in (False, True, True):
            served.stats.count_live_read("kubectl", collapsed=collapsed)

    found = scrape(change)
    for collapsed, count in (("false", 1), ("true", 2)):
        labels = {"user_agent_family": "kubectl", "collapsed": collapsed}
        assert found["live_reads_total", labels] == count


def test_an_informer_that_is_synced() -> None:
    def change(informer: Informer, served: Served) -> None:
        served.clock.advance(2.5)
        informer.watchers = 3
        informer.sent = 17
        informer.terminated["slow"] = 2

    found = scrape(change)
    assert {
        name: found[name, EVERYWHERE]
        for name in ("informer_synced", "informer_resource_version", "informer_objects")
    } == {"informer_synced": 1, "informer_resource_version": 10, "informer_objects": 1}
    assert found["informer_bytes", EVERYWHERE | {"kind": "raw"}] > 50
    assert found["staleness_seconds", EVERYWHERE] == 2.5
    assert found["watchers", EVERYWHERE] == 3
    assert found["watch_events_sent_total", EVERYWHERE] == 17
    assert found["watchers_terminated_total", EVERYWHERE | {"reason": "slow"}] == 2
    assert found["informer_relists_total", EVERYWHERE | {"reason": "start"}] == 1
    types = ("ADDED", "MODIFIED", "DELETED", "RELISTED")
    assert [found["informer_watch_events_total", EVERYWHERE | {"type": t}] for t in types] == [
        0
    ] * 4


def test_an_informer_that_is_not_synced_has_its_series_too() -> None:
    def change(_: Informer, served: Served) -> None:
        served.name("a")  # its task has not run yet

    found = scrape(change)
    own = EVERYWHERE | {"namespace": "a"}
    assert [
        found[name, own]
        for name in ("informer_synced", "informer_resource_version", "informer_objects", "watchers")
    ] == [0, 0, 0, 0]
    assert found["informer_synced", EVERYWHERE] == 1


def test_lists_and_kept_snapshots() -> None:
    def change(informer: Informer, served: Served) -> None:
        for query in (b"", b"labelSelector=app%3Dx", b"labelSelector=!app"):
            read = served.reader.read(parse_request("GET", b"/api/v1/pods", query, []))
            assert isinstance(read, Answer)
        assert informer.view
        informer.view.snapshots.keep(informer.view.store.snapshot())

    found = scrape(change)
    resource = {"group": "", "version": "v1", "resource": "pods"}
    assert found["list_returned_objects_total", resource] == 2
    assert 2 <= found["list_scanned_objects_total", resource] <= 3
    assert found["informer_snapshots", EVERYWHERE] == 1


def test_pauses_of_the_event_loop() -> None:
    def change(_: Informer, served: Served) -> None:
        served.pulse.pauses.observe(0.02)

    found = scrape(change)
    assert found["event_loop_pause_seconds_sum", {}] == pytest.approx(0.02)
    assert found["event_loop_pause_seconds_bucket", {"le": "0.01"}] == 0
    assert found["event_loop_pause_seconds_bucket", {"le": "0.025"}] == 1


def test_a_pulse_that_beats_measures_pauses() -> None:
    clock = Clock()
    lateness = iter([0.0, 0.3, -0.001])  # a timer may fire early, by the clock's resolution

    async def sleep(seconds: float) -> None:
        late = next(lateness, None)
        if late is None:
            raise asyncio.CancelledError
        clock.advance(seconds + late)

    pulse = Pulse(clock=clock, sleep=sleep)
    with pytest.raises(asyncio.CancelledError):
        asyncio.run(pulse.beat())
    assert sum(pulse.pauses.counts) == 3
    assert pulse.pauses.counts[BUCKETS.index(0.5)] == 1
    assert pulse.pauses.sum == pytest.approx(0.3)


def test_what_is_held_whole() -> None:
    def change(_: Informer, served: Served) -> None:
        assert served.budgets["answers"].spend(70)
        assert not served.budgets["answers"].spend(70)

    found = scrape(change)
    kinds = [{"kind": kind} for kind in ("answers", "bodies")]
    assert [found["held_bytes", kind] for kind in kinds] == [70, 0]
    assert [found["held_refusals_total", kind] for kind in kinds] == [1, 0]
