"""kubectl at the proxy says what it says at kube-apiserver: output, errors and exit codes."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from threading import Event
from typing import IO, NamedTuple

import pytest
import yaml

from tests.harness.apiserver import ApiServer
from tests.harness.caching import cached
from tests.harness.http import Server, ask
from tests.harness.kubectl import Kubectl, Output, built, kubeconfig_for, older
from tests.harness.objects import configmap, crd, create, define, node, patch, pod, pod_status
from tests.harness.proxy import Proxy, metrics
from tests.integration import kubectl_commands as commands
from tests.integration.kubectl_commands import NAMESPACE, NODE, STORY, Step

_CORE = f"/api/v1/namespaces/{NAMESPACE}"
_APPS = f"/apis/apps/v1/namespaces/{NAMESPACE}"
_REQUESTS = "kubecache_requests_total"

# What is another at each look: ages, and the widths that they give to columns; the time that
# glog writes before a line; the version of a list, which any write anywhere moves on.
_MOMENTARY = (
    (r"(?m)^[EWI]\d{4} [\d:.]+ +\d+ ", "LOG "),
    (r"\b(\d+[smhd]){1,2}\b", "AGE"),
    (r" {2,}", "  "),
    (r'("metadata":\{)"resourceVersion":"\d+"', r"\1VERSION"),
    (r'"continue":"[^"]+"', "TOKEN"),
)
# What is another in each namespace.
_IDENTITY = (
    (r"test-[a-z0-9]{5}\b", "NAMESPACE"),
    (r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f-]{22}", "UID"),
    (r"\d{4}-\d\d-\d\d[T ][\d:.]+( [+-]\d{4})?Z?", "TIME"),
    (r'resourceVersion: "\d+"', "VERSION"),
    (r"/tmp/[\w./-]+", "FILE"),
)


class Pair(NamedTuple):
    """The same kubectl at both, and what either address is."""

    proxied: Kubectl
    direct: Kubectl
    addresses: tuple[tuple[str, str], ...]

    def plain(self, output: Output) -> Output:
        """An output without what differs by nature."""
        return output.without(*self.addresses, *_MOMENTARY)


@pytest.fixture(scope="module")
def eager(apiserver: ApiServer) -> Iterator[Proxy]:
    """A proxy that caches at once what is watched, listed or got once."""
    on_demand = {"watch": 1, "list": 1, "get": 1}
    with Proxy(apiserver.kubeconfig(), config={"cache": {"on_demand": on_demand}}) as proxy:
        yield proxy


@pytest.fixture(params=[pytest.param(built, id="built"), pytest.param(older, id="older")])
def pair(
    request: pytest.FixtureRequest, apiserver: ApiServer, eager: Proxy, tmp_path: Path
) -> Pair:
    if not (binary := request.param()):
        pytest.skip("no older kubectl on PATH")
    (tmp_path / "direct").mkdir()
    direct = Kubectl(apiserver.kubeconfig(), tmp_path / "direct", binary=binary)
    proxied = Kubectl(kubeconfig_for(eager.read, tmp_path), tmp_path, binary=binary)
    hosts = f"127.0.0.1:({apiserver.port}|{eager.read.port})"
    return Pair(proxied, direct, ((f"https?://{hosts}", "SERVER"), (hosts, "SERVER")))


@pytest.fixture(scope="module")
def looked_at(apiserver: ApiServer, eager: Proxy) -> None:
    """Objects that nobody changes, in the proxy's cache."""
    server = apiserver.server
    apiserver.new_namespace(NAMESPACE)
    _create_pods(server)
    for number in range(3):
        create(server, f"{_CORE}/configmaps", configmap(f"c{number}"))
    create(server, "/api/v1/nodes", node(NODE, test="kubectl"))
    create(server, f"{_CORE}/events", _event("p0"))
    create(server, f"{_APPS}/deployments", _deployment("web"))
    gadgets = define(server, crd("Gadget"))
    create(server, gadgets.path(NAMESPACE), gadgets.object("g"))
    core = (f"{_CORE}/{plural}" for plural in ("pods", "configmaps", "events"))
    everywhere = ("/api/v1/nodes", "/api/v1/namespaces", "/api/v1/pods")
    for path in (*core, *everywhere, f"{_APPS}/deployments", gadgets.path(NAMESPACE)):
        cached(eager.read, path)


