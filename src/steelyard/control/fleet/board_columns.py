"""The load board's column of each replica, kept for as long as it is configured."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping

from ..errors import BoardFullError

ColumnTable = dict[str, dict[str, int]]  # model → replica id → column


class BoardColumns:
    """Immutable: `assign` makes the next one, so a refused reload leaves nothing behind."""

    def __init__(self, columns: int) -> None:
        self.columns = columns
        self.table: ColumnTable = {}
        self._free = deque(range(columns))  # the next to use first; returned ones last, in case of a late write

    def assign(self, replicas: Mapping[str, Iterable[str]]) -> BoardColumns:
        """For exactly these replicas."""
        wanted = {model: list(dict.fromkeys(ids)) for model, ids in replicas.items()}
        asked = sum(map(len, wanted.values()))
        if asked > self.columns:
            raise BoardFullError(
                f"{asked} replicas are more than the {self.columns} that fit on the load board; "
                "restart, and the board is made larger"
            )
        known = {model: self.table.get(model, {}) for model in wanted}
        kept = {model: {id: known[model][id] for id in ids if id in known[model]} for model, ids in wanted.items()}
        free = deque(self._free)
        free.extend(
            column for model, ids in self.table.items() for id, column in ids.items() if id not in kept.get(model, {})
        )
        result = BoardColumns(self.columns)
        result.table = {
            model: {id: kept[model][id] if id in kept[model] else free.popleft() for id in ids}
            for model, ids in wanted.items()
        }
        result._free = free
        return result


def assign_indices(before: Mapping[str, int], names: Iterable[str]) -> dict[str, int]:
    """A number for each name; those that had one keep it."""
    wanted = list(dict.fromkeys(names))
    kept = {name: before[name] for name in wanted if name in before}
    free = iter(sorted(set(range(len(wanted) + len(before))) - set(before.values())))
    return {name: kept[name] if name in kept else next(free) for name in wanted}
