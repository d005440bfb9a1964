"""kubectl at the proxy says what it says at kube-apiserver: output, errors and exit codes."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from subprocess import Popen
from threading import Event

import pytest
import yaml

from tests.harness.apiserver import ApiServer
from tests.harness.caching import cached, eventually
from tests.harness.http import Server, ask
from tests.harness.kubectl import BINARIES, Kubectl, Output, built, kubeconfig_for
from tests.harness.objects import configmap, crd, create, define, node, patch, pod, pod_status
from tests.harness.proxy import Proxy, metrics

NAMESPACE = "kubectl"

# Commands that fail begin with `!`, as in a shell.
READS = """
get pods
get pods -o wide
get pods -o name
get pods -o json
get pods -o yaml
get pods -A
get pods --show-labels
get pods -l app=a
get pods -l app!=a -o yaml
get pods -l app in (a,b),tier -o json
get pods --field-selector status.phase=Running -o name
get pods --field-selector metadata.name!=p0 -o json
get pods --sort-by .metadata.name
get pods -o jsonpath-as-json={.items[*].metadata}
get pods --no-headers
get pods --ignore-not-found -l app=none
get pods -L app,tier
get pods -o go-template={{range.items}}{{.metadata.name}}{{end}}
get pods --chunk-size=1
get pods --chunk-size=1 -o yaml
get pods -o jsonpath={.items[*].metadata.name}
get pods -o custom-columns=N:.metadata.name,P:.status.phase
get pod p0
get pod p0 -o json
get pod p0 -o yaml --show-managed-fields
! get pod none
! get pods none p0
get pod/p0 configmap/c0
get pods,configmaps
get configmaps c0 -o json
get configmaps -l none=x
get nodes
get node kubectl-node -o yaml
get deployments
get deployment web -o json
get deployment.apps/web
get all
get events
get crd
get exhibits
get exhibits g -o yaml
get exhibits -A -o wide
get exhibits.v1.test.kubecache.dev
get --raw /apis/test.kubecache.dev/v1/namespaces/kubectl/exhibits/g
get replicasets,secrets,services,serviceaccounts
get clusterroles -o name
get flowschemas
get exhibits --field-selector spec.color=red -o name
get namespaces
get ns kubectl -o json
! get unknowns
! get pods --field-selector spec.unknown=x
! get pods -l ,
get --raw /api/v1/namespaces/kubectl/configmaps/c0
get --raw /healthz
! get --raw /none
describe ns kubectl
describe configmap c0
describe pod p0
describe node kubectl-node
describe deployment web
describe exhibit g
! describe pod none
! logs p0
! logs none
! exec p0 -- ls
! port-forward none 80
! top pods
auth can-i create pods
auth can-i --list
api-resources
api-resources --api-group=apps -o name
api-versions
explain pods.spec.nodeName
explain exhibits
version
cluster-info
! get pods --as=nobody
auth whoami
wait --for=jsonpath={.status.phase}=Running pod/p0 --timeout=5s
! wait --for=condition=None pod/p0 --timeout=1s
! rollout status deployment/web --timeout=1s
rollout history deployment/web
events
""".strip().splitlines()

MANIFEST = """
apiVersion: v1
kind: ConfigMap
metadata: {name: m}
data: {k: one}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: d}
spec:
  replicas: 1
  selector: {matchLabels: {app: d}}
  template:
    metadata: {labels: {app: d}}
    spec: {containers: [{name: c, image: "example/image:1"}]}