def _create_pods(server: Server) -> None:
    for number in range(3):
        create(server, f"{_CORE}/pods", pod(f"p{number}", app="ab"[number % 2], tier="t"))
        patch(server, f"{_CORE}/pods/p{number}/status", pod_status())
    create(server, f"{_CORE}/pods", pod("adrift", node_name=""))
    patch(server, f"{_CORE}/pods/adrift/status", pod_status())


def _event(name: str) -> dict[str, object]:
    involved = {"apiVersion": "v1", "kind": "Pod", "name": name, "namespace": NAMESPACE}
    said = {"type": "Warning", "reason": "Failed", "message": "it failed", "count": 3}
    times = dict.fromkeys(("firstTimestamp", "lastTimestamp"), "2026-01-05T08:00:00Z")
    return {"metadata": {"name": f"{name}.1"}, "involvedObject": involved, **said, **times}


def _deployment(name: str) -> dict[str, object]:
    made = yaml.safe_load_all(commands.MANIFEST)
    found: dict[str, object] = next(each for each in made if each["kind"] == "Deployment")
    return {**found, "metadata": {"name": name}}


@pytest.mark.usefixtures("looked_at")
def test_reads_that_the_cache_answers(pair: Pair, eager: Proxy) -> None:
    before = metrics(eager).total(_REQUESTS, source="cache")
    asked = _chosen(pair, commands.CACHED)
    _look(pair, asked)
    answered = metrics(eager).total(_REQUESTS, source="cache") - before
    assert answered >= sum(not commands.fails(command) for command in asked)


@pytest.mark.usefixtures("looked_at")
def test_reads_that_are_passed_on(pair: Pair, eager: Proxy) -> None:
    before = metrics(eager).total(_REQUESTS, source="error")
    _look(pair, _chosen(pair, commands.PASSED))
    assert metrics(eager).total(_REQUESTS, source="error") == before


def _chosen(pair: Pair, table: Sequence[str]) -> Sequence[str]:
    """All of them, of which the older kubectl is asked every third: it shares most code."""
    return table if pair.direct.binary == built() else table[::3]


def _look(pair: Pair, table: Sequence[str]) -> None:
    """Asks both, and compares."""

    def both(command: str) -> tuple[Output, Output]:
        line = (f"--namespace={NAMESPACE}", *commands.words(command))
        return pair.plain(pair.proxied(*line)), pair.plain(pair.direct(*line))

    with ThreadPoolExecutor(4) as pool:
        answers = dict(zip(table, pool.map(both, table), strict=True))
    assert not {said: pair for said, pair in answers.items() if pair[0] != pair[1]}
    assert not {said: pair[1] for said, pair in answers.items() if _surprises(said, pair[1])}


def _surprises(command: str, output: Output) -> bool:
    return commands.fails(command) != bool(output.code)


@pytest.mark.usefixtures("looked_at")
def test_a_story_of_writes(pair: Pair, apiserver: ApiServer, eager: Proxy, tmp_path: Path) -> None:
    """Told alike in two namespaces, one through the proxy."""
    editor = tmp_path / "editor"
    editor.write_text("#!/bin/sh\nsed -i 's/a: c/a: edited/' \"$1\"\n")
    editor.chmod(0o755)
    before = metrics(eager).total(_REQUESTS, source="error")

    def tell(kubectl: Kubectl) -> dict[int, tuple[Step, Output]]:
        kubectl.env["EDITOR"] = str(editor)
        outputs = _tell(kubectl, apiserver.new_namespace())
        plain = (pair.plain(output.without(*_IDENTITY)) for output in outputs)
        return dict(enumerate(zip(STORY, plain, strict=True)))

    with ThreadPoolExecutor(2) as pool:
        proxied, direct = pool.map(tell, (pair.proxied, pair.direct))
    assert proxied == direct
    assert not [each for each in direct.values() if _surprises(each[0].command, each[1])]
    assert any(output.stdout == '{"a":"edited"}' for _, output in proxied.values())
    assert metrics(eager).total(_REQUESTS, source="error") == before


def _tell(kubectl: Kubectl, namespace: str) -> Iterator[Output]:
    kept = ""
    for command, stdin, edit in STORY:
        line = (f"--namespace={namespace}", *commands.words(command))
        output = kubectl(*line, stdin=kept.replace(*edit) if edit else stdin)
        kept = output.stdout if "-o yaml" in command else kept
        yield output


_EVENTS = r"--output-watch-events -o jsonpath='{.type} {.object.metadata.name}{\"\n\"}'"


