"""The registry of informers: what starts them, which one answers, what stops them.

Time is virtual: whoever sleeps wakes as soon as all others wait too.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from proxy.cache.expectations import Expectation
from proxy.cache.health import STALLED
from proxy.cache.informer import Informer
from proxy.cache.informers import (
    LACKING_PAUSE,
    MAX_NAMESPACES,
    REFUSED_PAUSE,
    Informers,
    Policy,
)
from proxy.cache.lag import Write
from proxy.cache.recovery import Trigger
from proxy.cache.scope import Scope
from proxy.cache.view import Ending
from proxy.forms.form import Change, EventType
from proxy.kube.errors import (
    Forbidden,
    InternalError,
    MethodNotAllowed,
    NotAcceptable,
    NotFound,
    ServiceUnavailable,
)
from proxy.kube.negotiation import FormName
from proxy.kube.requests import Verb
from proxy.kube.resources import Resource
from tests.unit import virtual_time
from tests.unit.builders import PODS as PODS_WIRE
from tests.unit.builders import Clock, item
from tests.unit.cache.sources import ServedSource

PODS = Resource("", "v1", "pods")
NODES = Resource("", "v1", "nodes")
SECRETS = Resource("", "v1", "secrets")

AT_ONCE = {Verb.WATCH: 1, Verb.LIST: 1, Verb.GET: 1}


class Registry:
    """A registry, and an API server that serves or refuses each scope."""

    def __init__(self, clock: Clock, policy: Policy) -> None:
        self.clock = clock
        self.informers = Informers(self._source, policy, clock=clock)
        self.sources: dict[Scope, ServedSource] = {}
        self.refused: dict[Scope, Exception] = {}
        self.opened: list[str] = []

    def _source(self, scope: Scope) -> ServedSource:
        self.opened.append(str(scope))
        source = ServedSource(PODS_WIRE, self.refused.get(scope))
        self.sources[scope] = source
        return source

    def note(self, namespace: str = "", read: Verb = Verb.WATCH, resource: Resource = PODS) -> None:
        self.informers.note(Scope(resource, namespace), read)

    def found(self, namespace: str = "", resource: Resource = PODS) -> Informer:
        informer = self.informers.find(Scope(resource, namespace))
        assert informer is not None
        return informer

    @property
    def scopes(self) -> list[str]:
        return sorted(str(informer.scope) for informer in self.informers)

    @property
    def unready(self) -> list[str]:
        return [str(informer.scope) for informer in self.informers.unready]


Test = Callable[[Registry], Coroutine[Any, Any, None]]


async def settle() -> None:
    """Let everything that can happen now happen."""
    await asyncio.sleep(0.001)


def with_registry(policy: Policy | None = None) -> Callable[[Test], Callable[[], None]]:
    """Run a test with a registry of its own; at its end every stream must be closed."""

    def decorate(test: Test) -> Callable[[], None]:
        async def whole(clock: Clock) -> None:
            registry = Registry(clock, policy or Policy(AT_ONCE))
            registry.informers.start()
            await test(registry)
            await registry.informers.stop()
            assert registry.scopes == []
            assert not any(source.open for source in registry.sources.values())
            assert asyncio.all_tasks() == {asyncio.current_task()}

        def run() -> None:
            clock = Clock()
            virtual_time.run(whole(clock), clock)

        run.__name__ = test.__name__
        return run

    return decorate


# --- starting ------------------------------------------------------------------------------------


@with_registry()
async def test_a_named_informer_starts_at_once_and_becomes_ready(registry: Registry) -> None:
    registry.informers.name(Scope(PODS))
    assert registry.unready == ["pods.v1"]
    await settle()
    assert registry.unready == []
    informer = registry.found()
    assert informer.named
    assert informer.version == 10
    assert informer.reflector.relists == {Trigger.START: 1}


@with_registry(Policy())
async def test_reads_earn_an_informer_of_their_scope(registry: Registry) -> None:
    for _ in range(9):
        registry.note("a", Verb.GET)
    registry.note("b", Verb.LIST)
    assert registry.scopes == []
    registry.note("a", Verb.GET)
    registry.note("b", Verb.LIST)
    registry.note("c", Verb.WATCH)
    assert registry.scopes == ["pods.v1/a", "pods.v1/b", "pods.v1/c"]
    assert registry.unready == [], "what is earned delays no readiness"


@with_registry()
async def test_reads_of_what_is_there_start_nothing(registry: Registry) -> None:
    registry.note("a")
    registry.note("a")
    await settle()
    registry.note("a")
    assert registry.opened == ["pods.v1/a"]


@with_registry()
async def test_secrets_are_never_earned(registry: Registry) -> None:
    for read in (Verb.GET, Verb.LIST, Verb.WATCH):
        registry.note("a", read, SECRETS)
        registry.note("", read, SECRETS)
    assert registry.scopes == []
    registry.note("", Verb.LIST, Resource("example.com", "v1", "secrets"))
    assert registry.scopes == ["secrets.v1.example.com"]
    registry.informers.name(Scope(SECRETS, "a"))
    assert registry.scopes == ["secrets.v1.example.com", "secrets.v1/a"]


@with_registry()
async def test_one_namespace_too_many_earns_the_whole_resource(registry: Registry) -> None:
    for number in range(MAX_NAMESPACES):
        registry.note(f"n{number}")
    assert registry.scopes == [f"pods.v1/n{number}" for number in range(MAX_NAMESPACES)]
    registry.note("n0", resource=NODES)
    assert registry.opened[-1] == "nodes.v1/n0", "resources are counted apart"
    registry.note("one-more")
    assert registry.opened[-1] == "pods.v1"
    assert "pods.v1/one-more" not in registry.opened


@with_registry()
async def test_namespaces_are_earned_on_where_the_whole_is_refused(registry: Registry) -> None:
    registry.refused[Scope(PODS)] = Forbidden("only namespaces")
    for number in range(MAX_NAMESPACES):
        registry.note(f"n{number}")
    registry.note("one-more")
    await settle()
    assert "pods.v1" not in registry.scopes
    registry.note("one-more")
    assert "pods.v1/one-more" in registry.scopes


# --- finding -------------------------------------------------------------------------------------


@with_registry()
async def test_only_what_covers_a_read_is_found(registry: Registry) -> None:
    registry.note("a")
    await settle()
    assert registry.found("a").scope == Scope(PODS, "a")
    assert registry.informers.find(Scope(PODS, "b")) is None
    assert registry.informers.find(Scope(PODS)) is None
    assert registry.informers.find(Scope(NODES)) is None
    registry.informers.name(Scope(PODS))
    await settle()
    assert registry.found("b").scope == registry.found("").scope == Scope(PODS)


@pytest.mark.parametrize(
    ("whole", "part", "expected"),
    [(10, 9, ""), (10, 10, ""), (9, 10, "a"), (0, 10, "a"), (10, 0, ""), (0, 0, "a")],
)
def test_of_two_that_cover_it_the_one_that_is_further_on(
    whole: int, part: int, expected: str
) -> None:
    @with_registry()
    async def find(registry: Registry) -> None:
        for namespace, version in (("", whole), ("a", part)):
            scope = Scope(PODS, namespace)
            registry.informers.name(scope)
            source = registry.sources[scope]
            source.version = version
            if not version:
                source.failure = InternalError("never synced")
        await settle()
        assert registry.found("a").scope.namespace == expected

    find()


# --- refusals ------------------------------------------------------------------------------------


@pytest.mark.parametrize("error", [Forbidden("no"), NotFound("no"), MethodNotAllowed("no")])
def test_an_earned_scope_that_is_refused_is_let_be_for_a_while(error: Exception) -> None:
    @with_registry()
    async def refuse(registry: Registry) -> None:
        registry.refused[Scope(PODS)] = error
        registry.note()
        await settle()
        assert registry.scopes == []
        await asyncio.sleep(REFUSED_PAUSE - 1)
        registry.note()
        assert registry.opened == ["pods.v1"]
        await asyncio.sleep(1)
        del registry.refused[Scope(PODS)]
        registry.note()
        await settle()
        assert registry.opened == ["pods.v1"] * 2
        assert registry.found().is_ready

    refuse()


@pytest.mark.parametrize(("error", "lacks"), [(NotAcceptable("no"), True), (NotFound("no"), False)])
def test_a_form_that_a_resource_is_not_shown_in_is_known(error: Exception, *, lacks: bool) -> None:
    @with_registry()
    async def refuse(registry: Registry) -> None:
        registry.refused[Scope(PODS, form=FormName.PROTOBUF)] = error
        registry.informers.name(Scope(PODS, form=FormName.PROTOBUF))
        await settle()
        assert registry.informers.lacks(PODS, FormName.PROTOBUF) is lacks
        assert not registry.informers.lacks(PODS, FormName.JSON)
        assert not registry.informers.lacks(NODES, FormName.PROTOBUF)

    refuse()


@with_registry()
async def test_a_form_that_a_resource_was_not_shown_in_is_tried_again(registry: Registry) -> None:
    scope = Scope(PODS, form=FormName.PROTOBUF)
    registry.refused[scope] = NotAcceptable("no")
    registry.informers.note(scope, Verb.WATCH)
    await asyncio.sleep(LACKING_PAUSE - 1)
    assert registry.informers.lacks(PODS, FormName.PROTOBUF)
    await asyncio.sleep(2)
    assert not registry.informers.lacks(PODS, FormName.PROTOBUF)


@with_registry()
async def test_a_named_scope_that_is_refused_is_tried_until_it_works(registry: Registry) -> None:
    registry.refused[Scope(PODS)] = NotFound("no CRD yet")
    registry.informers.name(Scope(PODS))
    await asyncio.sleep(REFUSED_PAUSE)
    assert registry.unready == ["pods.v1"]
    assert registry.found().why_unready == "no CRD yet"
    registry.sources[Scope(PODS)].failure = None
    await asyncio.sleep(REFUSED_PAUSE)
    assert registry.unready == []
    assert registry.found().last_error == "", "a refusal that is over"
    assert registry.opened == ["pods.v1"], "without a namespace of its own nothing stands in"


@with_registry(Policy(own_namespace="own"))
async def test_the_own_namespace_stands_in_for_what_is_forbidden(registry: Registry) -> None:
    registry.refused[Scope(PODS)] = Forbidden("not cluster-wide")
    registry.informers.name(Scope(PODS))
    await settle()
    assert registry.scopes == ["pods.v1", "pods.v1/own"]
    assert registry.unready == [], "the stand-in is ready"
    assert registry.found("own").version == 10
    assert registry.found("other").view is None, "its reads are forwarded"
    whole = registry.found("other")
    assert registry.informers.error(whole) == "pods.v1/own stands in: not cluster-wide"
    registry.sources[Scope(PODS)].failure = None
    await asyncio.sleep(REFUSED_PAUSE)
    assert registry.found("other").is_ready
    assert registry.informers.error(whole) == ""


AWAY = ServiceUnavailable("the API server can't be reached: nobody there")


@pytest.mark.parametrize(
    ("failure", "seconds", "told"),
    [
        (AWAY, 0.1, []),  # may be a connection that broke
        (
            AWAY,
            300,
            [
                f"informer pods.v1 fails, and tries on: {AWAY}",
                "informer pods.v1 synced: 1 objects",
                "informer pods.v1 works again",
            ],
        ),
        (
            Forbidden("not yet"),
            300,
            ["informer pods.v1 refused: not yet", "informer pods.v1 synced: 1 objects"],
        ),
    ],
    ids=["once", "away", "refused"],
)
def test_failures_are_told_once_and_their_end_too(
    failure: Exception, seconds: float, told: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    @with_registry()
    async def fail(registry: Registry) -> None:
        registry.refused[Scope(PODS)] = failure
        registry.informers.name(Scope(PODS))
        await asyncio.sleep(seconds)
        assert registry.found().why_unready == str(failure)
        registry.sources[Scope(PODS)].failure = None
        await asyncio.sleep(2 * REFUSED_PAUSE)
        assert registry.found().is_ready
        assert registry.found().last_error == ""

    caplog.set_level(logging.INFO)
    fail()
    messages = [record.getMessage() for record in caplog.records]
    assert messages[:-1] == (told or ["informer pods.v1 synced: 1 objects"])
    assert messages[-1] == "informer pods.v1 stopped"


@with_registry(Policy(own_namespace="own"))
async def test_a_stand_in_is_not_listed_anew_each_time_the_whole_is_refused(
    registry: Registry,
) -> None:
    registry.refused[Scope(PODS)] = Forbidden("not cluster-wide")
    registry.informers.name(Scope(PODS))
    await asyncio.sleep(5 * REFUSED_PAUSE)
    assert registry.sources[Scope(PODS)].described > 5
    assert registry.found("own").reflector.relists == {Trigger.START: 1}


@with_registry(Policy(own_namespace="own"))
async def test_nothing_stands_in_for_what_is_not_there(registry: Registry) -> None:
    registry.refused[Scope(PODS)] = NotFound("no such resource")
    registry.informers.name(Scope(PODS))
    await settle()
    assert registry.scopes == registry.unready == ["pods.v1"]


@with_registry(Policy(own_namespace="own"))
async def test_nothing_stands_in_for_the_own_namespace(registry: Registry) -> None:
    registry.refused[Scope(PODS, "own")] = Forbidden("not even here")
    registry.informers.name(Scope(PODS, "own"))
    await asyncio.sleep(2 * REFUSED_PAUSE)
    assert registry.scopes == registry.unready == ["pods.v1/own"]
    assert registry.opened == ["pods.v1/own"]


@with_registry()
async def test_permission_that_is_lost_ends_readers(registry: Registry) -> None:
    registry.note()
    await settle()
    informer = registry.found()
    view = informer.view
    assert view is not None
    registry.sources[Scope(PODS)].failure = Forbidden("no longer")
    registry.informers.relist(informer)
    await settle()
    assert view.ended is Ending.STOPPED
    assert registry.scopes == []


@with_registry()
async def test_a_fault_of_our_own_is_logged_and_tried_again(registry: Registry) -> None:
    registry.refused[Scope(PODS)] = ZeroDivisionError("a bug")
    logging.disable(logging.CRITICAL)
    try:
        registry.note()
        await settle()
    finally:
        logging.disable(logging.NOTSET)
    assert registry.scopes == ["pods.v1"]
    registry.sources[Scope(PODS)].failure = None
    await asyncio.sleep(REFUSED_PAUSE)
    assert registry.found().is_ready


@with_registry()
async def test_a_named_informer_that_loses_its_permission_forwards_reads(
    registry: Registry,
) -> None:
    registry.informers.name(Scope(PODS))
    await settle()
    informer = registry.found()
    view = informer.view
    assert view is not None
    registry.sources[Scope(PODS)].failure = Forbidden("no longer")
    registry.informers.relist(informer)
    await settle()
    assert view.ended is Ending.STOPPED
    assert registry.found().view is None
    assert registry.unready == ["pods.v1"]


# --- going on, and ending ------------------------------------------------------------------------


@with_registry()
async def test_a_relist_goes_on_with_the_view(registry: Registry) -> None:
    registry.note()
    await settle()
    informer = registry.found()
    view = informer.view
    registry.sources[Scope(PODS)].version = 20
    registry.informers.relist(informer)
    await settle()
    assert informer.view is view
    assert informer.version == 20
    assert informer.reflector.relists == {Trigger.START: 1, Trigger.ASKED: 1}
    assert registry.sources[Scope(PODS)].open == 1


@with_registry()
async def test_naming_what_was_earned_lists_it_anew(registry: Registry) -> None:
    registry.note()
    await settle()
    informer = registry.found()
    registry.informers.name(Scope(PODS))
    await settle()
    assert registry.found() is informer
    assert informer.named
    assert informer.reflector.relists == {Trigger.START: 1, Trigger.ASKED: 1}


@with_registry()
async def test_a_server_that_was_set_back_ends_the_view(registry: Registry) -> None:
    registry.note()
    await settle()
    view = registry.found().view
    assert view is not None
    registry.sources[Scope(PODS)].version = 5
    registry.sources[Scope(PODS)].cut()
    await asyncio.sleep(10)
    assert view.ended is Ending.REWOUND
    assert registry.found().version == 5


@with_registry()
async def test_a_write_to_a_server_that_was_set_back_is_not_missed(registry: Registry) -> None:
    """Its versions may have overtaken those held before anything else could show it."""
    registry.note()
    await settle()
    informer = registry.found()
    view = informer.view
    assert view is not None
    event = PODS_WIRE.form().decode_event(
        PODS_WIRE.event(EventType.MODIFIED, item("x", version=12))
    )
    assert isinstance(event, Change)
    informer.apply(event)
    await asyncio.sleep(1)
    sent = registry.clock()
    expected = Expectation("x", sent, version=9)
    registry.informers.acknowledge(PODS, expected, Write(9, sent, sent))
    assert view.ended is Ending.REWOUND
    assert informer.expectations.of("x", "") == [expected]
    await settle()
    assert registry.found().version == 10
    assert informer.reflector.relists[Trigger.REWOUND] == 1
    assert not informer.expectations


@with_registry(Policy(AT_ONCE, idle_ttl=600.0))
async def test_what_nobody_uses_is_stopped(registry: Registry) -> None:
    registry.informers.name(Scope(NODES))
    for namespace in ("idle", "read", "watched"):
        registry.note(namespace)
    await settle()
    registry.found("watched").watchers = 1
    view = registry.found("idle").view
    assert view is not None
    for _ in range(5):
        await asyncio.sleep(300)
        registry.found("read").touch()
    assert registry.scopes == ["nodes.v1", "pods.v1/read", "pods.v1/watched"]
    assert view.ended is Ending.STOPPED
    registry.found("watched").watchers = 0
    await asyncio.sleep(700)
    assert registry.scopes == ["nodes.v1"]


@pytest.mark.parametrize(("ttl", "slept", "there"), [(600.0, 590, True), (600.0, 670, False)])
def test_idle_informers_live_as_long_as_they_should(ttl: float, slept: float, there: bool) -> None:
    @with_registry(Policy(AT_ONCE, idle_ttl=ttl))
    async def idle(registry: Registry) -> None:
        registry.note()
        await asyncio.sleep(slept)
        assert bool(registry.scopes) is there

    idle()


@with_registry()
async def test_a_stopped_informer_ends_its_readers_and_is_earned_again(registry: Registry) -> None:
    registry.note()
    await settle()
    informer = registry.found()
    view = informer.view
    assert view is not None
    registry.informers.stop_informer(informer)
    assert view.ended is Ending.STOPPED
    assert registry.informers.find(Scope(PODS)) is None
    await settle()
    assert registry.sources[Scope(PODS)].open == 0
    registry.note()
    await settle()
    assert registry.found() is not informer


@with_registry()
async def test_a_whole_that_syncs_is_waited_for(registry: Registry) -> None:
    registry.note()
    registry.note("a")
    assert registry.scopes == ["pods.v1"]


LEAN = Scope(PODS, form=FormName.METADATA)
NOTED = LEAN._replace(namespace="a")


@pytest.mark.parametrize(
    ("whole", "failure", "lean"),
    [
        (Scope(PODS), None, []),
        (Scope(PODS, "a"), None, []),
        (Scope(PODS, "b"), None, [NOTED]),
        (Scope(PODS, form=FormName.PROTOBUF), None, [NOTED]),
        (Scope(PODS), NotFound("not yet"), [NOTED]),
    ],
)
def test_metadata_wait_for_whole_objects_that_sync(
    whole: Scope, failure: Exception | None, lean: list[Scope]
) -> None:
    @with_registry()
    async def wait(registry: Registry) -> None:
        if failure:
            registry.refused[whole] = failure
        registry.informers.name(whole)
        if failure:
            await settle()
        registry.informers.note(NOTED, Verb.WATCH)
        assert registry.scopes == sorted(map(str, [whole, *lean]))

    wait()


@with_registry()
async def test_metadata_that_whole_objects_show_are_stopped(registry: Registry) -> None:
    registry.informers.note(LEAN, Verb.WATCH)
    registry.note()
    await settle()
    assert registry.scopes == sorted(map(str, [LEAN, Scope(PODS)]))
    await asyncio.sleep(61)
    assert registry.scopes == [str(Scope(PODS))]
    assert registry.informers.find_whole(LEAN) is registry.found()


@with_registry(Policy(AT_ONCE, own_namespace="own"))
async def test_a_whole_that_is_forbidden_is_not_waited_for(registry: Registry) -> None:
    registry.refused[Scope(PODS)] = Forbidden("not all")
    registry.informers.name(Scope(PODS))
    await settle()
    registry.note("a")
    assert registry.scopes == ["pods.v1", "pods.v1/a", "pods.v1/own"]


@with_registry(Policy(AT_ONCE, own_namespace="own"))
async def test_beside_a_whole_that_is_forbidden_any_number_is_earned(registry: Registry) -> None:
    registry.refused[Scope(PODS)] = Forbidden("not all")
    registry.informers.name(Scope(PODS))
    await settle()
    for namespace in "abcdefg":
        registry.note(namespace)
    assert registry.scopes == ["pods.v1", *(f"pods.v1/{name}" for name in "abcdefg"), "pods.v1/own"]


@with_registry()
async def test_a_part_that_the_whole_answers_for_is_stopped(registry: Registry) -> None:
    registry.note("a")
    registry.note("watched")
    await settle()
    registry.found("watched").watchers = 1
    registry.note()
    await settle()
    assert registry.scopes == ["pods.v1", "pods.v1/a", "pods.v1/watched"]
    await asyncio.sleep(61)
    assert registry.scopes == ["pods.v1", "pods.v1/watched"]


@pytest.mark.parametrize(("version", "left"), [(10, False), (12, True)])
def test_a_part_is_stopped_unless_it_shows_more(version: int, *, left: bool) -> None:
    """That its bookmark came later than the whole's is nothing more."""

    @with_registry()
    async def stop(registry: Registry) -> None:
        registry.note("a")
        registry.note()
        await settle()
        part = next(each for each in registry.informers if each.scope.namespace)
        part.bookmark(15)
        assert part.view is not None
        part.view.store.changed = version
        await asyncio.sleep(61)
        assert (str(part.scope) in registry.scopes) is left

    stop()


