"""Tunnels byte by byte: the proxy in front of a stub that says what a test has it say."""

from __future__ import annotations

import json
import os
import re
import socket
import ssl
import struct
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pytest

from tests.harness.caching import eventually
from tests.harness.certificate import CERTIFICATE, KEY
from tests.harness.proxy import Proxy, metrics

MIB = 1024 * 1024
TARGET = "/api/v1/namespaces/n/pods/p/exec?command=a"
ASKED = (
    f"POST {TARGET} HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n\r\n"
).encode()
SWITCHED = b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n\r\n"
_RESET = struct.pack("ii", 1, 0)

Script = Callable[[socket.socket], None]


class Stub:
    """Accepts connections, reads the head of each request, and has a script do the rest."""

    def __init__(self, context: ssl.SSLContext | None) -> None:
        self.script: Script = _echo
        self.heads: list[bytes] = []
        self.certified: list[bool] = []
        """Whether the proxy has shown its certificate, for each of the heads."""
        self._context = context
        self._listening = socket.create_server(("127.0.0.1", 0), backlog=200)
        self.port: int = self._listening.getsockname()[1]
        threading.Thread(target=self._serve, daemon=True).start()

    def close(self) -> None:
        self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()

    def _serve(self) -> None:
        with suppress(OSError):
            while True:
                accepted, _ = self._listening.accept()
                threading.Thread(target=self._answer, args=(accepted,), daemon=True).start()

    def _answer(self, accepted: socket.socket) -> None:
        with suppress(OSError), accepted:
            wire = accepted
            if self._context:
                wire = self._context.wrap_socket(accepted, server_side=True)
            with wire:
                head = _head(wire)
                if head.startswith(b"POST"):  # all else is the proxy's own
                    self.heads.append(head)
                    shown = wire.getpeercert() if isinstance(wire, ssl.SSLSocket) else None
                    self.certified.append(bool(shown))
                    self.script(wire)


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("certificate")
    (folder / "certificate").write_text(CERTIFICATE)
    (folder / "key").write_text(KEY)
    return folder / "certificate", folder / "key"


@pytest.fixture(scope="module", params=["plain", "tls"])
def stub(request: pytest.FixtureRequest, certificate: tuple[Path, Path]) -> Iterator[Stub]:
    """What stands in the place of kube-apiserver."""
    context = None
    if request.param == "tls":
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*certificate)
        context.load_verify_locations(certificate[0])
        context.verify_mode = ssl.CERT_OPTIONAL
    running = Stub(context)
    yield running
    running.close()


