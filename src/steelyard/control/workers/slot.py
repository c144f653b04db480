"""The slot of a worker, or of the balancer process: its number and its sockets, kept across restarts of the process."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ...link.messages import Applied, Drain, FromWorker, RequestsLost, Started, StartServing, WorkerReport
from ...system import describe_exit
from ..backoff import exponential_delay
from ..errors import ListenError, SharedMemoryFullError
from ..observability.retired_workers import show_requests
from ..observability.views import BalancerProcessView
from .process import WorkerProcess
from .stderr_tail import LogRateLimit

if TYPE_CHECKING:
    from .pool import WorkerPool


HEALTHY_LIFETIME_SECONDS = 10.0  # an earlier end counts as a failed start
IMMEDIATE_RESTARTS = 4  # early exits in a row without a delay
MAX_RESTART_DELAY_SECONDS = 30.0
MAX_BALANCER_RESTART_DELAY_SECONDS = 1.0  # no worker decides without it


class RestartBackoff:
    """No delay, unless workers keep exiting early: then 1, 2, 4 … 30 seconds."""

    def __init__(self, max_delay: float = MAX_RESTART_DELAY_SECONDS) -> None:
        self.early_exits = 0  # in a row
        self._max_delay = max_delay

    def next_delay(self, lifetime: float) -> float:
        """Seconds until the restart of a worker that lived `lifetime` seconds."""
        self.early_exits = self.early_exits + 1 if lifetime < HEALTHY_LIFETIME_SECONDS else 0
        if self.early_exits <= IMMEDIATE_RESTARTS:
            return 0.0
        return exponential_delay(1.0, self._max_delay, self.early_exits - IMMEDIATE_RESTARTS)


START_TIMEOUT_SECONDS = 30.0
MAX_BALANCER_SILENCE_SECONDS = 3.0  # then it is killed …
BALANCER_REPORT_OVERDUE_SECONDS = 2.0  # … and after this it counts as unavailable: it reports once a second
DRAIN_GRACE_SECONDS = 2.0  # beyond the drain timeout
LOG_LEVELS = {name.lower(): getattr(logging, name) for name in ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")}

log = logging.getLogger("steelyard.control")


class WorkerSlot:
    """Of a worker that decides itself."""

    def __init__(self, index: int, worker_pool: WorkerPool, workers: int) -> None:
        """`workers`: that there are together."""
        self.index = index
        self.workers = workers
        self.worker: WorkerProcess | None = None
        self.draining = False
        self.has_served = asyncio.Event()  # a worker has served here
        self.ledger_row: int | None = None  # in the shared memory ledger
        self.pool = worker_pool
        self._backoff = self._make_backoff()
        self._log_limit = LogRateLimit(asyncio.get_running_loop().time())
        self.start_worker()

    @property
    def name(self) -> str:
        return f"worker {self.index}"

    def _make_backoff(self) -> RestartBackoff:
        return RestartBackoff()

    def _sockets(self) -> Sequence[int]:
        return self.pool.supervisor.listeners.open(self.index, self.workers)

    def _options(self) -> dict[str, object]:
        self.ledger_row = self.pool.acquire_row()
        return {
            "--index": self.index,
            "--workers": self.workers,
            "--ledger-row": self.ledger_row,
            "--control-socket": self.pool.control_socket,
        }

    def start_worker(self, delay: float = 0.0) -> None:
        self._starting = asyncio.create_task(self._start_worker(delay))

    async def _start_worker(self, delay: float) -> None:
        await asyncio.sleep(delay)
        worker = WorkerProcess(self)
        try:
            listen = self._sockets()
            self.worker = worker
            await worker.start(listen, self._options())
        except (OSError, ListenError, SharedMemoryFullError) as problem:
            self.worker = None
            self._release_row()
            self._restart(max(1.0, self._backoff.next_delay(0.0)), f"{self.name} cannot be started: {problem}")
            return
        for message in (*self.pool.supervisor.initial_state(), StartServing()):
            worker.send(message)

    def _restart(self, delay: float, message: str, *, permanent: bool = True) -> None:
        """Starts another, unless the failure is `permanent` and none has ever served."""
        self._unavailable(message)
        if permanent and self.pool.worker_failed(message):
            return
        log.error("%s; %s", message, f"next try in {delay:.0f} s" if delay else "starting another")
        if delay and any(worker.serving for worker in self.pool.workers()):
            self.pool.close_sockets(self)  # connections must not wait here meanwhile
        self.start_worker(delay)

    def retry_now(self) -> None:
        """Skips the delay: the configuration changed."""
        if self.worker is None:
            self._starting.cancel()
            self.start_worker()

    def kill_if_silent(self, now: float, frozen: float) -> None:
        worker = self.worker
        if worker is None or worker.exit_code is not None or self.draining:
            return
        silence = now - worker.last_heard_at
        if silence > (frozen if worker.serving else START_TIMEOUT_SECONDS):
            log.error("%s (pid %d): no heartbeat for %.0f s, killing it", self.name, worker.pid, silence)
            worker.last_heard_at = now
            worker.serving = False
            self._unavailable(f"no heartbeat for {silence:.0f} s, so it is killed")
            worker.kill()

    def _unavailable(self, problem: str) -> None:
        """For a subclass that shows it."""

    async def drain(self, drain: float, *, sockets_shared: bool = False) -> bool:
        """Returns whether its requests finished within `drain` seconds. `sockets_shared`: others accept there."""
        self.draining = True
        worker = self.worker
        self.pool.close_sockets(self)
        if worker is None:
            self._starting.cancel()
            self.pool.slot_closed(self)
            return True
        if not worker.serving:  # it has nothing to finish
            worker.kill()
            await worker.exited
            return True
        worker.send(Drain(drain, sockets_shared))
        done, _ = await asyncio.wait([worker.exited], timeout=drain + DRAIN_GRACE_SECONDS)
        if not done:
            given = drain + DRAIN_GRACE_SECONDS
            log.error("%s did not end within %.1f s, killing it", self.name, given)
            worker.kill()
            await worker.exited
        return bool(done) and worker.exit_code == 0

    # ------------------------------------------------------------------ from the worker

    def received(self, worker: WorkerProcess, message: FromWorker) -> None:
        match message:
            case WorkerReport():
                self.pool.supervisor.worker_reported(message)
            case Started():
                lived = asyncio.get_running_loop().time() - worker.started_at
                log.info("%s (pid %d) ready after %.2f s", self.name, worker.pid, lived)
                self.has_served.set()
                self._started()
            case Applied():
                if not (message.problem and self.pool.worker_failed(message.problem)):
                    self.pool.supervisor.process_applied(self.name, message)
            case RequestsLost():
                self.pool.requests_lost(message)
            case _:
                self.pool.supervisor.fleet.worker_notice(message)

    def _started(self) -> None:
        self.pool.process_started()

    def stderr_line(self, line: str) -> None:
        """`warning it rains`: the first word may be the level."""
        if not self._log_limit.admit(asyncio.get_running_loop().time()):
            return
        if dropped := self._log_limit.take_dropped():
            log.warning("%s: %d log lines suppressed", self.name, dropped)
        first, _, rest = line.partition(" ")
        level = LOG_LEVELS.get(first.lower().rstrip(":"))
        text = line if level is None else rest
        log.log(level or logging.WARNING, "%s: %s", self.name, text, extra={"process_name": self.name})

    def _release_row(self, *, adoptable: bool = False) -> None:
        if self.ledger_row is not None:
            self.pool.release_row(self.ledger_row, adoptable=adoptable)
            self.ledger_row = None

    def ended(self, worker: WorkerProcess, code: int) -> None:
        self.worker = None
        self._release_row()
        cut = self.pool.retire(self, worker)
        if self.draining:
            if cut:
                log.error("%s (pid %d) ended with %s in flight", self.name, worker.pid, show_requests(cut))
            self.pool.slot_closed(self)
            return
        lived = asyncio.get_running_loop().time() - worker.started_at
        how = describe_exit(code)
        self.pool.process_died(self, how)
        message = f"{self.name} (pid {worker.pid}) ended with {how} after {lived:.1f} s"
        if cut:
            message += f", with {show_requests(cut)} in flight"
        if code > 0 and worker.last_stderr_line:
            message += f"; its last line on stderr: {worker.last_stderr_line}"
        delay = self._backoff.next_delay(lived)
        self._restart(delay, message, permanent=code >= 0 or delay > 0)  # a signal came from outside: it may not recur


class ClientSlot(WorkerSlot):
    """Of a worker that asks the balancer process."""

    def _options(self) -> dict[str, object]:
        return {
            "--index": self.index,
            "--workers": self.workers,
            "--balancer": self.pool.balancer_address,
            "--control-socket": self.pool.control_socket,
        }


class BalancerSlot(WorkerSlot):
    """Of the balancer process."""

    def __init__(self, worker_pool: WorkerPool) -> None:
        self._last_failure = ""  # why the last process ended or could not start; empty once one serves
        self._unavailable_since = worker_pool.now()
        super().__init__(0, worker_pool, 0)  # there is one: nothing uses its index

    def status(self) -> BalancerProcessView:
        process, now = self.worker, self.pool.now()
        pid = process.pid if process is not None and process.pid else None
        if process is None or not process.serving:
            problem = self._last_failure or "it is being started"
            return BalancerProcessView(
                pid=pid, serving=False, problem=problem, unavailable_for=now - self._unavailable_since
            )
        silence = now - process.last_heard_at
        if silence > BALANCER_REPORT_OVERDUE_SECONDS:
            problem = f"no report for {silence:.0f} s"
            return BalancerProcessView(pid=pid, serving=False, problem=problem, unavailable_for=silence)
        return BalancerProcessView(pid=pid, serving=True)

    @property
    def name(self) -> str:
        return "balancer process"

    def _sockets(self) -> Sequence[int]:
        return (self.pool.balancer_socket.fileno(),)

    def _options(self) -> dict[str, object]:
        self.ledger_row = self.pool.acquire_row()
        return {"--ledger-row": self.ledger_row, "--recover": ",".join(map(str, self.pool.client_pids))}

    def _release_row(self, *, adoptable: bool = False) -> None:
        super()._release_row(adoptable=not self.draining)

    def _make_backoff(self) -> RestartBackoff:
        return RestartBackoff(MAX_BALANCER_RESTART_DELAY_SECONDS)

    def _unavailable(self, problem: str) -> None:
        if not self._last_failure:
            self._unavailable_since = self.pool.now()
        self._last_failure = problem

    def _started(self) -> None:
        self._last_failure = ""
        super()._started()

    def kill_if_silent(self, now: float, frozen: float) -> None:
        """All workers wait for it."""
        super().kill_if_silent(now, min(frozen, MAX_BALANCER_SILENCE_SECONDS))
