"""The first contact with the API server: whether it answers is known before anybody asks it."""

import asyncio
import logging
from collections.abc import Awaitable, Callable

from proxy.cache.backoff import Backoff
from proxy.kube.errors import ApiError, ServiceUnavailable, Timeout, Unauthorized
from proxy.upstream.client import Client

log = logging.getLogger(__name__)

PATIENCE = 5.0
"""Seconds that an answer is waited for: it's a constant."""

MAX_PAUSE = 10.0
"""Seconds between attempts at most, so that it's soon told that the API server is there."""


class Contact:
    """Asks for the API server's version until there is an answer.

    ``error`` is why there is none yet; empty before the first attempt, and once there is one.
    """

    def __init__(
        self, client: Client, *, sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    ) -> None:
        self.error = ""
        self._client = client
        self._sleep = sleep

    async def make(self) -> None:
        """Try on until it answers; the log tells of each error once, and of its end."""
        backoff = Backoff()
        server = self._client.credentials.server
        while error := await self._attempt():
            if error != self.error:
                log.warning("%s: no contact yet, it's tried on: %s", server, error)
            self.error = error
            await self._sleep(min(backoff.next(), MAX_PAUSE))
        if self.error:
            log.info("%s answers now", server)
        self.error = ""

    async def _attempt(self) -> str:
        """Say why it fails. A refusal is an answer, unless it's of the proxy's credentials."""
        try:
            async with asyncio.timeout(PATIENCE):
                await self._client.get("/version")
        except (ServiceUnavailable, Timeout, Unauthorized) as error:
            return str(error)
        except TimeoutError:
            return f"no answer within {PATIENCE:.0f} s"
        except ApiError:
            pass
        return ""
