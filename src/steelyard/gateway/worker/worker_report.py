"""Reports to the supervisor, about once a second: of a worker, of the balancer process, or of a worker that is both."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...core.balancer import Balancer
from ...core.outcome import Outcome
from ...core.outliers.probation import stalls_after
from ...core.pool import Pool
from ...core.replica import Replica, State
from ...core.request import INFINITY
from ...link.messages import Durations, ModelReport, ReplicaReport, WorkerReport
from ..proxy.dispatch_hooks import DeviceMemory
from ..proxy.proxy import Proxy

QUANTILE_INTERVAL_SECONDS = 5.0  # of one replica
MAX_QUANTILES_PER_REPORT = 32  # it must not hold up requests

ModelFields = dict[str, dict[str, Any]]  # fields of a ModelReport, by model
ReplicaFields = dict[Replica, dict[str, Any]]  # fields of a ReplicaReport


def worker_report(proxy: Proxy, now: float, number: int = 0, *, decides: bool) -> WorkerReport:
    """`decides`: its balancer is its own."""
    recorder, memory = proxy.recorder, proxy.dispatcher.memory
    models, replicas = _traffic(proxy, now)
    if decides:
        models, replicas = _with_decisions(proxy.balancer, models, replicas, now)
    alarms = tuple(alarm for shortage in proxy.resource_alarms if (alarm := shortage.alarm(now)) is not None)
    return WorkerReport(
        len(proxy.clients),
        _model_reports(models),
        _replica_reports(replicas),
        number,
        memory.take_samples(),
        recorder.unrouted.outcomes(),
        recorder.dropped(),
        memory.unmeasured(),
        alarms,
    )


def balancer_report(balancer: Balancer, memory: DeviceMemory, now: float, number: int = 0) -> WorkerReport:
    """Of a balancer process."""
    models: ModelFields = {name: {} for name in balancer.models}
    replicas: ReplicaFields = {r: {} for name in balancer.models for r in balancer.pool(name).replicas.values()}
    models, replicas = _with_decisions(balancer, models, replicas, now)
    samples, unmeasured = memory.take_samples(), memory.unmeasured()
    return WorkerReport(
        0, _model_reports(models), _replica_reports(replicas), number, samples=samples, unmeasured=unmeasured
    )


def _model_reports(models: Mapping[str, dict[str, Any]]) -> tuple[ModelReport, ...]:
    return tuple(ModelReport(name, **fields) for name, fields in models.items())


def _replica_reports(replicas: ReplicaFields) -> tuple[ReplicaReport, ...]:
    return tuple(ReplicaReport(r.context.model, r.id, **fields) for r, fields in replicas.items())


def _traffic(proxy: Proxy, now: float) -> tuple[ModelFields, ReplicaFields]:
    balancer, heard = proxy.balancer, _last_bytes(proxy)
    models: ModelFields = {}
    replicas: ReplicaFields = {}
    for name in balancer.models:
        pool, stats = balancer.pool(name), proxy.recorder.stats[name]
        models[name] = {
            "in_flight": pool.active,
            "outcomes": stats.outcomes(),
            "latency": dict(stats.latency_buckets),
            "arrived": -stats.health_requests,  # the balancer counts them as well
            "slo_verdicts": {tenant: list(stats.counts) for tenant, stats in stats.tenants.items()},
            "times": {name: Durations(list(times.counts), times.total) for name, times in stats.durations().items()},
            "statuses": stats.statuses_with_200(),
            "tokens": stats.tokens.counts(),
        }
        for replica in pool.replicas.values():
            upstream = replica.context
            load, last = upstream.load, max(heard.get(replica, 0.0), upstream.last_response_at)
            replicas[replica] = {
                "in_flight": replica.in_flight,
                "dispatched": replica.dispatched,
                "failures": replica.failed,
                "outcomes": _outcomes(replica),
                "last_error": upstream.last_error,
                "last_error_age": now - upstream.last_error_at if upstream.last_error else INFINITY,
                "silent_for": now - last if last else INFINITY,
                "cache": load.cache if load is not None else None,
                "utilization": load.utilization if load is not None else None,
                "held": int(load.held) if load is not None and load.held is not None else None,
                "base": int(load.base) if load is not None and load.base is not None else None,
                "tokens": upstream.tokens.counts(),
                "token_seconds": upstream.tokens.seconds(),
            }
    return models, replicas


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


def _with_decisions(
    balancer: Balancer, models: ModelFields, replicas: ReplicaFields, now: float
) -> tuple[ModelFields, ReplicaFields]:
    quantiles_left = MAX_QUANTILES_PER_REPORT
    for name in balancer.models:
        pool = balancer.pool(name)
        arrived = models[name].get("arrived", 0) + pool.arrived
        models[name] |= {**_model_decisions(pool, now), "arrived": arrived}
        for replica in pool.replicas.values():
            if quantiles_left and now - replica.context.latency_at >= QUANTILE_INTERVAL_SECONDS and replica.dispatched:
                quantiles = replica.latency.quantile(0.5, now), replica.latency.quantile(0.99, now)
                replica.context.latency, replica.context.latency_at = quantiles, now
                quantiles_left -= 1
            replicas[replica] |= _replica_decisions(pool, replica, now)
    return models, replicas


def _model_decisions(pool: Pool, now: float) -> dict[str, Any]:
    return {
        "waiting": len(pool.queue),
        "typical_seconds": pool.estimator.typical_seconds,
        "service_rate": pool.service_rate,
        "panicking": pool.panicking,
        "prefix_index_blocks": pool.policy.prefix_index_blocks,
        "offered_work": pool.offered_work,
        "queued_work": pool.queue.work,
        "learned": pool.estimator.samples > 0,
        "replica_rate": pool.service_rate / len(pool.members) if pool.members else 0.0,
        "completed_work": pool.completed_work,
        "busy_seconds": pool.busy_seconds,
        "limit": None if pool.limit == INFINITY else pool.limit,
        "oldest_wait": now - pool.queue.oldest_arrival if len(pool.queue) else 0.0,
        "predicted_seconds": pool.predicted_seconds,
        "prediction_error_seconds": pool.prediction_error_seconds,
        "retried": pool.retried,
        "hedged": pool.hedged,
        "hedges_won": pool.hedges_won,
        "ejected": pool.ejected,
    }


def _replica_decisions(pool: Pool, replica: Replica, now: float) -> dict[str, Any]:
    speed, ejected = replica.slowness_filter, replica.state is State.EJECTED
    oldest = replica.oldest
    return {
        "state": replica.state.value,
        "work": replica.outstanding_work,
        "slowness": replica.slowness,
        "external_load": replica.external_load,
        "limit": None if replica.limit == INFINITY else int(replica.limit) - replica.external_load,
        "weight": replica.weight,
        "effective_weight": replica.effective_weight,
        "consecutive_failures": replica.consecutive_failures,
        "consecutive_ejections": replica.ejection_backoff,
        "ejection_left": max(0.0, replica.ejected_until - now) if ejected else 0.0,
        "p50": replica.context.latency[0],
        "p99": replica.context.latency[1],
        "runs_for": now - oldest.started if oldest is not None else 0.0,
        "stalls_after": stalls_after(replica, pool.estimator) if oldest is not None else 0.0,
        "ejections_total": replica.ejection_count,
        "samples": speed.seen,
        "sampled_age": now - speed.updated_at if speed.seen else INFINITY,
        "ejected_since": now - replica.ejected_at if ejected else 0.0,
        "ejection_reason": replica.ejection if ejected else None,
    }
