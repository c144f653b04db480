"""Marks in the environment of processes, by which a later supervisor recognises its replicas.

No state on disk can be lost or outdated, and another process with the same pid has no such marks.
"""

from __future__ import annotations

import errno
import os
import select
import signal
import socket
from collections.abc import Iterator, Mapping
from contextlib import suppress
from hashlib import sha256
from typing import NamedTuple

import msgspec

from . import procfs

GATEWAY_VARIABLE = "STEELYARD_STARTED_BY"  # not STEELYARD_GATEWAY: that is where the replica agent registers
MODEL_VARIABLE = "STEELYARD_MODEL"
ID_VARIABLE = "STEELYARD_ID"
URL_VARIABLE = "STEELYARD_URL"
START_RECORD_VARIABLE = "STEELYARD_STARTED"
_EXEC_PAUSE_SECONDS = 0.02


class StartRecord(msgspec.Struct, frozen=True):
    """Known of a replica from its start. Other versions with fewer or more fields adopt it too."""

    token: str  # of this start alone; its children inherit it
    url: str
    supervisor: tuple[int, int] = (0, 0)  # who started it: pid and when that was born
    device: str = ""
    fingerprint: str = ""
    log_path: str = ""
    log_size: int = 10 << 20
    log_offset: int = 0  # where in the log it begins
    cpus: tuple[int, ...] = ()
    number: int = 0


class OwnedProcess(NamedTuple):
    pid: int
    start_ticks: int
    model: str
    id: str
    record: StartRecord


def ownership_variables(gateway: str, model: str, id: str, facts: StartRecord) -> dict[str, str]:
    identity = {GATEWAY_VARIABLE: gateway, MODEL_VARIABLE: model, ID_VARIABLE: id, URL_VARIABLE: facts.url}
    return {**identity, START_RECORD_VARIABLE: msgspec.json.encode(facts).decode()}


def find_owned(gateway: str, predecessor_pid: int = 0) -> tuple[list[OwnedProcess], list[OwnedProcess]]:
    """The replicas that run under this gateway's name, and what is left of ended ones; not those of another supervisor
    that lives, unless we are its heir.

    Children have the same marks, and may lead a session of their own: the replica was born first.
    """
    replicas: dict[str, OwnedProcess] = {}
    others = []
    processes = _owned_processes(gateway, predecessor_pid)
    for found, session in sorted(processes, key=lambda pair: (pair[0].start_ticks, pair[0].pid)):
        if session == found.pid:
            replicas.setdefault(found.record.token, found)
        elif not procfs.is_alive(session):
            others.append(found)
    return list(replicas.values()), [found for found in others if found.record.token not in replicas]


def _owned_processes(gateway: str, predecessor_pid: int) -> Iterator[tuple[OwnedProcess, int]]:
    unclear = []
    for pid in procfs.pids():
        if procfs.is_own_user(pid) and not procfs.is_kernel_thread(pid):
            if marked := procfs.environment(pid):
                yield from _read(pid, marked, gateway, predecessor_pid)
            else:
                unclear.append(pid)
    if unclear:  # a process has no environment for a moment during exec
        select.select((), (), (), _EXEC_PAUSE_SECONDS)  # a wait without a clock
    for pid in unclear:
        yield from _read(pid, procfs.environment(pid), gateway, predecessor_pid)


def _read(
    pid: int, marked: Mapping[str, str], gateway: str, predecessor_pid: int
) -> Iterator[tuple[OwnedProcess, int]]:
    facts, seen = _start_record(marked), procfs.stat(pid)
    if seen is None or not seen.is_alive or facts is None or _is_supervised(facts.supervisor, predecessor_pid):
        return
    if marked.get(GATEWAY_VARIABLE) == gateway and marked.get(MODEL_VARIABLE) and marked.get(ID_VARIABLE):
        yield OwnedProcess(pid, seen.start_ticks, marked[MODEL_VARIABLE], marked[ID_VARIABLE], facts), seen.session


def _start_record(marked: Mapping[str, str]) -> StartRecord | None:
    try:
        facts = msgspec.json.decode(marked.get(START_RECORD_VARIABLE, ""), type=StartRecord)
    except msgspec.MsgspecError:  # none, or not one of ours
        return None
    return facts if facts.token else None


