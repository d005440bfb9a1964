"""A process of its own for a load or for watchers: it is told, and answers, line by line."""

import socket
import ssl
import subprocess
import sys
from typing import Self

import msgspec

from tests.harness.http import Server


class Where(msgspec.Struct):
    """A server as a helper needs it: *headers* are lines that go with each request."""

    host: str
    port: int
    ca: str
    headers: str

    def connect(self) -> socket.socket:
        """Open a connection, by TLS where the server has a certificate."""
        plain = socket.create_connection((self.host, self.port))
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if not self.ca:
            return plain
        context = ssl.create_default_context(cafile=self.ca)
        return context.wrap_socket(plain, server_hostname=self.host)

    def request(self, target: str) -> bytes:
        """Word a GET."""
        host = f"Host: {self.host}\r\nAccept: application/json\r\nUser-Agent: bench\r\n"
        return f"GET {target} HTTP/1.1\r\n{host}{self.headers}\r\n".encode()


def where(server: Server, headers: str = "") -> Where:
    """Tell a helper of *server*, and of more header lines."""
    own = "".join(f"{name}: {value}\r\n" for name, value in server.headers)
    return Where(server.host, server.port, str(server.ca or ""), own + headers)


def receive(opened: socket.socket, most: int) -> bytes:
    """Read what is there; the end of the stream is an error."""
    if not (part := opened.recv(most)):
        raise EOFError("the server closed the connection")
    return part


class Helper:
    """Runs ``python -m MODULE`` with a job; it is ready once ``__enter__`` returns."""

    def __init__(self, module: str, job: msgspec.Struct) -> None:
        self._module = module
        self._job = job
        self._process: subprocess.Popen[bytes]

    def __enter__(self) -> Self:
        command = [sys.executable, "-m", self._module]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.tell(msgspec.json.encode(self._job))
        self.hear()
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe:
                pipe.close()

    def tell(self, line: bytes) -> None:
        """Send it a line."""
        assert self._process.stdin
        self._process.stdin.write(line + b"\n")
        self._process.stdin.flush()

    def end(self) -> None:
        """Say that no more lines come."""
        assert self._process.stdin
        self._process.stdin.close()

    def hear(self) -> bytes:
        """Wait for a line from it; its errors have gone to stderr."""
        assert self._process.stdout
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"{self._module} failed")
        return line


def answer(line: bytes = b"") -> None:
    """Within a helper: send a line to whoever started it."""
    sys.stdout.buffer.write(line + b"\n")
    sys.stdout.buffer.flush()
