"""What `LoadBalancer.stats()` returns: a snapshot."""

from __future__ import annotations

from dataclasses import dataclass

from ..core.pool import Pool
from ..core.replica import Replica, State


@dataclass(frozen=True, slots=True)
class ReplicaStats:
    state: State
    weight: float
    in_flight: int  # requests there now
    sent: int  # attempts sent there since it was added
    failed: int  # of those, failed
    consecutive_failures: int
    ejections: int  # times it was ejected
    ejected_for: float | None  # seconds until it returns; None: it is not ejected
    slowness: float  # seconds here for one second on a typical replica, as learned
    samples: int  # attempts of the last 30 s, for the quantiles; a failure counts as at least three times its estimate
    p50: float | None  # seconds; None: no samples
    p95: float | None
    p99: float | None


@dataclass(frozen=True, slots=True)
class Stats:
    replicas: dict[str, ReplicaStats]
    waiting: int  # requests that wait for a free replica
    requests: int  # that came
    retries: int
    hedges: int  # second attempts beside one that runs
    hedges_won: int  # of those, the ones that answered first
    leases_expired: int


def stats_of(pool: Pool, leases_expired: int, now: float) -> Stats:
    return Stats(
        replicas={id: _replica(replica, now) for id, replica in pool.replicas.items()},
        waiting=len(pool.queue),
        requests=pool.arrived,
        retries=pool.retried,
        hedges=pool.hedged,
        hedges_won=pool.hedges_won,
        leases_expired=leases_expired,
    )


def _replica(replica: Replica, now: float) -> ReplicaStats:
    samples = replica.latency.count(now)
    p50, p95, p99 = (replica.latency.quantile(q, now) if samples else None for q in (0.5, 0.95, 0.99))
    return ReplicaStats(
        state=replica.state,
        weight=replica.weight,
        in_flight=replica.in_flight,
        sent=replica.dispatched,
        failed=replica.failed,
        consecutive_failures=replica.consecutive_failures,
        ejections=replica.ejection_count,
        ejected_for=max(0.0, replica.ejected_until - now) if replica.state is State.EJECTED else None,
        slowness=replica.slowness,
        samples=samples,
        p50=p50,
        p95=p95,
        p99=p99,
    )
