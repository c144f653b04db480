"""Loads and unloads models: collects demand and room, lets `core.placement` decide, runs the jobs.

The cost of a decision limits how often one is made: thousands of models must not keep the event loop busy.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from time import monotonic  # the loop's own clock only ticks once in its turn

from ...config import Config
from ...core.placement.planner import LoadDecision, PlacementPlanner
from ...core.replica import Event, State
from ...link.messages import Apply, ReplicaDemand, StartProgress
from ..fleet.observer import FleetControl, FleetObserver
from ..fleet.registry import ReplicaKey
from ..memory import MemoryAccounting
from ..observability.views import Alarm, PlacementView
from .decision_inputs import model_demands, server_room
from .hosts import CopyPhase, Host, Hosts, ManagedCopy
from .index_poller import IndexPoller, IndexReconciler
from .job_runner import JobRunner
from .model_demand import DemandSignals, ReportedDemand
from .orphan_unloader import OrphanUnloader
from .views import UnplaceableModels, placement_alarms, placement_view

MIN_DECISION_INTERVAL_SECONDS = 0.02
DECISION_COST_MULTIPLE = 9.0  # the pause after a decision, in multiples of its time
FIRST_INDEX_SECONDS = 3.0  # for the first index of a new server: nothing is decided before
LOST_STATES = (State.UNREACHABLE, State.LOADING, State.STARTING)  # of a resident copy: poll the index, it may be gone
SERVING_STATES = (State.LOADING, State.READY, State.EJECTED)  # wrong for a copy that is not loaded
ABSENT_PHASES = (CopyPhase.ABSENT, CopyPhase.DRAINING, CopyPhase.UNLOADING)

log = logging.getLogger("steelyard.control.placement")


class PlacementController(FleetObserver):
    def __init__(
        self,
        fleet: FleetControl,
        memory: MemoryAccounting,
        demand: Callable[[float], Mapping[str, ReportedDemand]],
        *,
        placement: PlacementPlanner | None = None,
    ) -> None:
        self._fleet = fleet
        self._memory = memory
        self._demand = demand
        self._loop = asyncio.get_running_loop()
        self._clock = fleet.now
        self._placement = placement or PlacementPlanner()
        self._job_runner = JobRunner(fleet, memory, lambda: self.tick(fleet.now()))
        self.orphan_unloader = OrphanUnloader(fleet)
        self._shortages = UnplaceableModels()
        self._signals = DemandSignals()
        self._hosts = Hosts()
        self._index_poller = IndexPoller(IndexReconciler(fleet, memory, self._too_much), self._polled, fleet.now)
        self._decision_timer: asyncio.TimerHandle | None = None
        self._running: Mapping[ReplicaKey, int] = {}  # requests in flight at the last decision
        self._next_decision_at = 0.0
        self._closed = False

    def members_changed(self, active: Apply, now: float) -> None:
        config = active.config
        change = self._hosts.set_config(config, now)
        for copy in change.gone:
            self._drop(copy, config)
        for host in change.empty:
            self._index_poller.forget(host)
        for copy in change.fresh:  # no requests before the index was read and its bytes are counted
            self.orphan_unloader.cancel(copy)
            self._fleet.transition(copy.key, Event.UNLOAD, "not known yet whether it is loaded")
            self._index_poller.poll_soon(copy.host)
        self._job_runner.load_times.keep(self._hosts.models)
        self._job_runner.backoff.keep(self._hosts.copies)
        self.tick(now)

    def model_requested(self, message: ReplicaDemand, now: float) -> None:
        if message.model in self._hosts.models:
            self._signals.signalled(message, now)
            self._decide_soon()

    def state_changed(self, key: ReplicaKey, state: State, now: float) -> None:
        copy = self._hosts.copies.get(key)
        if copy is None:
            return
        copy.replica_state = state
        if state is State.READY:
            self._signals.served(copy.model, now)
        if copy.phase in ABSENT_PHASES and state in SERVING_STATES:  # after an operator's undrain, or as a new member
            self._fleet.transition(key, Event.UNLOAD, "not loaded")
        elif (copy.phase is CopyPhase.RESIDENT and state in LOST_STATES) or (
            not copy.host.known and state not in LOST_STATES
        ):
            self._index_poller.poll_soon(copy.host)

    def request(self, key: ReplicaKey, *, load: bool) -> str:
        """An operator's order to load or unload. Returns why it is refused; otherwise the job has started."""
        copy = self._hosts.copies.get(key)
        if copy is None:
            return f"{key[0]} is not loaded on demand"
        if not copy.host.known or copy.host.busy or copy.phase not in (CopyPhase.ABSENT, CopyPhase.RESIDENT):
            problem = copy.host.problem or "it is loading or unloading a model"
            return f"{copy.host.name} cannot be asked now: {problem}"
        if load is (copy.phase is CopyPhase.RESIDENT):
            return f"{copy.model} is {'loaded' if load else 'not loaded'} there already"
        if not load and copy.settings.pinned:
            return f"{copy.model} is pinned: it would be loaded again at once"
        self._job_runner.start(copy if load else None, [] if load else [copy], "an operator wants it")
        return ""

    def tick(self, now: float) -> None:
        for host in self._hosts.hosts.values():
            self._index_poller.poll_if_due(host, now)
        self._decide_soon()

    def initial_state(self) -> list[StartProgress]:
        return self._job_runner.loads_in_progress()

    def views(self) -> PlacementView:
        return placement_view(self._hosts, self._job_runner, self._clock())

    def alarms(self, now: float) -> list[Alarm]:
        alarms = placement_alarms(self._hosts, self._job_runner.backoff, self.orphan_unloader, now)
        return [*alarms, *self._shortages.alarms(now)]

    async def stopped(self) -> None:
        """Returns when no job runs any more. Servers keep their models."""
        self._closed = True
        if self._decision_timer is not None:
            self._decision_timer.cancel()
        for copy in self._hosts.copies.values():
            copy.removed = True
        await asyncio.gather(self._index_poller.close(), self._job_runner.close(), self.orphan_unloader.close())

    # ------------------------------------------------------------------ decisions

    def _decide_soon(self) -> None:
        if self._decision_timer is None and not self._closed:
            self._decision_timer = self._loop.call_at(max(self._clock(), self._next_decision_at), self._run_decision)

    def _run_decision(self) -> None:
        self._decision_timer = None
        began = monotonic()
        now = self._clock()
        if not self._hosts.has_unpolled(now - FIRST_INDEX_SECONDS):  # an unknown server may hold models
            try:
                for load in self._decided(now):
                    self._begin(load, now)
            except Exception:  # one failed decision must not stop the next
                log.exception("placement failed")
        pause = max(MIN_DECISION_INTERVAL_SECONDS, DECISION_COST_MULTIPLE * (monotonic() - began))
        self._next_decision_at = self._clock() + pause

    def _decided(self, now: float) -> list[LoadDecision]:
        memory, running = self._memory, self._fleet.in_flight()
        self._running = running
        free, backoff = memory.free_bytes(), self._job_runner.backoff
        known = [host for host in self._hosts.hosts.values() if host.known]
        if not known:
            self._shortages = UnplaceableModels()
            return []
        servers = [server_room(host, memory, free, backoff, running, now) for host in known]
        demand = self._signals.current(now, self._demand(now))
        wanted = model_demands(self._hosts.copies.values(), demand, memory, self._job_runner.load_times)
        loads = self._placement.decide(servers, free, wanted, now)
        self._shortages.update(servers, free, memory.budgets(), wanted, loads, now)
        return loads

    # ------------------------------------------------------------------ loads

    def _begin(self, load: LoadDecision, now: float) -> None:
        """Skipped if something changed since the decision."""
        coming = self._hosts.find(load.server, load.model)
        going = [self._hosts.find(server, model) for server, model in load.evict]
        victims = [v for v in going if v is not None and v.phase is CopyPhase.RESIDENT and not v.settings.pinned]
        if coming is None or coming.phase is not CopyPhase.ABSENT or len(victims) < len(going):
            return
        if self._job_runner.backoff.may_try(coming.key, now):
            self._job_runner.start(coming, victims, load.reason)

    def _too_much(self, copy: ManagedCopy) -> None:
        """A copy loaded by others exceeds its device: unloads it."""
        if not copy.host.busy and self._job_runner.backoff.may_try(copy.key, self._clock()):
            reason = f"it was found there, and {copy.host.device or copy.host.name} has no room for it"
            self._fleet.record("placement", f"to be unloaded: {reason}", *copy.key)
            self._job_runner.start(None, [copy], reason)

    def _polled(self, host: Host) -> None:
        for copy in host.copies.values():
            if copy.phase is CopyPhase.RESIDENT:  # by us or by others
                self._job_runner.backoff.succeeded(copy.key)
        self._decide_soon()

    def _drop(self, copy: ManagedCopy, config: Config) -> None:
        """It left the configuration: its job ends, and what we loaded is unloaded unless the server itself left."""
        copy.removed = True
        self._job_runner.cancel_for(copy)
        copy.release(self._memory)
        model = config.models.get(copy.model)
        if model is not None and model.placement is None:  # from now on its probes decide
            self._fleet.transition(copy.key, Event.LOAD, "no longer loaded on demand")
            self._fleet.reprobe(copy.key)
        elif (same := copy.host.copies.get(copy.model)) is not None:
            same.loaded_by_us = copy.loaded_by_us
        elif copy.loaded_by_us and (model is None or copy.host.copies):
            self.orphan_unloader.schedule(copy, copy.key in self._running)
