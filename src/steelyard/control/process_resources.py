"""Limits on open files, and what a process uses."""

from __future__ import annotations

import os
import resource
from typing import NamedTuple

from ..config import Config

RESERVED_OPEN_FILES = 128  # of a worker, besides connections


def raise_open_files() -> int:
    """Raises the limit of this process and its workers to the maximum, and returns it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
            soft = hard
        except (OSError, ValueError):  # a container may forbid it
            pass
    return soft if soft != resource.RLIM_INFINITY else 1 << 30


def open_files_warning(config: Config, limit: int) -> str:
    """A warning if a worker could run out of them before limits.connections applies; else empty."""
    needed = 2 * config.limits.connections + RESERVED_OPEN_FILES  # each client may need one to a replica, too
    if limit >= needed:
        return ""
    fits = max(1, (limit - RESERVED_OPEN_FILES) // 2)
    return (
        f"a worker may have {limit} open files, and limits.connections = {config.limits.connections} may need "
        f"{needed}: allow more (ulimit -n, LimitNOFILE=) or set limits.connections to {fits}"
    )


_TICK_SECONDS = 1.0 / os.sysconf("SC_CLK_TCK")
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_USER, _SYSTEM, _RESIDENT = 11, 12, 21  # fields of /proc/PID/stat after the name, proc(5)


class ProcessUsage(NamedTuple):
    cpu: float  # seconds, since it began
    memory: int  # bytes that are resident


def process_usage(pid: int) -> ProcessUsage | None:
    """None: it is gone, or this is not Linux."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()  # the name may hold spaces and brackets
    except OSError:
        return None
    cpu = (int(fields[_USER]) + int(fields[_SYSTEM])) * _TICK_SECONDS
    return ProcessUsage(cpu, int(fields[_RESIDENT]) * _PAGE_BYTES)