"""
CHANGED = MANIFEST.replace("one", "two")

Step = tuple[str, str | None]
WRITES: list[Step] = [
    ("create configmap x --from-literal=a=b", None),
    ("! create configmap x --from-literal=a=b", None),
    ("get configmap x -o yaml", None),
    ("apply -f -", MANIFEST),
    ("apply -f -", MANIFEST),
    ("! diff -f -", CHANGED),
    ("apply -f -", CHANGED),
    ("! apply --server-side --field-manager=a -f -", MANIFEST),
    ("apply --server-side --field-manager=b -f -", CHANGED),
    ("apply --server-side --field-manager=b --force-conflicts -f -", CHANGED),
    ("get configmap m -o jsonpath={.data.k}", None),
    ('patch configmap m -p {"data":{"k":"three"}}', None),
    ('patch configmap m --type=merge -p {"data":{"l":"m"}}', None),
    ('patch configmap m --type=json -p [{"op":"remove","path":"/data/l"}]', None),
    ('! patch configmap m --type=json -p [{"op":"remove","path":"/none"}]', None),
    ("label configmap m a=b", None),
    ("! label configmap m a=c", None),
    ("label configmap m a=c --overwrite", None),
    ("annotate configmap m a=b", None),
    ("scale deployment d --replicas=3", None),
    ("get deployment d -o jsonpath={.spec.replicas}", None),
    ("set image deployment/d c=example/image:2", None),
    ("! create -f -", MANIFEST),
    ("create configmap dry --dry-run=server -o name", None),
    ("replace -f -", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: x}\ndata: {a: c}\n"),
    ("get configmap x -o jsonpath={.data}", None),
    (
        "! replace -f -",
        'apiVersion: v1\nkind: ConfigMap\nmetadata: {name: x, resourceVersion: "1"}\n',
    ),
    ("edit configmap x", None),
    ("get configmap x -o jsonpath={.data}", None),
    ("delete configmap x", None),
    ("! delete configmap x", None),
    ("delete configmap x --ignore-not-found", None),
    ("delete deployment d --cascade=background", None),
    ("! delete -f -", MANIFEST),
    ("get configmaps -o name", None),
]

FAST = {"get pods", "get pod p0 -o json", "get pods -A", "describe pod p0", "! logs p0"}
"""What the older kubectl is asked, besides every third command."""


class Pair:
    """The same kubectl at both."""

    def __init__(self, apiserver: ApiServer, proxy: Server, folder: Path, binary: Path) -> None:
        (folder / "direct").mkdir()
        (folder / "cached").mkdir()
        self.direct = Kubectl(apiserver.kubeconfig(), folder / "direct", binary=binary)
        self.cached = Kubectl(kubeconfig_for(proxy, folder), folder / "cached", binary=binary)
        self._addresses = (apiserver.server.url, proxy.url)

    def plain(self, output: Output) -> Output:
        """An output without what differs by nature: addresses, ages, the time."""
        return Output(output.code, self._plain(output.stdout), self._plain(output.stderr))

    def _plain(self, text: str) -> str:
        for address in self._addresses:
            text = text.replace(address, "SERVER").replace(address.partition("//")[2], "SERVER")
        return normalised(text)


_AGE = re.compile(r"\b(?:\d+[smhd]){1,2}\b")
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


def _ages(output: Output) -> list[tuple[int, int]]:
    """Each age that is told, and the unit that it's told to, in seconds."""
    ages = []
    for age in _AGE.findall(output.stdout + output.stderr):
        parts = re.findall(r"(\d+)([smhd])", age)
        ages.append((sum(int(n) * _UNITS[unit] for n, unit in parts), _UNITS[parts[-1][1]]))
    return ages


def _are_as_old(one: Output, other: Output, seconds: float) -> bool:
    """Whether all ages are the same, of commands that ran within some seconds."""
    return all(
        abs(age - another) <= seconds + max(unit, its_unit)
        for (age, unit), (another, its_unit) in zip(_ages(one), _ages(other), strict=True)
    )


def normalised(text: str) -> str:
    """Blank out ages, what glog puts before a line, and the widths that both give to columns."""
    text = re.sub(r"^[EWI]\d{4} [\d:.]+ +\d+ ", "LOG ", text, flags=re.M)
    text = _AGE.sub("AGE", text)
    return re.sub(r" {2,}", "  ", text)


