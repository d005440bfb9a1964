"""Rounds: both sides in turn, so that they see the same noise; of each figure the median counts."""

from collections.abc import Callable, Sequence
from statistics import median

from bench.load import Load, run
from bench.report import Figure
from bench.world import Side

ROUNDS = 3

Measure = Callable[[Load], float]


class Rounds:
    """The loads of a few rounds of *targets* at kube-apiserver and at the proxy.

    *headers* are sent to the proxy only.
    """

    def __init__(
        self,
        sides: tuple[Side, Side],
        targets: Sequence[str],
        seconds: float,
        *,
        connections: int = 1,
        headers: str = "",
    ) -> None:
        self._loads: tuple[list[Load], list[Load]] = ([], [])
        for _ in range(ROUNDS):
            for side, own, loads in zip(sides, ("", headers), self._loads, strict=True):
                loads.append(run(side, targets, seconds, connections=connections, headers=own))

    def figure(
        self, name: str, unit: str, measure: Measure, *, share: float | None = None
    ) -> Figure:
        """Compare the two sides by the medians of *measure*."""
        theirs, ours = (median(map(measure, loads)) for loads in self._loads)
        return Figure(name, ours, unit, apiserver=theirs, share=share)


def cpu_us(load: Load) -> float:
    """CPU of a request in microseconds."""
    return load.cpu_each * 1e6


def cpu_ms(load: Load) -> float:
    """CPU of a request in milliseconds."""
    return load.cpu_each * 1e3


def wall_ms(load: Load) -> float:
    """Milliseconds from one answer to the next."""
    return load.wall_each * 1e3


def p50_ms(load: Load) -> float:
    """The median latency in milliseconds."""
    return load.seen.percentile(0.5) * 1e3


def rate(load: Load) -> float:
    """Requests a second."""
    return 1 / load.wall_each


def speed(load: Load) -> float:
    """Megabytes of bodies a second."""
    return load.seen.received / load.seen.wall / 1e6
