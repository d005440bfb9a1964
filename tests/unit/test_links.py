"""Links in documents lead somewhere."""

from __future__ import annotations

import re

import pytest

from tests.harness.markdown import Document
from tests.unit.test_docs import DOCUMENTS


@pytest.mark.parametrize("document", DOCUMENTS.values(), ids=DOCUMENTS)
def test_links_lead_somewhere(document: Document) -> None:
    assert [link for link in document.links() if not _resolves(document, link)] == []


def _resolves(document: Document, link: str) -> bool:
    if re.match(r"https?:", link):
        return True
    path, _, anchor = link.partition("#")
    target = document.path.parent / path if path else document.path
    return target.exists() and (not anchor or anchor in Document(target).anchors())
