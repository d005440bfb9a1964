"""What a process has used."""

import os
import time
from pathlib import Path

_PAGE = os.sysconf("SC_PAGE_SIZE")
_SCHEDULED = 2
"""CPUCLOCK_SCHED of Linux' uapi: the clock that counts what the scheduler gave."""


def cpu_seconds(pid: int) -> float:
    """User and system time of all threads: utime + stime of /proc, which counts in 10 ms only."""
    return time.clock_gettime((~pid << 3) | _SCHEDULED)  # clock_getcpuclockid(3)


def resident_bytes(pid: int) -> int:
    """Memory that is in RAM."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * _PAGE


def peak_bytes(pid: int) -> int:
    """The most memory that ever was in RAM."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    raise ValueError("no VmHWM")
