"""A cheap load: raw requests on one keep-alive connection, from a process of its own.

``python -m bench.load SECONDS TARGET…`` reads the server as JSON from stdin and prints what it saw.
"""

import json
import socket
import ssl
import subprocess
import sys
import time
from itertools import cycle
from typing import Any, NamedTuple

from bench.world import Side


class Load(NamedTuple):
    """*latencies* are sorted, in seconds; *received* counts the bytes of bodies."""

    latencies: list[float]
    received: int
    cpu: float

    @property
    def requests(self) -> int:
        """Requests that were answered."""
        return len(self.latencies)

    @property
    def cpu_per_request(self) -> float:
        """CPU seconds that the server spent on one."""
        return self.cpu / self.requests

    def percentile(self, share: float) -> float:
        """The latency that *share* of the requests did not exceed, in seconds."""
        return self.latencies[min(int(len(self.latencies) * share), len(self.latencies) - 1)]


def run(side: Side, targets: list[str], seconds: float, headers: str = "") -> Load:
    """Ask one side for *targets* in turn, one request after the other."""
    server = side.server
    own = "".join(f"{name}: {value}\r\n" for name, value in server.headers)
    where = {
        "host": server.host,
        "port": server.port,
        "ca": str(server.ca or ""),
        "headers": own + headers,
    }
    before = side.cpu()
    done = subprocess.run(
        [sys.executable, "-m", "bench.load", str(seconds)],
        input=json.dumps({**where, "targets": targets}),
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    seen = json.loads(done.stdout)
    return Load(sorted(seen["latencies"]), seen["received"], side.cpu() - before)


class _Connection:
    def __init__(self, where: dict[str, Any]) -> None:
        self._socket = socket.create_connection((where["host"], where["port"]))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if where["ca"]:
            context = ssl.create_default_context(cafile=where["ca"])
            self._socket = context.wrap_socket(self._socket, server_hostname=where["host"])
        self._buffer = bytearray(4 * 1024 * 1024)

    def ask(self, request: bytes) -> int:
        """Send a request and read its answer; returns the length of the body."""
        self._socket.sendall(request)
        head = b""
        while b"\r\n\r\n" not in head:
            head += self._socket.recv(65536)
        head, _, body = head.partition(b"\r\n\r\n")
        head = head.lower()
        if not head.startswith(b"http/1.1 200"):
            raise RuntimeError(head[:200].decode())
        if b"content-length: " in head:
            return self._read(
                int(head.partition(b"content-length: ")[2].partition(b"\r\n")[0]), len(body)
            )
        return self._read_chunks(body)

    def _read(self, length: int, got: int) -> int:
        while got < length:
            got += self._socket.recv_into(self._buffer)
        return length

    def _read_chunks(self, tail: bytes) -> int:
        got = len(tail)
        while not tail.endswith(b"\r\n0\r\n\r\n"):
            count = self._socket.recv_into(self._buffer)
            got += count
            tail = (tail + self._buffer[max(count - 7, 0) : count])[-7:]
        return got


def _main() -> None:
    where = json.load(sys.stdin)
    connection = _Connection(where)
    host = f"Host: {where['host']}\r\nAccept: application/json\r\nUser-Agent: bench\r\n"
    head = f"{host}{where['headers']}\r\n"
    requests = [f"GET {target} HTTP/1.1\r\n{head}".encode() for target in where["targets"]]
    latencies, received = [], 0
    end = time.perf_counter() + float(sys.argv[1])
    for request in cycle(requests):
        started = time.perf_counter()
        received += connection.ask(request)
        now = time.perf_counter()
        latencies.append(now - started)
        if now > end:
            break
    json.dump({"latencies": latencies, "received": received}, sys.stdout)


if __name__ == "__main__":
    _main()
