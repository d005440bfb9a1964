"""Reflector and informer together, on a server that fails in every way: nothing is skipped.

Design invariant 2: who follows an informer's history has every change, in order and once, or what
leads to the same state where a relist hid the steps.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from math import inf
from typing import NamedTuple

from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.cache.backoff import Backoff
from proxy.cache.informer import Informer
from proxy.cache.recovery import RefusedError
from proxy.cache.reflector import Reflector
from proxy.cache.scope import Scope
from proxy.cache.store import Store
from proxy.forms.form import EventType, Form
from proxy.forms.objects import Object
from proxy.kube.errors import ApiError, Expired, InternalError, Invalid, ServiceUnavailable
from tests.unit.builders import PODS, Clock, Item, error_line, item

NAMES = ["x", "x-1", "x.1", "y"]

FAULTS = {
    "end": None,
    "silent": None,
    "broken": ServiceUnavailable("the connection broke"),
    "failed": InternalError("etcd"),
    "expired": Expired("too old"),
    "refused": Invalid("no such parameters"),
}


class Write(NamedTuple):
    """A change that the server made, as a watch tells it."""

    version: int
    type: EventType
    item: Item


class Fault(NamedTuple):
    """How one answer of the server ends: after some lines, as an event or by HTTP."""

    kind: str
    after: int
    as_event: bool
    progress: int
    """Writes that happen before the answer begins."""


@st.composite
def histories(draw: st.DrawFn) -> list[Write]:
    writes: list[Write] = []
    held: dict[str, str] = {}
    version = 10
    for name in draw(st.lists(st.sampled_from(NAMES), max_size=30)):
        version += draw(st.integers(1, 3))
        if name in held and draw(st.booleans()):
            found = item(name, version=version, uid=held.pop(name))
            writes.append(Write(version, EventType.DELETED, found))
            continue
        kind = EventType.MODIFIED if name in held else EventType.ADDED
        uid = held.setdefault(name, f"{name}-{version}")
        writes.append(Write(version, kind, item(name, version=version, uid=uid)))
    return writes


faults = st.lists(
    st.builds(
        Fault, st.sampled_from(list(FAULTS)), st.integers(0, 5), st.booleans(), st.integers(0, 8)
    ),
    max_size=10,
)


class AllToldError(Exception):
    """The watch has told everything and has no fault left; not a failure that is retried."""


class FailingServer:
    """A server that goes through its history while each of its answers fails in another way."""

    def __init__(self, writes: list[Write], faults: list[Fault]) -> None:
        self._writes = writes
        self._faults = list(faults)
        self._done = 0
        self.open = 0

    @property
    def _now(self) -> int:
        return self._writes[self._done - 1].version if self._done else 10

    def state(self) -> list[Item]:
        """What exists now."""
        held: dict[str, Item] = {}
        for write in self._writes[: self._done]:
            name = write.item["metadata"]["name"]
            if write.type is EventType.DELETED:
                del held[name]
            else:
                held[name] = write.item
        return [held[name] for name in sorted(held)]

    def _next_fault(self) -> Fault | None:
        fault = self._faults.pop(0) if self._faults else None
        step = fault.progress if fault else len(self._writes)
        self._done = min(self._done + step, len(self._writes))
        return fault

    async def describe(self) -> Form:
        return PODS.form()

    async def list_page(self, limit: int, continue_token: str) -> bytes:
        self._next_fault()
        return PODS.page(*self.state(), version=self._now)

    async def current_version(self) -> int:
        return self._now

    async def list_object(self, key: str) -> bytes:
        name = key.rpartition("/")[2]
        found = [each for each in self.state() if each["metadata"]["name"] == name]
        return PODS.page(*found, version=self._now)

    def barrier(self, version: int) -> AsyncGenerator[Sequence[bytes], None]:
        return self.watch(version)

    async def watch(self, version: int | None) -> AsyncGenerator[Sequence[bytes], None]:
        self.open += 1
        try:
            fault = self._next_fault()
            lines = self._initial() if version is None else self._since(version)
            for line in lines[: fault.after if fault else None]:
                yield [line]
            async for line in self._fail(fault):
                yield [line]
        finally:
            self.open -= 1

    def _initial(self) -> list[bytes]:
        objects = [PODS.event(EventType.ADDED, found) for found in self.state()]
        return [*objects, PODS.bookmark(self._now, initial_end=True)]

    def _since(self, version: int) -> list[bytes]:
        newer = [write for write in self._writes[: self._done] if write.version > version]
        lines = [PODS.event(write.type, write.item) for write in newer]
        return [*lines, PODS.bookmark(self._now)]

    async def _fail(self, fault: Fault | None) -> AsyncGenerator[bytes, None]:
        if fault is None:
            raise AllToldError
        error: ApiError | None = FAULTS[fault.kind]
        if fault.kind == "silent":
            await asyncio.Future()
        if error is not None and fault.as_event:
            yield error_line(error)
        elif error is not None:
            raise error


class WitnessedInformer(Informer):
    """An informer that remembers the first state it was given."""

    first: dict[str, Object] | None = None

    async def replace(self, form: Form, store: Store, version: int, asked: float = -inf) -> None:
        if self.first is None:
            self.first = {found.key: found for found in store.snapshot()}
        await super().replace(form, store, version, asked)


def _raw(found: Object | None) -> bytes:
    return found.raw if found else b""


def followed(informer: WitnessedInformer) -> dict[str, Object]:
    """Follow the history from the first state on, holding each event to what came before it."""
    assert informer.view is not None
    state = dict(informer.first or {})
    version = informer.view.history.floor
    for event in informer.view.history.read(0, 10**6) or ():
        key = event.object.key
        assert event.version > version
        assert _raw(event.previous) == _raw(state.get(key))
        version = event.version
        if event.type is EventType.DELETED:
            del state[key]
        else:
            assert (key in state) is (event.type is EventType.MODIFIED)
            state[key] = event.object
    return state


@given(histories(), faults)
@settings(max_examples=150)
def test_whatever_fails_the_history_leads_to_the_servers_state(
    writes: list[Write], failing: list[Fault]
) -> None:
    clock = Clock()
    server = FailingServer(writes, failing)
    informer = WitnessedInformer(Scope(PODS.info.resource), server, clock=clock)

    async def sleep(seconds: float) -> None:
        clock.advance(seconds / 100)  # or the history would forget

    reflector = Reflector(
        server, informer, Backoff(clock=clock), clock=clock, sleep=sleep, silence=0.0
    )

    async def run() -> None:
        try:
            await reflector.run()
        except AllToldError:
            return
        except RefusedError as error:
            raise AssertionError("nothing was refused for good") from error

    asyncio.run(run())
    assert server.open == 0
    view = informer.view
    assert view is not None
    expected = [PODS.in_list(found) for found in server.state()]
    assert [found.raw for found in view.store.snapshot()] == expected
    assert [found.raw for _, found in sorted(followed(informer).items())] == expected
