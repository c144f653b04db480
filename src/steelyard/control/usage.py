"""What a process uses, as Linux tells it (proc(5))."""

from __future__ import annotations

import os
from typing import NamedTuple

_TICK = 1.0 / os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")
_USER, _SYSTEM, _RESIDENT = 11, 12, 21  # fields of /proc/PID/stat after the name


class Usage(NamedTuple):
    cpu: float  # seconds, since it began
    memory: int  # bytes that are resident


def usage(pid: int) -> Usage | None:
    """None: it is gone, or this is no Linux."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()  # the name may itself hold spaces and brackets
    except OSError:
        return None
    return Usage((int(fields[_USER]) + int(fields[_SYSTEM])) * _TICK, int(fields[_RESIDENT]) * _PAGE)
