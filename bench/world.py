"""A real API server full of pods, and the proxy in front of it."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from bench.process import cpu_seconds, resident_bytes
from tests.harness.apiserver import ApiServer
from tests.harness.http import Server
from tests.harness.objects import create_pods
from tests.harness.proxy import Proxy

NAMESPACES = 20


@dataclass(frozen=True)
class Side:
    """One of the two that are compared: where it listens, and its process."""

    name: str
    server: Server
    pid: int

    def cpu(self) -> float:
        """CPU seconds used so far."""
        return cpu_seconds(self.pid)


@dataclass(frozen=True)
class World:
    """The API server and the proxy, with the same *pods* (``namespace/name``) on both sides."""

    apiserver: Side
    proxy: Side
    admin: Server
    pods: list[str]
    empty_bytes: int
    sync_seconds: float

    @property
    def sides(self) -> tuple[Side, Side]:
        """Both, the API server first."""
        return self.apiserver, self.proxy

    @property
    def namespace(self) -> str:
        """One of the namespaces, all of the same size."""
        return self.pods[0].partition("/")[0]


@contextmanager
def build(count: int) -> Iterator[World]:
    """Start everything and create *count* pods of about 11 KB; ends with the proxy synced."""
    with ApiServer() as apiserver:
        namespaces = [apiserver.new_namespace(f"bench-{n}") for n in range(NAMESPACES)]
        pods = create_pods(apiserver.server, namespaces, count)
        with Proxy(apiserver.kubeconfig()) as proxy:
            empty = resident_bytes(proxy.process.pid)
        started = time.perf_counter()
        with Proxy(
            apiserver.kubeconfig(), config={"cache": {"resources": [{"resource": "pods"}]}}
        ) as proxy:
            yield World(
                Side("kube-apiserver", apiserver.server, apiserver.process.pid),
                Side("kubecache", proxy.read, proxy.process.pid),
                proxy.admin,
                pods,
                empty,
                time.perf_counter() - started,
            )
