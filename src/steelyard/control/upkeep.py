"""Started replicas in the fleet: the keeper that runs them and the autoscaler that says how many, told what happens."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from ..config import ReplicaConfig
from ..core.replica import State
from ..link.messages import Coming, ToWorker, Wanted
from ..runtimes import RUNTIMES
from .probing.target import Key
from .roster import STARTED
from .scaling.autoscaler import Autoscaler, ScalingHands
from .starting.hands import StartingHands, Worth
from .starting.keeper import Keeper
from .views import Alarm

if TYPE_CHECKING:
    from .fleet import Fleet, Workers


class Upkeep:
    def __init__(self, fleet: Fleet, workers: Workers, gateway: str) -> None:
        """`gateway`: what it is called; what an earlier one of that name had started is taken over."""
        self._fleet = fleet
        self._workers = workers
        self.keeper = Keeper(
            StartingHands(
                room=fleet.holdings.accounts,
                members=self._members,
                move=fleet.move,
                drained=fleet.holdings.drained,
                worths=self._worths,
                note=self._note,
                tell=self._tell,
            ),
            {kind: make(gateway) for kind, make in RUNTIMES.items()},
        )
        self.autoscaler = Autoscaler(
            ScalingHands(
                keeper=self.keeper, reports=workers.reports, ready=self._ready, note=self._note, clock=fleet.now
            )
        )

    async def begin(self, *, spare: bool = False, heir_of: int = 0) -> None:
        """`spare`: what is found running is not stopped yet, whatever the configuration says (Keeper.begin)."""
        await self.keeper.begin(self._fleet.config, spare=spare, heir_of=heir_of)
        self.autoscaler.follow(self._fleet.config)

    def follow(self) -> None:
        """Another configuration is in force."""
        self.keeper.follow(self._fleet.config)
        self.autoscaler.follow(self._fleet.config)

    async def end(self, *, spare: bool = False, handed_over: bool = False) -> None:
        """The replicas of ours end, with `spare` without those that were adopted; nothing is started any more.
        `handed_over`: they are another's now, and go on."""
        if not handed_over:
            await self.keeper.stop_all(spare=spare)
        await self.keeper.close()

    # ------------------------------------------------------------------ what happens

    def standing(self, key: Key, state: State) -> None:
        self.keeper.state(key, state)

    def reported(self) -> None:
        self.autoscaler.reported()

    def wanted(self, message: Wanted) -> None:
        self.autoscaler.wanted(message)

    def tick(self, now: float) -> None:
        self.keeper.tick(now)
        self.autoscaler.tick(now)

    # ------------------------------------------------------------------ what is told

    def so_far(self) -> list[ToWorker]:
        """For a worker that is new: what is being started."""
        models = (name for name, model in self._fleet.config.models.items() if model.runtime is not None)
        return [
            Coming(name, seconds, not self.keeper.cold_start(name)[1], self.keeper.failure(name))
            for name in models
            if (seconds := self.keeper.ready_in(name))
        ]

    def alarms(self) -> list[Alarm]:
        return [*self.keeper.alarms(), *self.autoscaler.alarms()]

    # ------------------------------------------------------------------ what the two need

    def _members(self, model: str, replicas: Iterable[ReplicaConfig]) -> None:
        self._fleet.roster.tell(STARTED, model, replicas)
        self._fleet.refresh(model, at_once=True)

    def _worths(self, model: str) -> Mapping[str, Worth]:
        found: dict[str, Worth] = {}
        for report in self._workers.reports():
            for seen in report.replicas:
                if seen.model == model:
                    before = found.get(seen.id, Worth())
                    found[seen.id] = Worth(
                        in_flight=before.in_flight + seen.in_flight,
                        slowness=max(seen.slowness, before.slowness) if seen.id in found else seen.slowness,
                        cache=seen.cache if seen.cache is not None else before.cache,
                        ejected=before.ejected or seen.ejected_for > 0.0,
                    )
        return found

    def _ready(self) -> Mapping[str, int]:
        return Counter(model for (model, _), standing in self._fleet.standings.items() if standing.state is State.READY)

    def _note(self, what: str, model: str, replica: str = "", level: int = logging.INFO) -> None:
        self._fleet.chronicle.note("scaling", what, model=model, replica=replica, level=level)

    def _tell(self, message: ToWorker) -> None:
        self._fleet.flush()  # in the order in which it happened
        self._workers.broadcast(message)
