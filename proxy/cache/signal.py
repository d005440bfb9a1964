"""Waking whoever waits for news of an informer."""

import asyncio


class Signal:
    """A bell: everybody who waits is woken at each ring; nothing is queued."""

    def __init__(self) -> None:
        self._future: asyncio.Future[None] | None = None

    def ring(self) -> None:
        """Wake all that wait now."""
        if self._future is not None and not self._future.done():
            self._future.set_result(None)
        self._future = None

    def next(self) -> asyncio.Future[None]:
        """The next ring, shared by all; look at the state after taking it.

        Only for ``asyncio.wait``: cancelling it would cancel it for everybody.
        """
        if self._future is None:
            self._future = asyncio.get_running_loop().create_future()
        return self._future
