"""What the helpers read: whole answers, and the ends of events wherever the bytes are cut."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from bench.load import Connection, Seen
from bench.watchers import Watcher

Pair = tuple[socket.socket, socket.socket]


@pytest.fixture
def pair() -> Iterator[Pair]:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield ours, theirs


def test_length_of_a_plain_body(pair: Pair) -> None:
    ours, theirs = pair
    theirs.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello")
    assert Connection(ours).receive() == 5


@pytest.mark.parametrize("cut", range(1, 14))
def test_chunks_may_be_cut_anywhere(pair: Pair, cut: int) -> None:
    ours, theirs = pair
    body = b"5\r\nhello\r\n0\r\n\r\n"
    theirs.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + body[:cut])
    theirs.sendall(body[cut:])
    assert Connection(ours).receive() == len(body)


def test_anything_but_200_is_an_error(pair: Pair) -> None:
    ours, theirs = pair
    theirs.sendall(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n")
    with pytest.raises(RuntimeError, match="404"):
        Connection(ours).receive()


def test_a_closed_connection_is_an_error(pair: Pair) -> None:
    ours, theirs = pair
    theirs.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhe")
    theirs.close()
    with pytest.raises(EOFError):
        Connection(ours).receive()


def test_no_answer_is_an_error(pair: Pair) -> None:
    ours, theirs = pair
    theirs.close()
    with pytest.raises(EOFError):
        Connection(ours).receive()


def test_percentiles() -> None:
    seen = Seen([0.1, 0.2, 0.3, 0.4])
    assert (seen.percentile(0), seen.percentile(0.5), seen.percentile(1)) == (0.1, 0.3, 0.4)


def test_events_count_once_though_cut_at_their_end(pair: Pair) -> None:
    ours, theirs = pair
    theirs.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
    watcher = Watcher(ours, b"GET / HTTP/1.1\r\n\r\n")
    buffer = bytearray(1024)
    counts = []
    for part in (b'{"a":{}', b"}", b"\n\r\n5\r\n", b'{"b":1}\n{"c":1}\n'):
        theirs.sendall(part)
        watcher.drain(buffer)
        counts.append(len(watcher.times))
    assert counts == [0, 0, 1, 3]


def test_a_watch_that_ends_is_an_error(pair: Pair) -> None:
    ours, theirs = pair
    theirs.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
    watcher = Watcher(ours, b"")
    theirs.close()
    with pytest.raises(EOFError):
        watcher.drain(bytearray(16))
