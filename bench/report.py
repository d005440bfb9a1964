"""Figures, their bounds, and the table that shows both."""

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path


@dataclass(frozen=True)
class Figure:
    """One measured value; *bound* is the most that it should be, None where nothing is promised."""

    name: str
    value: float
    unit: str
    bound: float | None = None
    note: str = ""

    @property
    def verdict(self) -> str:
        """How the value stands to its bound."""
        if self.bound is None:
            return ""
        return "ok" if self.value <= self.bound else "MISSED"


def table(figures: Iterable[Figure]) -> str:
    """Lay the figures out in columns."""
    rows = [("figure", "value", "bound", "", "")]
    for each in figures:
        bound = "" if each.bound is None else f"<= {each.bound:g}"
        rows.append((each.name, f"{each.value:.3g} {each.unit}", bound, each.verdict, each.note))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join("  ".join(map(str.ljust, row, widths)).rstrip() for row in rows)


def write_json(figures: Iterable[Figure], path: Path) -> None:
    """Write the figures for a machine to read."""
    path.write_text(json.dumps([asdict(each) for each in figures], indent=2) + "\n")
