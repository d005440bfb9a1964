"""A controller in Go reconciles the same objects from its own informer, and through the proxy."""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import count, cycle
from pathlib import Path

import msgspec
import pytest

from tests.harness.apiserver import ApiServer
from tests.harness.goclients import client
from tests.harness.http import Server, Session, get
from tests.harness.kubectl import kubeconfig_for
from tests.harness.objects import configmap, create
from tests.harness.proxy import Proxy
from tests.harness.watch_delay import WatchDelay

OBJECTS = 5
TIMES = 20
DELAY = 0.1
"""Seconds by which events are late."""

_REST = 0.05
"""Seconds between writes of the other writer."""

_MERGE_PATCH = (("Content-Type", "application/merge-patch+json"),)
_NAMED = {"cache": {"resources": [{"resource": "configmaps"}]}}

# Compiling the controller takes a minute where `make apiserver` has not done it before.
pytestmark = pytest.mark.timeout(300)


class Result(msgspec.Struct):
    """What the controller says of a run."""

    reconciles: int
    reads: int
    stale_reads: int
    conflicts: int
    seconds: float
    p50_seconds: float
    p99_seconds: float


@pytest.fixture(scope="module")
def controller() -> Path:
    return client("reconcile")


@pytest.fixture
def line(apiserver: ApiServer) -> Iterator[WatchDelay]:
    with WatchDelay(apiserver.port, DELAY) as running:
        yield running


@contextmanager
def another_writer(server: Server, targets: Sequence[str]) -> Iterator[None]:
    """Changes the data of these objects in turn, beside the proxy, which the controller leaves."""
    stop = threading.Event()

    def write() -> None:
        with Session(server) as session:
            for target, number in zip(cycle(targets), count()):
                if stop.wait(_REST):
                    return
                body = {"data": {"other": str(number)}}
                session.ask("PATCH", target, headers=_MERGE_PATCH, body=body).ok()

    thread = threading.Thread(target=write, name="another writer")
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(10)


def reconcile(apiserver: ApiServer, controller: Path, *flags: str | Path) -> Result:
    """Runs the controller over new objects, which another writer changes too."""
    namespace = apiserver.new_namespace()
    configmaps = f"/api/v1/namespaces/{namespace}/configmaps"
    targets = [f"{configmaps}/object-{number}" for number in range(OBJECTS)]
    for number in range(OBJECTS):
        create(apiserver.server, configmaps, configmap(f"object-{number}", {"own": "0"}))
    command = [controller, f"-namespace={namespace}", f"-times={TIMES}", *flags]
    with another_writer(apiserver.server, targets):
        done = subprocess.run(command, check=False, capture_output=True, timeout=100)
    assert done.returncode == 0, done.stderr.decode()
    print(" ".join(map(str, flags)), done.stdout.decode())
    _assert_every_reconcile_counts(apiserver, targets)
    return msgspec.json.decode(done.stdout, type=Result)


def _assert_every_reconcile_counts(apiserver: ApiServer, targets: Sequence[str]) -> None:
    """No write was lost, the other writer's neither: versions were checked."""
    for target in targets:
        found = get(apiserver.server, target).ok().json()
        assert found["metadata"]["annotations"]["example.com/reconciles"] == str(TIMES)
        assert found["data"].keys() == {"own", "other"}


@pytest.mark.parametrize("client", ["typed", "dynamic"])
def test_a_controller_sees_its_own_writes_through_the_proxy_only(
    apiserver: ApiServer, controller: Path, line: WatchDelay, tmp_path: Path, client: str
) -> None:
    late = apiserver.kubeconfig(port=line.port)
    direct = (
        "-mode=informer",
        f"-kubeconfig={apiserver.kubeconfig()}",
        f"-watch-kubeconfig={late}",
    )
    without = reconcile(apiserver, controller, f"-client={client}", *direct)
    with Proxy(late, config=_NAMED) as proxy:
        kubeconfig = kubeconfig_for(proxy.read, tmp_path)
        through = ("-mode=proxy", f"-kubeconfig={kubeconfig}")
        beside = reconcile(apiserver, controller, f"-client={client}", *through)
    assert without.stale_reads > 0
    assert beside.stale_reads == 0
    assert beside.conflicts < without.conflicts
    assert without.reconciles == beside.reconciles == OBJECTS * TIMES


def test_without_the_guarantee_it_would_not(
    apiserver: ApiServer, controller: Path, line: WatchDelay, tmp_path: Path
) -> None:
    """So that the test above can fail."""
    late = apiserver.kubeconfig(port=line.port)
    with Proxy(late, "--consistency", "eventual", config=_NAMED) as proxy:
        kubeconfig = kubeconfig_for(proxy.read, tmp_path)
        flags = ("-client=dynamic", "-mode=proxy", f"-kubeconfig={kubeconfig}")
        assert reconcile(apiserver, controller, *flags).stale_reads > 0
