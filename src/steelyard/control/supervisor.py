"""The supervisor: holds the sockets and the configuration, keeps the workers at work, and carries no request itself."""

from __future__ import annotations

import asyncio
import logging
import socket
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from time import time
from types import TracebackType
from typing import TYPE_CHECKING

from ..addresses import Address
from ..config import Config
from ..core.errors import SteelyardError
from ..link.book import Book
from ..link.handover import FleetState
from ..link.messages import Alive, Applied, Report, ToWorker
from .alarms import AlarmLog, current_alarms
from .configuration import certificates, changeable, summary
from .crew import FROZEN, Crew
from .errors import ListenError
from .fleet import Fleet
from .fleet_state import state_of
from .history.database import default_path
from .history.store import History
from .live import Live, Totals
from .notify import notify, reloading
from .operating import Operating
from .seat import START
from .sockets import Listening
from .status import FleetStatus, merge
from .stored_pulses import CHART_SECONDS, stored_pulses
from .succession import Succession
from .watch import Watch

if TYPE_CHECKING:
    from .admin.server import AdminServer

GATEWAY = (sys.executable, "-P", "-m", "steelyard.gateway")
EVERY = 0.5  # seconds between looks at files and workers
LOOK = 0.1  # seconds between looks whether they are gone

log = logging.getLogger("steelyard.control")