@with_registry()
async def test_what_is_stopped_leaves_what_it_has_shown_to_the_others(registry: Registry) -> None:
    """Else lists that the whole has answered go back to what a part of it holds."""
    for namespace in ("a", "b", ""):
        registry.note(namespace)
    await settle()
    whole, parts = registry.found(), [each for each in registry.informers if each.scope.namespace]
    assert [each.key for each in parts] == ["a/", "b/"]
    assert whole.view is not None
    for version, namespace in ((12, "a"), (14, "c")):
        event = PODS_WIRE.event(EventType.MODIFIED, item("x", namespace, version=version))
        change = PODS_WIRE.form().decode_event(event)
        assert isinstance(change, Change)
        whole.apply(change)
    registry.informers.stop_informer(whole)
    expected = [[each.version for each in part.expectations.of(part.key, "any")] for part in parts]
    assert expected == [[12], []]


@with_registry(Policy())
async def test_what_was_stopped_must_be_earned_as_often_again(registry: Registry) -> None:
    registry.note("a", Verb.LIST)
    registry.note("a", Verb.LIST)
    registry.informers.stop_informer(registry.found("a"))
    registry.note("a", Verb.LIST)
    assert registry.scopes == []
    registry.note("a", Verb.LIST)
    assert registry.scopes == ["pods.v1/a"]


