"""The placer: hears what is wanted, lets core.placement decide, and carries it out, one thing at a time a server."""

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
from .index_poller import IndexPoller
from .index_reconciler import IndexReconciler
from .job import PlacementJob
from .job_runner import JobRunner
from .model_demand import DemandSignals, ReportedDemand
from .orphan_unloader import OrphanUnloader
from .shortages import UnplaceableModels
from .views import placement_alarms, placement_view

MIN_DECISION_INTERVAL_SECONDS = 0.02  # seconds between two thoughts, however often somebody calls
DECISION_COST_MULTIPLE = (
    9.0  # and so many times what the last one took: with thousands of models it must not keep the loop busy
)
FIRST_INDEX_SECONDS = 3.0  # seconds for the first look at a new server: until then nothing is decided
LOST_STATES = (State.UNREACHABLE, State.LOADING, State.STARTING)  # of one that is resident: is it still?
SERVING_STATES = (
    State.LOADING,
    State.READY,
    State.EJECTED,
)  # of one that is not loaded: workers should not believe that
ABSENT_PHASES = (CopyPhase.ABSENT, CopyPhase.DRAINING, CopyPhase.UNLOADING)

log = logging.getLogger("steelyard.control.placement")


class PlacementController(FleetObserver):
    """To be made and used inside a running loop."""

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
        self._clock = self._loop.time
        self._placement = placement or PlacementPlanner()
        self._job_runner = JobRunner(fleet, memory, self._ended, self._clock)
        self.orphan_unloader = OrphanUnloader(fleet, self._clock)
        self._shortages = UnplaceableModels()
        self._wishes = DemandSignals()
        self._hosts = Hosts()
        self._looks = IndexPoller(IndexReconciler(fleet, memory, self._too_much), self._looked, self._clock)
        self._thinks_at: asyncio.TimerHandle | None = None
        self._running: Mapping[ReplicaKey, int] = {}  # requests there when that was last asked
        self._rested = 0.0  # it may think again
        self._closed = False

    # ------------------------------------------------------------------ what others tell

    def members_changed(self, active: Apply, now: float) -> None:
        """Takes the models that have `placement`, and their servers."""
        config = active.config
        change = self._hosts.follow(config, now)
        for copy in change.gone:
            self._drop(copy, config)
        for host in change.empty:
            self._looks.forget(host)
        for copy in change.fresh:  # whether it is there has to be seen, and its bytes counted, before it gets anything
            self.orphan_unloader.cancel(copy)
            self._fleet.transition(copy.key, Event.UNLOAD, "not known yet whether it is loaded")
            self._looks.poll_soon(copy.host)
        self._job_runner.load_times.keep(self._hosts.models)
        self._job_runner.backoff.keep(self._hosts.copies)
        self.tick(now)

    def model_requested(self, message: ReplicaDemand, now: float) -> None:
        if message.model in self._hosts.models:
            self._wishes.signalled(message, now)
            self._think_soon()

    def state_changed(self, key: ReplicaKey, state: State, now: float) -> None:
        copy = self._hosts.copies.get(key)
        if copy is None:
            return
        copy.replica_state = state
        if state is State.READY:
            self._wishes.served(copy.model, now)
        if (
            copy.phase in ABSENT_PHASES and state in SERVING_STATES
        ):  # an operator ended a drain, or the fleet began with it anew
            self._fleet.transition(key, Event.UNLOAD, "not loaded")
        elif (copy.phase is CopyPhase.RESIDENT and state in LOST_STATES) or (
            not copy.host.known and state not in LOST_STATES
        ):
            self._looks.poll_soon(copy.host)

    def request(self, key: ReplicaKey, *, load: bool) -> str:
        """An operator wants it loaded there, or unloaded. Why not, if it cannot be; it only begins now."""
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
        """What time alone brings about; to be called a few times a second."""
        for host in self._hosts.hosts.values():
            self._looks.poll_if_due(host, now)
        self._think_soon()

    def initial_state(self) -> list[StartProgress]:
        """For a worker that is new: what is being loaded."""
        return self._job_runner.loads_in_progress()

    def views(self) -> PlacementView:
        return placement_view(self._hosts, self._job_runner, self._clock())

    def alarms(self, now: float) -> list[Alarm]:
        return [
            *placement_alarms(self._hosts, self._job_runner.backoff, self.orphan_unloader, now),
            *self._shortages.alarms(now),
        ]

    async def close(self) -> None:
        """Returns when nothing is under way any more. Servers keep what they have."""
        self._closed = True
        if self._thinks_at is not None:
            self._thinks_at.cancel()
        for copy in self._hosts.copies.values():
            copy.removed = True
        await asyncio.gather(self._looks.close(), self._job_runner.close(), self.orphan_unloader.close())

    # ------------------------------------------------------------------ thoughts

    def _think_soon(self) -> None:
        if self._thinks_at is None and not self._closed:
            self._thinks_at = self._loop.call_at(max(self._clock(), self._rested), self._think)

    def _think(self) -> None:
        self._thinks_at = None
        began = monotonic()
        self._decide()
        self._rested = self._clock() + max(
            MIN_DECISION_INTERVAL_SECONDS, DECISION_COST_MULTIPLE * (monotonic() - began)
        )

    def _decide(self) -> None:
        now = self._clock()
        if self._hosts.has_unpolled(now - FIRST_INDEX_SECONDS):
            return  # what is not known to be there may be there
        try:
            for load in self._decided(now):
                self._begin(load, now)
        except Exception:  # a mistake in a decision must not end all that come after it
            log.exception("placement failed")

    def _decided(self, now: float) -> list[LoadDecision]:
        memory, running = self._memory, self._fleet.in_flight()
        self._running = running
        free, backoff = memory.free_bytes(), self._job_runner.backoff
        known = [host for host in self._hosts.hosts.values() if host.known]
        if not known:
            self._shortages = UnplaceableModels()
            return []
        servers = [server_room(host, memory, free, backoff, running, now) for host in known]
        wishes = self._wishes.current(now, self._demand(now))
        wanted = model_demands(self._hosts.copies.values(), wishes, memory, self._job_runner.load_times)
        loads = self._placement.decide(servers, free, wanted, now)
        self._shortages.update(servers, free, memory.budgets(), wanted, loads, now)
        return loads

    # ------------------------------------------------------------------ loads

    def _begin(self, load: LoadDecision, now: float) -> None:
        """Unless something has changed that the decision did not know."""
        coming = self._hosts.find(load.server, load.model)
        going = [self._hosts.find(server, model) for server, model in load.evict]
        if (
            coming is None
            or coming.phase is not CopyPhase.ABSENT
            or not self._job_runner.backoff.may_try(coming.key, now)
        ):
            return
        victims = [copy for copy in going if copy is not None]
        if len(victims) < len(going) or any(v.phase is not CopyPhase.RESIDENT or v.settings.pinned for v in victims):
            return
        self._job_runner.start(coming, victims, load.reason)

    def _too_much(self, copy: ManagedCopy) -> None:
        """It is on its server, and with it there is more than the device has: nobody asked us before."""
        if not copy.host.busy and self._job_runner.backoff.may_try(copy.key, self._clock()):
            why = f"it was found there, and {copy.host.device or copy.host.name} has no room for it"
            self._fleet.record("placement", f"to be unloaded: {why}", *copy.key)
            self._job_runner.start(None, [copy], why)

    def _ended(self, job: PlacementJob) -> None:
        self.tick(self._clock())

    def _looked(self, host: Host) -> None:
        for copy in host.copies.values():
            if copy.phase is CopyPhase.RESIDENT:  # by whatever way it came
                self._job_runner.backoff.succeeded(copy.key)
        self._think_soon()

    def _drop(self, copy: ManagedCopy, config: Config) -> None:
        """It is not in the configuration any more: a job that has to do with it ends, and what we loaded is unloaded,
        unless it is the server that has left."""
        copy.removed = True
        self._job_runner.cancel_for(copy)
        if copy.reserved:
            copy.reserved = False
            self._memory.release(copy.key)
        model = config.models.get(copy.model)
        if model is not None and model.placement is None:  # it is there, or not, as its probes say
            self._fleet.transition(copy.key, Event.LOAD, "no longer loaded on demand")
            self._fleet.reprobe(copy.key)
        elif (same := copy.host.copies.get(copy.model)) is not None:
            same.loaded_by_us = copy.loaded_by_us
        elif copy.loaded_by_us and (model is None or copy.host.copies):
            self.orphan_unloader.schedule(copy, copy.key in self._running)
