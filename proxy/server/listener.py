"""Listeners: uvicorn servers on one loop, started and ended together."""

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import uvicorn

from proxy.server.protocol import Protocol
from proxy.server.settings import Address

GRACE = 8.0
"""Seconds that requests may still take once a listener closes."""


class Listener(uvicorn.Server):
    """One bound address and the app behind it; signals are the process's business, not its own."""

    def __init__(self, app: Callable[..., Any], address: Address) -> None:
        where: dict[str, Any] = (
            {"uds": address.path} if address.path else {"host": address.host, "port": address.port}
        )
        super().__init__(
            uvicorn.Config(
                app,
                **where,
                http=Protocol,
                ws="none",
                lifespan="off",
                log_config=None,
                access_log=False,
                server_header=False,
                proxy_headers=False,
                timeout_keep_alive=90,
                timeout_graceful_shutdown=int(GRACE),
            )
        )
        if address.path:  # a socket that a dead process left
            Path(address.path).unlink(missing_ok=True)
        self._address = address
        self._task: asyncio.Task[None] | None = None

    async def open(self) -> None:
        """Bind and serve. Raises OSError when the address can't be had."""
        self._task = asyncio.create_task(self._serve(), name=f"listener {self._address}")
        while not self.started:
            if self._task.done():
                self._task.result()
                raise OSError(f"can't listen on {self._address}")
            await asyncio.sleep(0.01)

    @property
    def port(self) -> int:
        """The port that it got, where the address left it open."""
        port: int = self.servers[0].sockets[0].getsockname()[1]
        return port

    async def close(self) -> None:
        """Stop accepting, let requests end, then cut those that don't."""
        self.should_exit = True
        if self._task is not None:
            await self._task


def quiet_uvicorn() -> None:
    """Keep uvicorn's own start and stop messages out of the log."""
    logging.getLogger("uvicorn.error").setLevel(logging.WARNING)
