"""The configuration in force, and how another replaces it: in all workers or in none."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import msgspec

from ...config import Config, ReplicaConfig
from ...link.messages import Applied, Apply, MemberUpdate, ToWorker
from .board_columns import BoardColumns, assign_indices
from .rollout import Rollout

MIN_BOARD_COLUMNS = 4096  # of the load board: room for replicas that a reload adds


class ActiveConfig:
    def __init__(self, config: Config) -> None:
        replicas = replica_ids(config)
        columns = max(MIN_BOARD_COLUMNS, 2 * sum(map(len, replicas.values())))
        self.columns = BoardColumns(columns).assign(replicas)
        self.current = Apply(1, config, self.columns.table, assign_indices({}, config.devices))
        self._number = 1
        self.rollout: Rollout | None = None

    async def roll_out(self, config: Config, broadcast: Callable[[ToWorker], Iterable[int]]) -> str:
        """Returns why it is refused, or an empty string. BoardFullError: its replicas do not fit."""
        columns = self.columns.assign(replica_ids(config))
        message = self._next(config, columns)
        self.rollout = Rollout(message, broadcast(_for_workers(message)))
        try:
            problem = await self.rollout.wait()
        finally:
            self.rollout = None
        if problem:
            self.current = self._next(self.current.config, self.columns)
            broadcast(_for_workers(self.current))  # some workers may have applied the other
        else:
            self.current, self.columns = message, columns
        return problem

    def set_replicas(
        self,
        model: str,
        replicas: tuple[ReplicaConfig, ...],
        removed: tuple[str, ...],
        added: tuple[ReplicaConfig, ...],
    ) -> MemberUpdate:
        """Nothing that a worker could refuse. BoardFullError: they do not fit."""
        config = self.current.config
        settings = msgspec.structs.replace(config.models[model], replicas=replicas)
        config = msgspec.structs.replace(config, models={**config.models, model: settings})
        self.columns = self.columns.assign(replica_ids(config))
        self.current = Apply(self.current.number, config, self.columns.table, self.current.devices)
        return MemberUpdate(model, removed, added, self.columns.table[model])

    def initial_state(self) -> list[ToWorker]:
        """The one in force first: a new worker must be able to start, whatever is being rolled out."""
        messages = [self.current, self.rollout.message] if self.rollout else [self.current]
        return [_for_workers(message) for message in messages]

    def acknowledged(self, worker: int, answer: Applied) -> bool:
        """False: it answers nothing that is being rolled out."""
        return self.rollout is not None and self.rollout.acknowledged(worker, answer)

    def worker_died(self, worker: int, how: str) -> None:
        if self.rollout is not None:
            self.rollout.worker_died(worker, how)

    def _next(self, config: Config, columns: BoardColumns) -> Apply:
        self._number += 1
        return Apply(self._number, config, columns.table, assign_indices(self.current.devices, config.devices))


def _for_workers(message: Apply) -> Apply:
    """Without discovery: workers are told the replicas, and import nothing of the sources."""
    models = {name: msgspec.structs.replace(model, discovery=()) for name, model in message.config.models.items()}
    return msgspec.structs.replace(message, config=msgspec.structs.replace(message.config, models=models))


def replica_ids(config: Config) -> dict[str, list[str]]:
    return {name: [replica.name for replica in model.replicas] for name, model in config.models.items()}
