"""Informers of client-go and controller-runtime, as they are, follow through the proxy.

All kinds of them at once, since what takes time is the same for each: they sync, follow many
changes, lose their connections and the proxy, and must hold what the API server has in the end.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from random import Random
from typing import IO, NamedTuple

import msgspec
import pytest

from tests.harness.apiserver import ApiServer
from tests.harness.caching import eventually
from tests.harness.faults import FaultProxy
from tests.harness.goclients import client
from tests.harness.http import Server
from tests.harness.kubectl import kubeconfig_for
from tests.harness.objects import crd, create_pods, define
from tests.harness.proxy import Metrics, Proxy, metrics
from tests.harness.traffic import Traffic, bare, configmaps, customs, pods, random_of_test

PODS = 300
NAMESPACES = 3
WRITES = 40
"""Of each of two writers, before and after each thing that happens."""

_RESOURCES = {
    "configmaps": "configmaps",
    "pods": "pods",
    "leases": "leases.coordination.k8s.io",
    "gadgets": "gadgets.test.kubecache.dev",
}
_BUILTIN = ("configmaps", "pods", "leases")
_RELISTS = ("Falling back to regular list", "watch-list failed", "Warning")
_POPULATED = "Caches populated"

# Compiling the program takes a minute where `make apiserver` has not done it before.
pytestmark = pytest.mark.timeout(300)

Command = Sequence[str | Path]

Held = Sequence[tuple[str, str]]
"""Each resource that is followed, and its form."""

MODES: Mapping[str, Held] = {
    "typed-json": [(name, "json") for name in _BUILTIN],
    "typed-protobuf": [(name, "protobuf") for name in _BUILTIN],
    "dynamic": [(name, "json") for name in _RESOURCES],
    "metadata": [(name, "metadata-protobuf") for name in _RESOURCES],
    "manager": [
        ("pods", "protobuf"),
        ("leases", "protobuf"),
        ("configmaps", "json"),
        ("gadgets", "json"),
        ("pods", "metadata-protobuf"),
        ("gadgets", "metadata-protobuf"),
    ],
}


class Case(NamedTuple):
    """One kind of informers; with WatchList they begin by a watch, else by a list."""

    mode: str
    watch_list: bool

    def __str__(self) -> str:
        return f"{self.mode}-{'watch-list' if self.watch_list else 'list'}"


CASES = [Case(mode, watch_list) for mode in MODES for watch_list in (True, False)]


class Result(msgspec.Struct):
    """What the program says: objects by collection, and what's not as the API server has it."""

    objects: dict[str, int]
    differences: list[str]


class Timed(msgspec.Struct):
    """What it says where it only syncs."""

    objects: int
    seconds: float


class Story(NamedTuple):
    """What has happened: the proxy's metrics at two times, and results and logs of all cases."""

    timed: Timed
    synced: Metrics
    before_restart: Metrics
    results: Mapping[Case, Result]
    logs: Mapping[Case, str]