@pytest.fixture(scope="module")
def seen(apiserver: ApiServer) -> None:
    """Objects to look at, which nobody changes."""
    server = apiserver.server
    apiserver.new_namespace(NAMESPACE)
    pods = f"/api/v1/namespaces/{NAMESPACE}/pods"
    for number in range(3):
        create(server, pods, pod(f"p{number}", app="ab"[number % 2], tier="t"))
        patch(server, f"{pods}/p{number}/status", pod_status())
        create(server, f"/api/v1/namespaces/{NAMESPACE}/configmaps", configmap(f"c{number}"))
    create(server, "/api/v1/nodes", node("kubectl-node"))
    exhibits = define(server, crd("Exhibit"))
    create(server, exhibits.path(NAMESPACE), exhibits.object("g"))
    deployment = next(each for each in yaml.safe_load_all(MANIFEST) if each["kind"] == "Deployment")
    deployment["metadata"]["name"] = "web"
    create(server, f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments", deployment)


@pytest.fixture(scope="module")
def proxy_of(apiserver: ApiServer) -> Iterator[Proxy]:
    """A proxy that caches at once what is listed or got once."""
    on_demand = {"watch": 1, "list": 1, "get": 1}
    with Proxy(apiserver.kubeconfig(), config={"cache": {"on_demand": on_demand}}) as proxy:
        yield proxy


@pytest.fixture
def pair(
    request: pytest.FixtureRequest, apiserver: ApiServer, proxy_of: Proxy, tmp_path: Path
) -> Pair:
    return Pair(apiserver, proxy_of.read, tmp_path, request.param())


def _words(command: str) -> list[str]:
    """Split a command; a selector in parentheses is one word."""
    words = command.removeprefix("! ").replace("app in (a,b)", "app~in~(a,b)").split()
    return [word.replace("~", " ") for word in words]


def _code(command: str) -> int:
    """The exit code that a command is to have."""
    return 1 if command.startswith("! ") else 0


@pytest.mark.parametrize("pair", BINARIES, indirect=True)
@pytest.mark.usefixtures("seen")
def test_reads(pair: Pair, proxy_of: Proxy) -> None:
    chosen = (
        READS
        if pair.direct.binary == built()
        else [command for number, command in enumerate(READS) if number % 3 == 0 or command in FAST]
    )
    before = metrics(proxy_of)

    def ask(command: str) -> tuple[str, Output, Output, bool]:
        words = _words(command)
        namespaced = [*words, f"--namespace={NAMESPACE}"]
        split = [*namespaced[:2], f"--namespace={NAMESPACE}", *words[2:]]
        line = split if "--" in words else namespaced
        began = time.monotonic()
        cached, direct = pair.cached(*line), pair.direct(*line)
        took = time.monotonic() - began
        plain = pair.plain(cached), pair.plain(direct)
        return command, *plain, plain[0] != plain[1] or _are_as_old(cached, direct, took)

    with ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(ask, chosen))
    unlike = {command: both for command, *both, _ in answers if both[0] != both[1]}
    assert not unlike
    assert not [command for command, _, _, as_old in answers if not as_old]
    assert [(c, direct.code) for c, _, direct, _ in answers] == [(c, _code(c)) for c in chosen]
    after = metrics(proxy_of)
    name = "kubecache_requests_total"
    assert after.total(name, source="cache") - before.total(name, source="cache") > len(chosen) / 10
    assert after.total(name, source="error") == before.total(name, source="error")


@pytest.mark.parametrize("pair", BINARIES, indirect=True)
def test_writes(pair: Pair, apiserver: ApiServer, tmp_path: Path) -> None:
    """A story in two namespaces, told alike."""
    editor = tmp_path / "editor"
    editor.write_text("#!/bin/sh\nsed -i 's/a: c/a: edited/' \"$1\"\n")
    editor.chmod(0o755)
    stories = []
    for kubectl in (pair.cached, pair.direct):
        namespace = apiserver.new_namespace()
        kubectl.env["EDITOR"] = str(editor)
        story = []
        for command, stdin in WRITES:
            output = kubectl(*_words(command), f"--namespace={namespace}", stdin=stdin)
            story.append((command, pair.plain(_timeless(output, namespace))))
        stories.append(story)
    cached, direct = stories
    assert cached == direct
    assert [(c, output.code) for c, output in direct] == [(c, _code(c)) for c, _ in WRITES]
    assert '"a":"edited"' in str(direct)


def _timeless(output: Output, namespace: str) -> Output:
    return Output(output.code, _blank(output.stdout, namespace), _blank(output.stderr, namespace))


def _blank(text: str, namespace: str) -> str:
    """Blank out what no two tellings of a story share."""
    text = text.replace(namespace, "NAMESPACE")
    text = re.sub(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f-]{22}", "UID", text)
    text = re.sub(r"\d{4}-\d\d-\d\d[T ][\d:.]+( [+-]\d{4})?Z?", "TIME", text)
    text = re.sub(r'resourceVersion("?): ?"\d+"', r"resourceVersion\1: N", text)
    return re.sub(r"/tmp/\S+", "FILE", text)


CHANGES = 3
TABLE = ("Accept", "application/json;as=Table;g=meta.k8s.io;v=v1")
WATCHES = ["-w", "--watch-only", "-w -o json", "-w -o json --output-watch-events"]


@pytest.mark.parametrize("pair", BINARIES, indirect=True)
@pytest.mark.parametrize("flags", WATCHES)
def test_watches(pair: Pair, proxy_of: Proxy, apiserver: ApiServer, flags: str) -> None:
    for server in (proxy_of.read, proxy_of.read.adding(TABLE)):
        cached(server, "/api/v1/configmaps")
    before = metrics(proxy_of)
    through, direct = (
        _told(kubectl, apiserver, flags.split()) for kubectl in (pair.cached, pair.direct)
    )
    assert through == direct
    assert sum("last" in line for line in direct) == 1 + CHANGES + 1
    name = "kubecache_watch_events_sent_total"
    sent = metrics(proxy_of).total(name) - before.total(name)
    assert sent >= 1 + CHANGES + 1


