"""The status page: one table, no scripts."""

from collections.abc import Mapping
from html import escape
from typing import Any

_COLUMNS = (
    ("id", "Informer"),
    ("synced", "Synced"),
    ("objects", "Objects"),
    ("raw_bytes", "Bytes"),
    ("resource_version", "resourceVersion"),
    ("staleness", "Staleness (s)"),
    ("unproven", "Unproven (s)"),
    ("lag", "Lag (s)"),
    ("stalled", "Stalled"),
    ("watchers", "Watchers"),
    ("last_error", "Last error"),
)

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
    return _PAGE.format(
        version=escape(status["version"]),
        state=escape(_state(status)),
        head=_cells("th", (title for _, title in _COLUMNS)),
        rows="\n".join(
            f"<tr>{_cells('td', (_text(informer[key]) for key, _ in _COLUMNS))}</tr>"
            for informer in status["informers"]
        ),
    )


def _state(status: Mapping[str, Any]) -> str:
    state = "ready" if status["ready"] else "not ready"
    unreached = status["unreached"]
    return f"{state}; no contact with the API server yet: {unreached}" if unreached else state


def _text(value: Any) -> str:
    return "-" if value is None else str(value)


def _cells(tag: str, texts: Any) -> str:
    return "".join(f"<{tag}>{escape(text)}</{tag}>" for text in texts)