@pytest.fixture(scope="module")
def kubeconfig(
    stub: Stub, certificate: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory
) -> Path:
    scheme = "https" if stub._context else "http"
    cluster = {"server": f"{scheme}://127.0.0.1:{stub.port}"}
    user = {"token": "t"}
    if stub._context:
        cluster["certificate-authority"] = str(certificate[0])
        user |= {"client-certificate": str(certificate[0]), "client-key": str(certificate[1])}
    path = tmp_path_factory.mktemp("kubeconfig") / "config"
    config = {
        "clusters": [{"name": "c", "cluster": cluster}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "users": [{"name": "u", "user": user}],
        "current-context": "c",
    }
    path.write_text(json.dumps(config))
    return path


@pytest.fixture(scope="module")
def tunnels(kubeconfig: Path) -> Iterator[Proxy]:
    """A proxy in front of the stub."""
    with Proxy(kubeconfig, wait="livez", chain=False) as running:
        yield running


def _head(wire: socket.socket) -> bytes:
    head = bytearray()
    while not head.endswith(b"\r\n\r\n"):
        byte = wire.recv(1)
        if not byte:
            raise ConnectionError("no head")
        head += byte
    return bytes(head)


def _echo(wire: socket.socket) -> None:
    wire.sendall(SWITCHED + b"first")
    while part := wire.recv(65536):
        wire.sendall(part)


def _whole(wire: socket.socket) -> bytes:
    """All that comes until the end."""
    said = bytearray()
    while part := wire.recv(65536):
        said += part
    return bytes(said)


def _exactly(wire: socket.socket, size: int) -> bytes:
    said = bytearray()
    while len(said) < size:
        part = wire.recv(min(65536, size - len(said)))
        assert part, f"ended after {len(said)} of {size} bytes"
        said += part
    return bytes(said)


@contextmanager
def asked(proxy: Proxy, said: bytes = ASKED) -> Iterator[socket.socket]:
    """A client's connection, on which it has asked for a stream."""
    with socket.create_connection((proxy.read.host, proxy.read.port), timeout=20) as wire:
        wire.sendall(said)
        yield wire


def _reset(wire: socket.socket) -> None:
    """Close as a process does that is killed with bytes unread."""
    wire.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
    socket.socket.close(wire)


# --- bytes -------------------------------------------------------------------------------------


@pytest.mark.parametrize("early", [0, 1, 100, 100_000, MIB])
def test_bytes_are_the_same_both_ways(stub: Stub, tunnels: Proxy, early: int) -> None:
    """Those right behind the client's head, and behind the answer's, among them."""
    stub.script = _echo
    sent = os.urandom(2 * MIB)
    with asked(tunnels, ASKED + sent[:early]) as wire:
        threading.Thread(target=wire.sendall, args=(sent[early:],), daemon=True).start()
        assert _exactly(wire, len(SWITCHED) + 5) == SWITCHED + b"first"
        assert _exactly(wire, len(sent)) == sent


def test_a_large_head_goes_on_as_it_came(stub: Stub, tunnels: Proxy) -> None:
    stub.script = _echo
    lines = b"".join(b"X-%d: %s\r\n" % (number, b"y" * 8000) for number in range(100))
    with asked(tunnels, ASKED[:-2] + lines + b"\r\n") as wire:
        assert _exactly(wire, len(SWITCHED)) == SWITCHED
    assert lines.lower() in stub.heads[-1]


def test_a_hundred_at_once(stub: Stub, tunnels: Proxy) -> None:
    stub.script = _echo
    together = threading.Barrier(100, timeout=30)

    def exchange(number: int) -> bool:
        sent = bytes([number]) * 20_000
        with asked(tunnels) as wire:
            assert _exactly(wire, len(SWITCHED) + 5) == SWITCHED + b"first"
            together.wait()
            wire.sendall(sent)
            return _exactly(wire, len(sent)) == sent

    with ThreadPoolExecutor(100) as threads:
        assert all(threads.map(exchange, range(100)))


def test_a_slow_handshake(stub: Stub, tunnels: Proxy) -> None:
    answer = b"HTTP/1.1 202 Accepted\r\n\r\n"

    def script(wire: socket.socket) -> None:
        time.sleep(2)
        for number in range(len(answer)):
            wire.sendall(answer[number : number + 1])
            time.sleep(0.01)

    def counted() -> float:
        return metrics(tunnels).total("kubecache_requests_total", source="tunnel", code="202")

    stub.script = script
    with asked(tunnels) as wire:
        assert _whole(wire) == answer
    eventually(lambda: counted() == 1, "it's counted with its status")


def test_bodies_flow_both_ways_at_once_without_an_upgrade(stub: Stub, tunnels: Proxy) -> None:
    """Each part of the answer is told before the next part of the request is."""

    def script(wire: socket.socket) -> None:
        head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n"
        wire.sendall(head)
        while part := wire.recv(65536):
            wire.sendall(part)

    stub.script = script
    target = b"/api/v1/namespaces/n/pods/p/proxy/x"
    head = b"POST %s HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n" % target
    with asked(tunnels, head) as wire:
        assert b" 200 " in _head(wire)
        for number in range(5):
            part = b"4\r\npar%d\r\n" % number
            wire.sendall(part)
            assert _exactly(wire, len(part)) == part
        wire.sendall(b"0\r\n\r\n")
        assert _exactly(wire, 5) == b"0\r\n\r\n"


# --- who asks -----------------------------------------------------------------------------------

UPGRADE = b"Connection: Upgrade\r\nUpgrade: "
SPDY = UPGRADE + b"SPDY/3.1\r\n"
SUBPROTOCOL = b"Sec-WebSocket-Protocol: base64url.bearer.authorization.k8s.io.bWluZQ\r\n"


@pytest.mark.parametrize(
    ("headers", "own", "authorization"),
    [
        (SPDY, True, b"Bearer t"),
        (SPDY + b"Authorization: Bearer mine\r\n", False, b"Bearer mine"),
        (SPDY + b"Authorization:\r\n", False, b""),
        (UPGRADE + b"websocket\r\n" + SUBPROTOCOL, False, None),
        (SPDY + SUBPROTOCOL, True, b"Bearer t"),
        (b"", True, b"Bearer t"),
        (b"Authorization: Bearer mine\r\n", False, b"Bearer mine"),
    ],
    ids=["own", "token", "empty", "browser", "no browser", "no upgrade", "no upgrade, token"],
)
def test_who_shows_credentials_does_not_come_with_the_proxys(
    stub: Stub, tunnels: Proxy, headers: bytes, authorization: bytes | None, *, own: bool
) -> None:
    """Neither its token nor its certificate, which would win over a token at the API server."""
    answer = b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
    stub.script = lambda wire: wire.sendall(answer)
    said = b"POST %s HTTP/1.1\r\nHost: localhost\r\n%s\r\n" % (TARGET.encode(), headers)
    with asked(tunnels, said) as wire:
        assert b" 403 " in _head(wire)
    lines = (line.partition(b":") for line in stub.heads[-1].split(b"\r\n"))
    found = [value.strip() for name, _, value in lines if name.lower() == b"authorization"]
    assert found == ([] if authorization is None else [authorization])
    assert stub.certified[-1] is (own and stub._context is not None)


# --- refusals ----------------------------------------------------------------------------------

REFUSALS = [
    b"HTTP/1.1 403 Forbidden\r\nContent-Length: 4\r\nX-Odd:  1\r\nx-odd: 2\r\n\r\nnope",
    b"HTTP/1.1 404 Not Found\r\nTransfer-Encoding: chunked\r\n\r\n"
    b"2\r\nno\r\n2;x=y\r\npe\r\n0\r\n\r\n",
    b"HTTP/1.1 400 Bad Request\r\n\r\n" + b"why" * 100_000,
    b"HTTP/1.1 500 Internal Server Error\r\nContent-Length: 0\r\n\r\n",
    b"HTTP/1.0 200 OK\r\n\r\nno upgrade",
    b"no HTTP at all",
    b"",
]


@pytest.mark.parametrize("early", [0, MIB], ids=["silent", "speaking"])
@pytest.mark.parametrize("refusal", REFUSALS, ids=lambda each: each[9:12].decode() or "nothing")
def test_a_refusal_is_passed_on_and_ends(
    stub: Stub, tunnels: Proxy, refusal: bytes, early: int
) -> None:
    """Whatever the client has said already; the stub reads what its socket holds, as Go's does."""

    def script(wire: socket.socket) -> None:
        wire.sendall(refusal)
        wire.settimeout(0.2)
        with suppress(TimeoutError):
            _whole(wire)

    stub.script = script
    with asked(tunnels) as wire:
        wire.sendall(bytes(early))
        began = time.monotonic()
        assert _whole(wire) == refusal
        assert time.monotonic() - began < 2


# --- ends --------------------------------------------------------------------------------------


def test_a_client_that_has_ended_still_hears(stub: Stub, tunnels: Proxy) -> None:
    """With TLS as well."""
    heard: list[bytes] = []

    def script(wire: socket.socket) -> None:
        wire.sendall(SWITCHED)
        heard.append(_whole(wire))
        wire.sendall(bytes(MIB))

    stub.script = script
    with asked(tunnels) as wire:
        assert _exactly(wire, len(SWITCHED)) == SWITCHED
        wire.sendall(b"bye")
        wire.shutdown(socket.SHUT_WR)
        assert _whole(wire) == bytes(MIB)
    assert heard == [b"bye"]


def test_a_server_that_has_ended_still_hears(stub: Stub, tunnels: Proxy) -> None:
    heard: list[bytes] = []

    def script(wire: socket.socket) -> None:
        if isinstance(wire, ssl.SSLSocket):
            wire.sendall(SWITCHED)
            heard.append(_exactly(wire, MIB))  # Python's own sockets can't end TLS one way
            return
        wire.sendall(SWITCHED)
        wire.shutdown(socket.SHUT_WR)
        heard.append(_whole(wire))

    stub.script = script
    with asked(tunnels) as wire:
        assert _exactly(wire, len(SWITCHED)) == SWITCHED
        wire.sendall(bytes(MIB))
        assert _whole(wire) == b""
        wire.shutdown(socket.SHUT_WR)
        eventually(lambda: heard == [bytes(MIB)], "all is heard")


@pytest.mark.parametrize("leave", [socket.socket.close, _reset], ids=["close", "reset"])
def test_who_leaves_ends_the_other_side(
    stub: Stub, tunnels: Proxy, leave: Callable[[socket.socket], None]
) -> None:
    left = threading.Event()

    def script(wire: socket.socket) -> None:
        with suppress(OSError):
            _echo(wire)
        left.set()

    stub.script = script
    with asked(tunnels) as wire:
        _exactly(wire, len(SWITCHED))
        leave(wire)
    assert left.wait(1)


@pytest.mark.parametrize("leave", [socket.socket.close, _reset], ids=["close", "reset"])
def test_a_server_that_leaves_ends_the_clients_side(
    stub: Stub, tunnels: Proxy, leave: Callable[[socket.socket], None]
) -> None:
    def script(wire: socket.socket) -> None:
        wire.sendall(SWITCHED)
        leave(wire)

    stub.script = script
    with asked(tunnels) as wire:
        began = time.monotonic()
        with suppress(ConnectionError):
            _whole(wire)
        assert time.monotonic() - began < 1


def test_a_stop_ends_tunnels(stub: Stub, kubeconfig: Path) -> None:
    left = threading.Event()

    def script(wire: socket.socket) -> None:
        with suppress(OSError):
            _echo(wire)
        left.set()

    stub.script = script
    with Proxy(kubeconfig, wait="livez", chain=False) as proxy:
        with asked(proxy) as wire:
            assert _exactly(wire, len(SWITCHED) + 5) == SWITCHED + b"first"
            began = time.monotonic()
            proxy.stop()
            assert _whole(wire) == b""
        assert left.wait(1)
        assert time.monotonic() - began < 5


# --- backpressure --------------------------------------------------------------------------------

PILED = 10
SETTLED = 1.0


def _resident(proxy: Proxy) -> int:
    """Bytes of memory that the proxy has."""
    status = Path(f"/proc/{proxy.process.pid}/status")
    if not status.exists():
        pytest.skip("no /proc here")
    found = re.search(r"VmRSS:\s+(\d+) kB", status.read_text())
    assert found
    return int(found[1]) * 1024


def _pour(wire: socket.socket, poured: list[int]) -> None:
    """Write without end, and note how much has been taken."""
    poured.append(0)
    place = len(poured) - 1
    with suppress(OSError):
        while True:
            poured[place] += wire.send(bytes(65536))


@pytest.mark.parametrize("towards", ["client", "server"])
def test_who_reads_nothing_slows_the_writer(stub: Stub, tunnels: Proxy, towards: str) -> None:
    """A tunnel holds half a MiB at the most, as resident memory; the rest is in sockets."""
    poured: list[int] = []
    over = threading.Event()

    def script(wire: socket.socket) -> None:
        wire.sendall(SWITCHED)
        if towards == "client":
            _pour(wire, poured)
        over.wait(30)

    stub.script = script
    before = _resident(tunnels)
    with ExitStack() as stack:
        stack.callback(over.set)
        wires = [stack.enter_context(asked(tunnels)) for _ in range(PILED)]
        for wire in wires:
            _exactly(wire, len(SWITCHED))
            if towards == "server":
                threading.Thread(target=_pour, args=(wire, poured), daemon=True).start()
        seen: list[int] = []
        while len(poured) < PILED or seen != poured:
            seen = list(poured)
            time.sleep(SETTLED)
        grown = (_resident(tunnels) - before) / PILED
        assert grown < 600 * 1024
        assert max(poured) < 32 * MIB
