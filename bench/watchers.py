"""A crowd of watchers in a process of its own, which notes when events arrive and drops them."""

import selectors
import socket
import ssl
import sys
import time
from collections.abc import Sequence
from typing import Self

import msgspec

from bench.helper import Helper, Where, answer, receive, where
from tests.harness.http import Server

_SILENCE = 60.0
"""Seconds without any event after which something is wrong."""


class _Job(msgspec.Struct):
    where: list[Where]
    target: str
    count: int


class Watchers:
    """*count* watches of *target* at each of some servers; open once ``__enter__`` returns."""

    def __init__(self, servers: Sequence[Server], target: str, count: int) -> None:
        self._helper = Helper("bench.watchers", _Job([*map(where, servers)], target, count))

    def __enter__(self) -> Self:
        self._helper.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self._helper.__exit__(*error)

    def wait(self, events: int) -> list[list[float]]:
        """Wait until every watcher has so many events; returns each one's times of arrival.

        All times are of one clock, the watchers of the first server come first.
        """
        self._helper.tell(b"%d" % events)
        return msgspec.json.decode(self._helper.hear(), type=list[list[float]])


class Watcher:
    """One stream; it counts the ends of events, which no JSON text contains."""

    def __init__(self, opened: socket.socket, request: bytes) -> None:
        self.socket = opened
        self.times: list[float] = []
        self._last = 0
        opened.sendall(request)
        head = b""
        while not head.endswith(b"\r\n\r\n"):
            head += receive(opened, 1)
        if not head.startswith(b"HTTP/1.1 200"):
            raise RuntimeError(head[:200].decode())
        opened.setblocking(False)

    def drain(self, buffer: bytearray) -> None:
        """Take what has come; TLS may hold more than the socket shows."""
        while True:
            try:
                count = self.socket.recv_into(buffer)
            except (BlockingIOError, ssl.SSLWantReadError):
                return
            if not count:
                raise EOFError("a watch ended")
            split = self._last == ord("}") and buffer[0] == ord("\n")
            events = buffer.count(b"}\n", 0, count) + split
            self._last = buffer[count - 1]
            self.times += [time.perf_counter()] * events


def _main() -> None:
    job = msgspec.json.decode(sys.stdin.buffer.readline(), type=_Job)
    poll = selectors.DefaultSelector()
    watchers = []
    for each in job.where:
        for _ in range(job.count):
            watchers.append(Watcher(each.connect(), each.request(job.target)))
            poll.register(watchers[-1].socket, selectors.EVENT_READ, watchers[-1])
    poll.register(sys.stdin, selectors.EVENT_READ)
    answer()
    buffer = bytearray(1024 * 1024)
    wanted = None
    while wanted is None or any(len(each.times) < wanted for each in watchers):
        ready = poll.select(_SILENCE)
        if not ready:
            raise TimeoutError("the events don't come")
        for key, _ in ready:
            if key.data is not None:
                key.data.drain(buffer)
            else:
                wanted = int(sys.stdin.buffer.readline())
                poll.unregister(sys.stdin)
    answer(msgspec.json.encode([each.times for each in watchers]))


if __name__ == "__main__":
    _main()
