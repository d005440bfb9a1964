"""What documents say: tables, code, links and anchors of Markdown."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

_FENCED = re.compile(r"^```\w*\n(.*?)^```", re.MULTILINE | re.DOTALL)


class Document:
    """A Markdown file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.text = path.read_text()

    def __repr__(self) -> str:
        return f"<Document {self.path}>"

    def rows(self, *header: str) -> list[list[str]]:
        """The cells of all tables whose first columns have these headings."""
        tables = [
            [_cells(line) for line in table.splitlines()]
            for table in re.findall(r"(?:^\|.*\n)+", self.text, re.MULTILINE)
        ]
        found = [rows for first, _, *rows in tables if tuple(first[: len(header)]) == header]
        assert found, f"{self!r} has no table of {header}"
        return [row for rows in found for row in rows]

    def blocks(self) -> Iterator[str]:
        """Code blocks: fenced, or indented by four spaces."""
        yield from (match[1] for match in _FENCED.finditer(self.text))
        yield from re.findall(r"(?:^ {4}\S.*\n)+", _FENCED.sub("", self.text), re.MULTILINE)

    def code(self) -> str:
        """All that is in code blocks or backticks, each on lines of its own."""
        return "\n".join([*self.blocks(), *words(_FENCED.sub("", self.text))])

    def links(self) -> list[str]:
        """Where links lead, but those within code."""
        return re.findall(r"\]\(([^)\s]+)\)", _FENCED.sub("", self.text))

    def anchors(self) -> set[str]:
        """The anchors of headings, as GitHub makes them."""
        headings = re.findall(r"^#+ +(.*?) *$", _FENCED.sub("", self.text), re.MULTILINE)
        return {re.sub(r"[^\w\- ]", "", each.lower()).replace(" ", "-") for each in headings}


def _cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip().strip("|").split("|")]


def words(text: str) -> list[str]:
    """What is in backticks."""
    return re.findall(r"`([^`\n]+)`", text)


def word(text: str) -> str:
    """The first of what is in backticks."""
    return words(text)[0]
