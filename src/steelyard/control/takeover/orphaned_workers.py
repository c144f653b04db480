"""Workers that go on after their supervisor was killed. A new supervisor listens beside them and makes them drain."""

from __future__ import annotations

import logging
import os
import signal
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from ...addresses import Address

TCP_LISTEN_STATE = "0A"  # the state of a TCP socket in /proc/net/tcp
PROC = Path("/proc")

log = logging.getLogger("steelyard.control")


def find_orphaned_workers(addresses: Iterable[Address], command: Sequence[str]) -> dict[Address, set[int]]:
    """Addresses where only orphaned workers listen, and their pids.

    A living supervisor holds its workers' sockets too: then one holder is no worker.
    """
    held = {address: inodes for address in addresses if (inodes := set(_listening_inodes(address)))}
    if not held:
        return {}
    holders = _pids_by_inode(set().union(*held.values()))
    found = {}
    for address, inodes in held.items():
        pids = set().union(*(holders.get(inode, set()) for inode in inodes))
        if all(inode in holders for inode in inodes) and all(_is_worker(pid, command[1:]) for pid in pids):
            found[address] = pids
    return found


def still_running(workers: Iterable[int], command: Sequence[str]) -> set[int]:
    return {pid for pid in workers if _is_worker(pid, command[1:])}


def terminate(workers: Iterable[int], notified: Collection[int] = ()) -> None:
    """Those `notified` need no signal."""
    for pid in workers:
        log.warning("worker with pid %d was left by a killed supervisor: draining it", pid)
        if pid not in notified:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM)


def _listening_inodes(address: Address) -> Iterator[int]:
    if address.path:
        rows = [row for row in _proc_net_rows("unix") if row[-1] == address.path and len(row) == 8]
        yield from (int(row[6]) for row in rows)
    elif address.port:
        rows = [row for row in (*_proc_net_rows("tcp"), *_proc_net_rows("tcp6")) if row[3] == TCP_LISTEN_STATE]
        yield from (int(row[9]) for row in rows if int(row[1].rpartition(":")[2], 16) == address.port)


def _proc_net_rows(table: str) -> list[list[str]]:
    try:
        return [line.split() for line in (PROC / "net" / table).read_text(errors="replace").splitlines()[1:]]
    except OSError:
        return []


def _pids_by_inode(inodes: set[int]) -> dict[int, set[int]]:
    """The processes that have each socket open, as far as we may know."""
    wanted = {f"socket:[{inode}]": inode for inode in inodes}
    found: dict[int, set[int]] = {}
    for process in PROC.glob("[0-9]*"):
        for link in _open_files(process / "fd"):
            if link in wanted:
                found.setdefault(wanted[link], set()).add(int(process.name))
    return found


def _open_files(folder: Path) -> Iterator[str]:
    """Link targets. Some disappear meanwhile."""
    try:
        names = os.listdir(folder)
    except OSError:  # of another user, or just gone
        return
    for name in names:
        with suppress(OSError):
            yield os.readlink(folder / name)


def _is_worker(pid: int, words: Sequence[str]) -> bool:
    try:
        said = (PROC / str(pid) / "cmdline").read_bytes().decode(errors="replace").split("\0")
    except OSError:
        return False
    return any(said[at : at + len(words)] == list(words) for at in range(len(said)))
