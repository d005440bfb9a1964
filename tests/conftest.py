"""Gives integration tests their marker and a kube-apiserver that all of them share."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest

from tests.apiserver import build
from tests.harness.apiserver import ApiServer
from tests.harness.proxy import CHAINED, Proxy

_INTEGRATION = Path(__file__).parent / "integration"
_SKIPPED = "no Go and no KUBEBUILDER_ASSETS, so no kube-apiserver: integration tests are skipped"
_died: list[object] = []


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Marks the integration tests, and skips those that can't be had, or not behind two proxies.

    Slow tests come last: what they wait for may have begun long before.
    """
    del config
    skipped = not _required() and not build.available()
    for item in items:
        if item.path.is_relative_to(_INTEGRATION):
            item.add_marker("apiserver")
            if skipped:
                item.add_marker(pytest.mark.skip(reason=_SKIPPED))
        if CHAINED and (unchained := item.get_closest_marker("unchained")):
            [reason] = unchained.args
            item.add_marker(pytest.mark.skip(reason=f"not behind two proxies: {reason}"))
    items.sort(key=lambda item: item.get_closest_marker("slow") is not None)


def pytest_collection_finish(session: pytest.Session) -> None:
    """Builds kube-apiserver before the first test, whose time limit it would exceed."""
    if session.config.option.collectonly or hasattr(session.config, "workerinput"):
        return
    if any(item.get_closest_marker("apiserver") for item in session.items):
        _build()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_node_collection_finished(ids: list[str]) -> None:
    """The same for workers, which wait meanwhile: what goes wrong in them is told as a crash."""
    if any(_INTEGRATION.name in Path(each.partition("::")[0]).parts for each in ids):
        _build()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Says aloud, at the end where it is read, what was skipped and why."""
    reports = terminalreporter.stats.get("skipped", [])
    reasons = Counter(report.longrepr[2].removeprefix("Skipped: ") for report in reports)
    for reason, count in reasons.items():
        terminalreporter.write_line(f"WARNING: {count} skipped: {reason}", red=True, bold=True)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(error: object) -> None:
    """Notes that a worker has died."""
    if error:
        _died.append(error)


def pytest_sessionfinish(session: pytest.Session) -> None:
    """A worker that dies leaves tests that haven't run: that's no list of what failed."""
    if _died:
        session.exitstatus = pytest.ExitCode.INTERNAL_ERROR


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Shows the logs of the proxies that run while a test fails."""
    report = yield
    if report.failed:
        report.sections += [(f"log of {proxy!r}", proxy.log()) for proxy in list(Proxy.running)]
    return report


@pytest.fixture(scope="session")
def apiserver() -> Iterator[ApiServer]:
    """The kube-apiserver that the tests share: leave its processes alone.

    A test that restarts, freezes or compacts starts its own by `with ApiServer()`.
    """
    with ApiServer() as server:
        yield server


@pytest.fixture(scope="session")
def proxy(apiserver: ApiServer) -> Iterator[Proxy]:
    """A proxy with default settings and an administrator's credentials, shared as well."""
    with Proxy(apiserver.kubeconfig()) as running:
        yield running


@pytest.fixture
def namespace(apiserver: ApiServer) -> str:
    """A new namespace of the shared kube-apiserver, for one test."""
    return apiserver.new_namespace()


def _build() -> None:
    if not _required() and not build.available():
        return
    try:
        build.assets()
    except build.CannotBuildError as error:
        raise pytest.UsageError(f"integration tests need a kube-apiserver: {error}") from error


def _required() -> bool:
    return os.environ.get("CI") == "true"
