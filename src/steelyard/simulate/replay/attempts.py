"""What occupied replicas in a recording."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from .failures import NO_WORK_OUTCOMES, EndedAttempt
from .recording import Recording
from .server_models import FloatArray, ServerModel

MIN_DEMAND_SECONDS = 0.0005  # shorter demands are lost in the noise of clocks and sockets
CENSORED_OUTCOMES = ("", "cancelled", "deadline_exceeded")  # not ended by the replica


@dataclass
class Attempts:
    """Attempts that took a replica's time, by replica and start."""

    request: NDArray[np.int64]
    nth: NDArray[np.int64]  # attempt of its request
    replica: NDArray[np.int64]
    start: FloatArray  # since the recording's beginning, as `end`
    end: FloatArray
    completed: NDArray[np.bool_]  # its time tells the request's demand
    censored: NDArray[np.bool_]  # it would have run on
    logged_in_flight: FloatArray  # requests there that the gateway knew of

    def by_replica(self) -> list[slice]:
        edges = [0, *(np.flatnonzero(np.diff(self.replica)) + 1).tolist(), len(self.replica)]
        return [slice(a, b) for a, b in pairwise(edges) if b > a]

    def earliest(self, count: int) -> Attempts:
        if len(self.start) <= count:
            return self
        keep = np.zeros(len(self.start), dtype=np.bool_)
        keep[np.argsort(self.start, kind="stable")[:count]] = True
        return Attempts(*(getattr(self, name)[keep] for name in Attempts.__dataclass_fields__))

    def demands(self, kind: ServerModel) -> tuple[FloatArray, FloatArray]:
        demand, density = np.empty(len(self.start)), np.empty(len(self.start))
        for mine in self.by_replica():
            demand[mine], density[mine] = kind.demands(self.start[mine], self.end[mine])
        return demand, density

    def in_flight_at_start(self) -> FloatArray:
        found = np.zeros(len(self.start))
        for mine in self.by_replica():
            start, end = self.start[mine], np.sort(self.end[mine])
            found[mine] = np.arange(len(start)) - np.searchsorted(end, start + MIN_DEMAND_SECONDS, side="right")
        return np.maximum(found, 0.0)


def collect_attempts(recording: Recording, ended: dict[str, list[EndedAttempt]]) -> Attempts:
    rows = []
    for place, mine in enumerate(ended.values()):
        for one in mine:
            if one.outcome in NO_WORK_OUTCOMES:
                continue
            asked = recording.requests[one.request]
            attempt = asked.attempts[one.nth]
            whole = asked.answered and attempt.seconds is not None and not attempt.outcome
            cut = not whole and attempt.outcome in CENSORED_OUTCOMES
            rows.append((one.request, one.nth, place, one.start, one.end, whole, cut, attempt.concurrent))
    columns = np.array(rows, dtype=np.float64).reshape(-1, 8).T
    request, nth, replica = columns[:3].astype(np.int64)
    start, end, completed, censored, beside = columns[3:]
    return Attempts(request, nth, replica, start, end, completed > 0, censored > 0, beside)
