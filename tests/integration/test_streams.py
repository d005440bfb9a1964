"""Streams: kubectl, the proxy, kube-apiserver and a stub of a kubelet, and without the proxy."""

from __future__ import annotations

import asyncio
import fcntl
import os
import pty
import re
import signal
import socket
import ssl
import statistics
import struct
import subprocess
import termios
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from random import Random
from typing import NamedTuple

import pytest

from tests.harness import websocket
from tests.harness.apiserver import ApiServer
from tests.harness.caching import eventually
from tests.harness.differential import compare, differences
from tests.harness.http import Answer, Body, Headers, Server, ask, get
from tests.harness.kubectl import Kubectl, built, kubeconfig_for, older
from tests.harness.kubelet import Kubelet
from tests.harness.objects import Object, create, node, patch, pod, pod_status
from tests.harness.proxy import Proxy, metrics

NAMESPACE = "streams"
PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"
# By its node a kubelet says whether it speaks WebSocket; for the others kube-apiserver translates.
FEATURES = {"new": ["ExtendWebSocketsToKubelet"], "old": []}
SIDES = ["direct", "proxy"]
MIB = 1024 * 1024


def _own_address() -> str:
    """This machine's address on the network: kube-apiserver's proxies lead to no loopback one."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("198.51.100.1", 9))  # sends nothing
        except OSError:
            return "127.0.0.1"
        address: str = probe.getsockname()[0]
        return address


@pytest.fixture(scope="module")
def kubelet(apiserver: ApiServer) -> Iterator[Kubelet]:
    """The kubelet of two nodes, each with a pod of its name, and a service s that leads to them."""
    address = _own_address()
    with Kubelet(apiserver.ca, apiserver.folder / "certs" / "apiserver.key") as running:
        apiserver.new_namespace(NAMESPACE)
        for name, features in FEATURES.items():
            create(apiserver.server, "/api/v1/nodes", node(f"streams-{name}"))
            status = _node_status(address, running.port, features)
            patch(apiserver.server, f"/api/v1/nodes/streams-{name}/status", status)
            create(apiserver.server, PODS, pod(name, node_name=f"streams-{name}"))
            patch(apiserver.server, f"{PODS}/{name}/status", pod_status(ip=address))
        _create_service(apiserver.server, address, running)
        yield running
        for name in FEATURES:
            ask(apiserver.server, "DELETE", f"/api/v1/nodes/streams-{name}").ok()


def _node_status(address: str, port: int, features: list[str]) -> Object:
    return {
        "status": {
            "addresses": [{"type": "InternalIP", "address": address}],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": port}},
            "declaredFeatures": features,
        }
    }


def _create_service(server: Server, address: str, kubelet: Kubelet) -> None:
    ports = [
        {"name": "http", "port": 80, "targetPort": kubelet.pod_port},
        {"name": "https", "port": 443, "targetPort": kubelet.port},
    ]
    service = {"metadata": {"name": "s"}, "spec": {"ports": ports}}
    create(server, f"/api/v1/namespaces/{NAMESPACE}/services", service)
    target = {"kind": "Pod", "name": "new", "namespace": NAMESPACE}
    slice_ = {
        "metadata": {"name": "s-1", "labels": {"kubernetes.io/service-name": "s"}},
        "addressType": "IPv4",
        "endpoints": [{"addresses": [address], "targetRef": target}],
        "ports": [{"name": each["name"], "port": each["targetPort"]} for each in ports],
    }
    create(server, f"/apis/discovery.k8s.io/v1/namespaces/{NAMESPACE}/endpointslices", slice_)


# --- kubectl -----------------------------------------------------------------------------------


class Way(NamedTuple):
    """How kubectl reaches a container, and what of it comes to the kubelet."""

    binary: Callable[[], Path]
    websockets: bool
    pod: str
    spoken: str

    def __str__(self) -> str:
        wire = "websocket" if self.websockets else "spdy"
        return f"{self.binary.__name__}-{wire}-{self.pod}"


WAYS = [
    Way(built, True, "new", "v5.channel.k8s.io websocket"),
    Way(built, True, "old", "v4.channel.k8s.io spdy"),
    Way(built, False, "old", "v4.channel.k8s.io spdy"),
    Way(older, True, "new", "v5.channel.k8s.io websocket"),
    Way(older, False, "new", "v4.channel.k8s.io spdy"),
]
by_ways = pytest.mark.parametrize("way", WAYS, ids=str)
by_sides = pytest.mark.parametrize("side", SIDES)


@pytest.fixture
def kubectl(apiserver: ApiServer, proxy: Proxy, tmp_path: Path) -> Callable[[str, Way], Kubectl]:
    """kubectl at one of the `SIDES`, in a way."""
    paths = {"direct": apiserver.kubeconfig(), "proxy": kubeconfig_for(proxy.read, tmp_path)}

    def of(side: str, way: Way) -> Kubectl:
        found = Kubectl(paths[side], tmp_path / side, binary=way.binary())
        wanted = "true" if way.websockets else "false"
        found.env |= {
            "KUBECTL_REMOTE_COMMAND_WEBSOCKETS": wanted,
            "KUBECTL_PORT_FORWARD_WEBSOCKETS": wanted,
        }
        return found

    return of


Kubectls = Callable[[str, Way], Kubectl]

SHELL = "exec -i {pod} -c app -- sh -c"
COMMANDS: list[tuple[str, list[str], str | None, int, str]] = [
    ("exec -i {pod} -c app --", ["cat"], "hello\n", 0, "hello\n"),
    (SHELL, ["cat; echo no >&2; exit 3"], "hello\n", 3, "hello\n"),
    (
        SHELL,
        ["wc -c; head -c 1048576 /dev/zero | tr '\\0' y"],
        "x" * MIB,
        0,
        f"{MIB}\n" + "y" * MIB,
    ),
    (SHELL, ["echo early; exec <&-; sleep 0.2; echo late"], "x" * MIB, 0, "early\nlate\n"),
    ("exec {pod} -c app --", ["sh", "-c", "cat; echo no stdin"], None, 0, "no stdin\n"),
    ("exec {pod} -c none --", ["true"], None, 1, ""),
    ("exec none --", ["true"], None, 1, ""),
    ("attach -i {pod} -c app", [], "hello\n", 0, "attached\nhello\n"),
]


@by_ways
@pytest.mark.parametrize(("words", "rest", "stdin", "code", "stdout"), COMMANDS)
def test_commands(
    kubectl: Kubectls,
    kubelet: Kubelet,
    proxy: Proxy,
    way: Way,
    words: str,
    rest: list[str],
    stdin: str | None,
    code: int,
    stdout: str,
) -> None:
    command = [f"-n={NAMESPACE}", *words.format(pod=way.pod).split(), *rest]
    outputs = []
    before = metrics(proxy).total("kubecache_requests_total", source="tunnel")
    for side in SIDES:
        kubelet.spoken.clear()
        outputs.append(kubectl(side, way)(*command, stdin=stdin))
        assert kubelet.spoken in ([f"{words.partition(' ')[0]} {way.spoken}"], [])
    assert outputs[0] == outputs[1]
    assert (outputs[1].code, outputs[1].stdout) == (code, stdout)

    def tunnelled() -> bool:
        now = metrics(proxy).total("kubecache_requests_total", source="tunnel")
        return now > before or "none" in words

    eventually(tunnelled, "it's counted as a tunnel")


@by_sides
@by_ways
def test_a_terminal_and_its_size(kubectl: Kubectls, kubelet: Kubelet, way: Way, side: str) -> None:
    del kubelet
    master, slave = pty.openpty()
    _resize(slave, 80, 24)
    words = f"-n {NAMESPACE} exec -it {way.pod} -c app -- sh".split()
    process = kubectl(side, way).start(*words, terminal=slave)
    try:
        seen = bytearray()
        _read_until(master, seen, b"size 80x24")
        _resize(slave, 132, 43)
        process.send_signal(signal.SIGWINCH)  # it's not the terminal's foreground process
        _read_until(master, seen, b"size 132x43")
        os.write(master, b"hello\r")
        _read_until(master, seen, b"HELLO")
        os.write(master, b"exit\r")
        assert process.wait(10) == 0
    finally:
        process.kill()
        process.wait()
        os.close(master)
        os.close(slave)


def _resize(terminal: int, columns: int, rows: int) -> None:
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))


def _read_until(terminal: int, seen: bytearray, wanted: bytes) -> None:
    while wanted not in seen:
        seen += os.read(terminal, 4096)


# --- port-forward ------------------------------------------------------------------------------


@contextmanager
def served(answer: Callable[[socket.socket], None]) -> Iterator[int]:
    """A port of this machine, whose connections a function answers, each in a thread."""

    def serve() -> None:
        while True:
            try:
                connection, _ = listening.accept()
            except OSError:
                return
            threading.Thread(target=_answer, args=(answer, connection), daemon=True).start()

    with socket.create_server(("127.0.0.1", 0)) as listening:
        threading.Thread(target=serve, daemon=True).start()
        try:
            yield listening.getsockname()[1]
        finally:
            listening.shutdown(socket.SHUT_RDWR)


def _answer(answer: Callable[[socket.socket], None], connection: socket.socket) -> None:
    with connection:
        answer(connection)


def _whole(connection: socket.socket) -> bytes:
    return b"".join(iter(partial(connection.recv, 65536), b""))


def _echo_at_the_end(connection: socket.socket) -> None:
    """Says all again once the other side has ended: needs its half-close."""
    connection.sendall(_whole(connection)[::-1])


@contextmanager
def forwarding(kubectl: Kubectl, pod_name: str, port: int) -> Iterator[int]:
    """`kubectl port-forward` to a port, and the local port that leads there."""
    words = f"-n {NAMESPACE} port-forward {pod_name} :{port}".split()
    process = kubectl.start(*words)
    assert process.stdout
    try:
        line = process.stdout.readline()
        found = re.match(r"Forwarding from 127.0.0.1:(\d+) ->", line)
        assert found, line + process.stdout.read()
        yield int(found[1])
    finally:
        process.terminate()
        process.communicate(timeout=10)


@by_sides
@by_ways
def test_forwarded_ports(kubectl: Kubectls, kubelet: Kubelet, way: Way, side: str) -> None:
    """Several connections at once, MiBs each way, and each side ends when it has said all."""
    kubelet.spoken.clear()

    def exchange(number: int) -> None:
        sent = os.urandom(4**number * MIB // 16) + bytes([number])
        with socket.create_connection(("127.0.0.1", local), timeout=30) as connection:
            connection.sendall(sent)
            connection.shutdown(socket.SHUT_WR)
            assert _whole(connection) == sent[::-1]

    with (
        served(_echo_at_the_end) as port,
        forwarding(kubectl(side, way), way.pod, port) as local,
        ThreadPoolExecutor(5) as threads,
    ):
        assert list(threads.map(exchange, range(5))) == [None] * 5
    protocol = "SPDY/3.1+portforward.k8s.io websocket"
    if way.spoken.endswith("spdy"):
        protocol = "portforward.k8s.io spdy"
    assert kubelet.spoken == [f"portforward {protocol}"]
    eventually(lambda: kubelet.connections == 0, "the kubelet's connection ends")


@by_sides
def test_a_port_that_refuses_is_told(kubectl: Kubectls, kubelet: Kubelet, side: str) -> None:
    del kubelet
    with served(_echo_at_the_end) as port:
        pass
    words = f"-n {NAMESPACE} port-forward new :{port}".split()
    process = kubectl(side, WAYS[0]).start(*words)
    assert process.stdout
    local = int(re.findall(r":(\d+)", process.stdout.readline())[0])
    with socket.create_connection(("127.0.0.1", local), timeout=10) as connection:
        assert _whole(connection) == b""
    process.terminate()
    assert "Connect call failed" in process.communicate(timeout=10)[0]


# --- logs --------------------------------------------------------------------------------------


@by_sides
def test_lines_come_as_they_are_written(kubectl: Kubectls, kubelet: Kubelet, side: str) -> None:
    process = kubectl(side, WAYS[0]).start(*f"-n {NAMESPACE} logs -f old -c app".split())
    assert process.stdout
    try:
        assert process.stdout.readline() == "started\n"
        eventually(lambda: kubelet.followers == 1, "they are followed")
        assert statistics.median(_delay(process, kubelet, turn) for turn in range(9)) < 0.2
    finally:
        process.terminate()
        process.communicate(timeout=10)
    eventually(lambda: kubelet.followers == 0, "who leaves ends them", timeout=2)


def _delay(process: subprocess.Popen[str], kubelet: Kubelet, turn: int) -> float:
    assert process.stdout
    began = time.monotonic()
    kubelet.say(b"line %d\n" % turn)
    assert process.stdout.readline() == f"line {turn}\n"
    return time.monotonic() - began


@by_sides
def test_logs_end_with_their_container(kubectl: Kubectls, kubelet: Kubelet, side: str) -> None:
    """With all that was written before, and no error."""
    process = kubectl(side, WAYS[0]).start(*f"-n {NAMESPACE} logs -f old -c app".split())
    try:
        eventually(lambda: kubelet.followers == 1, "they are followed")
        text = "y" * 1023 + "\n"
        kubelet.say(text.encode() * 4096)
        kubelet.end_logs()
        assert process.communicate(timeout=20)[0] == "started\n" + text * 4096
        assert process.returncode == 0
    finally:
        process.kill()


@pytest.mark.parametrize("query", ["", "&tailLines=1", "&previous=true", "&pretty=true"])
def test_logs_that_are_there(
    apiserver: ApiServer, proxy: Proxy, kubelet: Kubelet, query: str
) -> None:
    del kubelet
    target = f"{PODS}/old/log?container=app{query}"
    judged = compare(apiserver.server, proxy.read, "GET", target, source="fwd=bypass")
    assert judged.proxy.body == b"started\n"


# --- channels of a WebSocket, as dashboards speak them -------------------------------------------

SAY = b"\x00"


async def _messages(server: Server, target: str, protocol: str, said: list[bytes]) -> list[bytes]:
    """What a kubelet says to a WebSocket client until it closes, the channels each as a whole."""
    context = ssl.create_default_context(cafile=server.ca) if server.ca else None
    reader, writer = await asyncio.open_connection(server.host, server.port, ssl=context)
    own = "".join(f"{name}: {value}\r\n" for name, value in server.headers)
    key = websocket.new_key()
    writer.write(
        f"GET {target} HTTP/1.1\r\nHost: {server.host}:{server.port}\r\n{own}"
        f"Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Protocol: {protocol}\r\n"
        f"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {key}\r\n\r\n".encode()
    )
    head = (await reader.readuntil(b"\r\n\r\n")).decode()
    assert head.startswith("HTTP/1.1 101 "), head
    assert websocket.accept(key) in head
    for each in said:
        writer.write(websocket.frame(websocket.BINARY, each, masked=True))
    channels = [bytearray() for _ in range(5)]
    kind = websocket.BINARY
    while kind != websocket.CLOSE:
        kind, payload = await asyncio.wait_for(websocket.read(reader), 10)
        if kind == websocket.BINARY and payload:
            channels[payload[0]] += payload[1:]
    writer.close()
    with suppress(OSError):
        await writer.wait_closed()
    return [bytes(each) for each in channels]


@pytest.mark.parametrize("pod_name", FEATURES)
@pytest.mark.parametrize(
    ("protocol", "command", "said"),
    [
        ("v4.channel.k8s.io", "head -n 1; echo no >&2; exit 3", [SAY + b"hel", SAY + b"lo\n"]),
        ("v5.channel.k8s.io", "cat; echo no >&2; exit 3", [SAY + b"hello\n", b"\xff\x00"]),
    ],
)
def test_channels(
    apiserver: ApiServer,
    proxy: Proxy,
    kubelet: Kubelet,
    pod_name: str,
    protocol: str,
    command: str,
    said: list[bytes],
) -> None:
    words = "&".join(f"command={word.replace(' ', '+')}" for word in ("sh", "-c"))
    asked = command.replace(" ", "+").replace(";", "%3B").replace(">&", "%3E%26")
    query = f"container=app&stdin=1&stdout=1&stderr=1&{words}&command={asked}"
    target = f"{PODS}/{pod_name}/exec?{query}"
    direct, through = (
        asyncio.run(_messages(server, target, protocol, said))
        for server in (apiserver.server, proxy.read)
    )
    assert direct == through
    assert through[1:3] == [b"hello\n", b"no\n"]
    assert b'"message":"3"' in through[3].replace(b" ", b"")
    translated = protocol.startswith("v5") and pod_name == "old"
    spoken = "v4.channel.k8s.io spdy" if translated else f"{protocol} websocket"
    assert kubelet.spoken[-2:] == [f"exec {spoken}"] * 2


# --- proxy subresources --------------------------------------------------------------------------


@pytest.fixture(scope="module")
def routes(apiserver: ApiServer, kubelet: Kubelet) -> dict[str, str]:
    """Paths that lead to the stub as a web server."""
    if _own_address() == "127.0.0.1":
        pytest.skip("kube-apiserver leads to no loopback address, and this machine has no other")
    services = f"/api/v1/namespaces/{NAMESPACE}/services"
    found = {
        "node": "/api/v1/nodes/streams-new/proxy",
        "node-port": f"/api/v1/nodes/https:streams-new:{kubelet.port}/proxy",
        "pod": f"{PODS}/new:{kubelet.pod_port}/proxy",
        "pod-https": f"{PODS}/https:new:{kubelet.port}/proxy",
        "service": f"{services}/s:http/proxy",
        "service-https": f"{services}/https:s:https/proxy",
    }

    def are_known() -> bool:
        return all(get(apiserver.server, f"{each}/").status == 200 for each in found.values())

    eventually(are_known, "kube-apiserver knows the service's endpoints")
    return found


ROUTES = ["node", "node-port", "pod", "pod-https", "service", "service-https"]
REQUESTS: list[tuple[str, str, Body]] = [
    ("GET", "/", None),
    ("GET", "/a%20b//c/?x=%2F&y", None),
    ("HEAD", "/x", None),
    ("POST", "/x", Random(7).randbytes(MIB)),
    ("PUT", "/x/", b"{}"),
    ("PATCH", "/x", b""),
    ("DELETE", "/x", b"why"),
    ("GET", "/refuse/404", None),
    ("POST", "/refuse/500", b"x"),
]


@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize(("method", "path", "body"), REQUESTS, ids=lambda each: str(each)[:9])
def test_a_web_server(
    apiserver: ApiServer,
    proxy: Proxy,
    routes: dict[str, str],
    route: str,
    method: str,
    path: str,
    body: bytes | None,
) -> None:
    target = routes[route] + path
    judged = compare(apiserver.server, proxy.read, method, target, body=body)
    assert judged.proxy.header("X-Seen"), judged.proxy
    if "refuse" not in path and method != "HEAD":
        assert judged.proxy.body == (body or b"")


OFFER: Headers = (("Connection", "Upgrade"), ("Upgrade", "chat/1.0"))


@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize("method", ["GET", "POST"])
def test_an_upgrade_of_any_kind(
    apiserver: ApiServer, proxy: Proxy, routes: dict[str, str], route: str, method: str
) -> None:
    sent = os.urandom(MIB)
    heads = []
    for server in (apiserver.server, proxy.read):
        with _upgraded(server, method, f"{routes[route]}/chat") as (connection, head):
            threading.Thread(target=connection.sendall, args=(sent,), daemon=True).start()
            received = bytearray()
            while len(received) < len(sent):
                received += connection.recv(65536)
            assert received == sent
            heads.append(_undated(head))
    assert any(line.startswith(b"X-Seen") for line in heads[0])
    assert heads[0] == heads[1]


def _undated(head: bytes) -> list[bytes]:
    lines = sorted(head.split(b"\r\n"))
    return [line for line in lines if not line.lower().startswith((b"date", b"audit-id"))]


@contextmanager
def _upgraded(server: Server, method: str, target: str) -> Iterator[tuple[socket.socket, bytes]]:
    """A connection and the head of the answer, behind which all is the other side's."""
    connection = server.connect()
    connection.connect()
    wire = connection.sock
    own = "".join(f"{name}: {value}\r\n" for name, value in (*server.headers, *OFFER))
    host = f"{server.host}:{server.port}"
    wire.sendall(f"{method} {target} HTTP/1.1\r\nHost: {host}\r\n{own}\r\n".encode())
    head = b""
    while not head.endswith(b"\r\n\r\n"):
        head += wire.recv(1)
    assert head.startswith(b"HTTP/1.1 101 "), head
    try:
        yield wire, head
    finally:
        connection.close()


@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize("code", [400, 403, 404, 500])
def test_an_upgrade_that_is_refused(
    apiserver: ApiServer, proxy: Proxy, routes: dict[str, str], route: str, code: int
) -> None:
    target = f"{routes[route]}/refuse/{code}"
    answers: list[Answer] = [
        ask(server, "GET", target, headers=OFFER) for server in (apiserver.server, proxy.read)
    ]
    assert not differences(*answers)
    assert answers[1].status == code


@by_sides
def test_who_leaves_ends_what_it_upgraded(
    apiserver: ApiServer, proxy: Proxy, kubelet: Kubelet, routes: dict[str, str], side: str
) -> None:
    server = apiserver.server if side == "direct" else proxy.read
    with _upgraded(server, "GET", f"{routes['pod']}/chat"):
        eventually(lambda: kubelet.connections == 1, "it's begun")
    eventually(lambda: kubelet.connections == 0, "it's ended", timeout=1)