def _is_supervised(supervisor: tuple[int, int], predecessor_pid: int) -> bool:
    """Two gateways of the same name leave each other's replicas alone."""
    pid, born = supervisor
    seen = procfs.stat(pid)
    return pid not in (os.getpid(), predecessor_pid) and seen is not None and seen.start_ticks == born and seen.is_alive


def is_descendant(pid: int, leader: int, born: int, token: str) -> bool:
    """Of a replica that ended: in its group, or with its marks."""
    seen = procfs.stat(pid)
    if pid in (leader, os.getpid()) or seen is None or not seen.is_alive:
        return False
    # While a group has members, the kernel does not reuse its number.
    if leader and seen.group == leader and ((first := procfs.stat(leader)) is None or first.start_ticks == born):
        return True
    facts = _start_record(procfs.environment(pid)) if procfs.is_own_user(pid) else None
    return facts is not None and facts.token == token


class NameLock:
    """On a gateway's name: of two supervisors on a machine, only one adopts replicas. It is an abstract socket: the
    kernel frees the name when its holder ends, however it ends."""

    def __init__(self, gateway: str) -> None:
        self._name = f"steelyard/{os.getuid()}/{sha256(gateway.encode()).hexdigest()[:32]}"
        self._held: socket.socket | None = None

    def acquire_or_holder(self) -> str:
        """Another process that holds it; empty: this one does now."""
        if self._held is not None:
            return ""
        held = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        try:
            held.bind(f"\0{self._name}")
        except OSError as problem:
            held.close()
            return self._holder() if problem.errno == errno.EADDRINUSE else ""
        self._held = held
        return ""

    def release(self) -> None:
        if self._held is not None:
            self._held.close()
            self._held = None

    def _holder(self) -> str:
        pid = procfs.listener(path=f"@{self._name}")
        if pid == os.getpid():
            return ""
        return f"pid {pid}" if pid else "another process"


class Descendants:
    """Processes that a replica started: its group, and those with its marks in another session."""

    def __init__(self, leader: int, born: int, token: str) -> None:
        """`leader` 0: it ended long ago, and only marks identify them."""
        self._leader = leader
        self._born = born
        self._token = token
        self._sent: dict[tuple[int, int], set[signal.Signals]] = {}  # by pid and when that was born

    def signal_all(self, *signals: signal.Signals) -> int:
        """Each once; returns how many there were. For a thread: it reads all processes of the machine."""
        count = 0
        for pid in procfs.pids():
            if self._is_one(pid):
                count += 1
                with suppress(OSError):
                    self._tell(pid, signals)
            elif self._reap(pid):
                count += 1
        return count

    def _is_one(self, pid: int) -> bool:
        return is_descendant(pid, self._leader, self._born, self._token)

    def _tell(self, pid: int, signals: tuple[signal.Signals, ...]) -> None:
        try:
            handle = os.pidfd_open(pid)
        except OSError:
            for number in self._new(pid, signals):
                os.kill(pid, number)
            return
        try:
            if self._is_one(pid):  # the pid may have been another's by now
                for number in self._new(pid, signals):
                    signal.pidfd_send_signal(handle, number)
        finally:
            os.close(handle)

    def _new(self, pid: int, signals: tuple[signal.Signals, ...]) -> list[signal.Signals]:
        seen = procfs.stat(pid)
        if seen is None:
            return []
        sent = self._sent.setdefault((pid, seen.start_ticks), set())
        new = [number for number in signals if number not in sent]
        sent.update(new)
        return new

    def _reap(self, pid: int) -> bool:
        """As the first process of a container we inherit all orphans, and must reap them."""
        seen = procfs.stat(pid)
        if seen is None or seen.is_alive or seen.parent != os.getpid() or pid == self._leader:
            return False
        in_group = self._leader and seen.group == self._leader
        if not in_group and (pid, seen.start_ticks) not in self._sent:
            return False
        with suppress(ChildProcessError):
            return os.waitpid(pid, os.WNOHANG)[0] == pid
        return False
