"""The real `kubecache run` as a process of its own, and its metrics."""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple, Self

import yaml
from prometheus_client.parser import text_string_to_metric_families

from tests.harness.http import Server, get
from tests.harness.kubectl import kubeconfig_for
from tests.harness.processes import Process, free_port

_ROOT = Path(__file__).parents[2]
_DRAIN = 10.0  # seconds that an ordered stop may take

CHAINED = os.environ.get("KUBECACHE_TEST_CHAIN") == "1"
"""Whether every proxy has another one between it and the API server, as in a nightly run."""

Settings = Mapping[str, Any]


class Proxy:
    """`kubecache run` in front of the API server of a kubeconfig; use it in a `with`.

    Leaving the `with` ends it by SIGTERM and asserts that it went in order, with exit code 0.
    Without a kubeconfig, it is as in a pod. The launcher is a command that runs it.
    Chained, it is in front of another proxy with default settings, which lives as long.
    """

    running: ClassVar[set[Proxy]] = set()

    def __init__(
        self,
        kubeconfig: Path | None,
        *flags: str,
        config: Settings | None = None,
        env: Mapping[str, str] | None = None,
        launcher: Sequence[str | Path] = (),
        wait: Literal["readyz", "livez"] = "readyz",
        chain: bool = CHAINED,
    ) -> None:
        self._scratch = tempfile.TemporaryDirectory(prefix="kubecache-proxy-")
        self.folder = Path(self._scratch.name)
        self.read = Server("127.0.0.1", free_port())
        self.admin = Server("127.0.0.1", free_port())
        self._behind = ExitStack()
        self._inner = Proxy(kubeconfig, chain=False) if chain else None
        if self._inner:
            kubeconfig = kubeconfig_for(self._inner.read, self.folder)
        self._flags = (*self._common_flags(kubeconfig, config), *flags)
        self._env = env or {}
        self._launcher = launcher
        self._wait = wait
        self._process: Process | None = None

    def __repr__(self) -> str:
        return f"<Proxy {self.read.url} {self._process!r}>"

    def __enter__(self) -> Self:
        try:
            if self._inner:
                self._behind.enter_context(self._inner)
            self.start()
        except BaseException:
            self._abandon()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            if kind:
                print(f"--- log of {self!r}\n{self.log()}")  # pytest shows it with the failure
            elif self in self.running:
                self.stop()
        finally:
            self._abandon()

    @property
    def nearest(self) -> Proxy:
        """The proxy that speaks to the API server: itself, or the other one of a chain."""
        return self._inner or self

    @property
    def process(self) -> Process:
        assert self._process, "the proxy is not started"
        return self._process

    def log(self) -> str:
        """The end of what it wrote to stdout and stderr."""
        return self.process.tail() if self._process else ""

    def start(self) -> None:
        """Starts it, on the ports that it had before, and waits until it says that it is ready."""
        run = [sys.executable, "-m", "proxy.cli.main", "run", *self._flags]
        command = [*self._launcher, *run]
        log = self.folder / "log"
        self._process = Process(command, log=log, env=self._environment(), name="kubecache")
        self.running.add(self)
        self.wait(self._wait)

    def stop(self) -> None:
        """Ends it by SIGTERM; it must go with exit code 0 within ten seconds."""
        process = self.process
        self.running.discard(self)
        if process.code is not None:
            raise process.failure("ended by itself")
        code = process.stop(_DRAIN)
        if code:
            raise process.failure("did not end in order after SIGTERM")

    def kill(self) -> None:
        """Ends it as a crash does."""
        self.process.kill()
        self.running.discard(self)

    def wait(self, probe: str = "readyz", *, status: int = 200, timeout: float = 30) -> None:
        """Waits until a probe of the admin listener answers with a status."""
        deadline = time.monotonic() + timeout
        while (seen := self._probe(probe)) != status:
            if self.process.code is not None or time.monotonic() > deadline:
                raise self.process.failure(f"/{probe} is {seen}, not {status}")
            time.sleep(0.05)

    def _probe(self, probe: str) -> int | None:
        try:
            return get(self.admin, f"/{probe}").status
        except OSError:  # nobody listens yet
            return None

    def _abandon(self) -> None:
        if self._process and self._process.code is None:
            self._process.kill()
        self.running.discard(self)
        self._scratch.cleanup()
        self._behind.close()

    def _common_flags(self, kubeconfig: Path | None, config: Settings | None) -> Sequence[str]:
        addresses = [f"{server.host}:{server.port}" for server in (self.read, self.admin)]
        flags = ["--listen", addresses[0], "--admin", addresses[1]]
        if kubeconfig:
            flags += ["--kubeconfig", str(kubeconfig)]
        if config is None:
            return flags
        path = self.folder / "config.yaml"
        path.write_text(yaml.safe_dump(dict(config)))
        return [*flags, "--config", str(path)]

    def _environment(self) -> dict[str, str]:
        inherited = {k: v for k, v in os.environ.items() if not k.startswith("KUBE")}
        return {**inherited, "PYTHONPATH": str(_ROOT), "PYTHONUNBUFFERED": "1", **self._env}


class Sample(NamedTuple):
    labels: Mapping[str, str]
    value: float


class Metrics(dict[str, list[Sample]]):
    """Samples by name, spelled as exposed: `kubecache_requests_total`."""

    def total(self, name: str, **labels: str) -> float:
        """The sum of the samples that have these labels; 0 when there is none."""
        wanted = labels.items()
        return sum(each.value for each in self.get(name, ()) if wanted <= each.labels.items())


def metrics(proxy: Proxy) -> Metrics:
    """What its `/metrics` say now."""
    return parse_metrics(get(proxy.admin, "/metrics").ok().body.decode())


def forms_held(proxy: Proxy, plural: str) -> set[str]:
    """The forms in which it holds a resource."""
    samples = metrics(proxy)["kubecache_informer_synced"]
    return {each.labels["form"] for each in samples if each.labels["resource"] == plural}


def parse_metrics(text: str) -> Metrics:
    found = Metrics()
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            found.setdefault(sample.name, []).append(Sample(sample.labels, sample.value))
    return found
