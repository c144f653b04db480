"""What occupied replicas in a recording, and when the gateway itself stood still."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from ..core.outcome import Outcome
from .replay_log import Recording
from .replay_servers import Numbers, ServerKind

FLOOR = 0.0005  # seconds: shorter demands are lost in what clocks and sockets do
FAILED = tuple(outcome.label for outcome in Outcome if outcome.failed)
FAILURES = 2  # attempts in a row that failed: the replica did, not the request


@dataclass
class Attempts:
    """Those that took a replica's time, by replica and in order of their start."""

    request: NDArray[np.int64]
    replica: NDArray[np.int64]
    start: Numbers  # since the recording's beginning, as `end`
    end: Numbers
    whole: NDArray[np.bool_]  # ran to its end: its time tells its demand
    beside: Numbers  # requests that the gateway knew of there

    def by_replica(self) -> list[slice]:
        edges = [0, *(np.flatnonzero(np.diff(self.replica)) + 1).tolist(), len(self.replica)]
        return [slice(a, b) for a, b in pairwise(edges) if b > a]

    def first(self, count: int) -> Attempts:
        """Those that began first."""
        if len(self.start) <= count:
            return self
        keep = self.start < float(np.sort(self.start)[count])
        return Attempts(*(getattr(self, name)[keep] for name in Attempts.__dataclass_fields__))

    def demands(self, kind: ServerKind, way: float = 0.0) -> tuple[Numbers, Numbers]:
        """`way`: seconds that are spent on the way to the replica and back, and keep nobody else waiting."""
        demand, density = np.empty(len(self.start)), np.empty(len(self.start))
        for mine in self.by_replica():
            end = self.end[mine]
            demand[mine], density[mine] = kind.demands(np.minimum(self.start[mine] + way, end), end)
        return demand, density

    def found_there(self) -> Numbers:
        """Requests of the log that were on the replica as each began."""
        found = np.zeros(len(self.start))
        for mine in self.by_replica():
            start, end = self.start[mine], np.sort(self.end[mine])
            found[mine] = np.arange(len(start)) - np.searchsorted(end, start + FLOOR, side="right")
        return np.maximum(found, 0.0)


@dataclass(frozen=True)
class Ended:
    """An attempt of whatever outcome."""

    start: float
    end: float
    failed: bool


def attempts_of(recording: Recording, replicas: list[str]) -> tuple[Attempts, dict[str, list[Ended]]]:
    """What occupied replicas; and, by replica, how each attempt ended."""
    places = {id: place for place, id in enumerate(replicas)}
    rows: list[tuple[int, float, float, int, bool, int]] = []
    ended: dict[str, list[Ended]] = {}
    for number, one in enumerate(recording.asked):
        for attempt in one.attempts:
            start = one.at - recording.begin + attempt.after
            lasted = attempt.seconds if attempt.seconds is not None else max(one.seconds - attempt.after, 0.0)
            whole = one.answered and attempt.seconds is not None and not attempt.outcome
            failed = attempt.outcome in FAILED
            ended.setdefault(attempt.replica, []).append(Ended(start, start + lasted, failed))
            if not failed:
                rows.append((places[attempt.replica], start, start + lasted, number, whole, attempt.beside))
    rows.sort()
    table = np.array(rows, dtype=np.float64).reshape(-1, 6)
    found = Attempts(
        request=table[:, 3].astype(np.int64),
        replica=table[:, 0].astype(np.int64),
        start=table[:, 1],
        end=table[:, 2],
        whole=table[:, 4] > 0,
        beside=table[:, 5],
    )
    return found, ended


def failing_times(attempts: list[Ended]) -> list[tuple[float, float]]:
    """From when to when the replica failed whatever it got."""
    found: list[tuple[float, float]] = []
    row: list[Ended] = []
    for attempt in [*sorted(attempts, key=lambda a: a.end), Ended(0.0, 0.0, False)]:
        if attempt.failed:
            row.append(attempt)
            continue
        if len(row) >= FAILURES:
            found.append((row[0].end, row[-1].end))
        row = []
    return found
