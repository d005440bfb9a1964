"""A server that answers by path, as an API server would."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from tests.unit.upstream.servers import Server, serving

Body = bytes | tuple[int, bytes]
"""A body, or a status and a body."""

Routes = Mapping[str, Body]


def refused(code: int, **members: Any) -> Body:
    """A Status."""
    status = {"kind": "Status", "code": code, "message": f"refused with {code}", **members}
    return code, json.dumps(status).encode()


@asynccontextmanager
async def serving_routes(routes: Routes) -> AsyncIterator[Server]:
    """Serve the bodies of *routes*; 404 for any other path."""

    async def handle(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        path = server.first_lines[-1].split()[1].partition("?")[0]
        found = routes.get(path, refused(404))
        status, body = found if isinstance(found, tuple) else (200, found)
        writer.write(b"HTTP/1.1 %d X\r\nContent-Length: %d\r\n\r\n%s" % (status, len(body), body))

    async with serving(handle) as server:
        yield server
