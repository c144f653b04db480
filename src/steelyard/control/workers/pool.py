"""All worker processes."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections import deque
from collections.abc import Iterable, Mapping
from secrets import token_hex
from typing import TYPE_CHECKING, Any

from ...link.messages import Apply, MemberUpdate, RequestsLost, ToWorker, WorkerReport
from ..errors import SharedMemoryFullError, StartError
from ..observability.retired_workers import NO_LOST_REQUESTS, RetiredTotals, lost_requests, show_requests
from ..observability.views import BalancerProcessView, WorkerView
from .process import WorkerProcess
from .slot import START_TIMEOUT_SECONDS, BalancerSlot, ClientSlot, WorkerSlot

if TYPE_CHECKING:
    from ..supervisor.supervisor import Supervisor

REPORT_TIMEOUT_SECONDS = 5.0  # operators prefer a late answer to a wrong one
MAX_SILENCE_SECONDS = 10.0  # without a report, a worker is killed
SUPERVISOR_STALL_SECONDS = 3.0  # between two checks: the supervisor was stopped, or the machine slept

log = logging.getLogger("steelyard.control")


class WorkerPool:
    def __init__(self, supervisor: Supervisor, control_socket: str, max_silence: float) -> None:
        """`control_socket`: where workers find the next supervisor if this one dies."""
        self.supervisor = supervisor
        self.control_socket = control_socket
        self.retired = RetiredTotals()
        self.unexpected_exits = 0  # of workers
        self.unexpected_balancer_exits = 0
        self._max_silence = max_silence
        self._free_rows = deque(range(1, supervisor.ledger.rows))  # of the memory ledger; row 0 is the supervisor's
        self._slots: dict[int, WorkerSlot] = {}
        self._leaving: set[WorkerSlot] = set()
        self._balancer: BalancerSlot | None = None  # where there is more than one worker
        self.balancer_address = f"steelyard-{os.getpid()}-{token_hex(8)}"
        self.balancer_socket = socket.socket(socket.AF_UNIX)
        self._changing: set[asyncio.Task[None]] = set()
        self._loop = asyncio.get_running_loop()
        self.last_check = self._loop.time()
        self._report_number = 0
        self._first: asyncio.Future[None] = self._loop.create_future()
        self._first.add_done_callback(lambda first: first.cancelled() or first.exception())

    def now(self) -> float:
        return self._loop.time()

    @property
    def size(self) -> int:
        return len(self._slots)

    @property
    def client_pids(self) -> list[int]:
        """Of workers that serve and ask the balancer process."""
        return [
            slot.worker.pid
            for slot in self.all_slots()
            if isinstance(slot, ClientSlot) and slot.worker is not None and slot.worker.serving
        ]

    def workers(self) -> list[WorkerProcess]:
        """With those that are draining."""
        return [slot.worker for slot in self.all_slots() if slot.worker is not None]

    def processes(self) -> list[WorkerProcess]:
        """The workers and the balancer process."""
        balancer = self._balancer.worker if self._balancer is not None else None
        return [*self.workers(), *([balancer] if balancer is not None else [])]

    def broadcast(self, message: ToWorker) -> list[str]:
        """Returns the names of those that it was sent to; others get it with the initial state."""
        current = self._current_slots()
        draining = () if isinstance(message, Apply | MemberUpdate) else self._leaving  # which keep theirs
        for slot in (*current, *draining):
            if slot.worker is not None:
                slot.worker.send(message)
        return [slot.name for slot in current if slot.worker is not None]

    def reports(self) -> list[WorkerReport]:
        """The latest of each process."""
        return [process.report for process in self.processes() if process.report is not None]

    def prune(self, configured: Mapping[str, Iterable[str]]) -> None:
        """Forgets what is no longer configured, also in the latest reports."""
        self.retired.prune(configured)
        for process in self.processes():
            process.prune(configured)

    async def request_reports(self, seconds: float = REPORT_TIMEOUT_SECONDS) -> bool:
        """Returns when each process has applied earlier messages and reported. False: not all in time."""
        self._report_number += 1
        asked = [process.request_report(self._report_number) for process in self.processes()]
        late = (await asyncio.wait(asked, timeout=seconds))[1] if asked else ()
        return not late

    def retry_now(self) -> None:
        for slot in self._current_slots():
            slot.retry_now()

    def status(self) -> tuple[WorkerView, ...]:
        return tuple(
            WorkerView.of(worker, connections=worker.report.connections if worker.report else 0)
            for worker in self.workers()
        )

    def balancer_status(self) -> BalancerProcessView | None:
        """None: each worker decides itself."""
        return self._balancer.status() if self._balancer is not None else None

    def unavailable_balancer(self) -> BalancerProcessView | None:
        """The balancer process, if it does not serve and workers need it: not while the first of them start."""
        status = self.balancer_status()
        return status if status is not None and not status.serving and self.client_pids else None

    def _current_slots(self) -> list[WorkerSlot]:
        """Without those that are draining."""
        balancer = self._balancer
        return [*self._slots.values(), *([balancer] if balancer is not None and not balancer.draining else [])]

    def all_slots(self) -> list[WorkerSlot]:
        return [*self._slots.values(), *self._leaving]

    async def first_started(self) -> None:
        """And the balancer process, if there is one. Raises StartError if one of them ends or refuses the
        configuration."""
        await asyncio.shield(self._first)

    async def all_started(self, seconds: float) -> None:
        """Returns when every worker serves, or the time is up."""
        waiting = [asyncio.create_task(slot.has_served.wait()) for slot in self._slots.values()]
        for late in (await asyncio.wait(waiting, timeout=seconds))[1]:
            late.cancel()

    def kill_silent(self) -> None:
        """Called a few times a second."""
        now = self._loop.time()
        if now - self.last_check > SUPERVISOR_STALL_SECONDS:  # the supervisor itself stalled
            for process in self.processes():
                process.last_heard_at = now
        self.last_check = now
        for slot in self._current_slots():
            slot.kill_if_silent(now, self._max_silence)

    # ------------------------------------------------------------------ replacing and draining

    def replace_all(self, size: int, drain: float) -> None:
        """Starts new workers; the old ones drain when the new ones serve."""
        before = list(self._slots.values())
        if size > 1 and (self._balancer is None or self._balancer.draining):
            self._open_balancer()
        kind = ClientSlot if size > 1 else WorkerSlot
        self._slots = {index: kind(index, self, size) for index in range(size)}
        if before:
            self._leaving.update(before)
            task = asyncio.create_task(self._relieve(before, drain))
            self._changing.add(task)
            task.add_done_callback(self._changing.discard)

    def _open_balancer(self) -> None:
        if not self.balancer_socket.getsockname():
            self.balancer_socket.bind("\0" + self.balancer_address)
            self.balancer_socket.listen()
            self.balancer_socket.setblocking(False)
        self._balancer = BalancerSlot(self)

    async def _relieve(self, before: list[WorkerSlot], drain: float) -> None:
        late: set[asyncio.Task[Any]] = {asyncio.create_task(slot.has_served.wait()) for slot in self._slots.values()}
        came: set[asyncio.Task[Any]] = set()
        while not came:
            came, late = await asyncio.wait(late, timeout=START_TIMEOUT_SECONDS)
            if not came:
                log.error("none of the new workers is ready yet; the old ones keep serving")
        for task in late:
            task.cancel()
        await asyncio.gather(*(slot.drain(drain, sockets_shared=True) for slot in before))

    async def drain(self, drain: float, *, sockets_shared: bool = False) -> bool:
        """Returns whether all requests finished. `sockets_shared`: a successor's workers accept on them."""
        for task in self._changing:
            task.cancel()
        done = await asyncio.gather(*(slot.drain(drain, sockets_shared=sockets_shared) for slot in self.all_slots()))
        if self._balancer is not None:
            await self._balancer.drain(0.0)
        self.balancer_socket.close()
        return all(done)

    def kill(self) -> None:
        for process in self.processes():
            process.kill()

    # ------------------------------------------------------------------ from slots

    def process_started(self) -> None:
        decides = self._balancer is None or self._balancer.has_served.is_set()
        if decides and not self._first.done() and any(slot.has_served.is_set() for slot in self._slots.values()):
            self._first.set_result(None)

    def worker_failed(self, message: str) -> bool:
        """True: none has ever served, so the start fails."""
        if self._first.done():
            return self._first.exception() is not None
        self._first.set_exception(StartError(message))
        return True

    def retire(self, slot: WorkerSlot, worker: WorkerProcess) -> int:
        """Keeps its counts. Returns how many requests were lost."""
        decided = not isinstance(slot, ClientSlot | BalancerSlot)  # else the balancer process knows which were lost
        lost = lost_requests(worker.report) if decided and worker.exit_code != 0 else NO_LOST_REQUESTS
        self.retired.retire(worker.report or WorkerReport(0, (), ()), lost, self.reports())
        return sum(lost.values())

    def requests_lost(self, message: RequestsLost) -> None:
        self.retired.retire(WorkerReport(0, (), ()), message.requests, self.reports())
        count = show_requests(sum(message.requests.values()))
        log.error("worker %d ended with %s in flight", message.worker, count)

    def process_died(self, slot: WorkerSlot, how: str) -> None:
        if isinstance(slot, BalancerSlot):
            self.unexpected_balancer_exits += 1
        else:
            self.unexpected_exits += 1
        self.supervisor.process_died(slot.name, how)

    def acquire_row(self) -> int:
        """Of the memory ledger, for one worker process."""
        if not self._free_rows:
            raise SharedMemoryFullError("there are more worker processes than rows in the shared ledger")
        row = self._free_rows.popleft()
        self.supervisor.ledger.use(row)
        return row

    def release_row(self, row: int, *, adoptable: bool = False) -> None:
        """Its reservations count until they are surely over, or another balancer process has adopted them; the row is
        free for another process."""
        self.supervisor.row_released(row, adoptable=adoptable)
        self._free_rows.appendleft(row)  # low numbers first: every request scans the rows in use

    def close_sockets(self, slot: WorkerSlot) -> None:
        """Unless others have them, too."""
        if slot is self._balancer:
            return
        current = self._slots.get(slot.index)
        listeners = self.supervisor.listeners
        if current is slot or (current is None and not listeners.is_shared(slot.index)):
            listeners.close(slot.index)

    def slot_closed(self, slot: WorkerSlot) -> None:
        self._leaving.discard(slot)
        if slot is self._balancer:
            self._balancer = None
            return
        if self._slots.get(slot.index) is slot:
            del self._slots[slot.index]
        if self._balancer is not None and not any(isinstance(other, ClientSlot) for other in self.all_slots()):
            self._closing_balancer = asyncio.create_task(self._balancer.drain(0.0))
