"""Tasks that live as long as the process: one that fails is a failure of all."""

import asyncio
from collections.abc import Coroutine
from typing import Any


class Supervisor:
    """Starts long-lived tasks; ``failure`` raises what the first of them that failed raised.

    Without it a task that dies is noticed by nobody: what it kept up to date just grows stale.
    """

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()
        self._failure: asyncio.Event = asyncio.Event()
        self._error: BaseException | None = None

    def spawn(self, work: Coroutine[Any, Any, None], *, name: str) -> asyncio.Task[None]:
        """Start a task that may end, or be cancelled, but not fail."""
        task = asyncio.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            error.add_note(f"in the task {task.get_name()!r}")
            self._error = self._error or error
            self._failure.set()

    async def failure(self) -> None:
        """Wait until a task fails. Raises its error."""
        await self._failure.wait()
        assert self._error is not None
        raise self._error
