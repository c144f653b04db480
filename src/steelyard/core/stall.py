"""Is a replica frozen? A probe that times out cannot tell frozen from busy; the requests that run there can."""

from __future__ import annotations

from .estimate import Estimator
from .replica import Replica

NEARLY_ALL = 0.999
LEAST = 1.0  # seconds: shorter silences are nothing
LOOKED_AT = 64  # flights, the oldest: enough to find how long one may take


def overdue(replica: Replica, estimator: Estimator, heard: float, now: float) -> bool:
    """Has it requests of ours, and sent no byte for longer than nearly all requests like these take?

    `heard`: when the last byte came from it. With nothing running there is nothing to be overdue.
    """
    oldest = next(iter(replica.flights), None)
    if oldest is None:
        return False
    silent = now - max(heard, oldest.started)
    if silent <= LEAST:
        return False
    if not estimator.seen:
        return True  # nothing is known of how long they take, so the probe is believed
    looked_at = [flight for flight, _ in zip(replica.flights, range(LOOKED_AT), strict=False)]
    longest = max(flight.predicted for flight in looked_at)
    return silent > longest * estimator.remaining.quantile(NEARLY_ALL)
