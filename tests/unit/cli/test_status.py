"""`kubecache status`: a table or JSON of what a running proxy says."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from socket import create_server, socket
from threading import Thread

import pytest

from proxy import __version__
from proxy.access.hosts import HostCheck
from proxy.cache.health import STALLED
from proxy.cache.supervisor import Supervisor
from proxy.cli import status
from proxy.reads.listing import Tally
from proxy.server.addresses import Address
from proxy.server.admin import admin_app
from proxy.server.listener import Listener
from tests.unit.builders import PODS
from tests.unit.served import Served

INFORMER = {
    "id": "pods.v1",
    "named": True,
    "synced": False,
    "resource_version": "12",
    "objects": 3,
    "raw_bytes": 4096,
    "staleness": 1.25,
    "unproven": None,
    "lag": 0.0012,
    "stalled": False,
    "watchers": 2,
    "last_error": "",
}
EMPTY = {
    "version": "1.2.3",
    "ready": True,
    "unready": {},
    "unreached": "",
    "informers": [],
    "scans": [],
    "conflicts": {},
    "merges": {},
    "live_reads": {},
}


def test_a_table_of_informers() -> None:
    told = {**EMPTY, "informers": [INFORMER, {**INFORMER, "id": "nodes.v1", "last_error": "no"}]}
    assert status.render(told).splitlines() == [
        "kubecache 1.2.3, ready",
        "",
        "INFORMER   NAMED   SYNCED   OBJECTS   BYTES   VERSION   "
        "STALENESS   UNPROVEN   LAG     STALLED   WATCHERS   ERROR",
        "nodes.v1   yes     no       3         4096    12        "
        "1.2s        -          1.2ms   no        2          no",
        "pods.v1    yes     no       3         4096    12        "
        "1.2s        -          1.2ms   no        2",
    ]


def test_without_informers_there_are_the_titles() -> None:
    first, _, titles = status.render({**EMPTY, "ready": False}).splitlines()
    assert first == "kubecache 1.2.3, not ready"
    assert titles.split()[0] == "INFORMER"


def test_an_apiserver_that_has_not_answered_yet() -> None:
    assert status.render({**EMPTY, "unreached": "Connection refused"}).splitlines()[:3] == [
        "kubecache 1.2.3, ready",
        "no contact with the API server yet: Connection refused",
        "",
    ]


def test_what_is_named_and_not_there() -> None:
    unready = {"pod.v1": "the server has no resource pod.v1", "a.b": "not found yet"}
    assert status.render({**EMPTY, "ready": False, "unready": unready}).splitlines()[:4] == [
        "kubecache 1.2.3, not ready",
        "pod.v1: the server has no resource pod.v1",
        "a.b: not found yet",
        "",
    ]


def test_lists_that_scan_come_last() -> None:
    scan = {"resource": "pods.v1", "selector": "app=…", "lists": 7}
    assert status.render({**EMPTY, "scans": [scan]}).splitlines()[-2:] == [
        "LISTS THAT SCAN   SELECTOR   COUNT",
        "pods.v1           app=…      7",
    ]


def test_conflicts_are_counted() -> None:
    counts = {
        "conflicts": {"upstream": 1, "local": 12},
        "merges": {"merged": 3, "lost": 0},
        "live_reads": {"kubectl": 7},
    }
    assert status.render(EMPTY | counts).splitlines()[-5:] == [
        "conflicts: local 12, upstream 1",
        "",
        "merges: merged 3",
        "",
        "live reads: kubectl 7",
    ]


LOOPBACK = Address("127.0.0.1", 0)


def command(
    change: Callable[[Served], None],
    *arguments: str,
    listen: Address = LOOPBACK,
    admin: str = "{}",
) -> int:
    """Run it against a served admin app whose proxy has an informer of pods."""

    async def run() -> int:
        served = Served()
        informer = await served.synced()
        informer.named = True
        change(served)
        app = admin_app(served, HostCheck(listen.host or "localhost"))
        listener = Listener(app, listen)
        listener.open(Supervisor())
        try:
            given = admin.format(listener, port=listener.port)
            return await asyncio.to_thread(status.main, ["--admin", given, *arguments])
        finally:
            await listener.close()
            await served.informers.stop()

    return asyncio.run(run())


def nothing(_: Served) -> None:
    """Change nothing."""


def tally(served: Served) -> None:
    """Let a selector have scanned."""
    served.reader.tallies[PODS.info.resource] = Tally()
    served.reader.tallies[PODS.info.resource].scans["app=…"] = 4


def stall(served: Served) -> None:
    """Let the API server have been silent for too long."""
    served.clock.advance(STALLED + 1)


def test_the_command_prints_a_table(capsys: pytest.CaptureFixture[str]) -> None:
    assert command(tally) == 0
    output, errors = capsys.readouterr()
    assert errors == ""
    assert output.startswith(f"kubecache {__version__}, ready\n")
    assert "\npods.v1    yes     yes      1 " in output
    assert "app=…" in output


def test_the_command_prints_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert command(nothing, "--output", "json") == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["ready"], found["informers"][0]["id"]) == (True, "pods.v1")


def test_a_proxy_that_is_not_ready_is_shown_and_fails(capsys: pytest.CaptureFixture[str]) -> None:
    assert command(stall) == 1
    assert ", not ready\n" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("listen", "admin"),
    [
        (LOOPBACK, "http://{}"),
        (LOOPBACK, "http://{}/"),
        (LOOPBACK, ":{port}"),
        (LOOPBACK, "localhost:{port}"),
        (Address("0.0.0.0", 0), "{}"),
        (Address("::1", 0), "{}"),
        (Address("::1", 0), "http://{}/"),
        (Address("::1", 0), "[::]:{port}"),
    ],
)
def test_the_admin_listener_is_named_as_its_setting_or_by_url(listen: Address, admin: str) -> None:
    assert command(nothing, listen=listen, admin=admin) == 0


def test_the_admin_listener_may_be_a_unix_socket(tmp_path: Path) -> None:
    assert command(nothing, listen=Address("", 0, str(tmp_path / "s"))) == 0


@pytest.mark.parametrize("admin", ["8002", "https://127.0.0.1:8002", "http://a", "unix:s", "a:b"])
def test_an_admin_listener_that_cannot_be(admin: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        status.main(["--admin", admin])
    assert ended.value.code == 2
    assert "kubecache status: error: argument --admin: " in capsys.readouterr().err


def test_the_default_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        status.main(["--help"])
    assert "(default: 127.0.0.1:8002)" in " ".join(capsys.readouterr().out.split())


def test_a_proxy_that_is_not_there(capsys: pytest.CaptureFixture[str]) -> None:
    with closing(create_server(("127.0.0.1", 0))) as bound:
        address = f"127.0.0.1:{bound.getsockname()[1]}"
    assert status.main(["--admin", address]) == 1
    told = f"kubecache status: no proxy answers at --admin {address}: Connection refused\n"
    assert capsys.readouterr() == ("", told)


def test_a_socket_that_is_not_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    address = f"unix:{tmp_path}/s"
    assert status.main(["--admin", address]) == 1
    told = f"kubecache status: no proxy answers at --admin {address}: No such file or directory\n"
    assert capsys.readouterr() == ("", told)


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n", ": 404 Not Found"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", ""),
        (b"SSH-2.0-OpenSSH_9.2\r\n", ""),
    ],
)
def test_what_answers_is_no_proxy(
    answer: bytes, reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with closing(create_server(("127.0.0.1", 0))) as bound:
        address = f"127.0.0.1:{bound.getsockname()[1]}"
        Thread(target=_answer, args=(bound, answer)).start()
        assert status.main(["--admin", address]) == 1
    told = f"kubecache status: no proxy's admin listener is at --admin {address}{reason}\n"
    assert capsys.readouterr() == ("", told)


def _answer(bound: socket, answer: bytes) -> None:
    with closing(bound.accept()[0]) as accepted:
        accepted.recv(65536)
        accepted.sendall(answer)


def test_a_web_proxy_is_not_asked(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The admin listener is the proxy's own host or pod; kubectl leaves web proxies out too."""
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    assert command(nothing) == 0
    assert capsys.readouterr().err == ""


def test_an_output_that_is_unknown(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        status.main(["--output", "yaml"])
    assert ended.value.code == 2
    assert "invalid choice" in capsys.readouterr().err
