"""Faults of one real replica process: restart, freeze, errors, flapping."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event
from time import monotonic

from ..testbed.processes import ManagedProcess, ProcessManager
from .replica_process import LOG_READY, LOG_UP

LOADING_SECONDS = 5.0  # that a restarted replica takes


class ReplicaProcess:
    """A replica's process, and those that were there before it."""

    def __init__(self, processes: ProcessManager, core: int, port: int) -> None:
        self.processes = processes
        self.core = core
        self.port = port
        self.logs: list[Path] = []
        self.running: ManagedProcess | None = None

    def start(self, loading: float = 0.0) -> None:
        name = f"replica-{self.port}-{len(self.logs)}"
        self.logs.append(self.processes.folder / f"{name}.seen")
        arguments = [str(self.port), str(self.logs[-1]), str(loading)]
        command = [sys.executable, "-m", "benchmarks.mocks.replica_process", *arguments]
        self.running = self.processes.start(name, command, self.core, [self.port])

    def send(self, number: signal.Signals) -> None:
        if self.running is not None:
            self.running.process.send_signal(number)

    def restart(self, loading: float) -> None:
        """Kills it and starts another."""
        self.send(signal.SIGKILL)
        self.stop()
        self.start(loading)

    def stop(self) -> None:
        if self.running is not None:
            self.send(signal.SIGCONT)
            self.processes.stop(self.running)
            self.running = None

    def seen(self) -> list[tuple[float, str]]:
        """What its processes noted, each with its time."""
        lines = [line.split() for log in self.logs if log.exists() for line in log.read_text().splitlines()]
        return sorted((float(when), what) for when, what in lines)


@dataclass(frozen=True)
class FaultKind:
    """`begin` and `end` are done to the replica; `end` is None where it comes right by itself."""

    name: str
    begin: Callable[[ReplicaProcess], None]
    end: Callable[[ReplicaProcess], None] | None
    sudden: bool = True  # there is a moment at which it can be noticed


COLD = FaultKind("cold", lambda server: server.restart(LOADING_SECONDS), None)
FROZEN = FaultKind("frozen", lambda s: s.send(signal.SIGSTOP), lambda s: s.send(signal.SIGCONT))
ERRORS = FaultKind("errors", lambda s: s.send(signal.SIGUSR1), lambda s: s.send(signal.SIGUSR1))
FLAPPING = FaultKind("flapping", lambda s: s.send(signal.SIGUSR2), lambda s: s.send(signal.SIGUSR2), sudden=False)


@dataclass(frozen=True)
class Scenario:
    """`load`: share of what all eight can do. The first replicas get one fault each."""

    name: str
    title: str
    load: float
    kinds: tuple[FaultKind, ...]


SCENARIOS = {
    scenario.name: scenario
    for scenario in (
        Scenario("healthy", "nothing goes wrong", 0.6, ()),
        Scenario("cold", f"one restarted, {LOADING_SECONDS:g} s to load", 0.6, (COLD,)),
        Scenario("frozen", "one frozen (SIGSTOP)", 0.6, (FROZEN,)),
        Scenario("errors", "one with instant 500s", 0.6, (ERRORS,)),
        Scenario("flapping", "one with readiness flapping every second", 0.6, (FLAPPING,)),
        Scenario("all", "all four at once", 0.3, (COLD, FROZEN, ERRORS, FLAPPING)),
    )
}


@dataclass
class ScheduledFault:
    """One kind, to one server, at a time of CLOCK_MONOTONIC, and when it really began and ended."""

    kind: FaultKind
    server: ReplicaProcess
    at: float
    lasts: float
    began: float = field(default=float("nan"))
    ended: float = field(default=float("nan"))

    def run(self, stop: Event) -> None:
        """To be run in a thread: a process takes its time to start, and the load must not wait for it."""
        stop.wait(self.at - monotonic())
        self.began = monotonic()
        self.kind.begin(self.server)
        stop.wait(self.at + self.lasts - monotonic())
        if self.kind.end is not None:
            self.kind.end(self.server)
        self.ended = monotonic()

    def window(self) -> tuple[float, float]:
        """When requests could reach it and went wrong; of one that was restarted, while it listened and loaded."""
        if self.kind.end is not None:
            return self.began, self.ended
        after = [(when, what) for when, what in self.server.seen() if when >= self.began]
        up = next((when for when, what in after if what == LOG_UP), self.began)
        return up, next((when for when, what in after if what == LOG_READY), self.ended)


@contextmanager
def scheduled(faults: Sequence[ScheduledFault]) -> Iterator[None]:
    """They come when they are due; what is left of them when this is left comes to its end at once."""
    stop = Event()
    with ThreadPoolExecutor() as pool:
        futures = [pool.submit(fault.run, stop) for fault in faults]
        try:
            yield
        finally:
            stop.set()
    for future in futures:
        future.result()
