"""A worker's place. Whoever sits there has its number, its sockets and its row of the load board."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from ..link.board import Board
from ..link.messages import Applied, Drain, RanOut, Report, Serve, Trouble, Wanted
from ..runtimes.endings import how_it_ended
from .backoff import Backoff
from .cut_off import in_words
from .errors import ListenError, SlotsError
from .flood import Flood
from .worker_process import WorkerProcess

if TYPE_CHECKING:
    from .crew import Crew

START = 30.0  # seconds to start
AFTER_DRAIN = 2.0  # seconds beyond the time for draining
LEVELS = {name.lower(): getattr(logging, name) for name in ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")}

log = logging.getLogger("steelyard.control")


class Seat:
    def __init__(self, index: int, crew: Crew, board: Board) -> None:
        self.index = index
        self.board = board
        self.worker: WorkerProcess | None = None
        self.leaving = False
        self.taken = asyncio.Event()  # a worker has served here
        self.row: int | None = None  # the worker's, in the book of memory
        self._crew = crew
        self._backoff = Backoff()
        self._flood = Flood(asyncio.get_running_loop().time())
        self.fill()

    def fill(self, delay: float = 0.0) -> None:
        """With a worker, after so many seconds."""
        self._filling = asyncio.create_task(self._fill(delay))

    async def _fill(self, delay: float) -> None:
        await asyncio.sleep(delay)
        worker = WorkerProcess(self.index, self)
        crew = self._crew
        try:
            listen = crew.listening.open(self.index, self.board.workers)
            self.worker = worker
            self.row = crew.rows.take()
            crew.book.use(self.row)
            await worker.start(
                crew.command, self.board.fd, listen, self.board.workers, crew.book.fd, self.row, crew.control
            )
        except (OSError, ListenError, SlotsError) as problem:
            self.worker = None
            self._give_up_row()
            self._again(max(1.0, self._backoff.ended(0.0)), f"worker {self.index} cannot be started: {problem}")
            return
        for message in (*crew.greeting(), Serve()):
            worker.send(message)

    def _again(self, delay: float, why: str, *, hopeless: bool = True) -> None:
        """Start another, unless it was `hopeless` and none has ever served: then nothing is as it should be."""
        crew = self._crew
        if hopeless and crew.failed_to_start(why):
            return
        log.error("%s; %s", why, f"next try in {delay:.0f} s" if delay else "starting another")
        if delay and any(worker.serving for worker in crew.workers()):
            crew.close_sockets(self)  # nobody shall wait here so long
        self.fill(delay)

    def hurry(self) -> None:
        """Things have changed: try now what was to be tried later."""
        if self.worker is None:
            self._filling.cancel()
            self.fill()

    def check(self, now: float, frozen: float) -> None:
        """Kill the worker, if nothing was heard of it for so long."""
        worker = self.worker
        if worker is None or worker.code is not None or self.leaving:
            return
        silence = now - worker.heard
        if silence > (frozen if worker.serving else START):
            log.error("worker %d (pid %d) said nothing for %.0f s and is killed", self.index, worker.pid, silence)
            worker.heard = now
            worker.kill()

    async def dismiss(self, drain: float, *, relieved: bool = False) -> bool:
        """The worker has `drain` seconds to finish what it has. Did it? `relieved`: others accept on its sockets."""
        self.leaving = True
        worker = self.worker
        self._crew.close_sockets(self)
        if worker is None:
            self._filling.cancel()
            self._crew.vacated(self)
            return True
        if not worker.serving:  # it has nothing to finish
            worker.kill()
            await worker.gone
            return True
        worker.send(Drain(drain, relieved))
        done, _ = await asyncio.wait([worker.gone], timeout=drain + AFTER_DRAIN)
        if not done:
            log.error(
                "worker %d did not end in the %.1f s it was given, and is killed", self.index, drain + AFTER_DRAIN
            )
            worker.kill()
            await worker.gone
        return bool(done) and worker.code == 0

    # ------------------------------------------------------------------ what the worker tells

    def started(self, worker: WorkerProcess) -> None:
        lived = asyncio.get_running_loop().time() - worker.born
        log.info("worker %d (pid %d) serves, %.2f s after it was started", self.index, worker.pid, lived)
        self.taken.set()
        self._crew.has_started()

    def applied(self, worker: WorkerProcess, answer: Applied) -> None:
        if not (answer.problem and self._crew.failed_to_start(answer.problem)):
            self._crew.answered(self.index, answer)

    def reported(self, worker: WorkerProcess, report: Report) -> None:
        self._crew.reported(report)

    def trouble(self, worker: WorkerProcess, trouble: Trouble | Wanted | RanOut) -> None:
        self._crew.trouble(trouble)

    def said(self, worker: WorkerProcess, line: str) -> None:
        """`warning it rains`: the first word may be the level."""
        if not self._flood.pass_on(asyncio.get_running_loop().time()):
            return
        if dropped := self._flood.dropped():
            log.warning("worker %d: %d lines are left out here", self.index, dropped)
        first, _, rest = line.partition(" ")
        level = LEVELS.get(first.lower().rstrip(":"))
        text = line if level is None else rest
        log.log(level or logging.WARNING, "worker %d: %s", self.index, text, extra={"worker": self.index})

    def _give_up_row(self) -> None:
        """What the worker had reserved still counts until it is surely over; the row is another's from now on."""
        if self.row is not None:
            self._crew.buried(self.row)
            self._crew.rows.give(self.row)
            self.row = None

    def ended(self, worker: WorkerProcess, code: int) -> None:
        self.worker = None
        self._give_up_row()
        cut = self._crew.bury(self, worker)
        if self.leaving:
            if cut:
                log.error("worker %d (pid %d) ended with %s in hand", self.index, worker.pid, in_words(cut))
            self._crew.vacated(self)
            return
        self.board.clear(self.index)
        lived = asyncio.get_running_loop().time() - worker.born
        how = how_it_ended(code)
        self._crew.died(self.index, how)
        why = f"worker {self.index} (pid {worker.pid}) ended with {how} after {lived:.1f} s"
        if cut:
            why += f", with {in_words(cut)} in hand"
        if code > 0 and worker.last_words:
            why += f"; its last words: {worker.last_words}"
        delay = self._backoff.ended(lived)
        self._again(delay, why, hopeless=code >= 0 or delay > 0)  # a signal came from outside, and may not come again
