"""The fleet: who belongs to it and how each replica stands, kept up to date and told to the workers.

Sources say who the replicas are (roster), probes how they are, workers what they learn with real requests. Here it all
comes together; each change goes to every worker as a small message, and to a new worker in its greeting.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import Protocol
from urllib.parse import quote

import msgspec

from ...addresses import Address, replica_address
from ...config import Config, DiscoveryConfig, HealthConfig, ModelConfig, ReplicaConfig
from ...config.rules.admin import gateway_address_error
from ...core.replica import Event, State
from ...link.handover import FleetState
from ...link.messages import (
    LoadReading,
    LoadReadings,
    MemberUpdate,
    OutOfMemory,
    ReplicaDemand,
    ReplicaEvent,
    ReplicaEvents,
    ReplicaFailure,
    ToWorker,
    WorkerReport,
)
from ...link.shared_ledger import SharedLedger
from ...protocols.load import EngineLoad
from ..autoscaling.autoscaler import Autoscaler
from ..discovery.manager import DiscoveryManager
from ..errors import BoardFullError
from ..health.load.scraper import LoadScraper
from ..health.probe import MISCONFIGURED, ProbeTarget
from ..health.prober import Prober
from ..observability.event_log import EventLog
from ..observability.replica_failures import ReplicaFailures
from ..observability.totals import ModelTotals, ReplicaTotals
from ..replicas.controller import ReplicaController
from ..slo.tracker import SloTracker
from ..takeover.fleet_snapshot import restore_snapshot
from .active_config import ActiveConfig
from .ejections import Ejections
from .memory_manager import MemoryManager
from .registrations import Registrations
from .registry import DISCOVERED, Member, ReplicaKey, ReplicaRegistry, difference
from .replica_manager import ReplicaManager
from .replica_status import ReplicaStatus

MAX_REPLICAS_LOGGED_AT_START = 20  # replicas
DEGRADED_STATES = (State.UNREACHABLE, State.LOADING)  # to come here from ready is worth a warning
UNPROBED_REASON = "not probed: it counts as ready"
PROGRESS_BATCH_SECONDS = 0.05  # seconds
PROGRESS_TIMEOUT_SECONDS = 0.5  # seconds for workers to say whether a replica goes on; the prober waits a little longer
MEMBERSHIP_BATCH_SECONDS = 0.05  # seconds between two changes of who belongs to the fleet
LOAD_READING_LIFETIME_INTERVALS = 3.0  # scrape intervals for which what a replica says of its load holds


class Workers(Protocol):
    """What the fleet needs of the worker pool."""

    def broadcast(self, message: ToWorker) -> list[int]: ...

    def reports(self) -> list[WorkerReport]: ...

    async def request_reports(self, seconds: float) -> bool: ...


class Fleet:
    def __init__(self, config: Config) -> None:
        self.registry = ReplicaRegistry(config)
        self.active_config = ActiveConfig(self.registry.effective_config(config))
        self.statuses: dict[ReplicaKey, ReplicaStatus] = {}
        self.events = EventLog()
        self.slo = SloTracker()
        self.failures = ReplicaFailures()
        self.registrations = Registrations(self)
        self.config_lock = asyncio.Lock()  # one change of the configuration at a time
        self.drained: set[ReplicaKey] = set()  # by an operator: it stays so until the operator says otherwise
        self.admin_address: Address | None = None  # where the admin API listens, once it does
        self.capacity_problem = ""  # in words, if replicas that were found or registered do not fit
        self._targets: dict[ReplicaKey, ProbeTarget] = {}
        self._rolling_out = False
        self._pending_models: set[str] = set()  # models whose replicas may have changed
        self._batch_timer: asyncio.TimerHandle | None = None
        self._changes: list[ReplicaEvent] = []
        self._readings: list[LoadReading] = []
        self.ejections = Ejections()
        self._progressing: set[ReplicaKey] = (
            set()
        )  # where requests run and make progress, as workers said when last asked
        self._asking: asyncio.Task[None] | None = None

    def restore(self, before: FleetState) -> None:
        """What the gateway knows that this one takes over from; before `begin`."""
        restore_snapshot(self, before, asyncio.get_running_loop().time())
        self.active_config = ActiveConfig(self.registry.effective_config(self.registry.config))

    async def start(
        self,
        workers: Workers,
        book: SharedLedger | None = None,
        name: str = "",
        *,
        spare: bool = False,
        heir_of: int = 0,
    ) -> None:
        """`name`: what this gateway is called, for replicas that an earlier one of that name had started; `spare`: its
        workers still use them; `heir_of`: its pid, if it lives and hands over."""
        self._workers = workers
        self._loop = asyncio.get_running_loop()
        self._ledger = SharedLedger.create(self.active_config.columns.columns) if book is None else book
        self.memory = MemoryManager(self, workers, self._ledger)
        self.replicas = ReplicaManager(self, workers, name)
        self.prober = Prober(self._transition, self._makes_progress)
        self.scraper = LoadScraper(self._load_reported, self.restarted)
        self.discoverer = DiscoveryManager(self._discovered)
        self.slo.config_changed(self.config)
        self._apply_members()
        self.discoverer.set_sources(_discovery_sources(self.registry.config))
        await self.replicas.start(spare=spare, heir_of=heir_of)

    async def quiesce(self) -> None:
        """Nobody new, and nothing is started. Who is there is still probed: requests may wait for a replica."""
        self.replicas.controller.pause()
        await self.discoverer.close()

    async def stop(self) -> None:
        """All but the replicas that it started: `upkeep.end`."""
        await self.quiesce()
        self.replicas.controller.stop_reporting()
        if self._batch_timer is not None:
            self._batch_timer.cancel()
        await self.memory.close()
        await asyncio.gather(self.prober.close(), self.scraper.close())
        self._ledger.close()

    @property
    def config(self) -> Config:
        """What is in force, with the replicas that were found and what operators changed."""
        return self.active_config.current.config

    @property
    def replica_controller(self) -> ReplicaController:
        return self.replicas.controller

    @property
    def autoscaler(self) -> Autoscaler:
        return self.replicas.autoscaler

    def now(self) -> float:
        return self._loop.time()

    def members(self) -> dict[ReplicaKey, Member]:
        return {(m, id): member for m in self.config.models for id, member in self.registry.members(m).items()}

    def ready(self) -> set[ReplicaKey]:
        return {key for key, standing in self.statuses.items() if standing.state is State.READY}

    # ------------------------------------------------------------------ the configuration

    async def configure(self, config: Config) -> str:
        """Put this in force, in all workers or in none. What is wrong with it, if it is refused."""
        effective = self.registry.effective_config(config)
        self._rolling_out = True
        self._apply_members(effective)
        self.flush()  # before workers know the new ones: what was seen of the old must not be taken for theirs
        try:
            problem = await self.active_config.roll_out(effective, self._broadcast_with_drains)
            if not problem:
                self.registry.set_config(config)
                self.discoverer.set_sources(_discovery_sources(config))
                self.registry.prune(config.models)
                self.registrations.prune_models()
        finally:
            self._rolling_out = False
            self._apply_members(configured=True)
            self._apply_pending()
            self.replicas.config_changed()
            self.slo.config_changed(self.config)
        return problem

    def _broadcast_with_drains(self, message: ToWorker) -> list[int]:
        """A replica that is another from now on may be ready at once; but not if an operator drains it."""
        told = self._workers.broadcast(message)
        if self.drained:
            self._workers.broadcast(ReplicaEvents(tuple(ReplicaEvent(*key, Event.DRAIN.value) for key in self.drained)))
        return told

    def refresh(self, model: str, *, at_once: bool = False) -> None:
        """Sources may name other replicas for this model now. At once, unless others did just now: a crowd that comes
        together is one change."""
        self._pending_models.add(model)
        if not self._rolling_out and (at_once or self._batch_timer is None):
            self._apply_pending()

    def _apply_pending(self) -> None:
        """Put in force what sources say of the models that wait for it."""
        waiting, self._pending_models = self._pending_models, set()
        for model in waiting:
            self._apply_model(model)
        if waiting and self._batch_timer is None:
            self._batch_timer = self._loop.call_later(MEMBERSHIP_BATCH_SECONDS, self._batch_over)

    def _batch_over(self) -> None:
        self._batch_timer = None
        if not self._rolling_out:
            self._apply_pending()

    def _apply_model(self, model: str) -> None:
        before = self.config.models.get(model)
        if before is None:
            return
        replicas = self.registry.model(model).replicas  # and nothing else: all else needs the workers' consent
        removed, added = difference(before.replicas, replicas)
        if not removed and not added:
            return
        try:
            message = self.active_config.set_replicas(model, replicas, removed, added)
        except BoardFullError as problem:
            self.capacity_problem = str(problem)
            self.events.record("replica", str(problem), model=model, level=logging.ERROR)
            return
        self.capacity_problem = ""
        self.flush()  # what was seen before is of those who were there before
        self._workers.broadcast(message)
        self._apply_members()
        self._record_members(model, before, message)

    def _record_members(self, model: str, before: ModelConfig, message: MemberUpdate) -> None:
        known = {replica.name for replica in before.replicas}
        for id in message.removed:
            self.events.record("replica", "removed", model=model, replica=id)
        for replica in message.added:
            what = "changed" if replica.name in known else f"added: {replica.url}"
            self.events.record("replica", what, model=model, replica=replica.name)

    def _apply_members(self, coming: Config | None = None, *, configured: bool = False) -> None:
        """Probe whoever belongs to the fleet; with a configuration that is coming, only who stays the same in it.

        `configured`: it came, or was refused.
        """
        now = self._loop.time()
        targets = _probe_targets(self.config)
        if coming is not None:
            later = _probe_targets(coming)
            targets = {key: target for key, target in targets.items() if _is_same_server(target, later.get(key))}
        for key in [key for key in self.statuses if not _is_same_server(self._targets[key], targets.get(key))]:
            del self.statuses[key]
            self.ejections.forget(key, now)
        self._targets = targets
        if coming is None:
            self.drained = {key for key in self.drained if key[0] in self.config.models}
        for key, target in targets.items():
            standing = self.statuses.get(key)
            if standing is None:
                standing = self.statuses[key] = ReplicaStatus(now)
                if key in self.drained:  # another server under its name: what the operator wants still holds
                    self._transition(key, Event.DRAIN, "an operator drains it")
                elif self.registrations.has_lapsed(key):
                    self.registrations.drain(key, "its lease ran out")
                elif configured:  # refused, workers have it as before: draining, maybe, and nobody told them otherwise
                    self._queue_change(ReplicaEvent(*key, Event.UNDRAIN.value))
            if not target.health.enabled and standing.state not in (State.READY, State.DRAINING):
                self._transition(key, Event.LOADED, UNPROBED_REASON)
        self.prober.set_targets(targets)
        self.scraper.set_targets(targets)
        if coming is None:
            self.memory.config_changed()

    # ------------------------------------------------------------------ how replicas are

    def transition(self, key: ReplicaKey, event: Event, why: str) -> None:
        """An operator's wish, or a replica's own."""
        self._transition(key, event, why)
        if event is Event.UNDRAIN:
            self.reprobe(key)

    def reprobe(self, key: ReplicaKey) -> None:
        """What was seen of it before does not count: it is ready when a probe that begins now has seen it so."""
        if key not in self.statuses:
            return
        if self.config.models[key[0]].health.enabled:
            self.prober.reprobe(key)
        else:
            self._transition(key, Event.LOADED, UNPROBED_REASON)

    def _transition(self, key: ReplicaKey, event: Event, why: str) -> None:
        standing = self.statuses.get(key)
        if standing is None:
            return
        before = standing.state
        changed = standing.apply(event, why, self._loop.time())
        if changed and event is Event.UNLOAD:
            self.prober.model_unloaded(key)
        if changed and event in (Event.LIVE, Event.LOST):
            self.ejections.forget(key, self._loop.time())
        if changed:
            is_bad = (before is State.READY and standing.state in DEGRADED_STATES) or why.startswith(MISCONFIGURED)
            level = logging.WARNING if is_bad else logging.INFO
            if before is State.STARTING and len(self.statuses) > MAX_REPLICAS_LOGGED_AT_START:
                level = logging.DEBUG  # a start of a large fleet needs no line for each
            what = f"{standing.state.value}: {why}"
            self.events.record("replica", what, model=key[0], replica=key[1], level=level)
        self._queue_change(ReplicaEvent(*key, event.value))
        if changed:
            self.memory.state_changed(key, standing.state)
            self.replicas.state_changed(key, standing.state)

    def _queue_change(self, change: ReplicaEvent) -> None:
        if not self._changes:
            self._loop.call_soon(self.flush)
        self._changes.append(change)

    def flush(self) -> None:
        """What happened in one turn of the loop goes out together."""
        if self._changes:
            changes, self._changes = self._changes, []
            self._workers.broadcast(ReplicaEvents(tuple(changes)))
        if self._readings:
            readings, self._readings = self._readings, []
            self._workers.broadcast(LoadReadings(tuple(readings)))

    def initial_state(self) -> list[ToWorker]:
        """How everybody stands, for a worker that is new."""
        now = self._loop.time()
        changes = [
            ReplicaEvent(*key, event.value)
            for key, standing in self.statuses.items()
            if (event := standing.replay_event()) is not None
        ]
        return [
            ReplicaEvents((*changes, *self.ejections.active(now))),
            *self.memory.initial_state(),
            *self.replicas.initial_state(),
        ]

    async def _makes_progress(self, key: ReplicaKey) -> bool:
        """Does what runs there go on, as far as workers can tell? Or did a byte come while the probe waited?"""
        if self._asking is None or self._asking.done():
            self._asking = asyncio.create_task(self._refresh_progress())
        await asyncio.shield(self._asking)
        return key in self._progressing

    async def _refresh_progress(self) -> None:
        await asyncio.sleep(PROGRESS_BATCH_SECONDS)  # many probes may fail at once: one question answers all
        await self._workers.request_reports(PROGRESS_TIMEOUT_SECONDS)
        models = self.config.models
        patience = {
            name: model.health.timeout + 2 * PROGRESS_BATCH_SECONDS for name, model in models.items()
        }  # since the probe began
        self._progressing = {
            (r.model, r.id)
            for report in self._workers.reports()
            for r in report.replicas
            if (r.in_flight and not r.overdue) or r.silent_for <= patience.get(r.model, 0.0)
        }

    def worker_notice(self, message: ReplicaFailure | ReplicaDemand | OutOfMemory) -> None:
        """A worker had trouble with a replica, or wants one."""
        if isinstance(message, ReplicaDemand):
            self.memory.model_requested(message)
            self.replicas.model_requested(message)
            return
        if isinstance(message, OutOfMemory):
            self.memory.out_of_memory(message)
            return
        key = (message.model, message.id)
        if key not in self.statuses:
            return
        if message.refused:
            self._transition(key, Event.LOST, "connection refused")
            self.prober.reprobe(key)
        else:
            self.prober.probe_now(key)

    def worker_reported(self, report: WorkerReport) -> None:
        """A worker reported."""
        reports = self._workers.reports()
        self._record_ejections(reports)
        self.memory.worker_reported(report)
        self.replicas.worker_reported()
        if len(reports) > 1 and (found := self.ejections.propagate(reports, self.config.models, self._loop.time())):
            self.flush()
            self._workers.broadcast(ReplicaEvents(tuple(found)))

    def _record_ejections(self, reports: list[WorkerReport]) -> None:
        now = self._loop.time()
        began, ended = self.ejections.update(reports, now)
        for key, ejected in ended.items():
            if key in self.statuses:
                what = f"no longer ejected, after {now - ejected.since:.0f} s"
                self.events.record("replica", what, model=key[0], replica=key[1])
        for key, ejected in began.items():
            what = f"ejected for {ejected.seconds:.0f} s: {ejected.reason}"
            self.events.record("replica", what, model=key[0], replica=key[1], level=logging.WARNING)

    # ------------------------------------------------------------------ what replicas say of themselves

    def _load_reported(self, key: ReplicaKey, load: EngineLoad) -> None:
        model = self.config.models.get(key[0])
        if key in self.statuses:
            self.memory.load_reported(key, load)
        if load.requests is None or model is None or key not in self.statuses:
            return
        if not self._readings and not self._changes:
            self._loop.call_soon(self.flush)
        self._readings.append(LoadReading(*key, load.requests, LOAD_READING_LIFETIME_INTERVALS * model.load.interval))

    def restarted(self, key: ReplicaKey) -> None:
        """It is another process than before."""
        if key in self.statuses:
            self._transition(key, Event.LIVE, "restarted")
            self.reprobe(key)

    # ------------------------------------------------------------------ who belongs to it

    def _discovered(self, model: str, replicas: tuple[ReplicaConfig, ...]) -> None:
        taken = []
        for replica in replicas:
            what = gateway_address_error(replica_address(replica.url), self.config, self.admin_address)
            if what:
                said = f"discovery names {replica.url}, which is not taken: {what}"
                self.events.record("replica", said, model=model, level=logging.WARNING)
            else:
                taken.append(replica)
        self.registry.set_source(DISCOVERED, model, taken)
        self.refresh(model)

    def tick(self) -> None:
        """What time alone brings about; to be called a few times a second."""
        self.registrations.tick(self._loop.time())
        self.memory.tick(self._loop.time())
        self.replicas.tick(self._loop.time())

    def update_failures(self, totals: tuple[Mapping[str, ModelTotals], Mapping[ReplicaKey, ReplicaTotals]]) -> None:
        """What all workers counted so far; about once a second."""
        self.failures.update(totals[1], self._loop.time())

    def busy_replicas(self) -> set[ReplicaKey]:
        """Where requests run, as workers last reported."""
        return {(r.model, r.id) for report in self._workers.reports() for r in report.replicas if r.in_flight}


def _probe_targets(config: Config) -> dict[ReplicaKey, ProbeTarget]:
    return {
        (name, replica.name): ProbeTarget(
            name, replica, model.dialect, _health_settings(name, model), model.load, model.tls
        )
        for name, model in config.models.items()
        for replica in model.replicas
    }


def _health_settings(name: str, model: ModelConfig) -> HealthConfig:
    """A server with our kit that loads models on demand is ready for one of them only if that one is loaded."""
    if model.placement is None or model.placement.through != "kit" or model.health.path:
        return model.health
    return msgspec.structs.replace(model.health, path=f"/steelyard/models/{quote(name, safe='')}/ready")


def _is_same_server(target: ProbeTarget, later: ProbeTarget | None) -> bool:
    """Is it the same to workers? Else they forget it, and begin with another under its name."""
    return later is not None and target.is_same_server(later)


def _discovery_sources(config: Config) -> dict[str, tuple[DiscoveryConfig, ...]]:
    return {name: model.discovery for name, model in config.models.items() if model.discovery}
