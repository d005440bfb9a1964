"""What the read listener counts; the metrics room collects it."""

from bisect import bisect_left
from collections import Counter
from typing import NamedTuple

from proxy.kube.requests import Request, Verb
from proxy.kube.resources import Resource
from proxy.reads.plan import Reason

BUCKETS = (
    0.0005,
    0.001,
    0.0025,
    0.005,
    0.01,
    0.025,
    0.05,
    0.1,
    0.25,
    0.5,
    1.0,
    2.5,
    5.0,
    10.0,
    60.0,
)
"""Upper bounds in seconds: a cached get takes tens of microseconds, a live one milliseconds."""


class Labels(NamedTuple):
    """The bounded labels of a request."""

    verb: Verb
    group: str
    resource: str
    source: str


class Histogram:
    """Counts by bucket, the last one for all that is larger, and their sum."""

    __slots__ = ("counts", "sum")

    def __init__(self) -> None:
        self.counts = [0] * (len(BUCKETS) + 1)
        self.sum = 0.0

    def observe(self, seconds: float) -> None:
        """Count one value."""
        self.counts[bisect_left(BUCKETS, seconds)] += 1
        self.sum += seconds


class Stats:
    """Counters of requests. Only resources that have answered get a label of their own."""

    def __init__(self) -> None:
        self.requests: Counter[tuple[Labels, int]] = Counter()
        self.durations: dict[Labels, Histogram] = {}
        self.forwards: Counter[tuple[Reason, str, str]] = Counter()
        self._known: set[Resource] = set()

    def labels(self, request: Request, verb: Verb, source: str, status: int) -> Labels:
        """Label a request; the names in a URL count once the API server has accepted them."""
        group, plural = self._names(request, status)
        return Labels(verb, group, plural, source)

    def _names(self, request: Request, status: int) -> tuple[str, str]:
        if request.target is None:
            return "", ""
        resource = request.target.resource
        if resource not in self._known:
            if status != 101 and not 200 <= status < 300:
                return "", "unknown"
            self._known.add(resource)
        return resource.group, resource.plural

    def count(self, labels: Labels, status: int, seconds: float) -> None:
        """Count a finished request."""
        self.requests[labels, status] += 1
        histogram = self.durations.get(labels)
        if histogram is None:
            histogram = self.durations[labels] = Histogram()
        histogram.observe(seconds)

    def count_forward(self, reason: Reason, labels: Labels) -> None:
        """Count a request that was forwarded."""
        self.forwards[reason, labels.group, labels.resource] += 1
