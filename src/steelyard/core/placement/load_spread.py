"""How the work of several models divides over the servers that hold them, and how many requests then wait.

Idea: `least_work` fills a model's servers to one level (water filling). Loads are seconds of work per second.

Formula: waiting = rate × ρ^(√(2(c + 1)) − 1) / (c × (1 − ρ)) for c servers at level ρ, continued linearly above
SATURATION_LEVEL.

Source: Sakasegawa 1977 (M/M/c). Limits: BALANCING_PASSES passes over all models instead of an exact solution.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from math import sqrt

BALANCING_PASSES = 4  # each model makes way for the others a little more
SATURATION_LEVEL = 0.95  # beyond, what waits has no mean


def mean_waiting(rate: float, places: float, level: float) -> float:
    """Requests of a model that wait, on average. `level`: of all the work there, other models' too."""
    if rate <= 0.0 or places <= 0.0:
        return 0.0
    free = 1.0 - SATURATION_LEVEL
    crowd = 1.0 / (1.0 - level) if level < SATURATION_LEVEL else (1.0 + (level - SATURATION_LEVEL) / free) / free
    used: float = min(level, 1.0) ** (sqrt(2.0 * (places + 1.0)) - 1.0)
    return rate * used * crowd / places


class LoadSpread:
    def __init__(self, capacity: Mapping[str, float]) -> None:
        self.capacity = capacity  # of each server
        self.load = dict.fromkeys(capacity, 0.0)
        self._parts: dict[str, dict[str, float]] = {}  # of each model's work, by server

    def divide_all(self, rates: Mapping[str, float], holders: Mapping[str, Collection[str]]) -> None:
        busy = sorted((m for m in holders if rates.get(m, 0.0) > 0.0), key=lambda m: (-rates[m], m))
        for _ in range(BALANCING_PASSES):
            for model in busy:
                self.divide(model, rates[model], holders[model])

    def divide(self, model: str, rate: float, servers: Collection[str]) -> None:
        for server, part in self._parts.pop(model, {}).items():
            self.load[server] -= part
        level = self.level(model, rate, servers)
        parts = {s: max(0.0, level * self.capacity[s] - self.load[s]) for s in servers}
        for server, part in parts.items():
            self.load[server] += part
        self._parts[model] = parts

    def level(self, model: str, rate: float, servers: Collection[str]) -> float:
        """The load of the servers it would use, if only these held it."""
        mine = self._parts.get(model, {})
        capacity = self.capacity
        loads = ((max(0.0, self.load[s] - mine.get(s, 0.0)) / capacity[s], capacity[s]) for s in servers)
        work, room, level = rate, 0.0, 0.0
        for full, places in sorted(loads):
            if room and level <= full:
                break
            work += full * places
            room += places
            level = work / room
        return level

    def waiting(self, model: str, rate: float, servers: Collection[str]) -> float:
        """Requests of the model that would wait, on average, if only these held it."""
        return mean_waiting(rate, sum(self.capacity[s] for s in servers), self.level(model, rate, servers))