class Supervisor:
    """`start`, then `stop`; or `async with Supervisor(config) as supervisor:`. In between it looks after itself."""

    def __init__(
        self,
        config: Config,
        *,
        reread: Callable[[], Config] | None = None,
        files: Sequence[str | Path] = (),
        command: Sequence[str] = GATEWAY,
        frozen: float = FROZEN,
        take_over: bool = False,
        sockets: Sequence[socket.socket] = (),
    ) -> None:
        """`reread` gives the configuration anew; it is called on `reload`, and when one of `files` has changed.

        `frozen`: a worker that says nothing for so many seconds is killed and replaced. `take_over`: from a gateway of
        this name, if one runs. `sockets`: those that listen already (systemd's).
        """
        self._reread = reread
        self._files = tuple(files)
        self._fleet = Fleet(config)
        self._alarms = AlarmLog(self._fleet.chronicle)
        self._admin: AdminServer | None = None
        self._watch = Watch(self._watched())
        self._command = command
        self._frozen = frozen
        self._reload_wanted = asyncio.Event()
        self._ending = False
        self._hurried = False  # told to end at once
        self._take_over = take_over
        self._succession = Succession(command, sockets, self._hand_out, self._take_back)
        self._tasks: list[asyncio.Task[None]] = []

    @property
    def config(self) -> Config:
        """What is in force."""
        return self._fleet.config

    @property
    def addresses(self) -> tuple[Address, ...]:
        """Where it listens, with the real ports."""
        return self._listening.addresses

    @property
    def admin_address(self) -> Address | None:
        """Where the admin API is, with the real port; None: there is none."""
        return self._admin.address if self._admin is not None else None

    @property
    def relieved(self) -> asyncio.Event:
        """Set when a successor serves: `leave` is due."""
        return self._succession.relieved

    def status(self) -> FleetStatus:
        """The latest of all workers together."""
        workers = self._crew.status()
        models, replicas = self._totals()
        connections = sum(worker.connections for worker in workers)
        return FleetStatus(workers, models, replicas, connections, self._crew.replaced)

    def _totals(self) -> Totals:
        return merge(self._crew.reports(), self._crew.past, self._fleet.in_force.slots.table)

    def note(self, kind: str, what: str, *, model: str = "") -> None:
        """Puts it among the events that the admin API shows."""
        self._fleet.chronicle.note(kind, what, model=model)

    # ------------------------------------------------------------------ start and stop

    async def start(self) -> None:
        """Returns when the first worker serves. ListenError or StartError: it cannot be, and nothing is left behind.

        With a predecessor: when all workers serve, and it was told to leave. TakeOverError: that one goes on.
        """
        try:
            await self._start()
        except BaseException:
            self._succession.give_up()
            raise

    async def _start(self) -> None:
        succession = self._succession
        before = await succession.find(self.config, take_over=self._take_over)
        if before is not None:
            self._fleet.restore(before)
        self._listening = Listening(
            self.config.addresses, shared=frozenset(succession.orphaned), inherited=succession.inherited
        )
        self._book = Book.create(self._fleet.in_force.slots.columns)
        self._crew = Crew(
            self._command,
            self._listening,
            greeting=self._greeting,
            answered=self._answered,
            died=self._fleet.in_force.died,
            reported=self._reported,
            trouble=self._fleet.trouble,
            book=self._book,
            buried=self._buried,
            control=succession.named(self._name()),
            frozen=self._frozen,
        )
        self._live = Live(self._totals, self._fleet.chronicle, asyncio.get_running_loop().time(), self._fleet.beat)
        spare = succession.has_predecessor
        try:
            heir_of = succession.predecessor.pid if succession.predecessor is not None else 0
            await self._fleet.begin(self._crew, self._book, self._name(), spare=spare, heir_of=heir_of)
            await succession.see(self._fleet)
            self._crew.renew(self.config.workers, self._fleet.in_force.slots.columns, 0.0)
            self._keep_history()
            self._tasks.append(asyncio.create_task(self._look_after()))
            await self._crew.first_started()
            if spare:
                await self._crew.all_started(START)
            await self._open_admin()
        except BaseException:
            await self._end(0.0, spare=spare, handed_over=before is not None)
            raise
        self._tasks.append(asyncio.create_task(self._reload_when_wanted()))
        await succession.relieve(self.config.timeouts.drain)
        notify("READY=1")

    async def stop(self, drain: float | None = None) -> bool:
        """Requests in flight have `drain` seconds (None: timeouts.drain) to finish. Did all?"""
        notify("STOPPING=1")
        return await self._end(self.config.timeouts.drain if drain is None else drain)

    def stop_now(self) -> None:
        """Whatever is in flight; ends a `stop` that waits."""
        self._hurried = True
        self._crew.kill()
        self._fleet.starting.hurry()

    async def _end(self, drain: float, *, spare: bool = False, handed_over: bool = False) -> bool:
        """`spare`: replicas that others had started go on; their workers still use them. `handed_over`: another gateway
        has our sockets and our replicas."""
        self._ending = True
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._succession.close()
        if self._admin is not None:
            await self._admin.stop(handed_over=handed_over)
        await self._fleet.rest()
        # Ours; each worker has its own, and takes who waits there before it closes them, unless others listen on.
        self._listening.close_all(handed_over=handed_over)
        done = await self._crew.dismiss(drain, relieved=handed_over)
        await self._fleet.slo.end(self._crew.reports(), self._crew.past, asyncio.get_running_loop().time())
        await self._former_gone(drain)
        await self._fleet.end()
        await self._fleet.upkeep.end(spare=spare, handed_over=self.relieved.is_set())
        self._succession.end()
        return done

    async def leave(self) -> bool:
        """After `relieved`: finish what is in flight; all else goes on elsewhere. Did all finish?"""
        return await self._end(self.config.timeouts.drain, handed_over=True)

    async def _hand_out(self) -> tuple[FleetState, list[socket.socket]]:
        """A successor wants our sockets. From now on it looks after the replicas that we started."""
        await self._fleet.starting.hand_over()
        admin = self._admin.sockets if self._admin is not None else []
        return state_of(self._fleet), [*self._listening.sockets(), *admin]

    async def _take_back(self) -> None:
        if not self._ending:
            await self._fleet.starting.take_back()

    def _keep_history(self) -> None:
        wanted = self.config.history
        if wanted.enabled:
            history = History(wanted.path or default_path(self._name()), wanted.keep)
            self._fleet.slo.begin(history, asyncio.get_running_loop().time())
            self._tasks.append(asyncio.create_task(self._recall(history, time())))

    async def _recall(self, history: History, began: float) -> None:
        """The minutes before this start, for charts."""
        try:
            slices = await asyncio.to_thread(history.minutes, began - 2 * CHART_SECONDS)
            self._live.stored = stored_pulses(slices, began)
        except Exception:  # the gateway serves without it
            log.exception("the last minutes could not be read from the history")

    async def _former_gone(self, seconds: float) -> None:
        """Workers of a supervisor before us may still have requests on replicas that we took over."""
        until = asyncio.get_running_loop().time() + seconds
        while not self._succession.over and not self._hurried and asyncio.get_running_loop().time() < until:
            await asyncio.sleep(LOOK)

    def _name(self) -> str:
        """What replicas that it starts know it by: an heir of that name takes them over."""
        return self.config.name or str(self.addresses[0])

    async def __aenter__(self) -> Supervisor:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    # ------------------------------------------------------------------ reload

    def reload_soon(self) -> None:
        self._reload_wanted.set()

    async def reload(self) -> bool:
        """Read the configuration again and bring it to all workers. If it is refused, the last good one stays."""
        return not await self._reload()

    async def _reload(self) -> str:
        async with self._fleet.changing:
            reloading()
            problem = await self._try_reload()
            notify("READY=1")
        if problem:
            log.error("the new configuration is refused, the last good one stays: %s", problem)
        return problem

    async def _try_reload(self) -> str:
        self._watch.forget_changes()
        try:
            now = self._fleet.roster.config
            wanted = self._reread() if self._reread is not None else now
            config, held_back = changeable(wanted, now)
            if problem := await self._fleet.configure(config):
                return problem
        except SteelyardError as wrong:
            return str(wrong)
        except Exception as wrong:  # whatever a file or a policy of the user's own may do
            return f"{type(wrong).__name__}: {wrong}"
        self._reloaded(config)
        if held_back:
            log.warning("needs a restart: %s; all else in the new configuration is in force", held_back)
        return ""

    def _reloaded(self, config: Config) -> None:
        slots = self._fleet.in_force.slots
        self._watch.follow(self._watched())
        self._follow_admin(config)
        self._crew.keep(slots.table)
        self._crew.hurry()
        if config.workers != self._crew.size:
            self._crew.renew(config.workers, slots.columns, config.timeouts.drain)
        log.info("reloaded: %s", summary(config))

    def _reported(self, report: Report) -> None:
        self._fleet.heard(report)
        self._live.tick(self._crew.reports(), asyncio.get_running_loop().time())

    def _buried(self, row: int) -> None:
        if not self._ending:
            self._fleet.holdings.buried(row)

    def _answered(self, worker: int, answer: Applied) -> None:
        if not self._fleet.in_force.answered(worker, answer) and answer.problem:
            log.error("worker %d refuses the configuration that was good: %s", worker, answer.problem)

    def _follow_admin(self, config: Config) -> None:
        if self._admin is not None:
            try:
                self._admin.follow(config.admin)
            except SteelyardError as problem:  # a token file that was removed this very moment
                log.error("the admin API stays as it was: %s", problem)

    def _greeting(self) -> list[ToWorker]:
        """What a new worker is told: the configuration, and how every replica stands."""
        return [*self._fleet.in_force.greeting(), *self._fleet.so_far()]

    # ------------------------------------------------------------------ the admin API

    async def _open_admin(self) -> None:
        wanted = self.config.admin
        if wanted.listen == "":
            return
        from .admin.server import AdminServer  # after the first worker has started: it takes a while to import

        operations = Operating(self._fleet, self._crew, self._reload, self._live.began, self._live)
        admin = AdminServer(operations, wanted, self._succession.inherited)
        try:
            await admin.start()
        except ListenError as problem:
            if wanted.listen is not None:
                raise
            log.warning("no admin API: %s; choose another address with --admin", problem)
            return
        self._admin = admin
        self._fleet.admin_address = admin.address

    # ------------------------------------------------------------------ looking after

    async def _look_after(self) -> None:
        while True:
            await asyncio.sleep(EVERY)
            try:
                self._crew.broadcast(Alive())
                self._crew.check()
                if self._succession.look():
                    self._fleet.starting.spare_no_more()  # nobody before us uses them any more
                self._fleet.tick()
                self._fleet.slo.tick(self._crew.reports(), self._crew.past, asyncio.get_running_loop().time())
                self._live.tick(self._crew.reports(), asyncio.get_running_loop().time())
                self._look_for_alarms()
                self._crew.past.keep(self._fleet.in_force.slots.table)
                if changed := self._watch.look():
                    log.info("changed: %s", ", ".join(changed))
                    self.reload_soon()
            except Exception:  # whatever it is, looking away for ever would be worse
                log.exception("looking after the workers went wrong")

    def _look_for_alarms(self) -> None:
        fleet = self._fleet
        scaling, discovery, placing = fleet.scaling.views(), fleet.discoverer.views(), fleet.holdings.placer.views()
        uptime = fleet.now() - self._live.began
        alarms = current_alarms(fleet, scaling, discovery, placing, uptime, self._crew.workers())
        self._alarms.see(alarms, fleet.now())

    async def _reload_when_wanted(self) -> None:
        while True:
            await self._reload_wanted.wait()
            self._reload_wanted.clear()
            try:
                await self.reload()
            except Exception:  # or nobody would ever be heard again who wants one
                log.exception("the reload went wrong")

    def _watched(self) -> list[str | Path]:
        return [*self._files, *certificates(self.config)]
