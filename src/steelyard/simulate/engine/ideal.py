"""The reference: a central queue that knows true sizes and speeds and acts without delay.

Each request, in order of arrival, goes where it completes earliest. Limits: replicas with slots only, as with batching
a completion depends on later arrivals; it refuses no request, so in overload others may look better.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from heapq import heapify, heapreplace
from math import prod

from ...core.request import INFINITY
from ..scenario.schema import Fault, ReplicaGroup
from .job import Job
from .result import RunResult


class _SpeedProfile:
    """Pieces of constant speed, 0 while the replica is down."""

    def __init__(self, speed: float, faults: Sequence[Fault]) -> None:
        self.speed = speed
        slow = [(f.at, f.at + f.duration, f.factor) for f in faults if f.kind == "slow"]
        out = [(0.0, f.at + f.cold_start) for f in faults if f.kind == "join"]
        out += [(f.at, f.at + f.duration) for f in faults if f.kind == "errors"]
        out += [(f.at, f.at + f.duration + f.cold_start) for f in faults if f.kind == "crash"]
        turns = sorted({0.0, *(t for begin, end, _ in slow for t in (begin, end)), *(t for span in out for t in span)})
        self.pieces: list[tuple[float, float]] = []  # from when, how fast
        for turn in turns:
            there = not any(begin <= turn < end for begin, end in out)
            burden = prod(factor for begin, end, factor in slow if begin <= turn < end)
            self.pieces.append((turn, speed / burden if there else 0.0))

    def finish(self, start: float, work: float) -> float:
        if len(self.pieces) == 1:
            return start + work / self.speed
        now, left = start, work
        for (begin, speed), (end, _) in zip(self.pieces, [*self.pieces[1:], (float("inf"), 0.0)], strict=True):
            if end <= now:
                continue
            now = max(now, begin)
            if speed and left <= (end - now) * speed:
                return now + left / speed
            left -= (end - now) * speed
            now = end
        raise AssertionError("the last piece never ends")


def run_ideal(
    fleet: Sequence[ReplicaGroup],
    faults: Sequence[Fault],
    jobs: Iterable[Job],
    result: RunResult,
    *,
    warmup: float,
    slo: float = INFINITY,
) -> RunResult:
    paces: list[_SpeedProfile] = []
    slots: list[list[float]] = []  # a heap of when slots are free, by replica
    for group in fleet:
        for _ in range(group.count):
            mine = [f for f in faults if f.replica == len(paces)]
            paces.append(_SpeedProfile(group.speed, mine))
            slots.append([0.0] * group.slots)
    for heap in slots:
        heapify(heap)
    requests, last = 0, 0.0
    for job in jobs:
        requests += 1
        born, work = job.intended_at, job.work
        best, where = float("inf"), 0
        for i, heap in enumerate(slots):
            free = heap[0]
            done = paces[i].finish(free if free > born else born, work)
            if done < best:
                best = done
                where = i
        heapreplace(slots[where], best)
        last = max(last, best)
        if born >= warmup:
            result.latency.add(best - born)
            result.low_slowdown += best - born <= 3.0 * work
            result.within_slo += best - born <= slo and best <= job.deadline
    result.close(requests, last, ())
    return result
