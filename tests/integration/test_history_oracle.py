"""What many clients see through the proxy, amid faults, against the true history."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from random import Random
from typing import Any, NamedTuple

import pytest

from proxy.kube.negotiation import FormName
from tests.harness.apiserver import ApiServer
from tests.harness.faults import FaultProxy
from tests.harness.history import ABSENT, Log, Read, Tide
from tests.harness.http import Headers, ask
from tests.harness.moves import Kind, Place, kinds
from tests.harness.objects import CustomResource, crd, define
from tests.harness.players import History, Player, Truth, play
from tests.harness.proxy import Proxy
from tests.harness.violations import (
    Violation,
    backwards,
    inexact,
    lost,
    nonlinear,
    refused,
    too_old,
    unseen,
)
from tests.harness.watch_delay import WatchDelay

OPERATIONS = int(os.environ.get("KUBECACHE_TEST_OPERATIONS", "900"))
"""Reads and writes of each test, however long they take."""

FEWER = int(os.environ.get("KUBECACHE_TEST_OPERATIONS", "400"))
"""The same where reads are in all forms."""

CLIENTS = 6
OUTSIDERS = 2
"""Clients beside the proxy."""

REST = 0.03
"""Seconds between the operations of an outsider, whose answers come sooner than those of clients:
without, most of the operations would never meet the proxy."""

NAMES = ("a", "b", "c")

LATE = 0.3
"""Seconds by which events are late where nothing else is wrong."""

pytestmark = pytest.mark.timeout(3000)


class Played(NamedTuple):
    """A history, and the truth that it is held against."""

    history: History
    log: Log
    tide: Tide


Game = Callable[..., Played]


@contextmanager
def trouble(events: WatchDelay, line: FaultProxy, proxy: Proxy) -> Iterator[None]:
    """All the time something else is wrong: late events, a slow line, breaks, silence, relists."""
    ended = threading.Event()
    random = Random(7)

    def change() -> None:
        while not ended.wait(random.uniform(0.2, 1.0)):
            for each in (events, line):
                each.resume()
            events.delay(down=random.choice([0.0, 0.03, 0.1, 0.3, 0.6]))
            match random.randrange(14):
                case 0:
                    line.cut()
                case 1:
                    line.freeze()
                case 2:
                    line.throttle(200_000)
                case 3 | 4:
                    line.delay(up=0.01, down=random.choice([0.01, 0.05]))
                case 5:
                    _relist(proxy)

    thread = threading.Thread(target=change, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join(10)
        for each in (events, line):
            each.resume()


def _relist(proxy: Proxy) -> None:
    for each in ask(proxy.admin, "GET", "/status.json").ok().json()["informers"]:
        ask(proxy.admin, "POST", f"/informers/{each['id']}/relist")


@pytest.fixture(scope="module")
def played_kinds(apiserver: ApiServer) -> Sequence[Kind]:
    custom: CustomResource = define(apiserver.server, crd("Memory", group="history.kubecache.dev"))
    return kinds(custom)


@pytest.fixture
def game(apiserver: ApiServer, played_kinds: Sequence[Kind]) -> Game:
    def game(
        *flags: str,
        headers: Headers = (),
        delay: float | None = None,
        operations: int = OPERATIONS,
        forms: Sequence[FormName] = (FormName.JSON,),
        cache: Mapping[str, Any] | None = None,
    ) -> Played:
        """Clients of a proxy with these flags and headers; amid trouble, or just a delay."""
        namespaces = [apiserver.new_namespace() for _ in range(2)]
        history = History()
        with ExitStack() as stack:
            line = stack.enter_context(FaultProxy(apiserver.port))
            events = stack.enter_context(WatchDelay(line.port, delay or 0.0))
            truth = stack.enter_context(Truth(apiserver.server, played_kinds, namespaces))
            kubeconfig = apiserver.kubeconfig(port=events.port)
            config = {"cache": {**_named(played_kinds, forms), **(cache or {})}}
            proxy = stack.enter_context(Proxy(kubeconfig, *flags, config=config, chain=False))
            places = [Place(k, n, name) for k in played_kinds for n in namespaces for name in NAMES]
            players = {
                Player(
                    f"c{n}",
                    proxy.read,
                    history,
                    places,
                    through_proxy=True,
                    headers=headers,
                    forms=forms,
                ): 0.3
                for n in range(CLIENTS)
            }
            for n in range(OUTSIDERS):
                beside = Player(
                    f"d{n}",
                    apiserver.server,
                    history,
                    places,
                    through_proxy=False,
                    forms=forms,
                    rest=REST,
                )
                players[beside] = 0.8
            with trouble(events, line, proxy) if delay is None else nullcontext():
                play(players, operations)
            truth.end()
            history.find(truth)
            return Played(history, truth.log, truth.tide)

    return game


def _named(played: Sequence[Kind], forms: Sequence[FormName]) -> dict[str, Any]:
    resources = []
    for kind in played:
        group = kind.group_version.rpartition("/")[0]
        name = f"{kind.plural}.{group}" if group else kind.plural
        # Protobuf is for built-in groups, which have no dots here.
        shown = [str(form) for form in forms if form is not FormName.PROTOBUF or "." not in group]
        resources.append({"resource": name, "forms": shown})
    return {"resources": resources}


def assert_none(violations: Sequence[Violation]) -> None:
    first = "\n".join(map(str, violations[:5]))
    assert not violations, f"{len(violations)}, the first ones:\n{first}"


def assert_sound(played: Played) -> None:
    """What holds in every mode: answers are states that were, and versions are checked."""
    history, log, tide = played
    assert_none(inexact(log, history.reads, tide))
    assert_none(lost(log, history.updates))
    assert_none(refused(log, history.updates, tide))


def assert_cached(history: History, share: float) -> None:
    """The cache has answered such a share of the reads, so that it's it which is checked.

    What isn't answered isn't checked, so that has to be little.
    """
    through, hits, unanswered = len(history.through_proxy), len(history.hits), history.unanswered
    print(f"{len(history.proxied_writes)} of {len(history.writes)} writes through the proxy")
    print(f"{through} reads through it, {hits} cached; {len(unanswered)} unanswered")
    assert hits > share * through
    assert len(unanswered) < 0.1 * through, unanswered[:5]


class Forms(NamedTuple):
    """What reads ask for, and in how many operations."""

    forms: Sequence[FormName]
    operations: int


IN_JSON = Forms([FormName.JSON], OPERATIONS)
IN_ALL = Forms([*FormName], FEWER)
"""Each read of a client is in another one: behind what one has shown, no other goes back."""

READS = pytest.mark.parametrize("reads", [IN_JSON, IN_ALL], ids=["json", "all-forms"])


@READS
def test_session(game: Game, reads: Forms) -> None:
    """Everybody sees what was written through the proxy, and goes on from what was shown."""
    history, log, tide = played = game(**reads._asdict())
    assert_cached(history, 0.4)
    assert_sound(played)
    assert_none(unseen(log, history.proxied_writes, history.through_proxy, tide))
    assert_none(backwards(log, history.through_proxy, tide))


@READS
def test_strict(game: Game, reads: Forms) -> None:
    """Proxy and API server together are one register for each object."""
    history, log, tide = played = game("--consistency", "strict", **reads._asdict())
    assert_cached(history, 0.1)
    assert_sound(played)
    assert_none(nonlinear(log, history.writes, history.reads, tide))
    assert_none(backwards(log, history.through_proxy, tide))


@READS
def test_eventual(game: Game, reads: Forms) -> None:
    """What is cached only moves on, whoever reads it in a form."""
    history, log, tide = played = game("--consistency", "eventual", **reads._asdict())
    assert_cached(history, 0.5)
    assert_sound(played)
    for form in reads.forms:
        hits = [each for each in history.hits if each.form == form]
        assert_none(nonlinear(log, (), hits, tide))
        assert_none(backwards(log, hits, tide))


@pytest.mark.parametrize(
    ("seconds", "reads"),
    [(1, IN_JSON), (1, IN_ALL), (2, IN_JSON)],
    ids=["1", "1-all-forms", "2"],
)
def test_max_age(game: Game, seconds: int, reads: Forms) -> None:
    bounded = (("Cache-Control", f"max-age={seconds}"),)
    history, log, tide = played = game(headers=bounded, **reads._asdict())
    assert_cached(history, 0.2)
    assert_sound(played)
    assert_none(unseen(log, history.writes, history.through_proxy, tide, within=seconds))
    assert_none(unseen(log, history.proxied_writes, history.through_proxy, tide))
    assert_none(backwards(log, history.through_proxy, tide))
    assert_none(too_old(history.reads, seconds))


def test_max_staleness(game: Game) -> None:
    history, log, tide = played = game("--max-staleness", "200ms", "--consistency", "eventual")
    assert_cached(history, 0.1)
    assert_sound(played)
    assert_none(unseen(log, history.writes, history.through_proxy, tide, within=0.2))
    assert_none(too_old(history.reads, 0.2))


def _misses(reads: Sequence[Read]) -> list[Read]:
    return [read for read in reads if read.found.get(read.key, ABSENT) == ABSENT and read.key]


def test_confirmed_misses(game: Game) -> None:
    """What is not found isn't there, also where nothing else is promised."""
    history, log, tide = game("--consistency", "eventual", cache={"on_miss": "confirm"})
    assert_none(unseen(log, history.writes, _misses(history.through_proxy), tide))


def test_without_session_writes_are_missed(game: Game) -> None:
    """As everywhere below, this shows that the checker finds what there is to find."""
    history, log, tide = game("--consistency", "eventual", delay=LATE, operations=600)
    assert unseen(log, history.proxied_writes, history.through_proxy, tide)
    assert unseen(log, history.writes, _misses(history.through_proxy), tide)
    assert backwards(log, history.through_proxy, tide)  # behind what was seen live


def test_without_strict_what_others_write_is_missed(game: Game) -> None:
    history, log, tide = game("--consistency", "session", delay=LATE, operations=600)
    assert_none(unseen(log, history.proxied_writes, history.through_proxy, tide))
    assert nonlinear(log, history.writes, history.reads, tide)


def test_without_a_bound_reads_are_older(game: Game) -> None:
    history, log, tide = game(delay=LATE, operations=600)
    assert unseen(log, history.writes, history.through_proxy, tide, within=LATE / 3)
