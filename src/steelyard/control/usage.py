"""What a process uses, as Linux tells it (proc(5))."""

from __future__ import annotations

import os
from typing import NamedTuple

_TICK_SECONDS = 1.0 / os.sysconf("SC_CLK_TCK")
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_USER, _SYSTEM, _RESIDENT = 11, 12, 21  # fields of /proc/PID/stat after the name


class ProcessUsage(NamedTuple):
    cpu: float  # seconds, since it began
    memory: int  # bytes that are resident


def process_usage(pid: int) -> ProcessUsage | None:
    """None: it is gone, or this is no Linux."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()  # the name may itself hold spaces and brackets
    except OSError:
        return None
    return ProcessUsage(
        (int(fields[_USER]) + int(fields[_SYSTEM])) * _TICK_SECONDS, int(fields[_RESIDENT]) * _PAGE_BYTES
    )
