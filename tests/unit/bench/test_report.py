"""Figures: their verdicts, the table, and the JSON."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bench.report import Figure, table, write_json


@pytest.mark.parametrize(
    ("figure", "verdict"),
    [
        (Figure("no bound", 7, "ms"), ""),
        (Figure("at the bound", 5, "ms", 5), "ok"),
        (Figure("over the bound", 5.01, "ms", 5), "MISSED"),
        (Figure("nothing promised", 9, "µs", apiserver=3), ""),
        (Figure("small share", 2, "µs", apiserver=10, share=0.2), "ok"),
        (Figure("large share", 3, "µs", apiserver=10, share=0.2), "MISSED"),
        (Figure("one of two missed", 3, "µs", 5, apiserver=10, share=0.2), "MISSED"),
        (Figure("nothing to compare with", 3, "µs", apiserver=0, share=0.2), ""),
    ],
    ids=lambda each: each.name if isinstance(each, Figure) else each,
)
def test_verdict(figure: Figure, verdict: str) -> None:
    assert figure.verdict == verdict


def test_table_is_markdown_with_aligned_columns() -> None:
    figures = [Figure("get: CPU", 50.04, "µs", apiserver=500, share=0.2), Figure("wait", 6, "s", 5)]
    lines = table(figures).splitlines()
    assert len({len(line) for line in lines}) == 1
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    assert cells[2] == ["get: CPU", "50 µs", "500 µs", "0.1", "ratio <= 0.2", "ok"]
    assert cells[3] == ["wait", "6 s", "", "", "<= 5 s", "MISSED"]


def test_large_numbers_have_no_exponent() -> None:
    assert "12,346 /s" in table([Figure("rate", 12345.6, "/s")])


def test_json_holds_what_the_table_shows(tmp_path: Path) -> None:
    path = tmp_path / "figures.json"
    write_json([Figure("get", 50, "µs", apiserver=500, share=0.2)], path)
    assert json.loads(path.read_text()) == [
        {
            "name": "get",
            "value": 50,
            "unit": "µs",
            "bound": None,
            "apiserver": 500,
            "share": 0.2,
            "ratio": 0.1,
            "verdict": "ok",
        }
    ]
