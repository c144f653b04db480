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

from ..addresses import Address, replica_address
from ..config import Config, Discovery, Health, ModelConfig, ReplicaConfig
from ..config.own_rules import own_place
from ..core.replica import Event, State
from ..link.book import Book
from ..link.handover import FleetState
from ..link.messages import (
    Change,
    Changes,
    Members,
    RanOut,
    Reading,
    Readings,
    Report,
    ToWorker,
    Trouble,
    Wanted,
)
from ..protocols.load import EngineLoad
from .chronicle import Chronicle
from .discovery.discoverer import Discoverer
from .ejections import Ejections
from .errors import SlotsError
from .fleet_state import restore
from .holdings import Holdings
from .in_force import InForce
from .probing.prober import Prober
from .probing.scraper import Scraper
from .probing.seen import MISCONFIGURED
from .probing.target import Target
from .registrations import Registrations
from .replica_failures import ReplicaFailures
from .roster import FOUND, Key, Member, Roster, difference
from .scaling.autoscaler import Autoscaler
from .slo.keeping import Keeping
from .standing import Standing
from .starting.keeper import Keeper
from .status import ModelStatus, ReplicaStatus
from .upkeep import Upkeep

FEW = 20  # replicas
LOSSES = (State.UNREACHABLE, State.LOADING)  # to come here from ready is worth a warning
UNPROBED = "not probed: it counts as ready"
TOGETHER = 0.05  # seconds
ANSWER = 0.5  # seconds for workers to say whether a replica goes on; the prober waits a little longer
GATHER = 0.05  # seconds between two changes of who belongs to the fleet
LASTING = 3.0  # scrape intervals for which what a replica says of its load holds


class Workers(Protocol):
    """What the fleet needs of the crew."""

    def broadcast(self, message: ToWorker) -> list[int]: ...

    def reports(self) -> list[Report]: ...

    async def tell(self, seconds: float) -> bool: ...


