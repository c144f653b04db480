"""Times at which the gateway stood still, and then saw at once what had ended meanwhile. A replay stalls at the same
times, as any policy would have."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .attempts import Attempts
from .server_models import FloatArray

MIN_STALL_SECONDS = 0.02
MIN_GAP_RATIO = 12.0  # × the mean time between two events: by chance alone once in e^12
CATCH_UP_SHARE = 0.05  # of the stall
MIN_CATCH_UP_SECONDS = 0.005
MIN_BURST_ARRIVALS = 8
MAX_STALLS = 1000  # the longest ones


@dataclass(frozen=True)
class Stall:
    begin: float
    end: float

    @property
    def seconds(self) -> float:
        return self.end - self.begin

    @property
    def caught_up(self) -> float:
        """Until then the gateway sees what ended during the stall."""
        return self.end + max(CATCH_UP_SHARE * self.seconds, MIN_CATCH_UP_SECONDS)


def find_stalls(arrivals: FloatArray, attempts: Attempts) -> list[Stall]:
    events = np.unique(np.concatenate([arrivals, attempts.start, attempts.end]))
    gaps = np.diff(events)
    if not len(gaps):
        return []
    long = np.flatnonzero(gaps >= max(MIN_STALL_SECONDS, MIN_GAP_RATIO * float(gaps.mean())))
    long = np.sort(long[np.argsort(-gaps[long], kind="stable")[:MAX_STALLS]])
    stalls = (Stall(float(events[n]), float(events[n + 1])) for n in long)
    return [stall for stall in stalls if _is_stall(stall, arrivals, attempts)]


def _is_stall(stall: Stall, arrivals: FloatArray, attempts: Attempts) -> bool:
    """Most replicas with work all the time had some that ended just afterwards: several replicas, or one and a burst of
    arrivals."""
    through = (attempts.start <= stall.begin) & (attempts.end >= stall.end)
    busy = np.unique(attempts.replica[through])
    at_once = np.unique(attempts.replica[through & (attempts.end <= stall.caught_up)])
    return 2 * len(at_once) > len(busy) and (len(busy) > 1 or _arrivals_burst(stall, arrivals))


def _arrivals_burst(stall: Stall, arrivals: FloatArray) -> bool:
    usual = len(arrivals) / max(float(np.ptp(arrivals)), stall.seconds)
    first, last = np.searchsorted(arrivals, [stall.end, stall.caught_up])
    return bool(last - first >= max(0.5 * usual * stall.seconds, MIN_BURST_ARRIVALS))


def ended_in_stall(stalls: list[Stall], attempts: Attempts) -> NDArray[np.bool_]:
    """Attempts that ended at an unknown time during a stall."""
    late = np.zeros(len(attempts.end), dtype=np.bool_)
    for stall in stalls:
        late |= (attempts.start <= stall.begin) & (attempts.end >= stall.end) & (attempts.end <= stall.caught_up)
    return late
