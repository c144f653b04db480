"""What replicas may be like. Each kind turns the times of attempts into *demands*: seconds that each takes alone."""

from __future__ import annotations

from dataclasses import dataclass
from heapq import heappop, heappush

import numpy as np
from numpy.typing import NDArray

from ..engine.servers import BatchServer, Server, SlotServer
from ..scenario.schema import Batching

FloatArray = NDArray[np.float64]
UNLIMITED_SLOTS = 1_000_000  # as good as no limit


@dataclass(frozen=True)
class SlotModel:
    """`slots` at a time, first come first served, without slowing each other down."""

    slots: int

    def demands(self, start: FloatArray, end: FloatArray) -> tuple[FloatArray, FloatArray]:
        """`start` is sorted. Also returns ln of the demand's growth with the end: here 0."""
        if self.slots >= len(start):
            return end - start, np.zeros(len(start))
        free: list[float] = [-np.inf] * self.slots
        demand = np.empty(len(start))
        for n in range(len(start)):
            before = heappop(free)
            demand[n] = end[n] - max(start[n], before)
            heappush(free, max(before, end[n]))  # ends may be seen out of order
        return demand, np.zeros(len(start))

    def build(self, id: str, speed: float) -> Server:
        return SlotServer(id, speed, self.slots)

    def __str__(self) -> str:
        if self.slots == UNLIMITED_SLOTS:
            return "any number at a time, without slowing each other down"
        return f"{'one' if self.slots == 1 else self.slots} at a time, first come first served"


@dataclass(frozen=True)
class BatchModel:
    """n at once each take 1 + slope × (n - 1) times as long. Slope 1: they share one processor."""

    slope: float

    def demands(self, start: FloatArray, end: FloatArray) -> tuple[FloatArray, FloatArray]:
        times = np.concatenate([start, end])
        order = np.argsort(times, kind="stable")
        times = times[order]
        running = np.cumsum(np.where(order < len(start), 1, -1))
        pace = 1.0 / (1.0 + self.slope * (np.maximum(running, 1) - 1))
        attained = np.concatenate([[0.0], np.cumsum(pace[:-1] * np.diff(times))])
        place = np.empty(len(order), dtype=np.int64)
        place[order] = np.arange(len(order))
        begun, ended = place[: len(start)], place[len(start) :]
        return attained[ended] - attained[begun], np.log(pace[ended - 1])

    def build(self, id: str, speed: float) -> Server:
        return BatchServer(id, speed, UNLIMITED_SLOTS, Batching(slope=self.slope))

    def __str__(self) -> str:
        return f"all at once, each {self.slope:.0%} slower for every other one beside it"


ServerModel = SlotModel | BatchModel

# The simplest first: it wins a tie.
SERVER_MODELS: tuple[ServerModel, ...] = (
    *(SlotModel(slots) for slots in (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, UNLIMITED_SLOTS)),
    *(BatchModel(slope) for slope in (0.02, 0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.65, 0.8, 1.0)),
)
