"""Listeners: uvicorn servers on one loop, started and ended together."""

import asyncio
import errno
import logging
import os
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import uvicorn

from proxy.cache.supervisor import Supervisor
from proxy.server.addresses import Address
from proxy.server.protocol import Protocol

GRACE = 8
"""Seconds that requests may still take once a listener closes."""

KEEPALIVE = 180
"""Seconds an idle connection is kept: longer than clients do (Go: 90), so that they close first."""

_BACKLOG = 2048


class Listener:
    """One bound address and the app behind it; signals are the process's business, not its own."""

    def __init__(self, app: Callable[..., Any], address: Address, *, grace: int = GRACE) -> None:
        self._address = address
        self._server = uvicorn.Server(
            uvicorn.Config(
                app,
                interface="asgi3",
                http=Protocol,
                ws="none",
                lifespan="off",
                log_config=None,
                access_log=False,
                server_header=False,
                proxy_headers=False,
                timeout_keep_alive=KEEPALIVE,
                timeout_graceful_shutdown=grace,
            )
        )
        self._task: asyncio.Task[None] | None = None
        self.port = address.port

    def __str__(self) -> str:
        """Spell the address as the setting does, with the port that it got."""
        return str(self._address._replace(port=self.port))

    def open(self, supervisor: Supervisor) -> None:
        """Bind and serve; ``port`` is then the one it got. Raises OSError."""
        bound = _bind(self._address)
        if not self._address.path:
            self.port = bound.getsockname()[1]
        serving = self._server._serve([bound])  # serve() would take over the signals
        self._task = supervisor.spawn(serving, name=f"listener {self._address}")

    async def close(self) -> None:
        """Stop accepting, let requests end, then cut those that don't."""
        self._server.should_exit = True
        if self._task is not None:
            await self._task
        if self._address.path:
            _unlink(self._address.path)


def _bind(address: Address) -> socket.socket:
    """Bind a listening socket; a Unix one is for its owner and group."""
    try:
        if address.path:
            return _bind_unix(address.path)
        family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
        return socket.create_server(address[:2], family=family, backlog=_BACKLOG)
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno else str(error)
        raise OSError(f"can't listen on {address}: {reason}") from error


def _bind_unix(path: str) -> socket.socket:
    _remove_abandoned(path)
    bound = socket.socket(socket.AF_UNIX)
    mask = os.umask(0o117)
    try:
        bound.bind(path)
        bound.listen(_BACKLOG)
    except OSError:
        bound.close()
        raise
    finally:
        os.umask(mask)
    return bound


def _unlink(path: str) -> None:
    Path(path).unlink(missing_ok=True)


def _remove_abandoned(path: str) -> None:
    """Remove a socket that a dead process left. Raises OSError when somebody listens on it."""
    if not Path(path).is_socket():
        return
    with socket.socket(socket.AF_UNIX) as probe:
        try:
            probe.connect(path)
        except ConnectionRefusedError:
            _unlink(path)
        else:
            raise OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE))


def quiet_uvicorn() -> None:
    """Keep uvicorn's own start and stop messages out of the log."""
    logging.getLogger("uvicorn.error").setLevel(logging.WARNING)
