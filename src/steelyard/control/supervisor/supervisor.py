"""The supervisor: holds sockets and configuration, keeps workers running, carries no request itself."""

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

from ...addresses import Address
from ...config import Config
from ...core.errors import SteelyardError
from ...link.handover import FleetState
from ...link.messages import Applied, Heartbeat, ToWorker, WorkerReport
from ...link.shared_ledger import SharedLedger
from ..errors import ListenError
from ..file_watcher import FileWatcher
from ..fleet.fleet import Fleet
from ..history.database import default_path
from ..history.store import HistoryStore
from ..listeners.listeners import ListenerSockets
from ..observability.alarms import AlarmLog, current_alarms
from ..observability.fleet_view import fleet_totals
from ..observability.live import LiveFeed
from ..observability.stored_samples import CHART_SECONDS, stored_samples
from ..observability.totals import FleetStatus, FleetTotals
from ..systemd import notify, notify_reloading
from ..takeover.fleet_snapshot import restore_snapshot, take_snapshot
from ..takeover.takeover import Takeover
from ..workers.pool import MAX_SILENCE_SECONDS, WorkerPool
from ..workers.slot import START_TIMEOUT_SECONDS
from .controllers import Controllers
from .fleet_admin import FleetAdmin
from .reload import certificate_files, split_reloadable, summary

if TYPE_CHECKING:
    from ..admin.server import AdminServer

WORKER_COMMAND = (sys.executable, "-P", "-m", "steelyard.gateway")
TICK_SECONDS = 0.5
PREDECESSOR_POLL_SECONDS = 0.1

log = logging.getLogger("steelyard.control")


