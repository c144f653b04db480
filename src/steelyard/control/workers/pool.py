"""The workers, all together."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from ...link.load_board import LoadBoard
from ...link.messages import (
    Applied,
    Apply,
    MemberUpdate,
    OutOfMemory,
    ReplicaDemand,
    ReplicaFailure,
    ToWorker,
    WorkerReport,
)
from ...link.shared_ledger import SharedLedger
from ..errors import BoardFullError, StartError
from ..listeners.listeners import ListenerSockets
from ..observability.retired_workers import NO_LOST_REQUESTS, RetiredTotals, lost_requests
from ..observability.totals import WorkerStatus
from .process import WorkerProcess
from .slot import START_TIMEOUT_SECONDS, WorkerSlot

# Rows of the book of memory: one for each worker process, used again when it is dead.


class LedgerRows:
    def __init__(self, rows: int) -> None:
        self._free = deque(range(1, rows))  # the first is the supervisor's

    def acquire(self) -> int:
        if not self._free:
            raise BoardFullError("there are more worker processes than rows in the book of memory")
        return self._free.popleft()

    def release(self, row: int) -> None:
        self._free.appendleft(row)  # low numbers first: each row in use is looked at for every request


REPORT_TIMEOUT_SECONDS = (
    5.0  # seconds for a report that is asked for: rather a late answer to an operator than one that is not true
)
MAX_SILENCE_SECONDS = 10.0  # seconds without a report: a worker is killed
SUPERVISOR_STALL_SECONDS = 3.0  # seconds between two checks: the supervisor itself was stopped, or the machine slept

log = logging.getLogger("steelyard.control")


class WorkerPool:
    def __init__(
        self,
        command: Sequence[str],
        listening: ListenerSockets,
        *,
        greeting: Callable[[], list[ToWorker]],
        answered: Callable[[int, Applied], None],
        died: Callable[[int, str], None],
        reported: Callable[[WorkerReport], None],
        trouble: Callable[[ReplicaFailure | ReplicaDemand | OutOfMemory], None],
        book: SharedLedger,
        buried: Callable[[int], None],
        control: str = "",
        frozen: float = MAX_SILENCE_SECONDS,
    ) -> None:
        """`greeting` is what a new worker is told first; the others hear of what workers say, and unexpected ends."""
        self.command = command
        self.listening = listening
        self.initial_state = greeting
        self.on_applied = answered
        self.on_report = reported
        self.on_notice = trouble
        self.book = book
        self.control = control  # where workers find the next supervisor, should this one die
        self.on_row_released = buried  # whose row of the book it is that a dead worker had
        self.rows = LedgerRows(book.rows)
        self.retired = RetiredTotals()
        self.unexpected_exits = 0  # workers that ended unexpectedly
        self._died = died
        self._frozen = frozen
        self._seats: dict[int, WorkerSlot] = {}
        self._leaving: set[WorkerSlot] = set()
        self._changing: set[asyncio.Task[None]] = set()
        self._loop = asyncio.get_running_loop()
        self.last_check = self._loop.time()
        self._told = 0
        self._first: asyncio.Future[None] = self._loop.create_future()
        self._first.add_done_callback(lambda first: first.cancelled() or first.exception())

    @property
    def size(self) -> int:
        return len(self._seats)

    def workers(self) -> list[WorkerProcess]:
        """Those that leave too."""
        return [seat.worker for seat in self.all_slots() if seat.worker is not None]

    def broadcast(self, message: ToWorker) -> list[int]:
        """To those that stay. The seats whose workers are told; where one is yet to come, `greeting` tells it."""
        told = {seat.index: seat.worker for seat in self._seats.values() if seat.worker is not None}
        if not isinstance(message, Apply | MemberUpdate):  # who leaves goes by what it has, but must know who is ready
            for seat in self._leaving:
                if seat.worker is not None:
                    seat.worker.send(message)
        for worker in told.values():
            worker.send(message)
        return list(told)

    def reports(self) -> list[WorkerReport]:
        """The latest of each worker."""
        return [worker.report for worker in self.workers() if worker.report is not None]

    def prune(self, configured: Mapping[str, Iterable[str]]) -> None:
        """Forget who is not configured any more, also what workers said of it last: should it come back, that is no
        news."""
        self.retired.prune(configured)
        for seat in self._seats.values():
            if seat.worker is not None:
                seat.worker.prune(configured)

    async def request_reports(self, seconds: float = REPORT_TIMEOUT_SECONDS) -> bool:
        """Returns when each worker has reported and done what it was told before, or does not answer in time: False."""
        self._told += 1
        asked = [worker.request_report(self._told) for worker in self.workers()]
        late = (await asyncio.wait(asked, timeout=seconds))[1] if asked else ()
        return not late

    def retry_now(self) -> None:
        for seat in self._seats.values():
            seat.retry_now()

    def status(self) -> tuple[WorkerStatus, ...]:
        return tuple(
            WorkerStatus(worker.index, worker.pid, worker.serving, worker.report.connections if worker.report else 0)
            for worker in self.workers()
        )

    def all_slots(self) -> list[WorkerSlot]:
        return [*self._seats.values(), *self._leaving]

    async def first_started(self) -> None:
        """StartError, if the first worker ends instead or refuses the configuration."""
        await asyncio.shield(self._first)

    async def all_started(self, seconds: float) -> None:
        """Returns when every worker serves, or the time is up."""
        waiting = [asyncio.create_task(seat.has_served.wait()) for seat in self._seats.values()]
        for late in (await asyncio.wait(waiting, timeout=seconds))[1]:
            late.cancel()

    def kill_silent(self) -> None:
        """Kill who is frozen. To be called a few times a second."""
        now = self._loop.time()
        if now - self.last_check > SUPERVISOR_STALL_SECONDS:  # it was us who did not listen
            for worker in self.workers():
                worker.last_heard_at = now
        self.last_check = now
        for seat in self._seats.values():
            seat.kill_if_silent(now, self._frozen)

    # ------------------------------------------------------------------ others, none

    def replace_all(self, size: int, columns: int, drain: float) -> None:
        """So many new workers on a board that fits; those that were there leave when the new ones serve."""
        before = list(self._seats.values())
        board = LoadBoard.create(size, columns)
        self._seats = {index: WorkerSlot(index, self, board) for index in range(size)}
        if before:
            self._leaving.update(before)
            task = asyncio.create_task(self._relieve(before, drain))
            self._changing.add(task)
            task.add_done_callback(self._changing.discard)

    async def _relieve(self, before: list[WorkerSlot], drain: float) -> None:
        late: set[asyncio.Task[Any]] = {asyncio.create_task(seat.has_served.wait()) for seat in self._seats.values()}
        came: set[asyncio.Task[Any]] = set()
        while not came:
            came, late = await asyncio.wait(late, timeout=START_TIMEOUT_SECONDS)
            if not came:
                log.error("none of the new workers serves yet; the old ones go on")
        for task in late:
            task.cancel()
        await asyncio.gather(*(seat.drain(drain, relieved=True) for seat in before))

    async def drain(self, drain: float, *, relieved: bool = False) -> bool:
        """All of them. Did they finish what they had? `relieved`: a successor's workers accept on the same sockets."""
        for task in self._changing:
            task.cancel()
        return all(await asyncio.gather(*(seat.drain(drain, relieved=relieved) for seat in self.all_slots())))

    def kill(self) -> None:
        for worker in self.workers():
            worker.kill()

    # ------------------------------------------------------------------ what seats tell

    def worker_started(self) -> None:
        if not self._first.done():
            self._first.set_result(None)

    def worker_failed(self, why: str) -> bool:
        """True: before any worker has served, so there is no point in going on."""
        if self._first.done():
            return self._first.exception() is not None
        self._first.set_exception(StartError(why))
        return True

    def retire(self, seat: WorkerSlot, worker: WorkerProcess) -> int:
        """What it had counted is not forgotten. How many requests were cut off with it?"""
        cut = NO_LOST_REQUESTS
        if worker.exit_code != 0:
            slots = next((told.slots for told in self.initial_state() if isinstance(told, Apply)), {})
            cut = lost_requests(worker.report, seat.board, seat.index, slots)
        self.retired.retire(worker.report or WorkerReport(0, (), ()), cut, self.reports())
        return sum(cut.values())

    def worker_died(self, index: int, how: str) -> None:
        self.unexpected_exits += 1
        self._died(index, how)

    def close_sockets(self, seat: WorkerSlot) -> None:
        """Unless others have taken over the sockets, and with them who waits there."""
        sits_there = self._seats.get(seat.index)
        if sits_there is seat or (sits_there is None and not self.listening.is_shared(seat.index)):
            self.listening.close(seat.index)

    def slot_closed(self, seat: WorkerSlot) -> None:
        self._leaving.discard(seat)
        if self._seats.get(seat.index) is seat:
            del self._seats[seat.index]
        if not any(other.board is seat.board for other in self.all_slots()):
            seat.board.close()
