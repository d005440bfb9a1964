"""The status page: one table, no scripts."""

from collections.abc import Iterable, Mapping
from html import escape
from typing import Any

from proxy.server.columns import rows, state

_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta http-equiv="refresh" content="5">
<title>kubecache</title>
<style>
body {{ font: 14px/1.5 system-ui, sans-serif; margin: 2rem; }}
table {{ border-collapse: collapse; }}
th, td {{ padding: .3rem .8rem; border-bottom: 1px solid #ccc; text-align: left; }}
</style></head>
<body><h1>kubecache {version}</h1><p>{state}</p>
<table><thead><tr>{head}</tr></thead><tbody>
{rows}
</tbody></table>
<p><a href="metrics">metrics</a> · <a href="status.json">json</a> · <a href="docs">API</a></p>
</body></html>
"""


def status_page(status: Mapping[str, Any]) -> str:
    """Lay out a status as a page that reloads itself."""
    head, *body = rows(status)
    return _PAGE.format(
        version=escape(status["version"]),
        state="<br>".join(map(escape, state(status))),
        head=_cells("th", head),
        rows="\n".join(f"<tr>{_cells('td', row)}</tr>" for row in body),
    )


def _cells(tag: str, texts: Iterable[str]) -> str:
    return "".join(f"<{tag}>{escape(text)}</{tag}>" for text in texts)
