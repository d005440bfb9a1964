"""What requests are counted as, and that nobody can make up labels."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.cache.histogram import BUCKETS, Histogram
from proxy.kube.requests import Request, Verb, parse_request
from proxy.reads.plan import Reason
from proxy.server.stats import Labels, Stats

CACHED = Labels(Verb.GET, "", "pods", "cache")


def request(path: str) -> Request:
    return parse_request("GET", path.encode(), b"", [])


@pytest.mark.parametrize(
    ("path", "status", "names"),
    [
        ("/api/v1/pods", 200, ("", "pods")),
        ("/api/v1/namespaces/a/pods/x", 201, ("", "pods")),
        ("/apis/apps/v1/deployments", 200, ("apps", "deployments")),
        ("/apis/apps/v1/deployments", 404, ("", "unknown")),
        ("/api/v1/invented", 403, ("", "unknown")),
        ("/api/v1/pods", 101, ("", "pods")),
        ("/api/v1/pods", 0, ("", "unknown")),
        ("/api/v1/pods", 302, ("", "unknown")),
        ("/healthz", 200, ("", "")),
        ("/api", 404, ("", "")),
    ],
)
def test_a_resource_has_a_label_once_it_was_answered(
    path: str, status: int, names: tuple[str, str]
) -> None:
    labels = Stats().labels(request(path), Verb.LIST, "live", status)
    assert labels == Labels(Verb.LIST, *names, "live")


def test_a_known_resource_keeps_its_label_when_it_fails() -> None:
    stats = Stats()
    before = stats.labels(request("/api/v1/pods"), Verb.LIST, "live", 503)
    stats.labels(request("/api/v1/namespaces/a/pods/x"), Verb.GET, "live", 200)
    after = stats.labels(request("/api/v1/pods"), Verb.LIST, "live", 503)
    other = stats.labels(request("/api/v2/pods"), Verb.LIST, "live", 503)
    assert [each.resource for each in (before, after, other)] == ["unknown", "pods", "unknown"]


def test_invented_names_add_no_series() -> None:
    stats = Stats()
    for number in range(1000):
        asked = request(f"/apis/group{number}.example.com/v1/things{number}")
        labels = stats.labels(asked, Verb.LIST, "live", 404)
        stats.count(labels, 404, 0.1)
        stats.count_forward(Reason.NOT_CACHED, labels)
    assert (len(stats.requests), len(stats.durations), len(stats.forwards)) == (1, 1, 1)
    assert stats.requests.total() == stats.forwards.total() == 1000


def test_requests_are_counted_by_status_and_timed_together() -> None:
    stats = Stats()
    for status, seconds in ((200, 0.1), (200, 0.2), (404, 0.3)):
        stats.count(CACHED, status, seconds)
    assert stats.requests == {(CACHED, 200): 2, (CACHED, 404): 1}
    assert stats.durations[CACHED].sum == pytest.approx(0.6)
    assert sum(stats.durations[CACHED].counts) == 3


def test_forwards_are_counted_by_reason_and_resource() -> None:
    stats = Stats()
    for reason in (Reason.LIVE, Reason.LIVE, Reason.SCOPE):
        stats.count_forward(reason, CACHED)
    assert stats.forwards == {(Reason.LIVE, "", "pods"): 2, (Reason.SCOPE, "", "pods"): 1}


@pytest.mark.parametrize(
    ("seconds", "bucket"),
    [
        (0.0, 0),
        (BUCKETS[0], 0),
        (BUCKETS[0] + 1e-9, 1),
        (BUCKETS[-1], len(BUCKETS) - 1),
        (BUCKETS[-1] + 1, len(BUCKETS)),
    ],
)
def test_a_bound_belongs_to_its_bucket(seconds: float, bucket: int) -> None:
    histogram = Histogram()
    histogram.observe(seconds)
    assert [place for place, count in enumerate(histogram.counts) if count] == [bucket]


@given(st.lists(st.floats(0, 100)))
def test_a_histogram_counts_what_is_within_each_bound(values: list[float]) -> None:
    histogram = Histogram()
    for seconds in values:
        histogram.observe(seconds)
    for place, bound in enumerate(BUCKETS, start=1):
        assert sum(histogram.counts[:place]) == sum(seconds <= bound for seconds in values)
    assert sum(histogram.counts) == len(values)
    assert histogram.sum == pytest.approx(sum(values))
