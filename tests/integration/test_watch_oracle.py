"""Watches through the proxy tell what kube-apiserver's own tell, whatever happens between them."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from random import Random
from typing import Any, NamedTuple

import pytest

from proxy.kube.negotiation import FormName
from tests.harness.apiserver import ApiServer
from tests.harness.caching import caught_up
from tests.harness.differential import assert_source
from tests.harness.faults import FaultProxy
from tests.harness.follower import Follower, items, watch_target
from tests.harness.forms import CLIENTS, settled
from tests.harness.http import Answer, watch
from tests.harness.objects import CustomResource, crd, create, define
from tests.harness.proxy import Proxy, metrics
from tests.harness.traffic import Kind, Traffic, configmaps, customs, random_of_test

# Python's ssl leaves a socket open whose peer resets it between the connect and the handshake. Such
# a one has no address of its peer any more, unlike those that tests would leave open.
pytestmark = pytest.mark.filterwarnings(
    r"ignore:unclosed <ssl.SSLSocket [^>]*laddr=\([^)]*\)>:ResourceWarning"
)

TURNS = 5 if "KUBECACHE_TEST_OPERATIONS" in os.environ else 1
"""How often each test is played, from one turn to the next with other forms for its selectors."""

INFORMERS = 9
"""Those of the two kinds, in each form that they have."""

_numbers = itertools.count()
_turns = itertools.count()

# Each has the object that ends a test.
SELECTORS = [
    "",
    "?labelSelector=tier%3Dweb",
    "?labelSelector=tier!%3Ddb,rank%3E2",
    "?labelSelector=tier+in+(web,batch)",
    "?fieldSelector=metadata.name!%3Dapp-1-1",
]


class Pair(NamedTuple):
    """Two clients that should be told the same."""

    through: Follower
    direct: Follower


class Rig(NamedTuple):
    """A kube-apiserver, a proxy behind a line that may fail, and writes that go on."""

    apiserver: ApiServer
    faults: FaultProxy
    proxy: Proxy
    traffic: Traffic
    kinds: list[Kind]
    namespaces: list[str]
    turn: int

    def targets(self, kind: Kind) -> dict[str, FormName]:
        """Collections of the cluster and of the last namespace, with each selector.

        Each collection is followed in each form, and with which selectors that is changes by turns.
        """
        place = kind.collection(self.namespaces[-1])
        whole = place.replace(f"/namespaces/{self.namespaces[-1]}", "")
        forms = [*FormName]
        first = self.turn + 2 * self.kinds.index(kind)
        return {
            collection + selector: forms[(first + n + m) % len(forms)]
            for n, collection in enumerate((place, whole))
            for m, selector in enumerate(SELECTORS)
        }

    def end(self, kind: Kind) -> int:
        """Creates last objects, which every selection has; returns their last version."""
        name = f"last-{next(_numbers)}-0"
        for namespace in self.namespaces:
            last = kind.object(name)
            last["metadata"]["labels"] = {"tier": "web", "rank": "4"}
            created = create(self.apiserver.server, kind.collection(namespace), last)
        return int(created["metadata"]["resourceVersion"])

    def catch_up(self, kind: Kind, version: int) -> None:
        """Waits until all forms are cached at a version, or known not to be had."""
        for asked in CLIENTS.values():
            headers = asked.headers(listing=True)
            caught_up(
                self.proxy.read, kind.collection(self.namespaces[-1]), version, headers=headers
            )

    def follow(self, stack: ExitStack) -> dict[str, Pair]:
        """Starts pairs of clients at one state."""
        pairs = {}
        for kind in self.kinds:
            self.catch_up(kind, self.end(kind))
            for target, form in self.targets(kind).items():
                through = Follower(self.proxy.read, target, form=form, seconds=_patience(target))
                direct = Follower(self.apiserver.server, target, form=form)
                pairs[target] = Pair(*map(stack.enter_context, (through, direct)))
        return pairs


def _patience(target: str) -> int | None:
    """Those that watch one namespace let each watch last a second, and resume."""
    return 1 if "/namespaces/" in target else None


@pytest.fixture(scope="module")
def own() -> Iterator[ApiServer]:
    """A kube-apiserver that may be hurt."""
    with ApiServer() as server:
        yield server


@pytest.fixture(scope="module")
def widgets(own: ApiServer) -> CustomResource:
    resource = define(own.server, crd("Widget"))
    create(own.server, resource.path("default"), resource.object("first"))
    return resource


@pytest.fixture(params=range(TURNS))
def rig(own: ApiServer, widgets: CustomResource) -> Iterator[Rig]:
    kinds = [configmaps(), customs(widgets)]
    namespaces = [own.new_namespace() for _ in range(3)]
    random = Random(random_of_test().random())
    with (
        FaultProxy(own.port) as faults,
        Proxy(own.kubeconfig(port=faults.port), config=_config(widgets)) as proxy,
        Traffic(own.server, kinds, namespaces, random) as traffic,
    ):
        yield Rig(own, faults, proxy, traffic, kinds, namespaces, next(_turns))


def _config(widgets: CustomResource) -> dict[str, Any]:
    custom = f"{widgets.plural}.v1.{widgets.group}"
    forms = {"configmaps": [*FormName], custom: sorted({*FormName} - {FormName.PROTOBUF})}
    assert sum(map(len, forms.values())) == INFORMERS
    named = [{"resource": name, "forms": [*map(str, each)]} for name, each in forms.items()]
    return {"cache": {"resources": named}}


def cut(rig: Rig) -> None:
    """The connections break twice; the proxy connects again."""
    for _ in range(2):
        rig.faults.cut()
        rig.traffic.progress()


def freeze(rig: Rig) -> None:
    """The line is silent for a while, and nothing is lost."""
    rig.faults.freeze()
    rig.traffic.progress()
    rig.faults.resume()


def refuse(rig: Rig) -> None:
    """For a while there is no line at all."""
    rig.faults.refuse()
    rig.faults.cut()
    rig.traffic.progress()
    rig.faults.resume()


def throttle(rig: Rig) -> None:
    """Events come in small pieces, and late."""
    rig.faults.throttle(100_000)
    rig.traffic.progress()
    rig.faults.resume()


@pytest.mark.parametrize("fault", [cut, freeze, refuse, throttle])
def test_every_event_once_and_in_order_while_the_line_fails(
    rig: Rig, fault: Callable[[Rig], None]
) -> None:
    with ExitStack() as stack:
        with rig.traffic.paused():
            pairs = rig.follow(stack)
        rig.traffic.progress()
        fault(rig)
        rig.traffic.progress()
        with rig.traffic.paused():
            assert_told_the_same(rig, pairs)
            assert_told_again(rig, pairs)
    seen = metrics(rig.proxy.nearest)
    restarts = seen.total("kubecache_informer_restarts_total")
    assert (restarts >= len(seen["kubecache_informer_synced"])) == (fault in {cut, refuse})


@pytest.mark.parametrize("stop", [ApiServer.stop_apiserver, ApiServer.kill])
def test_every_event_once_and_in_order_while_the_apiserver_restarts(
    rig: Rig, stop: Callable[[ApiServer], None]
) -> None:
    """It forgets the past then, and the clients of the proxy don't notice."""
    with ExitStack() as stack:
        with rig.traffic.paused():
            pairs = rig.follow(stack)
        rig.traffic.progress()
        with rig.traffic.paused():
            assert_told_the_same(rig, pairs)
            stop(rig.apiserver)
            rig.apiserver.start_apiserver()
        rig.traffic.progress()
        with rig.traffic.paused():
            assert_same_state(rig, pairs)
            assert_never_expired(pairs)