@with_registry()
async def test_a_named_informer_that_stalls_is_not_ready(registry: Registry) -> None:
    registry.informers.name(Scope(PODS))
    await asyncio.sleep(10 * STALLED)
    assert registry.unready == [], "a bookmark a minute is life enough"
    registry.sources[Scope(PODS)].mute()
    await asyncio.sleep(2 * STALLED)
    assert registry.unready == ["pods.v1"]
    assert registry.found().why_unready == "stalled: silent for 65 s"


@with_registry(Policy(AT_ONCE, own_namespace="own"))
async def test_the_own_namespace_is_no_stand_in_for_another(registry: Registry) -> None:
    registry.refused[Scope(PODS, "other")] = Forbidden("not there")
    registry.informers.name(Scope(PODS, "other"))
    await settle()
    assert registry.scopes == ["pods.v1/other"]
    assert registry.unready == ["pods.v1/other"]


@with_registry(Policy(AT_ONCE, own_namespace="own"))
async def test_a_whole_that_is_not_forbidden_has_no_stand_in(registry: Registry) -> None:
    """Not even when the own namespace was earned and is ready."""
    registry.refused[Scope(PODS)] = InternalError("slow etcd")
    registry.informers.name(Scope(PODS))
    registry.note("own")
    await settle()
    assert registry.unready == ["pods.v1"]
