"""`kubecache run` as a process that does not get to serve: exit codes, and what it says."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
from pathlib import Path
from socket import create_server

import pytest

from proxy.cli.run import warn_of_exposure
from proxy.server.addresses import parse_address

ROOT = Path(__file__).parents[3]


def run(*arguments: str, **env: str) -> tuple[int, str]:
    """Its exit code and what it wrote to stderr; a setting of one's own does not matter."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("KUBE")}
    done = subprocess.run(
        [sys.executable, "-m", "proxy.cli.main", "run", *arguments],
        cwd=ROOT,
        env=kept | env,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.stdout == ""
    return done.returncode, done.stderr


@pytest.fixture
def kubeconfig(tmp_path: Path) -> str:
    """A kubeconfig for a server that need not be there."""
    cluster = {"name": "c", "cluster": {"server": "http://127.0.0.1:1"}}
    context = {"name": "c", "context": {"cluster": "c", "user": ""}}
    path = tmp_path / "kubeconfig"
    content = {"current-context": "c", "contexts": [context], "clusters": [cluster]}
    path.write_text(json.dumps({"apiVersion": "v1", "kind": "Config", **content}))
    return str(path)


def test_wrong_settings() -> None:
    """One line names all that is wrong, without a link to pydantic's pages."""
    code, errors = run("--listen", "nowhere", KUBECACHE_CACHE__IDLE_TTL="long")
    assert (code, errors) == (
        2,
        "kubecache run: --listen: 'nowhere' is neither host:port nor unix:/path; "
        "KUBECACHE_CACHE__IDLE_TTL: found 'long', expected a duration of 0 or more, "
        "such as 30s or 5m\n",
    )


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (None, "kubecache.yaml', expected a file that can be read: No such file"),
        ("- a", "not a mapping of settings"),
        ("listen: [", "not YAML: line 1, column 10: expected the node content, but found"),
        ("listen: \udcff", "not YAML: unacceptable character"),
        ("chache: {}", "chache: no such setting; did you mean cache?"),
    ],
)
def test_files_of_settings_that_cannot_be_used(
    content: str | None, complaint: str, tmp_path: Path
) -> None:
    path = tmp_path / "kubecache.yaml"
    if content is not None:
        path.write_bytes(os.fsencode(content))
    code, errors = run("--config", str(path))
    assert code == 2
    assert errors.startswith("kubecache run: ")
    assert complaint in errors
    assert errors.count("\n") == 1


@pytest.mark.parametrize(
    ("flags", "env", "place"),
    [
        (["--context", "x"], {}, "--context"),
        ([], {"KUBECACHE_CONTEXT": "x"}, "KUBECACHE_CONTEXT"),
    ],
)
def test_a_context_that_is_not_there(
    flags: list[str], env: dict[str, str], place: str, kubeconfig: str
) -> None:
    assert run("--kubeconfig", kubeconfig, *flags, **env) == (
        2,
        f"kubecache run: {place}: found 'x', expected one of c, the contexts of {kubeconfig}\n",
    )


def test_without_credentials_it_does_not_start(tmp_path: Path) -> None:
    path = tmp_path / "none"
    assert run("--kubeconfig", str(path)) == (1, f"kubecache run: no kubeconfig at {path}\n")


def test_in_a_pod_without_a_service_account_it_does_not_start() -> None:
    code, errors = run(KUBERNETES_SERVICE_HOST="127.0.0.1", KUBERNETES_SERVICE_PORT="1")
    assert code == 1
    assert errors.startswith("kubecache run: ")
    assert errors.count("\n") == 1


@pytest.mark.parametrize("listener", ["--listen", "--admin"])
def test_a_port_that_is_in_use(kubeconfig: str, listener: str) -> None:
    other = {"--listen": "--admin", "--admin": "--listen"}[listener]
    with create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        flags = ["--kubeconfig", kubeconfig, listener, address, other, "127.0.0.1:0"]
        code, errors = run(*flags)
    assert code == 1
    assert errors.splitlines()[-1] == (
        f"kubecache run: can't listen on {address}: Address already in use"
    )
    assert "Traceback" not in errors


@pytest.mark.parametrize(
    ("listen", "is_told"),
    [
        ("127.0.0.1:8001", False),
        ("localhost:8001", False),
        ("[::1]:8001", False),
        ("unix:/run/it", False),
        (":8001", True),
        ("[::]:8001", True),
        ("10.0.0.7:8001", True),
        ("a.example:8001", True),
    ],
)
def test_a_listener_for_others_is_warned_of(
    listen: str, caplog: pytest.LogCaptureFixture, *, is_told: bool
) -> None:
    address = parse_address(listen)
    with caplog.at_level(logging.WARNING):
        warn_of_exposure(address)
    told = [f"everybody who reaches {address} reads as the proxy: it isn't loopback"]
    assert caplog.messages == (told if is_told else [])
