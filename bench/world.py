"""A real API server full of pods, and the proxy in front of it."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from bench.process import cpu_seconds
from tests.harness.apiserver import ApiServer
from tests.harness.http import Server
from tests.harness.objects import create_pods
from tests.harness.proxy import Proxy, Settings

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
    kubeconfig: Path
    pods: list[str]

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
        kubeconfig = apiserver.kubeconfig()
        with Proxy(kubeconfig, config=caching("pods", "namespaces", "configmaps")) as proxy:
            yield World(
                Side("kube-apiserver", apiserver.server, apiserver.process.pid),
                Side("kubecache", proxy.read, proxy.process.pid),
                proxy.admin,
                kubeconfig,
                pods,
            )


def caching(*resources: str) -> Settings:
    """Settings that cache these from the start."""
    return {"cache": {"resources": [{"resource": each} for each in resources]}}


def pod_path(key: str) -> str:
    """The path of the pod ``namespace/name``."""
    namespace, _, name = key.partition("/")
    return f"/api/v1/namespaces/{namespace}/pods/{name}"
