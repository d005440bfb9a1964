"""Show a running proxy's informers."""

import argparse
import json
import sys
import urllib.request
from collections.abc import Sequence
from typing import Any

COLUMNS = (
    ("INFORMER", "id"),
    ("NAMED", "named"),
    ("SYNCED", "synced"),
    ("OBJECTS", "objects"),
    ("BYTES", "raw_bytes"),
    ("VERSION", "resource_version"),
    ("STALENESS", "staleness"),
    ("UNPROVEN", "unproven"),
    ("LAG", "lag"),
    ("STALLED", "stalled"),
    ("WATCHERS", "watchers"),
    ("ERROR", "last_error"),
)

_DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))
"""Asks without the web proxy of the environment, which can't reach this host."""


def main(arguments: Sequence[str]) -> int:
    """Print the status as a table; returns 1 when the proxy can't be reached or isn't ready."""
    parser = argparse.ArgumentParser(
        "kubecache status",
        description=__doc__,
        epilog="The columns are explained in docs/metrics.md.",
    )
    parser.add_argument("--admin", default="127.0.0.1:8002", help="the proxy's admin listener")
    parser.add_argument("-o", "--output", choices=("table", "json"), default="table")
    options = parser.parse_args(arguments)
    try:
        with _DIRECT.open(f"http://{options.admin}/status.json", timeout=5) as answer:
            status = json.load(answer)
    except (OSError, ValueError) as error:
        print(f"kubecache status: {options.admin}: {error}", file=sys.stderr)
        return 1
    print(json.dumps(status, indent=2) if options.output == "json" else render(status))
    return 0 if status["ready"] else 1


def render(status: dict[str, Any]) -> str:
    """Lay out a status as text."""
    rows = [[title for title, _ in COLUMNS]]
    rows += [[_cell(each[key]) for _, key in COLUMNS] for each in status["informers"]]
    text = f"kubecache {status['version']}, {'ready' if status['ready'] else 'not ready'}\n"
    if status["unreached"]:
        text += f"no contact with the API server yet: {status['unreached']}\n"
    text += "\n" + _table(rows)
    for title in ("conflicts", "merges", "live_reads"):
        counts = [f"{name} {count}" for name, count in sorted(status[title].items()) if count]
        if counts:
            text += f"\n\n{title.replace('_', ' ')}: {', '.join(counts)}"
    if status["scans"]:
        scans = [["LISTS THAT SCAN", "SELECTOR", "COUNT"]]
        scans += [
            [each["resource"], each["selector"], str(each["lists"])] for each in status["scans"]
        ]
        text += "\n\n" + _table(scans)
    return text


def _cell(value: Any) -> str:
    match value:
        case bool():
            return "yes" if value else "no"
        case None:
            return "-"
        case float() if value < 1:
            return f"{value * 1000:.1f}ms"
        case float():
            return f"{value:.1f}s"
        case _:
            return str(value)


def _table(rows: list[list[str]]) -> str:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ("   ".join(map(str.ljust, row, widths)).rstrip() for row in rows)
    return "\n".join(lines)
