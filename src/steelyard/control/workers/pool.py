"""All worker processes."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from ...link.load_board import LoadBoard
from ...link.messages import Apply, MemberUpdate, ToWorker, WorkerReport
from ..errors import BoardFullError, StartError
from ..observability.retired_workers import NO_LOST_REQUESTS, RetiredTotals, lost_requests
from ..observability.views import WorkerView
from .process import WorkerProcess
from .slot import START_TIMEOUT_SECONDS, WorkerSlot

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
        self.unexpected_exits = 0
        self._max_silence = max_silence
        self._free_rows = deque(range(1, supervisor.ledger.rows))  # of the memory ledger; row 0 is the supervisor's
        self._slots: dict[int, WorkerSlot] = {}
        self._leaving: set[WorkerSlot] = set()
        self._changing: set[asyncio.Task[None]] = set()
        self._loop = asyncio.get_running_loop()
        self.last_check = self._loop.time()
        self._report_number = 0
        self._first: asyncio.Future[None] = self._loop.create_future()
        self._first.add_done_callback(lambda first: first.cancelled() or first.exception())

    @property
    def size(self) -> int:
        return len(self._slots)

    def workers(self) -> list[WorkerProcess]:
        """With those that are draining."""
        return [slot.worker for slot in self.all_slots() if slot.worker is not None]

    def broadcast(self, message: ToWorker) -> list[int]:
        """Returns the slots that have a worker; others get it with the initial state."""
        draining = () if isinstance(message, Apply | MemberUpdate) else self._leaving  # which keep theirs
        for slot in (*self._slots.values(), *draining):
            if slot.worker is not None:
                slot.worker.send(message)
        return [slot.index for slot in self._slots.values() if slot.worker is not None]

    def reports(self) -> list[WorkerReport]:
        """The latest of each worker."""
        return [worker.report for worker in self.workers() if worker.report is not None]

    def prune(self, configured: Mapping[str, Iterable[str]]) -> None:
        """Forgets what is no longer configured, also in the latest reports."""
        self.retired.prune(configured)
        for slot in self._slots.values():
            if slot.worker is not None:
                slot.worker.prune(configured)

    async def request_reports(self, seconds: float = REPORT_TIMEOUT_SECONDS) -> bool:
        """Returns when each worker has applied earlier messages and reported. False: not all in time."""
        self._report_number += 1
        asked = [worker.request_report(self._report_number) for worker in self.workers()]
        late = (await asyncio.wait(asked, timeout=seconds))[1] if asked else ()
        return not late

    def retry_now(self) -> None:
        for slot in self._slots.values():
            slot.retry_now()

    def status(self) -> tuple[WorkerView, ...]:
        return tuple(
            WorkerView.of(worker, connections=worker.report.connections if worker.report else 0)
            for worker in self.workers()
        )

    def all_slots(self) -> list[WorkerSlot]:
        return [*self._slots.values(), *self._leaving]

    async def first_started(self) -> None:
        """Raises StartError if the first worker ends or refuses the configuration."""
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
            for worker in self.workers():
                worker.last_heard_at = now
        self.last_check = now
        for slot in self._slots.values():
            slot.kill_if_silent(now, self._max_silence)

    # ------------------------------------------------------------------ replacing and draining

    def replace_all(self, size: int, columns: int, drain: float) -> None:
        """Starts new workers on a new board; the old ones drain when the new ones serve."""
        before = list(self._slots.values())
        board = LoadBoard.create(size, columns)
        self._slots = {index: WorkerSlot(index, self, board) for index in range(size)}
        if before:
            self._leaving.update(before)
            task = asyncio.create_task(self._relieve(before, drain))
            self._changing.add(task)
            task.add_done_callback(self._changing.discard)

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
        return all(
            await asyncio.gather(*(slot.drain(drain, sockets_shared=sockets_shared) for slot in self.all_slots()))
        )

    def kill(self) -> None:
        for worker in self.workers():
            worker.kill()

    # ------------------------------------------------------------------ from slots

    def worker_started(self) -> None:
        if not self._first.done():
            self._first.set_result(None)

    def worker_failed(self, message: str) -> bool:
        """True: none has ever served, so the start fails."""
        if self._first.done():
            return self._first.exception() is not None
        self._first.set_exception(StartError(message))
        return True

    def retire(self, slot: WorkerSlot, worker: WorkerProcess) -> int:
        """Keeps its counts. Returns how many requests were lost."""
        cut = NO_LOST_REQUESTS
        if worker.exit_code != 0:
            columns = next((one.columns for one in self.supervisor.initial_state() if isinstance(one, Apply)), {})
            cut = lost_requests(worker.report, slot.board, slot.index, columns)
        self.retired.retire(worker.report or WorkerReport(0, (), ()), cut, self.reports())
        return sum(cut.values())

    def worker_died(self, index: int, how: str) -> None:
        self.unexpected_exits += 1
        self.supervisor.worker_died(index, how)

    def acquire_row(self) -> int:
        """Of the memory ledger, for one worker process."""
        if not self._free_rows:
            raise BoardFullError("there are more worker processes than rows in the shared ledger")
        row = self._free_rows.popleft()
        self.supervisor.ledger.use(row)
        return row

    def release_row(self, row: int) -> None:
        """Its reservations count until they are surely over; the row is free for another worker."""
        self.supervisor.row_released(row)
        self._free_rows.appendleft(row)  # low numbers first: every request scans the rows in use

    def close_sockets(self, slot: WorkerSlot) -> None:
        """Unless others have them, too."""
        current = self._slots.get(slot.index)
        listeners = self.supervisor.listeners
        if current is slot or (current is None and not listeners.is_shared(slot.index)):
            listeners.close(slot.index)

    def slot_closed(self, slot: WorkerSlot) -> None:
        self._leaving.discard(slot)
        if self._slots.get(slot.index) is slot:
            del self._slots[slot.index]
        if not any(other.board is slot.board for other in self.all_slots()):
            slot.board.close()
