"""Processes that a benchmark starts: pinned to a core, measured as whole trees, gone at the end whatever happens."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence, Set
from contextlib import contextmanager, suppress
from pathlib import Path
from time import monotonic, sleep
from types import FrameType, TracebackType

from .procfs import alive, cpu_seconds, memory, tree

NICENESS = -15
STOP_TIMEOUT_SECONDS = 5.0


class StartError(Exception):
    """A program did not come up; the message has the end of what it printed."""


def cores() -> tuple[int, int]:
    """One core for the proxy, one for the load and the replicas; the same one twice where there is but one."""
    mine = sorted(os.sched_getaffinity(0))
    return mine[-1], mine[0]


@contextmanager
def pinned(cores: int | Set[int]) -> Iterator[None]:
    """What is started inside inherits the cores, from its first instruction on."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {cores} if isinstance(cores, int) else cores)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def raise_priority(pid: int) -> None:
    """Before others, as far as we may: what else the machine does should not show.

    A session is a group of its own to the scheduler (sched(7), autogroup), and niceness counts only within; the group's
    counts between groups.
    """
    with suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, pid, NICENESS)
        Path(f"/proc/{pid}/autogroup").write_text(str(NICENESS), encoding="ascii")


class ProcessManager:
    """Starts processes in a folder of its own and ends every one of them when it is left."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="steelyard-bench-")
        self.folder = Path(self._folder.name)
        self._running: list[ManagedProcess] = []

    def __enter__(self) -> ProcessManager:
        self._before = {number: signal.signal(number, _exit_on_signal) for number in (signal.SIGTERM, signal.SIGHUP)}
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._before[signal.SIGINT] = signal.signal(signal.SIGINT, signal.SIG_IGN)  # a second Ctrl-C, impatient
        for running in reversed(self._running):
            running.stop()
        self._folder.cleanup()
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def start(
        self,
        name: str,
        command: Sequence[str],
        cores: int | Set[int],
        ports: Sequence[int],
        env: Mapping[str, str] | None = None,
    ) -> ManagedProcess:
        """Start and wait until all ports answer."""
        with pinned(cores):
            running = ManagedProcess(name, command, self.folder / f"{name}.log", env or {})
        self._running.append(running)
        running.wait_for(ports)
        return running

    def stop(self, running: ManagedProcess) -> None:
        running.stop()
        self._running.remove(running)


def _exit_on_signal(number: int, frame: FrameType | None) -> None:
    raise SystemExit(128 + number)


class ManagedProcess:
    """A started program with all its children."""

    def __init__(self, name: str, command: Sequence[str], log: Path, env: Mapping[str, str]) -> None:
        self.name = name
        self.log = log
        with log.open("wb") as output:
            self.process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env={**os.environ, "XDG_STATE_HOME": str(log.parent), **env},
                start_new_session=True,  # Ctrl-C is for the benchmark, which then ends this
            )
        raise_priority(self.process.pid)

    def wait_for(self, ports: Sequence[int], seconds: float = 30.0) -> None:
        end = monotonic() + seconds
        for port in ports:
            while not is_listening(port):
                if self.process.poll() is not None or monotonic() > end:
                    raise StartError(f"{self.name} does not listen on {port}:\n{self.log_tail()}")
                sleep(0.05)

    def log_tail(self) -> str:
        return self.log.read_text(encoding="utf-8", errors="replace")[-2000:]

    def pids(self) -> list[int]:
        return tree(self.process.pid)

    def cpu_seconds(self) -> float:
        return sum(cpu_seconds(pid) for pid in self.pids())

    def peak_memory(self) -> int:
        """Bytes: the peaks of all its processes, added up."""
        return sum(memory(pid, "VmHWM") for pid in self.pids())

    def reset_peak_memory(self) -> None:
        for pid in self.pids():
            with suppress(OSError):
                Path(f"/proc/{pid}/clear_refs").write_text("5", encoding="ascii")

    def stop(self) -> None:
        """Ask, wait, and end what is left of the tree: only processes that this one started."""
        pids = self.pids()
        for some, number in ((pids[:1], signal.SIGTERM), (pids, signal.SIGTERM), (pids, signal.SIGKILL)):
            _signal([pid for pid in some if alive(pid)], number)
            self._wait_until_ended(some)
        self.process.wait()

    def _wait_until_ended(self, pids: list[int]) -> None:
        end = monotonic() + STOP_TIMEOUT_SECONDS
        while monotonic() < end and any(alive(pid) for pid in pids):
            self.process.poll()  # or it stays a zombie
            sleep(0.02)


def _signal(pids: Sequence[int], number: signal.Signals) -> None:
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, number)


def is_listening(port: int) -> bool:
    with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1.0):
        return True
    return False


def free_ports(count: int) -> list[int]:
    """Ports that were free a moment ago, all different."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [int(one.getsockname()[1]) for one in sockets]
    finally:
        for one in sockets:
            one.close()
