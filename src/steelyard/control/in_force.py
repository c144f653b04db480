"""The configuration that is in force, and how another takes its place: in all workers, or in none."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import msgspec

from ..config import Config, ReplicaConfig
from ..link.messages import Applied, Apply, Members, ToWorker
from .configuration import replica_ids
from .rollout import Rollout
from .slots import Slots, numbered

COLUMNS = 4096  # of the load board, at least: room for replicas that a reload adds


class InForce:
    def __init__(self, config: Config) -> None:
        replicas = replica_ids(config)
        columns = max(COLUMNS, 2 * sum(map(len, replicas.values())))
        self.slots = Slots(columns).assign(replicas)
        self.good = Apply(1, config, self.slots.table, numbered({}, config.devices))
        self._number = 1
        self._rollout: Rollout | None = None

    async def change(self, config: Config, broadcast: Callable[[ToWorker], Iterable[int]]) -> str:
        """What is wrong with the new one; then the last one stays. SlotsError, if its replicas do not fit."""
        slots = self.slots.assign(replica_ids(config))
        message = self._next(config, slots)
        self._rollout = Rollout(message, broadcast(message))
        try:
            problem = await self._rollout.outcome()
        finally:
            self._rollout = None
        if problem:
            self.good = self._next(self.good.config, self.slots)
            broadcast(self.good)  # some workers may have taken the other
        else:
            self.good, self.slots = message, slots
        return problem

    def regroup(
        self,
        model: str,
        replicas: tuple[ReplicaConfig, ...],
        removed: tuple[str, ...],
        added: tuple[ReplicaConfig, ...],
    ) -> Members:
        """Other replicas for one model; nothing that a worker could refuse. SlotsError, if they do not fit."""
        config = self.good.config
        settings = msgspec.structs.replace(config.models[model], replicas=replicas)
        config = msgspec.structs.replace(config, models={**config.models, model: settings})
        self.slots = self.slots.assign(replica_ids(config))
        self.good = Apply(self.good.number, config, self.slots.table, self.good.devices)
        return Members(model, removed, added, self.slots.table[model])

    def greeting(self) -> list[ToWorker]:
        """The good one first: a new worker must be able to start, whatever is on its way."""
        return [self.good, *([self._rollout.message] if self._rollout else [])]

    def answered(self, worker: int, answer: Applied) -> bool:
        """False: nobody asked for it now."""
        return self._rollout is not None and self._rollout.answered(worker, answer)

    def died(self, worker: int, how: str) -> None:
        if self._rollout is not None:
            self._rollout.died(worker, how)

    def _next(self, config: Config, slots: Slots) -> Apply:
        self._number += 1
        return Apply(self._number, config, slots.table, numbered(self.good.devices, config.devices))