class Fleet:
    def __init__(self, config: Config) -> None:
        self.roster = Roster(config)
        self.in_force = InForce(self.roster.effective(config))
        self.standings: dict[Key, Standing] = {}
        self.chronicle = Chronicle()
        self.slo = Keeping()
        self.failures = ReplicaFailures()
        self.registrations = Registrations(self)
        self.changing = asyncio.Lock()  # one change of the configuration at a time
        self.drained: set[Key] = set()  # by an operator: it stays so until the operator says otherwise
        self.admin_address: Address | None = None  # where the admin API listens, once it does
        self.too_many = ""  # in words, if replicas that were found or registered do not fit
        self._followed: dict[Key, Target] = {}
        self._rolling = False
        self._waiting: set[str] = set()  # models whose replicas may have changed
        self._gathering: asyncio.TimerHandle | None = None
        self._changes: list[Change] = []
        self._readings: list[Reading] = []
        self.ejections = Ejections()
        self._going_on: set[Key] = set()  # where requests run and make progress, as workers said when last asked
        self._asking: asyncio.Task[None] | None = None

    def restore(self, before: FleetState) -> None:
        """What the gateway knows that this one takes over from; before `begin`."""
        restore(self, before, asyncio.get_running_loop().time())
        self.in_force = InForce(self.roster.effective(self.roster.config))

    async def begin(
        self, workers: Workers, book: Book | None = None, name: str = "", *, spare: bool = False, heir_of: int = 0
    ) -> None:
        """`name`: what this gateway is called, for replicas that an earlier one of that name had started; `spare`: its
        workers still use them; `heir_of`: its pid, if it lives and hands over."""
        self._workers = workers
        self._loop = asyncio.get_running_loop()
        self._book = Book.create(self.in_force.slots.columns) if book is None else book
        self.holdings = Holdings(self, workers, self._book)
        self.upkeep = Upkeep(self, workers, name)
        self.prober = Prober(self._move, self._progresses)
        self.scraper = Scraper(self._heard_load, self.restarted)
        self.discoverer = Discoverer(self._found)
        self.slo.follow(self.config)
        self._follow()
        self.discoverer.follow(_sources(self.roster.config))
        await self.upkeep.begin(spare=spare, heir_of=heir_of)

    async def rest(self) -> None:
        """Nobody new, and nothing is started. Who is there is still probed: requests may wait for a replica."""
        self.upkeep.keeper.rest()
        await self.discoverer.close()

    async def end(self) -> None:
        """All but the replicas that it started: `upkeep.end`."""
        await self.rest()
        self.upkeep.keeper.fall_silent()
        if self._gathering is not None:
            self._gathering.cancel()
        await self.holdings.close()
        await asyncio.gather(self.prober.close(), self.scraper.close())
        self._book.close()

    @property
    def config(self) -> Config:
        """What is in force, with the replicas that were found and what operators changed."""
        return self.in_force.good.config

    @property
    def starting(self) -> Keeper:
        return self.upkeep.keeper

    @property
    def scaling(self) -> Autoscaler:
        return self.upkeep.autoscaler

    def now(self) -> float:
        return self._loop.time()

    def members(self) -> dict[Key, Member]:
        return {(m, id): member for m in self.config.models for id, member in self.roster.members(m).items()}

    def ready(self) -> set[Key]:
        return {key for key, standing in self.standings.items() if standing.state is State.READY}

    # ------------------------------------------------------------------ the configuration

    async def configure(self, config: Config) -> str:
        """Put this in force, in all workers or in none. What is wrong with it, if it is refused."""
        effective = self.roster.effective(config)
        self._rolling = True
        self._follow(effective)
        self.flush()  # before workers know the new ones: what was seen of the old must not be taken for theirs
        try:
            problem = await self.in_force.change(effective, self._tell_with_drains)
            if not problem:
                self.roster.use(config)
                self.discoverer.follow(_sources(config))
                self.roster.forget(config.models)
                self.registrations.forget_models()
        finally:
            self._rolling = False
            self._follow(configured=True)
            self._regroup()
            self.upkeep.follow()
            self.slo.follow(self.config)
        return problem

    def _tell_with_drains(self, message: ToWorker) -> list[int]:
        """A replica that is another from now on may be ready at once; but not if an operator drains it."""
        told = self._workers.broadcast(message)
        if self.drained:
            self._workers.broadcast(Changes(tuple(Change(*key, Event.DRAIN.value) for key in self.drained)))
        return told

    def refresh(self, model: str, *, at_once: bool = False) -> None:
        """Sources may name other replicas for this model now. At once, unless others did just now: a crowd that comes
        together is one change."""
        self._waiting.add(model)
        if not self._rolling and (at_once or self._gathering is None):
            self._regroup()

    def _regroup(self) -> None:
        """Put in force what sources say of the models that wait for it."""
        waiting, self._waiting = self._waiting, set()
        for model in waiting:
            self._regroup_one(model)
        if waiting and self._gathering is None:
            self._gathering = self._loop.call_later(GATHER, self._gathered)

    def _gathered(self) -> None:
        self._gathering = None
        if not self._rolling:
            self._regroup()

    def _regroup_one(self, model: str) -> None:
        before = self.config.models.get(model)
        if before is None:
            return
        replicas = self.roster.model(model).replicas  # and nothing else: all else needs the workers' consent
        removed, added = difference(before.replicas, replicas)
        if not removed and not added:
            return
        try:
            message = self.in_force.regroup(model, replicas, removed, added)
        except SlotsError as problem:
            self.too_many = str(problem)
            self.chronicle.note("replica", str(problem), model=model, level=logging.ERROR)
            return
        self.too_many = ""
        self.flush()  # what was seen before is of those who were there before
        self._workers.broadcast(message)
        self._follow()
        self._note_members(model, before, message)

    def _note_members(self, model: str, before: ModelConfig, message: Members) -> None:
        known = {replica.name for replica in before.replicas}
        for id in message.removed:
            self.chronicle.note("replica", "removed", model=model, replica=id)
        for replica in message.added:
            what = "changed" if replica.name in known else f"added: {replica.url}"
            self.chronicle.note("replica", what, model=model, replica=replica.name)

    def _follow(self, coming: Config | None = None, *, configured: bool = False) -> None:
        """Probe whoever belongs to the fleet; with a configuration that is coming, only who stays the same in it.

        `configured`: it came, or was refused.
        """
        now = self._loop.time()
        targets = _targets(self.config)
        if coming is not None:
            later = _targets(coming)
            targets = {key: target for key, target in targets.items() if _stays(target, later.get(key))}
        for key in [key for key in self.standings if not _stays(self._followed[key], targets.get(key))]:
            del self.standings[key]
            self.ejections.forget(key, now)
        self._followed = targets
        if coming is None:
            self.drained = {key for key in self.drained if key[0] in self.config.models}
        for key, target in targets.items():
            standing = self.standings.get(key)
            if standing is None:
                standing = self.standings[key] = Standing(now)
                if key in self.drained:  # another server under its name: what the operator wants still holds
                    self._move(key, Event.DRAIN, "an operator drains it")
                elif self.registrations.has_lapsed(key):
                    self.registrations.leaves(key, "its lease ran out")
                elif configured:  # refused, workers have it as before: draining, maybe, and nobody told them otherwise
                    self._tell(Change(*key, Event.UNDRAIN.value))
            if not target.health.enabled and standing.state not in (State.READY, State.DRAINING):
                self._move(key, Event.LOADED, UNPROBED)
        self.prober.follow(targets)
        self.scraper.follow(targets)
        if coming is None:
            self.holdings.follow()

    # ------------------------------------------------------------------ how replicas are

    def move(self, key: Key, event: Event, why: str) -> None:
        """An operator's wish, or a replica's own."""
        self._move(key, event, why)
        if event is Event.UNDRAIN:
            self.see_anew(key)

    def see_anew(self, key: Key) -> None:
        """What was seen of it before does not count: it is ready when a probe that begins now has seen it so."""
        if key not in self.standings:
            return
        if self.config.models[key[0]].health.enabled:
            self.prober.see_anew(key)
        else:
            self._move(key, Event.LOADED, UNPROBED)

    def _move(self, key: Key, event: Event, why: str) -> None:
        standing = self.standings.get(key)
        if standing is None:
            return
        before = standing.state
        changed = standing.take(event, why, self._loop.time())
        if changed and event is Event.UNLOAD:
            self.prober.unloaded(key)
        if changed and event in (Event.LIVE, Event.LOST):
            self.ejections.forget(key, self._loop.time())
        if changed:
            is_bad = (before is State.READY and standing.state in LOSSES) or why.startswith(MISCONFIGURED)
            level = logging.WARNING if is_bad else logging.INFO
            if before is State.STARTING and len(self.standings) > FEW:
                level = logging.DEBUG  # a start of a large fleet needs no line for each
            what = f"{standing.state.value}: {why}"
            self.chronicle.note("replica", what, model=key[0], replica=key[1], level=level)
        self._tell(Change(*key, event.value))
        if changed:
            self.holdings.standing(key, standing.state)
            self.upkeep.standing(key, standing.state)

    def _tell(self, change: Change) -> None:
        if not self._changes:
            self._loop.call_soon(self.flush)
        self._changes.append(change)

    def flush(self) -> None:
        """What happened in one turn of the loop goes out together."""
        if self._changes:
            changes, self._changes = self._changes, []
            self._workers.broadcast(Changes(tuple(changes)))
        if self._readings:
            readings, self._readings = self._readings, []
            self._workers.broadcast(Readings(tuple(readings)))

    def so_far(self) -> list[ToWorker]:
        """How everybody stands, for a worker that is new."""
        now = self._loop.time()
        changes = [
            Change(*key, event.value)
            for key, standing in self.standings.items()
            if (event := standing.replayed()) is not None
        ]
        return [Changes((*changes, *self.ejections.in_force(now))), *self.holdings.so_far(), *self.upkeep.so_far()]

    async def _progresses(self, key: Key) -> bool:
        """Does what runs there go on, as far as workers can tell? Or did a byte come while the probe waited?"""
        if self._asking is None or self._asking.done():
            self._asking = asyncio.create_task(self._ask_workers())
        await asyncio.shield(self._asking)
        return key in self._going_on

    async def _ask_workers(self) -> None:
        await asyncio.sleep(TOGETHER)  # many probes may fail at once: one question answers all
        await self._workers.tell(ANSWER)
        models = self.config.models
        patience = {
            name: model.health.timeout + 2 * TOGETHER for name, model in models.items()
        }  # since the probe began
        self._going_on = {
            (r.model, r.id)
            for report in self._workers.reports()
            for r in report.replicas
            if (r.in_flight and not r.overdue) or r.silent_for <= patience.get(r.model, 0.0)
        }

    def trouble(self, message: Trouble | Wanted | RanOut) -> None:
        """A worker had trouble with a replica, or wants one."""
        if isinstance(message, Wanted):
            self.holdings.wanted(message)
            self.upkeep.wanted(message)
            return
        if isinstance(message, RanOut):
            self.holdings.ran_out(message)
            return
        key = (message.model, message.id)
        if key not in self.standings:
            return
        if message.refused:
            self._move(key, Event.LOST, "connection refused")
            self.prober.see_anew(key)
        else:
            self.prober.look_now(key)

    def heard(self, report: Report) -> None:
        """A worker reported."""
        reports = self._workers.reports()
        self._note_ejections(reports)
        self.holdings.reported(report)
        self.upkeep.reported()
        if len(reports) > 1 and (found := self.ejections.hear(reports, self.config.models, self._loop.time())):
            self.flush()
            self._workers.broadcast(Changes(tuple(found)))

    def _note_ejections(self, reports: list[Report]) -> None:
        now = self._loop.time()
        began, ended = self.ejections.take_in(reports, now)
        for key, ejected in ended.items():
            if key in self.standings:
                what = f"no longer ejected, after {now - ejected.since:.0f} s"
                self.chronicle.note("replica", what, model=key[0], replica=key[1])
        for key, ejected in began.items():
            what = f"ejected for {ejected.seconds:.0f} s: {ejected.reason}"
            self.chronicle.note("replica", what, model=key[0], replica=key[1], level=logging.WARNING)

    # ------------------------------------------------------------------ what replicas say of themselves

    def _heard_load(self, key: Key, load: EngineLoad) -> None:
        model = self.config.models.get(key[0])
        if key in self.standings:
            self.holdings.heard(key, load)
        if load.requests is None or model is None or key not in self.standings:
            return
        if not self._readings and not self._changes:
            self._loop.call_soon(self.flush)
        self._readings.append(Reading(*key, load.requests, LASTING * model.load.interval))

    def restarted(self, key: Key) -> None:
        """It is another process than before."""
        if key in self.standings:
            self._move(key, Event.LIVE, "restarted")
            self.see_anew(key)

    # ------------------------------------------------------------------ who belongs to it

    def _found(self, model: str, replicas: tuple[ReplicaConfig, ...]) -> None:
        taken = []
        for replica in replicas:
            what = own_place(replica_address(replica.url), self.config, self.admin_address)
            if what:
                said = f"discovery names {replica.url}, which is not taken: {what}"
                self.chronicle.note("replica", said, model=model, level=logging.WARNING)
            else:
                taken.append(replica)
        self.roster.tell(FOUND, model, taken)
        self.refresh(model)

    def tick(self) -> None:
        """What time alone brings about; to be called a few times a second."""
        self.registrations.tick(self._loop.time())
        self.holdings.tick(self._loop.time())
        self.upkeep.tick(self._loop.time())

    def beat(self, totals: tuple[Mapping[str, ModelStatus], Mapping[Key, ReplicaStatus]]) -> None:
        """What all workers counted so far; about once a second."""
        self.failures.take_in(totals[1], self._loop.time())

    def running(self) -> set[Key]:
        """Where requests run, as workers last reported."""
        return {(r.model, r.id) for report in self._workers.reports() for r in report.replicas if r.in_flight}


def _targets(config: Config) -> dict[Key, Target]:
    return {
        (name, replica.name): Target(name, replica, model.dialect, _health(name, model), model.load, model.tls)
        for name, model in config.models.items()
        for replica in model.replicas
    }


def _health(name: str, model: ModelConfig) -> Health:
    """A server with our kit that loads models on demand is ready for one of them only if that one is loaded."""
    if model.placement is None or model.placement.through != "kit" or model.health.path:
        return model.health
    return msgspec.structs.replace(model.health, path=f"/steelyard/models/{quote(name, safe='')}/ready")


def _stays(target: Target, later: Target | None) -> bool:
    """Is it the same to workers? Else they forget it, and begin with another under its name."""
    return later is not None and target.is_same_server(later)


def _sources(config: Config) -> dict[str, tuple[Discovery, ...]]:
    return {name: model.discovery for name, model in config.models.items() if model.discovery}
