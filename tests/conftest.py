"""Gives integration tests their marker and a kube-apiserver that all of them share."""

from __future__ import annotations

import os
from collections.abc import Generator, Iterator
from contextlib import nullcontext
from pathlib import Path

import pytest

from tests.apiserver import build
from tests.harness.apiserver import ApiServer
from tests.harness.proxy import Proxy, chained

_INTEGRATION = Path(__file__).parent / "integration"
_SKIPPED = "no Go and no KUBEBUILDER_ASSETS, so no kube-apiserver: integration tests are skipped"


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Marks the integration tests, and skips them where no kube-apiserver can be had."""
    del config
    skipped = not _required() and not build.available()
    for item in items:
        if item.path.is_relative_to(_INTEGRATION):
            item.add_marker("apiserver")
            if skipped:
                item.add_marker(pytest.mark.skip(reason=_SKIPPED))


def pytest_collection_finish(session: pytest.Session) -> None:
    """Builds kube-apiserver before the first test, whose time limit it would exceed."""
    needed = any(item.get_closest_marker("apiserver") for item in session.items)
    if not needed or session.config.option.collectonly:
        return
    if not _required() and not build.available():
        return
    try:
        build.assets()
    except build.CannotBuildError as error:
        raise pytest.UsageError(f"integration tests need a kube-apiserver: {error}") from error


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Says aloud, at the end where it is read, that tests were skipped."""
    skipped = terminalreporter.stats.get("skipped", [])
    if any(_SKIPPED in str(report.longrepr) for report in skipped):
        terminalreporter.write_line(f"WARNING: {_SKIPPED}", red=True, bold=True)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Shows the logs of the proxies that run while a test fails."""
    report = yield
    if report.failed:
        report.sections += [(f"log of {proxy!r}", proxy.log()) for proxy in Proxy.running]
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
    """A proxy with default settings and an administrator's credentials, shared as well.

    With KUBECACHE_TEST_CHAIN=1 its API server is another proxy.
    """
    chain = chained if os.environ.get("KUBECACHE_TEST_CHAIN") == "1" else nullcontext
    with chain(apiserver.kubeconfig()) as kubeconfig, Proxy(kubeconfig) as running:
        yield running


@pytest.fixture
def namespace(apiserver: ApiServer) -> str:
    """A new namespace of the shared kube-apiserver, for one test."""
    return apiserver.new_namespace()


def _required() -> bool:
    return os.environ.get("CI") == "true"
