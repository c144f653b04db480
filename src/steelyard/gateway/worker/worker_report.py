"""A worker's report to the supervisor, about once a second."""

from __future__ import annotations

from ...core.outcome import Outcome
from ...core.outliers.probation import is_stalled
from ...core.pool import Pool
from ...core.replica import Replica, State
from ...core.request import INFINITY
from ...link.messages import Durations, ModelReport, ReplicaReport, WorkerReport
from ..proxy.proxy import Proxy

QUANTILE_INTERVAL_SECONDS = 5.0  # of one replica
MAX_QUANTILES_PER_REPORT = 32  # it must not hold up requests


def build_report(proxy: Proxy, now: float, number: int = 0) -> WorkerReport:
    balancer = proxy.balancer
    models = []
    replicas = []
    heard = _last_bytes(proxy)
    looks = MAX_QUANTILES_PER_REPORT
    for name in balancer.models:
        pool = balancer.pool(name)
        models.append(_model(proxy, name, pool, now))
        for replica in pool.replicas.values():
            if looks and now - replica.context.latency_at >= QUANTILE_INTERVAL_SECONDS and replica.dispatched:
                quantiles = replica.latency.quantile(0.5, now), replica.latency.quantile(0.99, now)
                replica.context.latency, replica.context.latency_at = quantiles, now
                looks -= 1
            last = max(heard.get(replica, 0.0), replica.context.last_response_at)
            replicas.append(_replica(name, pool, replica, last, now))
    memory = proxy.dispatcher.memory
    samples = memory.take_samples()
    unmeasured = memory.unmeasured()
    lost = proxy.recorder.dropped()
    unrouted = proxy.recorder.unrouted.outcomes()
    alarms = tuple(alarm for shortage in proxy.resource_alarms if (alarm := shortage.alarm(now)) is not None)
    clients = len(proxy.clients)
    return WorkerReport(clients, tuple(models), tuple(replicas), number, samples, unrouted, lost, unmeasured, alarms)


def _model(proxy: Proxy, name: str, pool: Pool, now: float) -> ModelReport:
    account = proxy.recorder.stats[name]
    return ModelReport(
        name,
        len(pool.queue),
        pool.active,
        account.outcomes(),
        dict(account.latency_buckets),
        pool.estimator.typical_seconds,
        pool.service_rate,
        pool.panicking,
        pool.offered_work,
        pool.arrived - account.health_requests,
        pool.queue.work,
        pool.estimator.samples > 0,
        pool.service_rate / len(pool.members) if pool.members else 0.0,
        pool.completed_work,
        pool.busy_seconds,
        None if pool.limit == INFINITY else pool.limit,
        {tenant: list(stats.counts) for tenant, stats in account.tenants.items()},
        {name: Durations(list(times.counts), times.total) for name, times in account.durations().items()},
        now - pool.queue.oldest_arrival if len(pool.queue) else 0.0,
        pool.predicted_seconds,
        pool.prediction_error_seconds,
        pool.retried,
        pool.hedged,
        pool.hedges_won,
        pool.ejected,
        account.statuses_with_200(),
    )


def _replica(model: str, pool: Pool, replica: Replica, heard: float, now: float) -> ReplicaReport:
    upstream = replica.context
    load = upstream.load
    speed = replica.slowness_filter
    return ReplicaReport(
        model,
        replica.id,
        replica.state.value,
        replica.in_flight,
        replica.dispatched,
        replica.failed,
        replica.outstanding_work,
        replica.slowness,
        replica.other_load,
        replica.external_load,
        None if replica.limit == INFINITY else int(replica.limit) - replica.external_load,
        replica.weight,
        replica.effective_weight,
        replica.consecutive_failures,
        replica.ejection_backoff,
        max(0.0, replica.ejected_until - now) if replica.state is State.EJECTED else 0.0,
        upstream.latency[0],
        upstream.latency[1],
        bool(replica.running_attempts) and is_stalled(replica, pool.estimator, heard, now),
        now - heard if heard else INFINITY,
        load.cache if load is not None else None,
        load.utilization if load is not None else None,
        int(load.held) if load is not None and load.held is not None else None,
        int(load.base) if load is not None and load.base is not None else None,
        replica.ejection_count,
        _outcomes(replica),
        upstream.last_error,
        now - upstream.last_error_at if upstream.last_error else INFINITY,
        speed.seen,
        now - speed.updated_at if speed.seen else INFINITY,
        now - replica.ejected_at if replica.state is State.EJECTED else 0.0,
        replica.ejection if replica.state is State.EJECTED else None,
    )


def _outcomes(replica: Replica) -> dict[str, int]:
    others: dict[str, int] = replica.context.outcomes
    well = replica.dispatched - replica.in_flight - sum(others.values())
    return {Outcome.OK.label: well, **others}


def _last_bytes(proxy: Proxy) -> dict[Replica, float]:
    """When the last byte of an answer under way came, by replica."""
    heard: dict[Replica, float] = {}
    for connection in proxy.active:
        exchange = connection.exchange
        if exchange is not None and exchange.response_started:
            heard[connection.replica] = max(heard.get(connection.replica, 0.0), connection.last_activity)
    return heard
