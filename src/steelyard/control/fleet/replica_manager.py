"""Started replicas in the fleet: the keeper that runs them and the autoscaler that says how many, told what happens."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from ...config import ReplicaConfig
from ...core.replica import State
from ...link.messages import ReplicaDemand, StartProgress, ToWorker
from ...runtimes import RUNTIMES
from ..autoscaling.autoscaler import Autoscaler, AutoscalerDependencies
from ..health.probe import ReplicaKey
from ..observability.views import Alarm
from ..replicas.controller import ReplicaController
from ..replicas.dependencies import ReplicaDependencies, ReplicaLoad
from .registry import STARTED

if TYPE_CHECKING:
    from .fleet import Fleet, Workers


class ReplicaManager:
    def __init__(self, fleet: Fleet, workers: Workers, gateway: str) -> None:
        """`gateway`: what it is called; what an earlier one of that name had started is taken over."""
        self._fleet = fleet
        self._workers = workers
        self.controller = ReplicaController(
            ReplicaDependencies(
                room=fleet.memory.accounts,
                members=self._set_replicas,
                move=fleet.transition,
                drained=fleet.memory.wait_drained,
                worths=self._replica_loads,
                note=self._record,
                tell=self._broadcast,
            ),
            {kind: make(gateway) for kind, make in RUNTIMES.items()},
        )
        self.autoscaler = Autoscaler(
            AutoscalerDependencies(
                keeper=self.controller,
                reports=workers.reports,
                ready=self._ready_counts,
                note=self._record,
                clock=fleet.now,
            )
        )

    async def start(self, *, spare: bool = False, heir_of: int = 0) -> None:
        """`spare`: what is found running is not stopped yet, whatever the configuration says (Keeper.begin)."""
        await self.controller.begin(self._fleet.config, spare=spare, heir_of=heir_of)
        self.autoscaler.config_changed(self._fleet.config)

    def config_changed(self) -> None:
        """Another configuration is in force."""
        self.controller.config_changed(self._fleet.config)
        self.autoscaler.config_changed(self._fleet.config)

    async def stop(self, *, spare: bool = False, handed_over: bool = False) -> None:
        """The replicas of ours end, with `spare` without those that were adopted; nothing is started any more.
        `handed_over`: they are another's now, and go on."""
        if not handed_over:
            await self.controller.stop_all(spare=spare)
        await self.controller.close()

    # ------------------------------------------------------------------ what happens

    def state_changed(self, key: ReplicaKey, state: State) -> None:
        self.controller.state_changed(key, state)

    def worker_reported(self) -> None:
        self.autoscaler.worker_reported()

    def model_requested(self, message: ReplicaDemand) -> None:
        self.autoscaler.model_requested(message)

    def tick(self, now: float) -> None:
        self.controller.tick(now)
        self.autoscaler.tick(now)

    # ------------------------------------------------------------------ what is told

    def initial_state(self) -> list[ToWorker]:
        """For a worker that is new: what is being started."""
        models = (name for name, model in self._fleet.config.models.items() if model.runtime is not None)
        return [
            StartProgress(name, seconds, not self.controller.cold_start(name)[1], self.controller.failure(name))
            for name in models
            if (seconds := self.controller.ready_in(name))
        ]

    def alarms(self) -> list[Alarm]:
        return [*self.controller.alarms(), *self.autoscaler.alarms()]

    # ------------------------------------------------------------------ what the two need

    def _set_replicas(self, model: str, replicas: Iterable[ReplicaConfig]) -> None:
        self._fleet.registry.set_source(STARTED, model, replicas)
        self._fleet.refresh(model, at_once=True)

    def _replica_loads(self, model: str) -> Mapping[str, ReplicaLoad]:
        found: dict[str, ReplicaLoad] = {}
        for report in self._workers.reports():
            for seen in report.replicas:
                if seen.model == model:
                    before = found.get(seen.id, ReplicaLoad())
                    found[seen.id] = ReplicaLoad(
                        in_flight=before.in_flight + seen.in_flight,
                        slowness=max(seen.slowness, before.slowness) if seen.id in found else seen.slowness,
                        cache=seen.cache if seen.cache is not None else before.cache,
                        ejected=before.ejected or seen.ejection_left > 0.0,
                    )
        return found

    def _ready_counts(self) -> Mapping[str, int]:
        return Counter(model for (model, _), standing in self._fleet.statuses.items() if standing.state is State.READY)

    def _record(self, what: str, model: str, replica: str = "", level: int = logging.INFO) -> None:
        self._fleet.events.record("scaling", what, model=model, replica=replica, level=level)

    def _broadcast(self, message: ToWorker) -> None:
        self._fleet.flush()  # in the order in which it happened
        self._workers.broadcast(message)
