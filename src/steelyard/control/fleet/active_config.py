"""The configuration in force, and how another replaces it: in all workers or in none."""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping

import msgspec

from ...config import Config, ReplicaConfig
from ...link.messages import Applied, Apply, MemberUpdate, ToWorker
from ..errors import SharedMemoryFullError
from .registry import difference

ColumnTable = dict[str, dict[str, int]]  # model → replica id → column
MAX_DEATHS = 2  # of one process while it applies: once may be chance, twice is the configuration's fault
MIN_LEDGER_COLUMNS = 4096  # of the shared memory ledger: room for replicas that a reload adds


class LedgerColumns:
    """Immutable: `assign` makes the next one, so a refused reload leaves nothing behind."""

    def __init__(self, columns: int) -> None:
        self.columns = columns
        self.table: ColumnTable = {}
        self._free = deque(range(columns))  # the next to use first; returned ones last, in case of a late write

    def assign(self, replicas: Mapping[str, Iterable[str]]) -> LedgerColumns:
        wanted = {model: list(dict.fromkeys(ids)) for model, ids in replicas.items()}
        asked = sum(map(len, wanted.values()))
        if asked > self.columns:
            raise SharedMemoryFullError(
                f"{asked} replicas are more than the {self.columns} that fit in the shared memory ledger; "
                "restart, and it is made larger"
            )
        known = {model: self.table.get(model, {}) for model in wanted}
        kept = {model: {id: known[model][id] for id in ids if id in known[model]} for model, ids in wanted.items()}
        free = deque(self._free)
        free.extend(
            column for model, ids in self.table.items() for id, column in ids.items() if id not in kept.get(model, {})
        )
        result = LedgerColumns(self.columns)
        result.table = {
            model: {id: kept[model][id] if id in kept[model] else free.popleft() for id in ids}
            for model, ids in wanted.items()
        }
        result._free = free
        return result


def assign_indices(before: Mapping[str, int], names: Iterable[str]) -> dict[str, int]:
    wanted = list(dict.fromkeys(names))
    kept = {name: before[name] for name in wanted if name in before}
    free = iter(sorted(set(range(len(wanted) + len(before))) - set(before.values())))
    return {name: kept[name] if name in kept else next(free) for name in wanted}


class Rollout:
    """A new configuration on its way to the workers: in force when all have it, refused when one refuses."""

    def __init__(self, message: Apply, processes: Iterable[str]) -> None:
        """`processes`: that get it, by name: `worker 0`, `balancer process`."""
        self.message = message
        self._waiting = set(processes)
        self._deaths: Counter[str] = Counter()
        self._done: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._resolve()

    async def wait(self) -> str:
        """Why it is refused; empty: it is in force."""
        return await self._done

    def acknowledged(self, process: str, answer: Applied) -> bool:
        """False: it answers another message."""
        if answer.number != self.message.number:
            return False
        self._waiting.discard(process)
        self._resolve(f"{process}: {answer.problem}" if answer.problem else "")
        return True

    def process_died(self, process: str, how: str) -> None:
        """Its replacement gets the message too."""
        self._deaths[process] += 1
        if process in self._waiting and self._deaths[process] >= MAX_DEATHS:
            self._resolve(f"{process} ended with {how} when it got it, and so did its replacement")

    def _resolve(self, problem: str = "") -> None:
        if not self._done.done() and (problem or not self._waiting):
            self._done.set_result(problem)


class ActiveConfig:
    def __init__(self, config: Config) -> None:
        replicas = replica_ids(config)
        columns = max(MIN_LEDGER_COLUMNS, 2 * sum(map(len, replicas.values())))
        self.columns = LedgerColumns(columns).assign(replicas)
        self.current = Apply(1, config, self.columns.table, assign_indices({}, config.devices))
        self._number = 1
        self.rollout: Rollout | None = None

    async def roll_out(self, config: Config, broadcast: Callable[[ToWorker], Iterable[str]]) -> str:
        """Returns why it is refused, or an empty string. SharedMemoryFullError: its replicas do not fit."""
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

    def set_replicas(self, model: str, replicas: tuple[ReplicaConfig, ...]) -> MemberUpdate | None:
        """Nothing that a worker could refuse; None: no change. SharedMemoryFullError: they do not fit."""
        config = self.current.config
        removed, added = difference(config.models[model].replicas, replicas)
        if not removed and not added:
            return None
        settings = msgspec.structs.replace(config.models[model], replicas=replicas)
        config = msgspec.structs.replace(config, models={**config.models, model: settings})
        self.columns = self.columns.assign(replica_ids(config))
        self.current = Apply(self.current.number, config, self.columns.table, self.current.devices)
        return MemberUpdate(model, removed, added, self.columns.table[model])

    def initial_state(self) -> list[ToWorker]:
        """The one in force first: a new worker must be able to start, whatever is being rolled out."""
        messages = [self.current, self.rollout.message] if self.rollout else [self.current]
        return [_for_workers(message) for message in messages]

    def acknowledged(self, process: str, answer: Applied) -> bool:
        return self.rollout is not None and self.rollout.acknowledged(process, answer)

    def process_died(self, process: str, how: str) -> None:
        if self.rollout is not None:
            self.rollout.process_died(process, how)

    def _next(self, config: Config, columns: LedgerColumns) -> Apply:
        self._number += 1
        return Apply(self._number, config, columns.table, assign_indices(self.current.devices, config.devices))


def _for_workers(message: Apply) -> Apply:
    """Without discovery: workers get the replicas, and import nothing of the sources."""
    models = {name: msgspec.structs.replace(model, discovery=()) for name, model in message.config.models.items()}
    return msgspec.structs.replace(message, config=msgspec.structs.replace(message.config, models=models))


def replica_ids(config: Config) -> dict[str, list[str]]:
    return {name: [replica.name for replica in model.replicas] for name, model in config.models.items()}
