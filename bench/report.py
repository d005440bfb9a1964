"""Figures, their bounds, the table that shows both, and their JSON."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path


@dataclass(frozen=True)
class Figure:
    """One measured value, and where it was measured there too kube-apiserver's.

    *bound* is the most that the value should be, *share* the most of kube-apiserver's; None where
    nothing is promised.
    """

    name: str
    value: float
    unit: str
    bound: float | None = None
    apiserver: float | None = None
    share: float | None = None

    @property
    def ratio(self) -> float | None:
        """The value as a part of kube-apiserver's."""
        return self.value / self.apiserver if self.apiserver else None

    @property
    def verdict(self) -> str:
        """How the value stands to its bounds."""
        pairs = [(self.value, self.bound), (self.ratio, self.share)]
        checked = [value <= most for value, most in pairs if value is not None and most is not None]
        return "" if not checked else "ok" if all(checked) else "MISSED"


def table(figures: Iterable[Figure]) -> str:
    """Lay the figures out in columns, as a Markdown table."""
    head = ("figure", "kubecache", "kube-apiserver", "ratio", "bound", "")
    rows = [head, *map(_row, figures)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    rows.insert(1, tuple("-" * width for width in widths))
    return "\n".join(_line(row, widths) for row in rows)


def write_json(figures: Iterable[Figure], path: Path) -> None:
    """Write the figures for a machine to read."""
    found = [{**asdict(each), "ratio": each.ratio, "verdict": each.verdict} for each in figures]
    path.write_text(json.dumps(found, indent=2) + "\n")


def _row(figure: Figure) -> tuple[str, ...]:
    bounds = [
        "" if figure.bound is None else f"<= {figure.bound:g} {figure.unit}",
        "" if figure.share is None else f"ratio <= {figure.share:g}",
    ]
    return (
        figure.name,
        f"{_number(figure.value)} {figure.unit}",
        "" if figure.apiserver is None else f"{_number(figure.apiserver)} {figure.unit}",
        "" if figure.ratio is None else _number(figure.ratio),
        ", ".join(filter(None, bounds)),
        figure.verdict,
    )


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def _line(row: Sequence[str], widths: Sequence[int]) -> str:
    return "| " + " | ".join(map(str.ljust, row, widths)) + " |"
