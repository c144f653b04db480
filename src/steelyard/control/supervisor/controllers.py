"""The observers of a fleet: built here, once, in the order in which they are notified."""

from __future__ import annotations

from ...link.shared_ledger import SharedLedger
from ..autoscaling.autoscaler import Autoscaler
from ..fleet.fleet import Fleet
from ..fleet.worker_sync import Workers
from ..memory import MemoryAccounting
from ..observability.kv_cache import KvCacheWatch
from ..placement.controller import PlacementController
from ..placement.model_demand import DemandTracker
from ..replicas.controller import ReplicaController
from ..slo.tracker import SloTracker


class Controllers:
    def __init__(self, fleet: Fleet, ledger: SharedLedger, gateway: str = "") -> None:
        """Needs a running loop. `gateway`: its name; replicas that an earlier one of that name started are adopted."""
        self._fleet = fleet
        self.memory = MemoryAccounting(fleet, ledger)
        demand = DemandTracker(fleet)
        self.placement = PlacementController(fleet, self.memory, demand.current)
        self.replicas = ReplicaController(fleet, self.memory, gateway)
        self.autoscaler = Autoscaler(fleet, self.replicas)
        self.slo = SloTracker()
        watch = KvCacheWatch()
        self._observers = (self.memory, demand, self.placement, self.replicas, self.autoscaler, self.slo, watch)

    async def start(self, workers: Workers, *, keep_adopted: bool = False, predecessor_pid: int = 0) -> None:
        """Starts the fleet too. `keep_adopted`: an earlier gateway's workers still use the adopted replicas.
        `predecessor_pid`: its pid, if it lives and hands over."""
        fleet = self._fleet
        self.slo.config_changed(fleet.config, fleet.now())
        fleet.start(workers, self._observers)
        await self.replicas.begin(fleet.config, keep_adopted=keep_adopted, predecessor_pid=predecessor_pid)
        self.autoscaler.config_changed(fleet.config, fleet.now())
