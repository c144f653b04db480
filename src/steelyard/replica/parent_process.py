"""The main process of a server whose app runs in another: LitServe dies of SIGTERM and leaves its children."""

from __future__ import annotations

import mmap
import os
import signal
import struct
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from types import FrameType
from typing import Any

from .signals import TERMINATION_SIGNALS, DrainSignals, die_by_signal

POLL_INTERVAL_SECONDS = 0.05
DRAIN_MARGIN_SECONDS = 5.0  # on top of the grace
_CELL = struct.Struct("=qq")  # the app's process, and whether it has drained


class ParentProcess:
    """Passes the signal to the app's process, waits until that has drained, then lets the server end."""

    def __init__(self, grace: float) -> None:
        self.process = os.getpid()
        self._grace = grace
        self._cell = mmap.mmap(-1, _CELL.size)  # shared with the processes forked from here
        self._signals = DrainSignals(self._drain)
        self._draining = False

    # ------------------------------------------------------------------ in the process of the app

    def register_child(self) -> bool:
        """False: another process has the app too."""
        if self._child not in (0, os.getpid()) and not _ended(self._child):
            return False
        self._cell[:] = _CELL.pack(os.getpid(), 0)
        return True

    def report_drained(self) -> None:
        self._cell[:] = _CELL.pack(os.getpid(), 1)

    # ------------------------------------------------------------------ in the main process

    def run(self, serve: Callable[[], Any]) -> Any:
        before = {number: signal.signal(number, self._interrupt) for number in TERMINATION_SIGNALS}
        others = _children()
        self._signals.install()
        try:
            return serve()
        except KeyboardInterrupt:
            return None  # asked to end before the server handles signals
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
            _end_children(others)

    def _interrupt(self, number: int, frame: FrameType | None) -> None:
        """The server takes it for Ctrl-C. A forked process should not have inherited it."""
        if os.getpid() != self.process:
            die_by_signal(number)
            return
        if self._draining:  # a second signal: the server would wait for requests
            with suppress(ProcessLookupError):
                os.kill(self._child, signal.SIGKILL)
        raise KeyboardInterrupt

    @property
    def _child(self) -> int:
        return int(_CELL.unpack(self._cell)[0])

    def _drain(self) -> None:
        child = self._child
        if not child:
            return  # still loading
        self._draining = True
        end = time.monotonic() + self._grace + DRAIN_MARGIN_SECONDS
        with suppress(ProcessLookupError):
            os.kill(child, signal.SIGTERM)
            while time.monotonic() < end and not _CELL.unpack(self._cell)[1] and not _ended(child):
                time.sleep(POLL_INTERVAL_SECONDS)
        self._draining = False


def _ended(pid: int) -> bool:
    """Or a zombie."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True
    except OSError:
        return False


def _end_children(others: set[int]) -> None:
    """Those that the server left; not `others`."""
    multiprocessing = sys.modules.get("multiprocessing")
    children = multiprocessing.active_children() if multiprocessing is not None else []
    for child in children:
        child.terminate()
    for child in children:
        child.join(2.0)
        if child.is_alive():
            child.kill()
            child.join()
    # A signal during a start leaves a child that multiprocessing does not know.
    for pid in _children() - others - _tracker():
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def _children() -> set[int]:
    """None, where /proc does not tell."""
    found: set[int] = set()
    with suppress(OSError):
        for thread in os.listdir("/proc/self/task"):
            with suppress(FileNotFoundError), open(f"/proc/self/task/{thread}/children") as file:
                found.update(map(int, file.read().split()))
    return found


def _tracker() -> set[int]:
    """multiprocessing's own helper, which ends after the others."""
    module = sys.modules.get("multiprocessing.resource_tracker")
    pid = getattr(getattr(module, "_resource_tracker", None), "_pid", None)
    return set() if pid is None else {pid}
