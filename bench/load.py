"""A cheap load: raw GETs on keep-alive connections, from a process of its own.

Each connection has one request under way, so there is no pipelining; all are sent, then all
answers are read.
"""

import select
import socket
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import cycle
from typing import NamedTuple

import msgspec

from bench.helper import Helper, Where, answer, receive, where
from bench.world import Side
from tests.harness.http import Server


class _Job(msgspec.Struct):
    where: Where
    targets: Sequence[str]
    connections: int
    pause: float


class Seen(msgspec.Struct):
    """What a load saw: *latencies* in seconds, sorted; bytes of bodies; seconds on the clock."""

    latencies: list[float] = []
    received: int = 0
    wall: float = 0.0

    def percentile(self, share: float) -> float:
        """The latency that *share* of the requests did not exceed."""
        return self.latencies[min(int(len(self.latencies) * share), len(self.latencies) - 1)]


class Load(NamedTuple):
    """What a load saw, and the CPU seconds that the server, or another process, used meanwhile."""

    seen: Seen
    cpu: float

    @property
    def cpu_each(self) -> float:
        """CPU seconds of one request."""
        return self.cpu / len(self.seen.latencies)

    @property
    def wall_each(self) -> float:
        """Seconds from one answer to the next."""
        return self.seen.wall / len(self.seen.latencies)


def run(
    side: Side,
    targets: Sequence[str],
    seconds: float,
    *,
    connections: int = 1,
    headers: str = "",
) -> Load:
    """Ask one side for *targets* in turn, as fast as it answers."""
    with Helper("bench.load", _Job(where(side.server, headers), targets, connections, 0)) as helper:
        before = side.cpu()
        helper.tell(b"go")
        time.sleep(seconds)
        seen = _finish(helper)
        return Load(seen, side.cpu() - before)


@contextmanager
def pinging(server: Server, target: str, pause: float = 0.001) -> Iterator[Seen]:
    """Ask for *target* a thousand times a second meanwhile; the result is filled in at the end."""
    seen = Seen()
    with Helper("bench.load", _Job(where(server), [target], 1, pause)) as helper:
        helper.tell(b"go")
        yield seen
        found = _finish(helper)
    seen.latencies, seen.received, seen.wall = found.latencies, found.received, found.wall


def _finish(helper: Helper) -> Seen:
    helper.end()
    seen = msgspec.json.decode(helper.hear(), type=Seen)
    seen.latencies.sort()
    return seen


class Connection:
    """One keep-alive connection: a request, then its answer."""

    def __init__(self, opened: socket.socket) -> None:
        self._socket = opened
        self._buffer = bytearray(4 * 1024 * 1024)

    def send(self, request: bytes) -> None:
        """Send a request."""
        self._socket.sendall(request)

    def receive(self) -> int:
        """Read an answer; returns the length of its body. Anything but 200 is an error."""
        head = b""
        while b"\r\n\r\n" not in head:
            head += receive(self._socket, 65536)
        head, _, body = head.partition(b"\r\n\r\n")
        head = head.lower()
        if not head.startswith(b"http/1.1 200"):
            raise RuntimeError(head[:200].decode())
        _, found, length = head.partition(b"content-length: ")
        if found:
            return self._read(int(length.partition(b"\r\n")[0]), len(body))
        return self._read_chunks(body)

    def _read(self, length: int, got: int) -> int:
        while got < length:
            got += self._read_part()
        return length

    def _read_chunks(self, tail: bytes) -> int:
        got = len(tail)
        while not tail.endswith(b"\r\n0\r\n\r\n"):
            count = self._read_part()
            got += count
            tail = (tail + self._buffer[max(count - 7, 0) : count])[-7:]
        return got

    def _read_part(self) -> int:
        count = self._socket.recv_into(self._buffer)
        if not count:
            raise EOFError("the server closed the connection")
        return count


def _main() -> None:
    job = msgspec.json.decode(sys.stdin.buffer.readline(), type=_Job)
    connections = [Connection(job.where.connect()) for _ in range(job.connections)]
    requests = cycle([job.where.request(target) for target in job.targets])
    answer()
    sys.stdin.buffer.readline()
    seen = Seen()
    began = time.perf_counter()
    # The end of stdin is the end of the load; waiting for it is the pause between requests.
    while not select.select([sys.stdin], [], [], job.pause)[0]:
        sent = time.perf_counter()
        for each in connections:
            each.send(next(requests))
        for each in connections:
            seen.received += each.receive()
            seen.latencies.append(time.perf_counter() - sent)
    seen.wall = time.perf_counter() - began
    answer(msgspec.json.encode(seen))


if __name__ == "__main__":
    _main()
