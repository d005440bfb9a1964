"""The printer columns of custom resources, as their definitions declare them."""

from collections.abc import Iterable
from typing import NamedTuple


class PrinterColumn(NamedTuple):
    """One of a CRD version's ``additionalPrinterColumns``; *json_path* is as it's written there."""

    name: str
    type: str
    json_path: str


_DEFAULT = PrinterColumn("Age", "date", ".metadata.creationTimestamp")


def served_columns(declared: Iterable[PrinterColumn]) -> tuple[PrinterColumn, ...]:
    """The columns that Tables have beside Name: those *declared*, or the age for none.

    Mirrors ``serveDefaultColumnsIfEmpty`` of the apiextensions-apiserver.
    """
    return tuple(declared) or (_DEFAULT,)