@pytest.mark.parametrize(
    "flags",
    ["-w", "--watch-only -o wide", "-w -l on=yes --output-watch-events", f"-w -l on=yes {_EVENTS}"],
)
def test_watches(pair: Pair, apiserver: ApiServer, flags: str) -> None:
    """A get that goes on: objects that come, change, leave the selection and go."""
    with ThreadPoolExecutor(2) as pool:
        proxied, direct = pool.map(
            lambda kubectl: _watched(kubectl, apiserver, flags), (pair.proxied, pair.direct)
        )
    assert proxied == direct
    assert any("told" in line for line in direct)


def _watched(kubectl: Kubectl, apiserver: ApiServer, flags: str) -> Sequence[str]:
    """What it says of the object `told`."""
    namespace = apiserver.new_namespace()
    path = f"/api/v1/namespaces/{namespace}/configmaps"
    create(apiserver.server, path, configmap("first", on="yes"))
    line = ("get", "configmaps", f"--namespace={namespace}", *commands.words(flags))
    with kubectl.running(*line) as said:
        with _touching(apiserver.server, f"{path}/first"):
            heard = _until(said, "first")
        create(apiserver.server, path, configmap("told", on="yes"))
        for state in ("no", "yes"):
            patch(apiserver.server, f"{path}/told", {"metadata": {"labels": {"on": state}}})
        create(apiserver.server, path, configmap("last", on="yes"))
        heard += _until(said, "last")
    return [re.sub(r" {2,}\S+$", "", each) for each in heard if "first" not in each]


@contextmanager
def _touching(server: Server, target: str) -> Iterator[None]:
    """Changes an object again and again, for a watch that may not have started yet."""
    enough = Event()

    def touch() -> None:
        while not enough.wait(0.1):
            patch(server, target, {"data": {"at": str(time.monotonic())}})

    with ThreadPoolExecutor(1) as pool:
        touching = pool.submit(touch)
        try:
            yield
        finally:
            enough.set()
        touching.result()


def _until(stream: IO[str], word: str) -> list[str]:
    heard: list[str] = []
    while not heard or word not in heard[-1]:
        line = stream.readline()
        assert line, f"ended before {word!r}: {heard}"
        heard.append(line.rstrip())
    return heard


def test_waits_that_a_change_ends(pair: Pair, apiserver: ApiServer) -> None:
    with ThreadPoolExecutor(2) as pool:
        proxied, direct = pool.map(
            lambda kubectl: _waited(kubectl, apiserver), (pair.proxied, pair.direct)
        )
    assert proxied == direct
    assert not {wait: output for wait, output in direct.items() if output.code}


def _waited(kubectl: Kubectl, apiserver: ApiServer) -> dict[str, Output]:
    namespace = apiserver.new_namespace()
    path = f"/api/v1/namespaces/{namespace}"
    for name in ("going", "changing", "held"):
        create(apiserver.server, f"{path}/configmaps", configmap(name))
    create(apiserver.server, f"{path}/pods", pod("p"))
    held = {"metadata": {"finalizers": ["kubecache.dev/held"]}}
    patch(apiserver.server, f"{path}/configmaps/held", held)
    with ThreadPoolExecutor(len(commands.WAITS)) as pool:
        lines = [(f"--namespace={namespace}", *commands.words(wait)) for wait in commands.WAITS]
        waiting = [pool.submit(kubectl, *line) for line in lines]
        time.sleep(1)  # most of them watch by now
        assert not any(each.done() for each in waiting)
        ask(apiserver.server, "DELETE", f"{path}/configmaps/going").ok()
        patch(apiserver.server, f"{path}/configmaps/changing", {"data": {"k": "v"}})
        patch(apiserver.server, f"{path}/configmaps/held", {"metadata": {"finalizers": None}})
        patch(apiserver.server, f"{path}/pods/p/status", pod_status())
        return dict(
            (wait, each.result().without(*_IDENTITY))
            for wait, each in zip(commands.WAITS, waiting, strict=True)
        )


def test_a_resource_that_appears_is_known_at_once(
    apiserver: ApiServer, eager: Proxy, tmp_path: Path
) -> None:
    """Discovery is confirmed at each request, so it is as new as the API server's own."""
    kubectl = Kubectl(kubeconfig_for(eager.read, tmp_path), tmp_path)
    assert "gizmos" not in kubectl("api-resources").ok().stdout
    define(apiserver.server, crd("Gizmo", group="new.kubecache.dev"))
    assert "gizmos" in kubectl("api-resources").ok().stdout
    assert kubectl("get", "gizmos", "-o", "json").ok().json()["items"] == []
