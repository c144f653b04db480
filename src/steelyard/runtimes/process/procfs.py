"""Processes in /proc. Everything here may be gone a moment later."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from time import CLOCK_BOOTTIME, clock_gettime
from typing import NamedTuple

PROC_PATH = Path("/proc")
TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
TCP_LISTEN_STATE = "0A"  # in /proc/net/tcp


class Stat(NamedTuple):
    state: str  # Z: a zombie
    parent: int
    group: int
    session: int
    start_ticks: int  # since boot: with the pid, unique

    @property
    def is_alive(self) -> bool:
        return self.state not in "ZX"


def stat(pid: int) -> Stat | None:
    try:
        line = (PROC_PATH / str(pid) / "stat").read_bytes()
        words = line[line.rindex(b")") + 2 :].split()  # the name in brackets may hold brackets too
        return Stat(words[0].decode(), int(words[1]), int(words[2]), int(words[3]), int(words[19]))
    except (OSError, ValueError, IndexError):
        return None


def is_alive(pid: int) -> bool:
    seen = stat(pid)
    return seen is not None and seen.is_alive


def age(born: int) -> float:
    return max(clock_gettime(CLOCK_BOOTTIME) - born / TICKS_PER_SECOND, 0.0)


def pids() -> Iterator[int]:
    yield from (int(name) for name in os.listdir(PROC_PATH) if name.isdigit())


def is_own_user(pid: int) -> bool:
    """Real and effective: another user chose the environment of a set-uid program."""
    with suppress(OSError, ValueError):
        for line in (PROC_PATH / str(pid) / "status").read_bytes().splitlines():
            if line.startswith(b"Uid:"):
                return {int(word) for word in line.split()[1:3]} == {os.getuid(), os.geteuid()}
    return False


def is_kernel_thread(pid: int) -> bool:
    seen = stat(pid)
    return seen is None or seen.parent == 2 or (pid == 2 and seen.parent == 0)


def environment(pid: int) -> dict[str, str]:
    """As its program began; empty: none, ended, or not permitted."""
    try:
        octets = (PROC_PATH / str(pid) / "environ").read_bytes()
    except OSError:
        return {}
    pairs = (entry.partition(b"=") for entry in octets.split(b"\0") if b"=" in entry)
    return {os.fsdecode(name): os.fsdecode(value) for name, _, value in pairs}


def process_name(pid: int) -> str:
    try:
        return (PROC_PATH / str(pid) / "comm").read_text(errors="replace").strip()
    except OSError:
        return ""


def listener(port: int = 0, path: str = "") -> int:
    """The pid of a process that listens there; 0: unknown."""
    wanted = {f"socket:[{inode}]" for inode in _listening(port, path)}
    for pid in pids() if wanted else ():
        with suppress(OSError):
            for number in os.listdir(PROC_PATH / str(pid) / "fd"):
                with suppress(OSError):
                    if os.readlink(PROC_PATH / str(pid) / "fd" / number) in wanted:
                        return pid
    return 0


def _listening(port: int, path: str) -> Iterator[str]:
    if path:
        yield from (row[6] for row in _rows("unix") if len(row) == 8 and row[7] == path)
        return
    for row in (*_rows("tcp"), *_rows("tcp6")):
        if row[3] == TCP_LISTEN_STATE and int(row[1].rpartition(":")[2], 16) == port:
            yield row[9]


def _rows(table: str) -> list[list[str]]:
    try:
        lines = (PROC_PATH / "net" / table).read_text(errors="replace").splitlines()[1:]
    except OSError:
        return []
    return [line.split() for line in lines]
