"""Is a replica frozen? A probe that times out cannot tell frozen from busy; the requests that run there can."""

from __future__ import annotations

from .estimate import Estimator
from .replica import Replica

STALL_QUANTILE = 0.999
MIN_STALL_SECONDS = 1.0  # seconds: shorter silences are nothing
MAX_ATTEMPTS_SCANNED = 64  # flights, the oldest: enough to find how long one may take


def is_stalled(replica: Replica, estimator: Estimator, heard: float, now: float) -> bool:
    """Has it requests of ours, and sent no byte for longer than nearly all requests like these take?

    `heard`: when the last byte came from it. With nothing running there is nothing to be overdue.
    """
    oldest = next(iter(replica.running_attempts), None)
    if oldest is None:
        return False
    silent = now - max(heard, oldest.started)
    if silent <= MIN_STALL_SECONDS:
        return False
    if not estimator.samples:
        return True  # nothing is known of how long they take, so the probe is believed
    looked_at = [flight for flight, _ in zip(replica.running_attempts, range(MAX_ATTEMPTS_SCANNED), strict=False)]
    longest = max(flight.predicted for flight in looked_at)
    return silent > longest * estimator.remaining.quantile(STALL_QUANTILE)
