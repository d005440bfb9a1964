"""Child processes that never outlive the tests, and ports for them."""

from __future__ import annotations

import fcntl
import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from itertools import cycle
from pathlib import Path
from typing import IO

# A trampoline, as preexec_fn is unsafe beside threads: the kernel kills the child when the
# thread that started it ends, however pytest dies.
_DIE_WITH_PARENT = """
import ctypes, os, sys
if sys.platform == "linux":
    ctypes.CDLL(None).prctl(1, 9)  # PR_SET_PDEATHSIG, SIGKILL
    if os.getppid() != int(sys.argv[1]):
        os._exit(1)
os.execvp(sys.argv[2], sys.argv[2:])
"""

# Below Linux's ephemeral ports, so that no outgoing connection takes one meanwhile. Each process
# has a block of its own, and takes its ports in turn: a port that is found free is listened on only
# a second later, and may be left for a while.
_PORTS = range(20_000, 32_000)
_BLOCK = 500
_locks: list[IO[str]] = []  # held as long as the process lives


class ProcessDiedError(AssertionError):
    """A process ended or stayed silent where a test needs it; carries the end of its log."""


def free_port() -> int:
    """A loopback port that nobody listens on."""
    for port in _own_ports():
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise AssertionError("unreachable: ports are taken in turn without end")


@cache
def _own_ports() -> Iterator[int]:
    """The ports of a block that no other process has, again and again."""
    folder = Path(tempfile.gettempdir())
    for begin in _PORTS[::_BLOCK]:
        lock = (folder / f"kubecache-ports-{os.getuid()}-{begin}").open("w")
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            lock.close()
            continue
        _locks.append(lock)
        return cycle(range(begin, begin + _BLOCK))
    raise AssertionError("all blocks of ports are taken")


class Process:
    """One running program, its output in a file."""

    def __init__(
        self,
        command: Sequence[str | Path],
        *,
        log: Path,
        env: Mapping[str, str] | None = None,
        name: str | None = None,
    ) -> None:
        self.name = name or Path(command[0]).name
        self.log = log
        self._popen = _spawn([str(word) for word in command], log, env)

    def __repr__(self) -> str:
        return f"<Process {self.name} pid={self.pid} code={self.code}>"

    @property
    def pid(self) -> int:
        return self._popen.pid

    @property
    def code(self) -> int | None:
        """The exit code, negative for a signal; None while it runs."""
        return self._popen.poll()

    def send(self, number: signal.Signals) -> None:
        self._popen.send_signal(number)

    def wait(self, timeout: float) -> int:
        """The exit code, once it has ended by itself."""
        try:
            return self._popen.wait(timeout)
        except subprocess.TimeoutExpired:
            raise self.failure(f"did not end within {timeout} s") from None

    def stop(self, timeout: float = 10) -> int:
        """Ends it by SIGTERM, or by SIGKILL when that takes longer than `timeout`."""
        if self.code is None:
            self.send(signal.SIGCONT)
            self.send(signal.SIGTERM)
        try:
            return self._popen.wait(timeout)
        except subprocess.TimeoutExpired:
            return self.kill()

    def kill(self) -> int:
        self._popen.kill()
        return self._popen.wait()

    def failure(self, what: str) -> ProcessDiedError:
        """An error that says what happened and how the log ends."""
        return ProcessDiedError(f"{self.name} {what} (exit code {self.code})\n{self.tail()}")

    def tail(self, size: int = 4000) -> str:
        return self.log.read_text(errors="replace")[-size:]


def _spawn(command: list[str], log: Path, env: Mapping[str, str] | None) -> subprocess.Popen[bytes]:
    parent = str(os.getpid())
    with log.open("ab") as output:
        return subprocess.Popen(
            [sys.executable, "-S", "-c", _DIE_WITH_PARENT, parent, *command],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=env,
            start_new_session=True,  # Ctrl-C is for pytest, which stops its servers in order
        )
