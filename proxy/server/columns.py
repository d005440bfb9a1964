"""The status as people read it, for the command and the page: columns, cells, and what is amiss."""

from collections.abc import Iterator, Mapping
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


def rows(status: Mapping[str, Any]) -> Iterator[list[str]]:
    """Lay out the informers, a row each, below the titles; those of a resource stand together."""
    yield [title for title, _ in COLUMNS]
    for informer in sorted(status["informers"], key=lambda each: str(each["id"])):
        yield [_cell(informer[key]) for _, key in COLUMNS]


def state(status: Mapping[str, Any]) -> Iterator[str]:
    """Say whether the proxy is ready, and a line each why it isn't."""
    yield "ready" if status["ready"] else "not ready"
    if status["unreached"]:
        yield f"no contact with the API server yet: {status['unreached']}"
    for name, reason in status["unready"].items():
        yield f"{name}: {reason}"


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
