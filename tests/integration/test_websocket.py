"""A watch over a WebSocket, as kube-apiserver speaks it."""

from __future__ import annotations

import base64
import os
import socket
import ssl
from collections.abc import Iterator
from contextlib import contextmanager

from tests.harness.apiserver import ApiServer
from tests.harness.caching import eventually
from tests.harness.http import Server
from tests.harness.objects import configmap, create
from tests.harness.proxy import Proxy, metrics


@contextmanager
def messages(server: Server, target: str) -> Iterator[Iterator[bytes]]:
    """Open a WebSocket and yield what it says, message by message (RFC 6455)."""
    plain = socket.create_connection((server.host, server.port), timeout=10)
    stream: socket.socket = plain
    if server.ca:
        context = ssl.create_default_context(cafile=server.ca)
        stream = context.wrap_socket(plain, server_hostname=server.host)
    own = "".join(f"{name}: {value}\r\n" for name, value in server.headers)
    key = base64.b64encode(os.urandom(16)).decode()
    stream.sendall(
        f"GET {target} HTTP/1.1\r\nHost: {server.host}:{server.port}\r\n{own}"
        f"Connection: Upgrade\r\nUpgrade: websocket\r\nOrigin: http://{server.host}:{server.port}\r\n"
        f"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {key}\r\n\r\n".encode()
    )
    reader = stream.makefile("rb")
    assert b" 101 " in reader.readline()
    while reader.readline().strip():
        pass

    def read() -> Iterator[bytes]:
        while True:
            _, size = reader.read(2)
            if size == 126:
                size = int.from_bytes(reader.read(2), "big")
            elif size == 127:
                size = int.from_bytes(reader.read(8), "big")
            yield reader.read(size)

    try:
        yield read()
    finally:
        reader.close()
        stream.close()


def test_frames_are_the_apiservers(apiserver: ApiServer, proxy: Proxy, namespace: str) -> None:
    collection = f"/api/v1/namespaces/{namespace}/configmaps"
    version = create(apiserver.server, collection, configmap("a"))["metadata"]["resourceVersion"]
    target = f"{collection}?watch=1&resourceVersion={version}"

    def tunnels() -> float:
        return metrics(proxy).total("kubecache_requests_total", source="tunnel")

    before = tunnels()
    with messages(apiserver.server, target) as direct, messages(proxy.read, target) as through:
        for name in "bcd":
            create(apiserver.server, collection, configmap(name, {"text": name * 40_000}))
            assert next(through) == next(direct)
    eventually(lambda: tunnels() > before, "the tunnel is counted, at its end")
