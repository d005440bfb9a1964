"""Consistency: what session adds to a read, waits after writes, strict reads, and proofs."""

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import count
from statistics import median

from bench.load import run
from bench.report import Figure
from bench.rounds import Rounds, cpu_us, p50_ms, rate
from bench.world import Side, World, caching, pod_path
from tests.harness.http import Server, Session
from tests.harness.proxy import Proxy, metrics

ADDED = 20
"""Microseconds that session may add to a read when no write is pending."""

WAIT = 5
"""Milliseconds that the median read may wait for a write that it must see, on loopback."""

PROBES = 1
"""Probes a second of an informer, however many clients ask for ``max-age``."""

CLIENTS = 100

_SECONDS = 1.0
_MAX_AGE_SECONDS = 8.0
_WRITES = 300
_PAUSE = 0.01
"""Seconds between the writes amid which strict reads are measured."""

_MERGE_PATCH = (("Content-Type", "application/merge-patch+json"),)


def session(world: World) -> Iterator[Figure]:
    """CPU of cached gets with no write pending, against a proxy that promises nothing."""
    targets = [pod_path(key) for key in world.pods[:500]]
    with _proxy(world, "eventual") as eventual, _proxy(world, "session") as proxy:
        sides = (_side(eventual), _side(proxy))
        for name, connections in (("get", 1), ("get, 8 connections", 8)):
            rounds = Rounds(sides, targets, _SECONDS, connections=connections)
            spent = rounds.figure(f"session {name}: CPU added", "µs", cpu_us)
            added = spent.value - (spent.apiserver or 0)
            yield replace(spent, value=added, bound=ADDED, apiserver=None)


def waits(world: World) -> Iterator[Figure]:
    """Reads that follow a write at once, on the same connection; and what of that is waiting.

    A wait is how much longer such a read takes than one that follows no write.
    """
    theirs, ours = (_after_writes(side.server, world.pods[0]) for side in world.sides)
    for name, of in (("get", 0), ("list of a name", 1)):
        after, plain = ours[of]
        yield Figure(
            f"{name} after a write: latency p50",
            median(after) * 1e3,
            "ms",
            apiserver=median(theirs[of][0]) * 1e3,
        )
        wait = (median(after) - median(plain)) * 1e3
        yield Figure(f"{name} after a write: wait, p50", wait, "ms", WAIT)
        late = (_p99(after) - median(plain)) * 1e3
        yield Figure(f"{name} after a write: wait, p99", late, "ms")


_Latencies = tuple[list[float], list[float]]


def _after_writes(server: Server, pod: str) -> list[_Latencies]:
    """Seconds of reads after a write and after none: of gets, and of lists that see the pod."""
    namespace, _, name = pod.partition("/")
    pods = f"/api/v1/namespaces/{namespace}/pods"
    listed = f"{pods}?fieldSelector=metadata.name%3D{name}"
    with Session(server) as client:

        def write(number: int) -> None:
            change = {"metadata": {"annotations": {"bench": f"{number}"}}}
            client.ask("PATCH", f"{pods}/{name}", headers=_MERGE_PATCH, body=change).ok()

        found = []
        for target in (f"{pods}/{name}", listed):
            after: list[float] = []
            plain: list[float] = []
            for number in range(_WRITES):
                write(number)
                after.append(_timed(client, target))
                plain.append(_timed(client, target))
            found.append((after, plain))
        return found


def strict(world: World) -> Iterator[Figure]:
    """Strict reads against kube-apiserver's own, of pods that rest and of pods that change."""
    gets = [pod_path(key) for key in world.pods[:500]]
    lists = [f"/api/v1/namespaces/{world.namespace}/pods"]
    with _proxy(world, "strict") as proxy:
        sides = (world.apiserver, _side(proxy))
        for amid in ("at rest", "amid writes"):
            with _writing(world, _PAUSE if amid == "amid writes" else None):
                yield from _strict(sides, f"strict get {amid}", gets, 1)
                yield from _strict(sides, f"strict get {amid}, 8 connections", gets, 8)
                yield from _strict(sides, f"strict list of a namespace {amid}", lists, 1)


def _strict(
    sides: tuple[Side, Side], name: str, targets: Sequence[str], connections: int
) -> Iterator[Figure]:
    rounds = Rounds(sides, targets, _SECONDS, connections=connections)
    yield rounds.figure(f"{name}: latency p50", "ms", p50_ms)
    yield rounds.figure(f"{name}: rate", "/s", rate)


def max_age(world: World) -> Iterator[Figure]:
    """Probes of an informer at rest of which a hundred clients ask ``max-age=2``."""
    targets = [pod_path(key) for key in world.pods[:500]]
    with _proxy(world, "session") as proxy:
        headers = "Cache-Control: max-age=2\r\n"
        run(_side(proxy), targets, 3, connections=CLIENTS, headers=headers)  # the first proof
        before = metrics(proxy)
        started = time.perf_counter()
        load = run(_side(proxy), targets, _MAX_AGE_SECONDS, connections=CLIENTS, headers=headers)
        took = time.perf_counter() - started
        after = metrics(proxy)

    def grown(name: str, **labels: str) -> float:
        return after.total(name, **labels) - before.total(name, **labels)

    name = f"max-age=2, {CLIENTS} clients"
    probes = grown("kubecache_probes_total", kind="probe")
    barriers = grown("kubecache_probes_total", kind="barrier")
    # At one a second there is one more of them than there are seconds between them.
    yield Figure(f"{name}: probes", max(probes - 1, 0) / took, "/s", PROBES)
    yield Figure(f"{name}: barriers", max(barriers - 1, 0) / took, "/s", PROBES)
    hits = grown("kubecache_requests_total", source="cache", verb="get", resource="pods")
    yield Figure(f"{name}: cached", 100 * hits / len(load.seen.latencies), "%")
    yield Figure(f"{name}: rate", rate(load), "/s")
    yield Figure(f"{name}: latency p50", p50_ms(load), "ms")


@contextmanager
def _writing(world: World, pause: float | None) -> Iterator[None]:
    """Changes pods in turn meanwhile, at the API server; with no pause, it doesn't."""
    stop = threading.Event()

    def write() -> None:
        with Session(world.apiserver.server) as client:
            for number in count():
                if stop.wait(pause):
                    return
                target = pod_path(world.pods[number % len(world.pods)])
                change = {"metadata": {"annotations": {"bench": f"{number}"}}}
                client.ask("PATCH", target, headers=_MERGE_PATCH, body=change).ok()

    thread = threading.Thread(target=write, name="writes")
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


@contextmanager
def _proxy(world: World, consistency: str) -> Iterator[Proxy]:
    """One more proxy with the pods in its cache."""
    with Proxy(world.kubeconfig, "--consistency", consistency, config=caching("pods")) as proxy:
        yield proxy


def _side(proxy: Proxy) -> Side:
    return Side("kubecache", proxy.read, proxy.process.pid)


def _timed(client: Session, target: str) -> float:
    began = time.perf_counter()
    client.ask("GET", target).ok()
    return time.perf_counter() - began


def _p99(seconds: Sequence[float]) -> float:
    return sorted(seconds)[len(seconds) * 99 // 100]
