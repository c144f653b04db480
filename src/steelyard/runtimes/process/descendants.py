"""Processes that a replica started: its group, and those with its marks in another session."""

from __future__ import annotations

import os
import signal
from contextlib import suppress

from . import procfs
from .ownership import is_descendant


class Descendants:
    def __init__(self, leader: int, born: int, token: str) -> None:
        """`leader` 0: it ended long ago, and only marks identify them."""
        self._leader = leader
        self._born = born
        self._token = token
        self._told: dict[tuple[int, int], set[signal.Signals]] = {}  # by pid and when that was born

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
        told = self._told.setdefault((pid, seen.start_ticks), set())
        new = [number for number in signals if number not in told]
        told.update(new)
        return new

    def _reap(self, pid: int) -> bool:
        """As the first process of a container we inherit all orphans, and must reap them."""
        seen = procfs.stat(pid)
        if seen is None or seen.is_alive or seen.parent != os.getpid() or pid == self._leader:
            return False
        in_group = self._leader and seen.group == self._leader
        if not in_group and (pid, seen.start_ticks) not in self._told:
            return False
        with suppress(ChildProcessError):
            return os.waitpid(pid, os.WNOHANG)[0] == pid
        return False
