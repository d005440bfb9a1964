"""A crowd of watchers in a process of its own, which counts what arrives and throws it away."""

import json
import selectors
import socket
import ssl
import subprocess
import sys
from typing import Any, Self

from tests.harness.http import Server


class Fanout:
    """*count* watches of *target*; they are open once ``__enter__`` returns."""

    def __init__(self, server: Server, target: str, count: int) -> None:
        own = "".join(f"{name}: {value}\r\n" for name, value in server.headers)
        where = {
            "host": server.host,
            "port": server.port,
            "ca": str(server.ca or ""),
            "headers": own,
        }
        self._where = json.dumps({**where, "target": target, "count": count})
        self._process: subprocess.Popen[str]

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "bench.fanout"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._tell(self._where)
        self._hear()
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()

    def wait(self, events: int) -> None:
        """Wait until every watcher has got so many events."""
        self._tell(str(events))
        self._hear()

    def _tell(self, line: str) -> None:
        assert self._process.stdin
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()

    def _hear(self) -> None:
        assert self._process.stdout
        if not self._process.stdout.readline():
            raise RuntimeError("the watchers failed")


class _Crowd:
    def __init__(self, where: dict[str, Any]) -> None:
        self._poll = selectors.DefaultSelector()
        self._lines: dict[socket.socket, int] = {}
        self._buffer = bytearray(1024 * 1024)
        context = ssl.create_default_context(cafile=where["ca"]) if where["ca"] else None
        head = f"Host: {where['host']}\r\nAccept: application/json\r\n{where['headers']}\r\n"
        for _ in range(where["count"]):
            plain = socket.create_connection((where["host"], where["port"]))
            stream = context.wrap_socket(plain, server_hostname=where["host"]) if context else plain
            stream.sendall(f"GET {where['target']} HTTP/1.1\r\n{head}".encode())
            answer = b""
            while b"\r\n\r\n" not in answer:
                answer += stream.recv(65536)
            stream.setblocking(False)
            self._poll.register(stream, selectors.EVENT_READ)
            self._lines[stream] = 0

    def collect(self, events: int) -> None:
        """Read until every watcher has seen so many lines."""
        while min(self._lines.values()) < events:
            for key, _ in self._poll.select(30):
                self._drain(key.fileobj)  # type: ignore[arg-type]

    def _drain(self, stream: socket.socket) -> None:
        while True:
            try:
                count = stream.recv_into(self._buffer)
            except (BlockingIOError, ssl.SSLWantReadError):
                return
            if not count:
                raise RuntimeError("a watch ended")
            self._lines[stream] += self._buffer.count(b"}\n", 0, count)


def _main() -> None:
    crowd = _Crowd(json.loads(sys.stdin.readline()))
    print("open", flush=True)
    crowd.collect(int(sys.stdin.readline()))
    print("done", flush=True)


if __name__ == "__main__":
    _main()
