"""Long-lived tasks: which ends are failures."""

import asyncio

import pytest

from proxy.cache.supervisor import Supervisor
from tests.unit import virtual_time
from tests.unit.builders import Clock


async def end(error: Exception | None, after: float) -> None:
    await asyncio.sleep(after)
    if error is not None:
        raise error


def test_a_task_that_fails_is_a_failure_and_says_which_it_was() -> None:
    async def run() -> None:
        supervisor = Supervisor()
        supervisor.spawn(end(None, 1), name="ends")
        supervisor.spawn(end(ValueError("later"), 3), name="later")
        supervisor.spawn(end(KeyError("first"), 2), name="first")
        supervisor.spawn(end(None, 3600), name="cancelled").cancel()
        await asyncio.sleep(5)
        with pytest.raises(KeyError, match="first") as raised:
            await supervisor.failure()
        assert raised.value.__notes__ == ["in the task 'first'"]

    virtual_time.run(run(), Clock())


def test_without_a_failure_it_is_waited_for() -> None:
    async def run() -> None:
        supervisor = Supervisor()
        supervisor.spawn(end(None, 1), name="ends")
        task = supervisor.spawn(end(None, 3600), name="cancelled")
        waiting = asyncio.create_task(supervisor.failure())
        await asyncio.sleep(2)
        task.cancel()
        await asyncio.sleep(2)
        assert not waiting.done()
        waiting.cancel()

    virtual_time.run(run(), Clock())
