"""Which column of the load board is whose. A replica keeps its column as long as it is configured."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping

from ..errors import BoardFullError

ColumnTable = dict[str, dict[str, int]]  # model → replica id → column


class BoardColumns:
    """An assignment. It never changes: `assign` makes the next one, so a refused reload leaves nothing behind."""

    def __init__(self, columns: int) -> None:
        self.columns = columns
        self.table: ColumnTable = {}
        self._free = deque(range(columns))  # next to use first; given back ones last: a late writer hits nobody

    def assign(self, replicas: Mapping[str, Iterable[str]]) -> BoardColumns:
        """For exactly these replicas; who had a column keeps it."""
        wanted = {model: list(dict.fromkeys(ids)) for model, ids in replicas.items()}
        asked = sum(map(len, wanted.values()))
        if asked > self.columns:
            raise BoardFullError(
                f"{asked} replicas are more than the {self.columns} that fit on the load board; "
                "restart, and the board is made larger"
            )
        kept = {
            model: {id: self.table[model][id] for id in ids if id in self.table.get(model, {})}
            for model, ids in wanted.items()
        }
        free = deque(self._free)
        free.extend(column for model, id, column in _entries(self.table) if id not in kept.get(model, {}))
        result = BoardColumns(self.columns)
        result.table = {
            model: {id: kept[model][id] if id in kept[model] else free.popleft() for id in ids}
            for model, ids in wanted.items()
        }
        result._free = free
        return result


def assign_indices(before: Mapping[str, int], names: Iterable[str]) -> dict[str, int]:
    """A number for each of these; who had one keeps it."""
    wanted = list(dict.fromkeys(names))
    kept = {name: before[name] for name in wanted if name in before}
    free = iter(sorted(set(range(len(wanted) + len(before))) - set(before.values())))
    return {name: kept[name] if name in kept else next(free) for name in wanted}


def _entries(table: ColumnTable) -> Iterator[tuple[str, str, int]]:
    for model, ids in table.items():
        for id, column in ids.items():
            yield model, id, column
