"""The status page: what it shows, and that names in it are no markup."""

from __future__ import annotations

from html.parser import HTMLParser
from typing import Any

import pytest

from proxy.server.page import status_page

INFORMER: dict[str, Any] = {
    "id": "pods.v1/team-a",
    "named": True,
    "synced": True,
    "resource_version": "1234",
    "objects": 7,
    "raw_bytes": 4096,
    "staleness": 1.5,
    "unproven": 3.25,
    "lag": None,
    "stalled": False,
    "watchers": 2,
    "last_error": "",
}


class Page(HTMLParser):
    """The rows of the page's table, and the tags that it is made of."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.rows: list[list[str]] = []
        self.tags: set[str] = set()
        self._open = ""
        self.feed(text)

    def handle_starttag(self, tag: str, _: object) -> None:
        self.tags.add(tag)
        self._open = tag
        if tag == "tr":
            self.rows.append([])
        elif tag in ("td", "th"):
            self.rows[-1].append("")

    def handle_endtag(self, _: str) -> None:
        self._open = ""

    def handle_data(self, text: str) -> None:
        if self._open in ("td", "th"):
            self.rows[-1][-1] += text


def page_of(
    *informers: dict[str, Any],
    version: str = "0.1.0",
    ready: bool = True,
    unready: dict[str, str] | None = None,
    unreached: str = "",
) -> str:
    told = {"version": version, "ready": ready, "unready": unready or {}, "unreached": unreached}
    return status_page({**told, "informers": informers})


def test_an_apiserver_that_has_not_answered_yet() -> None:
    told = "<p>ready<br>no contact with the API server yet: a &lt;b&gt;</p>"
    assert told in page_of(unreached="a <b>")
    assert "no contact" not in page_of()


def test_what_is_not_ready_is_told_with_its_reason() -> None:
    told = page_of(ready=False, unready={"pod.v1": "the server has no <pod>"})
    assert "<p>not ready<br>pod.v1: the server has no &lt;pod&gt;</p>" in told


def test_an_informer_is_a_row() -> None:
    head, row = Page(page_of(INFORMER)).rows
    assert dict(zip(head, row, strict=True)) == {
        "INFORMER": "pods.v1/team-a",
        "NAMED": "yes",
        "SYNCED": "yes",
        "OBJECTS": "7",
        "BYTES": "4096",
        "VERSION": "1234",
        "STALENESS": "1.5s",
        "UNPROVEN": "3.2s",
        "LAG": "-",
        "STALLED": "no",
        "WATCHERS": "2",
        "ERROR": "",
    }


@pytest.mark.parametrize("count", [0, 1, 3])
def test_there_is_a_row_for_each(count: int) -> None:
    informers = [INFORMER | {"id": f"r{number}"} for number in range(count)]
    assert [row[0] for row in Page(page_of(*informers)).rows[1:]] == [f"r{n}" for n in range(count)]


@pytest.mark.parametrize(("ready", "state"), [(True, "<p>ready</p>"), (False, "<p>not ready</p>")])
def test_it_says_whether_the_proxy_is_ready(*, ready: bool, state: str) -> None:
    assert state in page_of(ready=ready)


@pytest.mark.parametrize("evil", ["<script>x</script>", "a & b", '"><img>', "{version}", "{0}"])
def test_what_others_wrote_is_text(evil: str) -> None:
    page = Page(page_of(INFORMER | {"id": evil, "last_error": evil}))
    assert [page.rows[1][0], page.rows[1][-1]] == [evil, evil]
    assert not {"script", "img"} & page.tags