class Supervisor:
    """`start`, then `stop`; or `async with Supervisor(config) as supervisor:`. It needs no calls in between."""

    def __init__(
        self,
        config: Config,
        *,
        reread: Callable[[], Config] | None = None,
        files: Sequence[str | Path] = (),
        command: Sequence[str] = WORKER_COMMAND,
        frozen: float = MAX_SILENCE_SECONDS,
        take_over: bool = False,
        sockets: Sequence[socket.socket] = (),
    ) -> None:
        """`reread` loads the configuration on `reload`, and when one of `files` has changed.

        `frozen`: seconds of silence after which a worker is killed and replaced. `take_over`: from a running gateway of
        this name. `sockets`: inherited listening sockets (systemd's).
        """
        self._reread = reread
        self._files = tuple(files)
        self.fleet = Fleet(config)
        self._alarms = AlarmLog(self.fleet.events)
        self.admin: AdminServer | None = None
        self._watch = FileWatcher(self._watched())
        self.command = command
        self._max_silence = frozen
        self._reload_wanted = asyncio.Event()
        self._ending = False
        self._stopping_now = False  # a second signal came
        self._take_over = take_over
        self._takeover = Takeover(self, sockets)
        self._tasks: list[asyncio.Task[None]] = []

    @property
    def config(self) -> Config:
        return self.fleet.config

    @property
    def addresses(self) -> tuple[Address, ...]:
        """With the real ports."""
        return self.listeners.addresses

    @property
    def admin_address(self) -> Address | None:
        """With the real port; None: no admin API."""
        return self.admin.address if self.admin is not None else None

    @property
    def superseded(self) -> asyncio.Event:
        """Set when a successor serves: call `finish_handover`."""
        return self._takeover.superseded

    def status(self) -> FleetStatus:
        """From the latest reports of all workers."""
        workers = self.workers.status()
        connections = sum(worker.connections for worker in workers)
        totals = fleet_totals(self.fleet, self.workers)
        return FleetStatus(workers, *totals, connections, self.workers.unexpected_exits)

    def _sample(self) -> FleetTotals:
        totals = fleet_totals(self.fleet, self.workers)
        self.fleet.health.failures.update(totals[1], self.fleet.now())
        return totals

    # ------------------------------------------------------------------ start and stop

    async def start(self) -> None:
        """Returns when the first worker serves. Raises ListenError or StartError, and leaves nothing behind.

        With a predecessor: returns when all workers serve and it drains. Raises TakeOverError: it goes on.
        """
        try:
            await self._start()
        except BaseException:
            self._takeover.abort()
            raise

    async def _start(self) -> None:
        succession = self._takeover
        before = await succession.find(self.config, take_over=self._take_over)
        if before is not None:
            restore_snapshot(self.fleet, before, self.fleet.now())
            self.fleet.members.reset_active_config()
        self.listeners = ListenerSockets(
            self.config.listen_addresses,
            shared=frozenset(succession.orphaned_addresses),
            inherited=succession.inherited,
        )
        self.ledger = SharedLedger.create(self.fleet.members.active_config.columns.columns)
        self.controllers = Controllers(self.fleet, self.ledger, self._name())
        self.workers = WorkerPool(self, succession.advertise(self._name()), self._max_silence)
        self.live_feed = LiveFeed(self._sample, self.fleet.events, self.fleet.now())
        keep_adopted = succession.has_predecessor
        try:
            pid = succession.predecessor.pid if succession.predecessor is not None else 0
            await self.controllers.start(self.workers, keep_adopted=keep_adopted, predecessor_pid=pid)
            await succession.wait_until_ready(self.fleet)
            self.workers.replace_all(self.config.workers, 0.0)
            self._open_history()
            self._tasks.append(asyncio.create_task(self._tick_forever()))
            await self.workers.first_started()
            if keep_adopted:
                await self.workers.all_started(START_TIMEOUT_SECONDS)
            await self._open_admin()
        except BaseException:
            await self._end(0.0, keep_adopted=keep_adopted, handed_over=before is not None)
            raise
        self._tasks.append(asyncio.create_task(self._reload_when_wanted()))
        await succession.take_effect(self.config.timeouts.drain)
        notify("READY=1")

    async def stop(self, drain: float | None = None) -> bool:
        """Requests in flight have `drain` seconds (None: timeouts.drain). Returns whether all finished."""
        notify("STOPPING=1")
        return await self._end(self.config.timeouts.drain if drain is None else drain)

    def stop_now(self) -> None:
        """Cuts off requests in flight; ends a `stop` that waits."""
        self._stopping_now = True
        self.workers.kill()
        self.controllers.replicas.kill_stopping()

    async def _end(self, drain: float, *, keep_adopted: bool = False, handed_over: bool = False) -> bool:
        """`keep_adopted`: earlier workers use them. `handed_over`: a successor has sockets and replicas."""
        self._ending = True
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._takeover.close()
        if self.admin is not None:
            await self.admin.stop(handed_over=handed_over)
        await self.fleet.quiesce()
        # Each worker first accepts what waits on its own, unless others listen on.
        self.listeners.close_all(handed_over=handed_over)
        done = await self.workers.drain(drain, sockets_shared=handed_over)
        await self.controllers.slo.end(self.workers.reports(), self.workers.retired, self.fleet.now())
        await self._wait_for_predecessor(drain)
        await self.fleet.stop()
        self.ledger.close()
        if not self.superseded.is_set():  # else they are the successor's
            await self.controllers.replicas.stop_all(keep_adopted=keep_adopted)
        await self.controllers.replicas.close()
        self._takeover.finish()
        return done

    async def finish_handover(self) -> bool:
        """After `superseded`. Returns whether all requests finished."""
        return await self._end(self.config.timeouts.drain, handed_over=True)

    async def hand_over(self) -> tuple[FleetState, list[socket.socket]]:
        """A successor takes our sockets and manages our replicas."""
        await self.controllers.replicas.hand_over()
        admin = self.admin.sockets() if self.admin is not None else []
        return take_snapshot(self.fleet), [*self.listeners.sockets(), *admin]

    async def take_back(self) -> None:
        """The successor did not start."""
        if not self._ending:
            await self.controllers.replicas.resume()

    def _open_history(self) -> None:
        wanted = self.config.history
        if wanted.enabled:
            history = HistoryStore(wanted.path or default_path(self._name()), wanted.retention)
            self.controllers.slo.begin(history, self.fleet.now())
            self._tasks.append(asyncio.create_task(self._load_stored_samples(history, time())))

    async def _load_stored_samples(self, history: HistoryStore, began: float) -> None:
        try:
            slices = await asyncio.to_thread(history.minutes, began - 2 * CHART_SECONDS)
            self.live_feed.stored = stored_samples(slices, began)
        except Exception:  # the gateway serves without it
            log.exception("the last minutes could not be read from the history")

    async def _wait_for_predecessor(self, seconds: float) -> None:
        """Its workers may still have requests on replicas that we took over."""
        until = self.fleet.now() + seconds
        while not self._takeover.predecessor_gone and not self._stopping_now and self.fleet.now() < until:
            await asyncio.sleep(PREDECESSOR_POLL_SECONDS)

    def _name(self) -> str:
        """A successor of the same name adopts our replicas."""
        return self.config.name or str(self.addresses[0])

    async def __aenter__(self) -> Supervisor:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    # ------------------------------------------------------------------ reload

    def request_reload(self) -> None:
        self._reload_wanted.set()

    async def reload(self) -> bool:
        """Reads the configuration again and rolls it out. If it is refused, the last good one stays."""
        return not await self.reload_config()

    async def reload_config(self) -> str:
        async with self.fleet.config_lock:
            notify_reloading()
            problem = await self._try_reload()
            notify("READY=1")
        if problem:
            log.error("the new configuration is refused, the last good one stays: %s", problem)
        return problem

    async def _try_reload(self) -> str:
        self._watch.mark_current()
        try:
            now = self.fleet.members.registry.config
            # In a thread: a large file takes seconds, and probes go on.
            wanted = now if self._reread is None else await asyncio.to_thread(self._reread)
            config, held_back = split_reloadable(wanted, now)
            if problem := await self.fleet.configure(config):
                return problem
        except SteelyardError as wrong:
            return str(wrong)
        except Exception as wrong:  # a user's file or policy may raise anything
            return f"{type(wrong).__name__}: {wrong}"
        self._reloaded(config)
        if held_back:
            log.warning("needs a restart: %s; all else in the new configuration is in force", held_back)
        return ""

    def _reloaded(self, config: Config) -> None:
        columns = self.fleet.members.active_config.columns
        self._watch.watch(self._watched())
        self._follow_admin(config)
        self.workers.prune(columns.table)
        self.workers.retry_now()
        if config.workers != self.workers.size:
            self.workers.replace_all(config.workers, config.timeouts.drain)
        log.info("reloaded: %s", summary(config))

    # ------------------------------------------------------------------ from the worker pool

    def initial_state(self) -> list[ToWorker]:
        """For a new worker: the configuration, and the state of every replica."""
        return [*self.fleet.members.active_config.initial_state(), *self.fleet.initial_state()]

    def worker_reported(self, report: WorkerReport) -> None:
        self.fleet.worker_reported(report)
        self.live_feed.tick(self.workers.reports(), self.fleet.now())

    def process_died(self, process: str, how: str) -> None:
        self.fleet.members.active_config.process_died(process, how)

    def row_released(self, row: int, *, adoptable: bool = False) -> None:
        if not self._ending:
            self.fleet.worker_exited(row, adoptable=adoptable)

    def process_applied(self, process: str, answer: Applied) -> None:
        if not self.fleet.members.active_config.acknowledged(process, answer) and answer.problem:
            log.error("%s rejected a valid configuration: %s", process, answer.problem)

    def _follow_admin(self, config: Config) -> None:
        if self.admin is not None:
            try:
                self.admin.follow(config.admin)
            except SteelyardError as problem:  # a token file that was just removed
                log.error("the admin API stays as it was: %s", problem)

    # ------------------------------------------------------------------ the admin API

    async def _open_admin(self) -> None:
        wanted = self.config.admin
        if wanted.listen == "":
            return
        from ..admin.server import AdminServer  # after the first worker started: the import takes a while

        operations = FleetAdmin(self.fleet, self.controllers, self.workers, self.reload_config, self.live_feed)
        admin = AdminServer(operations, wanted, self._takeover.inherited)
        try:
            await admin.start()
        except ListenError as problem:
            if wanted.listen is not None:
                raise
            log.warning("no admin API (--admin gives it another address): %s", problem)
            return
        self.admin = admin
        self.fleet.members.admin_address = admin.address

    # ------------------------------------------------------------------ periodic work

    async def _tick_forever(self) -> None:
        while True:
            await asyncio.sleep(TICK_SECONDS)
            try:
                self.workers.broadcast(Heartbeat())
                self.workers.kill_silent()
                if self._takeover.poll():
                    self.controllers.replicas.release_adopted()  # the predecessor has stopped using them
                self.fleet.tick()
                reports, now = self.workers.reports(), self.fleet.now()
                self.controllers.slo.update_and_store(reports, self.workers.retired, now)
                self.live_feed.tick(reports, now)
                self._update_alarms()
                self.workers.retired.prune(self.fleet.members.columns)
                if changed := self._watch.poll():
                    log.info("changed: %s", ", ".join(changed))
                    self.request_reload()
            except Exception:  # the next tick must come whatever happened
                log.exception("the check of the workers failed")

    def _update_alarms(self) -> None:
        fleet = self.fleet
        alarms = current_alarms(
            fleet,
            self.controllers.autoscaler.views(),
            fleet.members.discoverer.views(),
            self.controllers.placement.views(),
            fleet.now() - self.live_feed.started_at,
            self.workers.workers(),
            self.workers.unavailable_balancer(),
        )
        self._alarms.update(alarms, fleet.now())

    async def _reload_when_wanted(self) -> None:
        while True:
            await self._reload_wanted.wait()
            self._reload_wanted.clear()
            try:
                await self.reload()
            except Exception:  # later reloads must still be possible
                log.exception("the reload failed")

    def _watched(self) -> list[str | Path]:
        return [*self._files, *certificate_files(self.config)]
