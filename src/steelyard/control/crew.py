"""The workers, all together."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from ..link.board import Board
from ..link.book import Book
from ..link.messages import Applied, Apply, Members, RanOut, Report, ToWorker, Trouble, Wanted
from .cut_off import NOTHING, cut_off
from .errors import StartError
from .rows import Rows
from .seat import START, Seat
from .sockets import Listening
from .status import Past, WorkerStatus
from .worker_process import WorkerProcess

ANSWER = 5.0  # seconds for a report that is asked for: rather a late answer to an operator than one that is not true
FROZEN = 10.0  # seconds without a report: a worker is killed
STOOD_STILL = 3.0  # seconds between two checks: the supervisor itself was stopped, or the machine slept

log = logging.getLogger("steelyard.control")


class Crew:
    def __init__(
        self,
        command: Sequence[str],
        listening: Listening,
        *,
        greeting: Callable[[], list[ToWorker]],
        answered: Callable[[int, Applied], None],
        died: Callable[[int, str], None],
        reported: Callable[[Report], None],
        trouble: Callable[[Trouble | Wanted | RanOut], None],
        book: Book,
        buried: Callable[[int], None],
        control: str = "",
        frozen: float = FROZEN,
    ) -> None:
        """`greeting` is what a new worker is told first; the others hear of what workers say, and unexpected ends."""
        self.command = command
        self.listening = listening
        self.greeting = greeting
        self.answered = answered
        self.reported = reported
        self.trouble = trouble
        self.book = book
        self.control = control  # where workers find the next supervisor, should this one die
        self.buried = buried  # whose row of the book it is that a dead worker had
        self.rows = Rows(book.rows)
        self.past = Past()
        self.replaced = 0  # workers that ended unexpectedly
        self._died = died
        self._frozen = frozen
        self._seats: dict[int, Seat] = {}
        self._leaving: set[Seat] = set()
        self._changing: set[asyncio.Task[None]] = set()
        self._loop = asyncio.get_running_loop()
        self._checked = self._loop.time()
        self._told = 0
        self._first: asyncio.Future[None] = self._loop.create_future()
        self._first.add_done_callback(lambda first: first.cancelled() or first.exception())

    @property
    def size(self) -> int:
        return len(self._seats)

    def workers(self) -> list[WorkerProcess]:
        """Those that leave too."""
        return [seat.worker for seat in self._all_seats() if seat.worker is not None]

    def broadcast(self, message: ToWorker) -> list[int]:
        """To those that stay. The seats whose workers are told; where one is yet to come, `greeting` tells it."""
        told = {seat.index: seat.worker for seat in self._seats.values() if seat.worker is not None}
        if not isinstance(message, Apply | Members):  # who leaves goes by what it has, but must know who is ready
            for seat in self._leaving:
                if seat.worker is not None:
                    seat.worker.send(message)
        for worker in told.values():
            worker.send(message)
        return list(told)

    def reports(self) -> list[Report]:
        """The latest of each worker."""
        return [worker.report for worker in self.workers() if worker.report is not None]

    def keep(self, configured: Mapping[str, Iterable[str]]) -> None:
        """Forget who is not configured any more, also what workers said of it last: should it come back, that is no
        news."""
        self.past.keep(configured)
        for seat in self._seats.values():
            if seat.worker is not None:
                seat.worker.forget(configured)

    async def tell(self, seconds: float = ANSWER) -> bool:
        """Returns when each worker has reported and done what it was told before, or does not answer in time: False."""
        self._told += 1
        asked = [worker.tell(self._told) for worker in self.workers()]
        late = (await asyncio.wait(asked, timeout=seconds))[1] if asked else ()
        return not late

    def hurry(self) -> None:
        for seat in self._seats.values():
            seat.hurry()

    def status(self) -> tuple[WorkerStatus, ...]:
        return tuple(
            WorkerStatus(worker.index, worker.pid, worker.serving, worker.report.connections if worker.report else 0)
            for worker in self.workers()
        )

    def _all_seats(self) -> list[Seat]:
        return [*self._seats.values(), *self._leaving]

    async def first_started(self) -> None:
        """StartError, if the first worker ends instead or refuses the configuration."""
        await asyncio.shield(self._first)

    async def all_started(self, seconds: float) -> None:
        """Returns when every worker serves, or the time is up."""
        waiting = [asyncio.create_task(seat.taken.wait()) for seat in self._seats.values()]
        for late in (await asyncio.wait(waiting, timeout=seconds))[1]:
            late.cancel()

    def check(self) -> None:
        """Kill who is frozen. To be called a few times a second."""
        now = self._loop.time()
        if now - self._checked > STOOD_STILL:  # it was us who did not listen
            for worker in self.workers():
                worker.heard = now
        self._checked = now
        for seat in self._seats.values():
            seat.check(now, self._frozen)

    # ------------------------------------------------------------------ others, none

    def renew(self, size: int, columns: int, drain: float) -> None:
        """So many new workers on a board that fits; those that were there leave when the new ones serve."""
        before = list(self._seats.values())
        board = Board.create(size, columns)
        self._seats = {index: Seat(index, self, board) for index in range(size)}
        if before:
            self._leaving.update(before)
            task = asyncio.create_task(self._relieve(before, drain))
            self._changing.add(task)
            task.add_done_callback(self._changing.discard)

    async def _relieve(self, before: list[Seat], drain: float) -> None:
        late: set[asyncio.Task[Any]] = {asyncio.create_task(seat.taken.wait()) for seat in self._seats.values()}
        came: set[asyncio.Task[Any]] = set()
        while not came:
            came, late = await asyncio.wait(late, timeout=START)
            if not came:
                log.error("none of the new workers serves yet; the old ones go on")
        for task in late:
            task.cancel()
        await asyncio.gather(*(seat.dismiss(drain, relieved=True) for seat in before))

    async def dismiss(self, drain: float, *, relieved: bool = False) -> bool:
        """All of them. Did they finish what they had? `relieved`: a successor's workers accept on the same sockets."""
        for task in self._changing:
            task.cancel()
        return all(await asyncio.gather(*(seat.dismiss(drain, relieved=relieved) for seat in self._all_seats())))

    def kill(self) -> None:
        for worker in self.workers():
            worker.kill()

    # ------------------------------------------------------------------ what seats tell

    def has_started(self) -> None:
        if not self._first.done():
            self._first.set_result(None)

    def failed_to_start(self, why: str) -> bool:
        """True: before any worker has served, so there is no point in going on."""
        if self._first.done():
            return self._first.exception() is not None
        self._first.set_exception(StartError(why))
        return True

    def bury(self, seat: Seat, worker: WorkerProcess) -> int:
        """What it had counted is not forgotten. How many requests were cut off with it?"""
        cut = NOTHING
        if worker.code != 0:
            slots = next((told.slots for told in self.greeting() if isinstance(told, Apply)), {})
            cut = cut_off(worker.report, seat.board, seat.index, slots)
        self.past.bury(worker.report or Report(0, (), ()), cut, self.reports())
        return sum(cut.values())

    def died(self, index: int, how: str) -> None:
        self.replaced += 1
        self._died(index, how)

    def close_sockets(self, seat: Seat) -> None:
        """Unless others have taken over the sockets, and with them who waits there."""
        sits_there = self._seats.get(seat.index)
        if sits_there is seat or (sits_there is None and not self.listening.inherited(seat.index)):
            self.listening.close(seat.index)

    def vacated(self, seat: Seat) -> None:
        self._leaving.discard(seat)
        if self._seats.get(seat.index) is seat:
            del self._seats[seat.index]
        if not any(other.board is seat.board for other in self._all_seats()):
            seat.board.close()
