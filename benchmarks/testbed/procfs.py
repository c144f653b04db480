"""Processes and cores from /proc (proc(5))."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

TICK_SECONDS = 1.0 / os.sysconf("SC_CLK_TCK")


def tree(root: int) -> list[int]:
    """The process and all its descendants, parents first."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and (fields := stat(int(entry.name))):
            children.setdefault(int(fields[1]), []).append(int(entry.name))
    found = [root]
    for pid in found:
        found += children.get(pid, [])
    return found


def stat(pid: int | str) -> list[str]:
    """The fields after the name, which may itself hold spaces and brackets: state, parent, …; empty when gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
    except OSError:
        return []


def alive(pid: int) -> bool:
    fields = stat(pid)
    return bool(fields) and fields[0] != "Z"


def cpu_seconds(pid: int) -> float:
    """User and system time, all threads."""
    fields = stat(pid)
    return (int(fields[11]) + int(fields[12])) * TICK_SECONDS if fields else 0.0


def threads_seconds(pids: list[int]) -> dict[int, float]:
    """User and system time of each of their threads, by its number."""
    found = {}
    for pid in pids:
        with suppress(OSError):
            for thread in os.listdir(f"/proc/{pid}/task"):
                fields = stat(f"{pid}/task/{thread}")
                found[int(thread)] = (int(fields[11]) + int(fields[12])) * TICK_SECONDS if fields else 0.0
    return found


def memory(pid: int, key: str) -> int:
    with suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text(encoding="ascii", errors="replace").splitlines():
            if line.startswith(f"{key}:"):
                return int(line.split()[1]) * 1024
    return 0


def core_busy(core: int) -> float:
    """Seconds this core has spent on anything at all."""
    for line in Path("/proc/stat").read_text(encoding="ascii").splitlines():
        if line.startswith(f"cpu{core} "):
            user, nice, system, _idle, _wait, irq, softirq = (int(text) for text in line.split()[1:8])
            return (user + nice + system + irq + softirq) * TICK_SECONDS
    return 0.0