def _told(kubectl: Kubectl, apiserver: ApiServer, flags: list[str]) -> list[str]:
    """The lines that it prints while the same is written, in a namespace of one's own."""
    namespace = apiserver.new_namespace()
    path = f"/api/v1/namespaces/{namespace}/configmaps"
    create(apiserver.server, path, configmap("early"))
    running = kubectl.start("get", "configmaps", *flags, f"--namespace={namespace}")
    try:
        if "--watch-only" in flags:  # it says nothing until it watches
            with _writing(apiserver.server, f"{path}/early"):
                _until(running, "early")
            _write(apiserver.server, path)
            lines = _until(running, "end")
            lines = lines[next(n for n, line in enumerate(lines) if "last" in line) :]
        else:
            lines = _until(running, "early")
            _write(apiserver.server, path)
            lines += _until(running, "end")
    finally:
        running.terminate()
        running.communicate(timeout=10)
    return [normalised(_blank(line, namespace)) for line in lines]


def _write(server: Server, path: str) -> None:
    """A life of `last`; its count of data is a column of the table."""
    create(server, path, configmap("last"))
    for number in range(CHANGES):
        patch(server, f"{path}/last", {"data": {f"n{number}": "x"}})
    ask(server, "DELETE", f"{path}/last").ok()
    create(server, path, configmap("end"))


@contextmanager
def _writing(server: Server, target: str) -> Iterator[None]:
    """Write on and on, for a watch that is still on its way."""
    heard = Event()

    def write() -> None:
        number = 0
        while not heard.wait(0.1):
            number += 1
            patch(server, target, {"data": {"n": str(number)}})

    with ThreadPoolExecutor(1) as pool:
        done = pool.submit(write)
        try:
            yield
        finally:
            heard.set()
        done.result(10)


def _until(running: Popen[str], word: str) -> list[str]:
    """Its lines up to the one with a word; of JSON, to the end of the object."""
    assert running.stdout
    lines: list[str] = []
    while not any(word in line for line in lines) or (lines[0] == "{\n" and lines[-1] != "}\n"):
        line = running.stdout.readline()
        assert line, f"ended before {word!r}: {lines}"
        lines.append(line)
    return lines


def test_a_resource_that_appears_is_known_at_once(
    apiserver: ApiServer, proxy_of: Proxy, tmp_path: Path
) -> None:
    """Discovery is confirmed at each request, so it is as new as the API server's own."""
    kubectl = Kubectl(kubeconfig_for(proxy_of.read, tmp_path), tmp_path)
    assert "gizmos" not in kubectl("api-resources").ok().stdout
    define(apiserver.server, crd("Gizmo", group="new.kubecache.dev"))
    assert "gizmos" in kubectl("api-resources").ok().stdout
    assert json.loads(kubectl("get", "gizmos", "-o", "json").ok().stdout)["items"] == []


@pytest.mark.parametrize(
    "command",
    [
        "get configmaps",
        "get configmaps -o wide",
        "get configmaps -o yaml",
        "get configmaps -o json",
        "get configmaps -o name",
        "get configmaps -o jsonpath={.items}",
    ],
)
@pytest.mark.usefixtures("seen")
def test_the_outputs_that_are_cached(command: str, proxy_of: Proxy, tmp_path: Path) -> None:
    """As docs/clients.md says, and as it says one finds out."""
    for server in (proxy_of.read, proxy_of.read.adding(TABLE)):
        cached(server, f"/api/v1/namespaces/{NAMESPACE}/configmaps")
    kubectl = Kubectl(kubeconfig_for(proxy_of.read, tmp_path), tmp_path)

    def is_cached() -> bool:
        told = kubectl(*_words(command), "-v=8", f"--namespace={NAMESPACE}").ok().stderr
        found: list[str] = re.findall(r"Cache-Status: (.*)", told)
        return found[-1].startswith("kubecache; hit")

    # Not at once where the same client has just been shown a live list.
    eventually(is_cached, command)


def test_a_conflict_that_is_read_whole(
    proxy_of: Proxy, apiserver: ApiServer, namespace: str, tmp_path: Path
) -> None:
    """kubectl prints the causes where docs/clients.md says that it does."""
    target = f"/api/v1/namespaces/{namespace}/configmaps"
    old = create(apiserver.server, target, configmap("c", {"a": "1"}))
    cached(proxy_of.read, target)
    patch(proxy_of.read, f"{target}/c", {"data": {"a": "2"}})
    kubectl = Kubectl(kubeconfig_for(proxy_of.read, tmp_path), tmp_path)
    plain, whole = (
        kubectl("replace", "-f", "-", *more, stdin=json.dumps(old)) for more in ((), ("-v=9",))
    )
    assert plain.code == whole.code == 1
    assert "FieldValueChanged" not in plain.stderr
    assert "FieldValueChanged" in whole.stderr
