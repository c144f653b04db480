"""What a worker tells the supervisor of itself, about once a second."""

from __future__ import annotations

from ..core.outcome import Outcome
from ..core.pool import Pool
from ..core.replica import Replica, State
from ..core.request import INFINITY
from ..core.stall import overdue
from ..core.times import Times
from ..link.messages import Durations, ModelReport, ReplicaReport, Report
from .carrier import Carrier

TIMES = ("total", "replica", "first_byte", "queue")
QUANTILES_EVERY = 5.0  # seconds between two looks at a replica's latencies …
QUANTILES_AT_ONCE = 32  # … of so many in one report: it must not hold up requests


def report(carrier: Carrier, now: float, told: int = 0) -> Report:
    balancer = carrier.balancer
    models = []
    replicas = []
    heard = _last_bytes(carrier)
    looks = QUANTILES_AT_ONCE
    for name in balancer.models:
        pool = balancer.pool(name)
        models.append(_model(carrier, name, pool, now))
        for replica in pool.replicas.values():
            if looks and now - replica.context.latency_at >= QUANTILES_EVERY and replica.picks:
                _look_at_latency(replica, now)
                looks -= 1
            last = max(heard.get(replica, 0.0), replica.context.heard)
            replicas.append(_replica(name, pool, replica, last, now))
    memory = carrier.memory
    samples = memory.samples() if memory is not None else ()
    unmeasured = memory.unmeasured() if memory is not None else ()
    kept = {"access_log": carrier.log, "decisions": carrier.decisions, "spans": carrier.tracing}
    lost = {name: log.missing for name, log in kept.items() if log is not None}
    unrouted = carrier.unrouted.verdicts()
    alarms = tuple(alarm for shortage in carrier.shortages if (alarm := shortage.alarm(now)) is not None)
    clients = len(carrier.clients)
    return Report(clients, tuple(models), tuple(replicas), told, samples, unrouted, lost, unmeasured, alarms)


def _model(carrier: Carrier, name: str, pool: Pool, now: float) -> ModelReport:
    account = carrier.accounts[name]
    return ModelReport(
        name,
        len(pool.line),
        pool.active,
        account.verdicts(),
        dict(account.buckets),
        pool.estimator.typical,
        pool.drain_rate,
        pool.panicking,
        pool.offered,
        pool.arrived - account.looks,
        pool.line.work,
        pool.estimator.seen > 0,
        pool.drain_rate / len(pool.members) if pool.members else 0.0,
        pool.done,
        pool.busy,
        None if pool.limit == INFINITY else pool.limit,
        {tenant: list(tally.counts) for tenant, tally in account.tallies.items()},
        {name: _durations(getattr(account, name)) for name in TIMES},
        now - pool.line.longest if len(pool.line) else 0.0,
        pool.believed,
        pool.missed,
        pool.retried,
        pool.hedged,
        pool.hedges_won,
        pool.ejected,
        account.by_status(),
    )


def _durations(times: Times) -> Durations:
    return Durations(list(times.counts), times.total)


def _replica(model: str, pool: Pool, replica: Replica, heard: float, now: float) -> ReplicaReport:
    way = replica.context
    load = way.load
    speed = replica.speed
    return ReplicaReport(
        model,
        replica.id,
        replica.state.value,
        replica.in_flight,
        replica.picks,
        replica.failed,
        replica.work,
        replica.slowness,
        replica.outside,
        replica.foreign,
        None if replica.limit == INFINITY else int(replica.limit) - replica.foreign,
        replica.weight,
        replica.share,
        replica.consecutive_failures,
        replica.ejections,
        max(0.0, replica.ejected_until - now) if replica.state is State.EJECTED else 0.0,
        way.latency[0],
        way.latency[1],
        bool(replica.flights) and overdue(replica, pool.estimator, heard, now),
        now - heard if heard else INFINITY,
        load.cache if load is not None else None,
        load.utilization if load is not None else None,
        int(load.held) if load is not None and load.held is not None else None,
        int(load.base) if load is not None and load.base is not None else None,
        replica.times_ejected,
        _outcomes(replica),
        way.last_error,
        now - way.last_error_at if way.last_error else INFINITY,
        speed.seen,
        now - speed.stamp if speed.seen else INFINITY,
        now - replica.ejected_at if replica.state is State.EJECTED else 0.0,
        replica.ejection if replica.state is State.EJECTED else None,
    )


def _outcomes(replica: Replica) -> dict[str, int]:
    """Attempts that went well are those that ended and were not counted as anything else."""
    others: dict[str, int] = replica.context.outcomes
    well = replica.picks - replica.in_flight - sum(others.values())
    return {Outcome.OK.label: well, **others}


def _last_bytes(carrier: Carrier) -> dict[Replica, float]:
    """When the last byte of an answer that still comes was heard, of each replica that sends one."""
    heard: dict[Replica, float] = {}
    for connection in carrier.active:
        exchange = connection.exchange
        if exchange is not None and exchange.answered:
            heard[connection.replica] = max(heard.get(connection.replica, 0.0), connection.since)
    return heard


def _look_at_latency(replica: Replica, now: float) -> None:
    way = replica.context
    way.latency = (replica.latency.quantile(0.5, now), replica.latency.quantile(0.99, now))
    way.latency_at = now
