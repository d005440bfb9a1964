"""Where an informer's objects come from."""

from collections.abc import AsyncGenerator, Sequence
from typing import Protocol

from proxy.forms.form import Form

Lines = AsyncGenerator[Sequence[bytes], None]


class Source(Protocol):
    """Where a reflector lists and watches; raises ApiError, ServiceUnavailable for breaks."""

    async def describe(self) -> Form:
        """Learn the resource's form from the API server as it is now."""

    async def list_page(self, limit: int, continue_token: str) -> bytes:
        """Get one page of a consistent list."""

    async def current_version(self) -> int:
        """Learn the API server's resourceVersion now, from a consistent read."""

    async def list_object(self, key: str) -> bytes:
        """Get a consistent list of one object, which is empty if that doesn't exist."""

    def watch(self, version: int | None) -> Lines:
        """Watch from *version*; None asks for a WatchList: all objects first, then a bookmark.

        The first batch is empty, and says that the watch is accepted.
        """

    def barrier(self, version: int) -> Lines:
        """Watch from *version* for three seconds, with a bookmark after one of them."""