class Running:
    """The program, following. It ends by itself when its stdin does."""

    def __init__(self, case: Case, folder: Path, command: Command) -> None:
        self.case = case
        self._log = folder / f"{case}.log"
        gate = {"KUBE_FEATURE_WatchListClient": str(case.watch_list).lower()}
        with self._log.open("wb") as log:
            self._popen = subprocess.Popen(
                [*command, f"-mode={case.mode}"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                env=os.environ | gate,
            )

    def wait_synced(self) -> None:
        assert self._output.readline() == b"synced\n", self.log()

    def ask(self) -> None:
        """Asks for its result; it takes a while."""
        assert self._popen.stdin
        self._popen.stdin.close()

    def result(self) -> Result:
        output = self._output.read()
        assert self._popen.wait(10) == 0, self.log()
        return msgspec.json.decode(output, type=Result)

    def log(self) -> str:
        return self._log.read_text()

    def kill(self) -> None:
        self._popen.kill()
        self._popen.wait()
        for each in (self._popen.stdin, self._popen.stdout):
            if each:
                each.close()

    @property
    def _output(self) -> IO[bytes]:
        assert self._popen.stdout
        return self._popen.stdout


@pytest.fixture(scope="module")
def program() -> Path:
    return client("informers")


@pytest.fixture(scope="module")
def story(program: Path, tmp_path_factory: pytest.TempPathFactory) -> Story:
    """Everything that happens; once, for all tests."""
    folder = tmp_path_factory.mktemp("informers")
    with ExitStack() as stack:
        own = stack.enter_context(ApiServer())
        namespaces = [own.new_namespace() for _ in range(NAMESPACES)]
        gadgets = define(own.server, crd("Gadget"))
        create_pods(own.server, namespaces, PODS, status=False)
        line = stack.enter_context(FaultProxy(own.port))
        upstream = own.kubeconfig(port=line.port)
        proxy = stack.enter_context(Proxy(upstream, config=_named()))
        near = stack.enter_context(FaultProxy(proxy.read.port))
        kubeconfig = kubeconfig_for(Server("127.0.0.1", near.port), folder)
        timed = time_pods(program, kubeconfig)
        kinds = [configmaps(), pods(), bare("coordination.k8s.io/v1", "leases"), customs(gadgets)]
        random = random_of_test()
        beside, through = (
            stack.enter_context(Traffic(server, kinds, namespaces, Random(random.random())))
            for server in (own.server, proxy.read)
        )
        command: Command = [
            program,
            "-v=4",
            "-timeout=60s",
            f"-kubeconfig={kubeconfig}",
            f"-truth-kubeconfig={own.kubeconfig()}",
            "-custom=gadgets.v1.test.kubecache.dev",
            "-custom-kind=Gadget",
        ]
        running = stack.enter_context(all_running(command, folder))
        synced = all_watching(proxy)

        progress(beside, through)
        with through.paused():  # a write on that line could not tell whether it took effect
            line.cut()
        progress(beside, through)
        near.cut()
        all_watching(proxy, again=True)
        # A watch that ends within a second and without an event makes client-go begin anew.
        progress(beside, through)
        before_restart = metrics(proxy)

        with through.paused():
            near.refuse()
            proxy.stop()
            progress(beside)
            with beside.paused():  # for a quick start: clients ask ever less often meanwhile
                proxy.start()
            near.resume()
        progress(beside, through)
        for writer in (beside, through):
            writer.stop()
        for one in running:
            one.ask()
        results = {one.case: one.result() for one in running}
        logs = {one.case: one.log() for one in running}
        return Story(timed, synced, before_restart, results, logs)


def time_pods(program: Path, kubeconfig: Path) -> Timed:
    command: Command = [program, "-mode=time", f"-kubeconfig={kubeconfig}"]
    output = subprocess.run(command, check=True, capture_output=True, timeout=60).stdout
    return msgspec.json.decode(output, type=Timed)


@contextmanager
def all_running(command: Command, folder: Path) -> Iterator[Sequence[Running]]:
    """One program for each case, synced."""
    running = [Running(case, folder, command) for case in CASES]
    try:
        for each in running:
            each.wait_synced()
        yield running
    finally:
        for each in running:
            each.kill()


def progress(*writers: Traffic) -> None:
    for writer in writers:
        writer.progress(WRITES)


def all_watching(proxy: Proxy, *, again: bool = False) -> Metrics:
    """The proxy's metrics once each informer watches; *again*: after each has lost its watch."""
    expected = expected_watchers().total()

    def check() -> Metrics | None:
        found = metrics(proxy)
        left = found.total("kubecache_watchers_terminated_total", reason="client")
        if again and left < expected:
            return None
        return found if watchers(found).total() == expected else None

    return eventually(check, "all informers watch")


def expected_watchers() -> Counter[tuple[str, str]]:
    return Counter(held for case in CASES for held in MODES[case.mode])


def watchers(found: Metrics) -> Counter[tuple[str, str]]:
    """How many watches the cache serves now, by resource and form."""
    samples = found["kubecache_watchers"]
    return Counter(
        {(each.labels["resource"], each.labels["form"]): int(each.value) for each in samples}
    )


def forwards(found: Metrics, resource: str) -> Mapping[str, float]:
    """How many requests for a resource were forwarded, by reason."""
    samples = found["kubecache_cache_forwards_total"]
    return {
        each.labels["reason"]: each.value
        for each in samples
        if each.labels["resource"] == resource and each.value
    }


def _named() -> Mapping[str, object]:
    """Settings: every form of every resource from the start, so that no request comes too early."""
    forms: dict[str, set[str]] = {}
    for resource, form in expected_watchers():
        forms.setdefault(resource, set()).add(form)
    resources = [
        {"resource": _RESOURCES[name], "forms": sorted(each)} for name, each in forms.items()
    ]
    return {"cache": {"resources": resources}}


@pytest.mark.parametrize("case", CASES, ids=str)
def test_it_holds_what_the_api_server_has(story: Story, case: Case) -> None:
    """Each object as a list by the same client shows it; a manager has reconciled its version."""
    result = story.results[case]
    assert result.differences == []
    assert len(result.objects) == len(MODES[case.mode])
    assert all(result.objects.values()), result.objects
    assert result.objects["pods"] > PODS // 2


@pytest.mark.parametrize("case", CASES, ids=str)
def test_it_begins_once_and_complains_of_nothing(story: Story, case: Case) -> None:
    """No informer begins anew: neither at a lost connection nor when the proxy restarts."""
    log = story.logs[case]
    assert log.count(_POPULATED) == len(MODES[case.mode]), log
    complaints = re.findall(r"^[WEF]\d.*", log, re.MULTILINE)
    assert not complaints
    assert not [line for line in log.splitlines() if any(each in line for each in _RELISTS)]


def test_each_form_is_watched_in_the_cache(story: Story) -> None:
    assert watchers(story.synced) == expected_watchers()


@pytest.mark.parametrize("resource", _RESOURCES)
def test_only_those_without_watch_list_list(story: Story, resource: str) -> None:
    """And the cache answers them; so the program's variable has had its effect, too."""
    name = "kubecache_requests_total"
    lists = sum(
        held == resource for case in CASES if not case.watch_list for held, _ in MODES[case.mode]
    )
    for found in (story.synced, story.before_restart):
        assert found.total(name, resource=resource, verb="list", source="cache") == lists
        assert found.total(name, resource=resource, verb="list") == lists


@pytest.mark.parametrize("resource", _RESOURCES)
def test_the_api_server_answers_nothing_that_is_watched(story: Story, resource: str) -> None:
    found = story.before_restart
    requests = found["kubecache_requests_total"]
    sources = {
        (each.labels["verb"], each.labels["source"])
        for each in requests
        if each.labels["resource"] == resource and each.labels["source"] != "write"
    }
    assert sources == {("list", "cache"), ("watch", "cache")}
    assert forwards(found, resource).keys() == {"write"}


def test_it_tells_how_long_all_pods_take(story: Story) -> None:
    """As benchmarks ask for."""
    assert story.timed.objects == PODS
    assert story.timed.seconds > 0
