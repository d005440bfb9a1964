"""The first contact: what counts as one, and what is told until it's made."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

import pytest

from proxy.upstream import contact
from proxy.upstream.contact import MAX_PAUSE, Contact
from tests.unit.upstream.routes import Body, refused, serving_routes
from tests.unit.upstream.servers import client_of, serving

Write = Callable[..., str]


def play(kubeconfig: Write, answers: Sequence[Body]) -> tuple[list[str], list[float]]:
    """Make contact with a server that gives one answer after the other.

    Returns the error before each further attempt and after the last, and the pauses between them.
    """
    left = list(answers)
    errors: list[str] = []
    pauses: list[float] = []

    async def run() -> None:
        routes = {"/version": left.pop(0)}

        async def sleep(seconds: float) -> None:
            pauses.append(seconds)
            errors.append(made.error)
            routes["/version"] = left.pop(0)

        async with serving_routes(routes) as server, client_of(kubeconfig(server.url)) as client:
            made = Contact(client, sleep=sleep)
            assert made.error == ""
            await made.make()
            errors.append(made.error)

    asyncio.run(run())
    assert not left
    return errors, pauses


@pytest.mark.parametrize("answer", [b"{}", refused(403), refused(404), refused(429), refused(500)])
def test_what_is_an_answer(
    kubeconfig: Write, answer: Body, caplog: pytest.LogCaptureFixture
) -> None:
    assert play(kubeconfig, [answer]) == ([""], [])
    assert not caplog.messages


@pytest.mark.parametrize("code", [401, 503, 504])
def test_each_error_is_told_once(
    kubeconfig: Write, code: int, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    told = f"refused with {code}"
    answers = [refused(code), refused(code), refused(503, message="other"), b"{}"]
    errors, _ = play(kubeconfig, answers)
    assert errors == [told, told, "other", ""]
    levels = [(each.levelname, each.getMessage().partition(": ")[2]) for each in caplog.records]
    assert [level for level, _ in levels] == ["WARNING", "WARNING", "INFO"]
    assert [text.rpartition(": ")[2] for _, text in levels[:2]] == [told, "other"]
    assert caplog.messages[2].endswith("answers now")


def test_pauses_grow_but_not_for_ever(kubeconfig: Write) -> None:
    _, pauses = play(kubeconfig, [*[refused(503)] * 10, b"{}"])
    assert pauses[0] < MAX_PAUSE / 2
    assert pauses[-1] == MAX_PAUSE


async def first_error(kubeconfig: str) -> str:
    """Try once."""
    paused = asyncio.Event()

    async def sleep(_: float) -> None:
        paused.set()
        await asyncio.sleep(10)

    async with client_of(kubeconfig) as client:
        made = Contact(client, sleep=sleep)
        task = asyncio.create_task(made.make())
        await paused.wait()
        task.cancel()
        return made.error


def test_a_server_that_is_not_there(kubeconfig: Write) -> None:
    async def run() -> str:
        async with serving_routes({}) as server:
            pass
        return await first_error(kubeconfig(server.url))

    assert asyncio.run(run()).startswith("the API server can't be reached: ")


def test_a_server_that_stays_silent(kubeconfig: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contact, "PATIENCE", 0.1)

    async def silent(_: asyncio.StreamReader, __: asyncio.StreamWriter) -> None:
        await asyncio.sleep(10)

    async def run() -> str:
        async with serving(silent) as server:
            return await first_error(kubeconfig(server.url))

    assert asyncio.run(run()) == "no answer within 0 s"