def test_after_a_gap_watches_go_on_with_what_changed(rig: Rig) -> None:
    """What the proxy missed is compacted away: it lists anew, and tells the difference."""
    with ExitStack() as stack:
        with rig.traffic.paused():
            pairs = rig.follow(stack)
        rig.traffic.progress()
        rig.faults.refuse()
        rig.faults.cut()
        rig.traffic.progress()
        with rig.traffic.paused():
            rig.apiserver.restart()
            rig.apiserver.compact()
            rig.faults.resume()
        rig.traffic.progress()
        with rig.traffic.paused():
            assert_same_state(rig, pairs)
            assert_never_expired(pairs)
    seen = metrics(rig.proxy.nearest)
    relists = seen.total("kubecache_informer_relists_total", reason="expired")
    assert relists >= len(seen["kubecache_informer_synced"])


def assert_told_the_same(rig: Rig, pairs: dict[str, Pair]) -> None:
    for kind in rig.kinds:
        end = rig.end(kind)
        for target in rig.targets(kind):
            through, direct = pairs[target]
            through.wait(end)
            direct.wait(end)
            assert direct.relists == through.relists == 0
            assert through.lines == direct.lines, through
            assert len(direct.lines) > 1, target


def assert_told_again(rig: Rig, pairs: dict[str, Pair]) -> None:
    """Who comes late from an old version is told all of it too, from the proxy's history."""
    for target, (through, direct) in pairs.items():
        query = f"resourceVersion={through.began}"
        headers = CLIENTS[through.form].headers()
        with watch(rig.proxy.read, watch_target(target, query), headers=headers) as stream:
            assert_source(Answer(stream.status, stream.headers, b""), "hit")
            assert [settled(stream.line()) for _ in direct.lines] == direct.lines, through


def assert_same_state(rig: Rig, pairs: dict[str, Pair]) -> None:
    for kind in rig.kinds:
        end = rig.end(kind)
        for target in rig.targets(kind):
            through = pairs[target].through
            through.wait(end)
            assert through.state == items(rig.apiserver.server, target, through.form), through


def assert_never_expired(pairs: dict[str, Pair]) -> None:
    """A relist of the proxy is no relist of its clients."""
    assert sum(pair.through.relists for pair in pairs.values()) == 0
