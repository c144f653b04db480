"""What /proc tells of a process: its children, file descriptors, memory, and whose connection is whose."""

from __future__ import annotations

import fcntl
import os
import re
import socket
import tempfile
from collections.abc import Iterator
from itertools import count
from pathlib import Path

ESTABLISHED, CLOSE_WAIT, LISTENING = "01", "08", "0A"  # of include/net/tcp_states.h
_worker = int(re.sub(r"\D", "", os.environ.get("PYTEST_XDIST_WORKER", "")) or 0)
_ports = count()
_locks: dict[int, int] = {}  # port → descriptor, the oldest first
RESERVED_PORTS = 200  # ports that are kept from others


def free_port(host: str = "127.0.0.1") -> int:
    """A port nobody uses, below those the kernel gives to clients, of a range of this test process's own; those of
    another run of the tests on this machine are left to it."""
    span = 1500
    start = 11_000 + (_worker % 12) * span + os.getpid() % 500
    for _ in range(span):
        port = start + next(_ports) % (span - 500)
        if not _lock(port):
            continue
        with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((host, port))
            except OSError:
                continue
            return port
    raise AssertionError("no free port")


def _lock(port: int) -> bool:
    """Nobody else who asks here is given it for a while, though it is bound only later."""
    if port in _locks:
        return True
    file = os.open(Path(tempfile.gettempdir(), f"steelyard-test-port-{port}"), os.O_CREAT | os.O_RDWR, 0o666)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(file)
        return False
    _locks[port] = file
    if len(_locks) > RESERVED_PORTS:
        os.close(_locks.pop(next(iter(_locks))))
    return True


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def descendants(pid: int) -> list[int]:
    found: list[int] = []
    try:
        tasks = list(Path(f"/proc/{pid}/task").glob("*/children"))
    except (FileNotFoundError, ProcessLookupError):  # it ended as we looked
        return found
    for task in tasks:
        try:
            children = [int(child) for child in task.read_text().split()]
        except (FileNotFoundError, ProcessLookupError):
            continue
        for child in children:
            found += [child, *descendants(child)]
    return found


def descriptors(pid: int) -> dict[int, str]:
    """What each file descriptor of a process is."""
    found = {}
    for entry in Path(f"/proc/{pid}/fd").iterdir():
        try:
            found[int(entry.name)] = os.readlink(entry)
        except FileNotFoundError:
            continue
    return found


def has_loop(pid: int) -> bool:
    """Does it run an event loop yet?"""
    try:
        return any("eventpoll" in link for link in descriptors(pid).values())
    except (FileNotFoundError, ProcessLookupError):
        return False


def memory(pid: int, what: str = "VmRSS") -> int:
    """Bytes; `VmHWM` is the most there ever was."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(f"{what}:"):
            return int(line.split()[1]) << 10
    raise AssertionError(f"no {what} of {pid}")


def tcp_sockets() -> Iterator[tuple[int, int, str, str]]:
    """(local port, remote port, state, inode) of every TCP socket here."""
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        if not os.path.exists(table):
            continue
        for line in Path(table).read_text().splitlines()[1:]:
            parts = line.split()
            yield int(parts[1].rpartition(":")[2], 16), int(parts[2].rpartition(":")[2], 16), parts[3], parts[9]


def holds(pid: int, inodes: set[str]) -> bool:
    try:
        return any(link == f"socket:[{inode}]" for link in descriptors(pid).values() for inode in inodes)
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return False
