"""The columns that a definition's Tables have beside the name."""

from __future__ import annotations

from proxy.kube.columns import PrinterColumn, served_columns

COLOR = PrinterColumn("Color", "string", ".spec.color")


def test_what_is_declared_is_all_there_is() -> None:
    assert served_columns([COLOR]) == (COLOR,)


def test_without_any_there_is_the_age() -> None:
    assert served_columns([]) == (PrinterColumn("Age", "date", ".metadata.creationTimestamp"),)
