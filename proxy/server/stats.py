"""What the read listener counts; the metrics room collects it."""

from collections import Counter
from typing import NamedTuple

from proxy.cache.histogram import Histogram
from proxy.kube.requests import Request, Verb
from proxy.kube.resources import Resource
from proxy.reads.plan import Reason
from proxy.server.families import Families


class Labels(NamedTuple):
    """The bounded labels of a request."""

    verb: Verb
    group: str
    resource: str
    source: str


class Stats:
    """Counters of requests. Only resources that have answered get a label of their own."""

    def __init__(self) -> None:
        self.requests: Counter[tuple[Labels, int]] = Counter()
        self.durations: dict[Labels, Histogram] = {}
        self.forwards: Counter[tuple[Reason, str, str]] = Counter()
        self.live_reads: Counter[tuple[str, bool]] = Counter()
        self.families = Families()
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

    def count_live_read(self, family: str, *, collapsed: bool) -> None:
        """Count a live read that was answered, by who asked and whether it was sent for him."""
        self.live_reads[family, collapsed] += 1

    def live_reads_by_family(self) -> Counter[str]:
        """Count live reads by kind of client, shared ones too."""
        counts: Counter[str] = Counter()
        for (family, _), count in self.live_reads.items():
            counts[family] += count
        return counts
