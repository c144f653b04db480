"""Makes the view of the fleet, and the numbers that only the metrics have, from the supervisor's state and the workers'
reports."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from ... import __version__
from ...config import ModelConfig
from ...core.replica import State
from ...link.messages import ReplicaReport
from ...protocols.load import EngineLoad
from ..fleet.ejections import ActiveEjection, active_ejections
from ..fleet.fleet import Fleet
from ..fleet.health import LOAD_READING_LIFETIME_INTERVALS
from ..fleet.registry import Member, ReplicaKey
from ..process_resources import ProcessUsage, process_usage
from ..workers.pool import WorkerPool
from .alarms import current_alarms
from .replica_failures import is_failing
from .samples import quantiles
from .totals import FleetTotals, ModelTotals, ReplicaTotals, lost_telemetry, merge_reports, unrouted_requests
from .views import (
    BalancerReplicaView,
    FleetView,
    LoadSignalView,
    ModelView,
    ReplicaView,
)

if TYPE_CHECKING:
    from ..supervisor.controllers import Controllers

MIN_SLOWNESS_SAMPLES = 20  # before a replica's slowness is shown
SHOWN_SCALING_STEPS = 5  # of each model


def fleet_totals(fleet: Fleet, worker_pool: WorkerPool) -> FleetTotals:
    return merge_reports(worker_pool.reports(), worker_pool.retired, fleet.members.columns)


def fleet_view(
    fleet: Fleet, controllers: Controllers, worker_pool: WorkerPool, began: float, totals: FleetTotals | None = None
) -> FleetView:
    """With `totals`, what the balancer decides by is left out."""
    models, replicas = totals or fleet_totals(fleet, worker_pool)
    controllers.slo.update(worker_pool.reports(), worker_pool.retired, fleet.now())
    fleet.health.failures.update(replicas, fleet.now())
    decided = _decided(worker_pool) if totals is None else {}
    members = fleet.members.by_key()
    ejected = active_ejections(worker_pool.reports(), fleet.now())
    shown = tuple(
        _replica(fleet, member, replicas[key], decided.get(key), ejected.get(key))
        for key, member in members.items()
        if key in fleet.health.statuses and key in replicas
    )
    by_model: dict[str, list[ReplicaView]] = defaultdict(list)
    for replica in shown:
        by_model[replica.model].append(replica)
    model_views = tuple(
        _model(fleet, model, models[name], by_model[name]) for name, model in fleet.config.models.items()
    )
    discovery = fleet.members.discoverer.views()
    devices, sizes = controllers.memory.views(fleet.now())
    scaling = tuple(
        msgspec.structs.replace(view, steps=view.steps[-SHOWN_SCALING_STEPS:])
        for view in controllers.autoscaler.views()
    )
    uptime = fleet.now() - began
    placing, unavailable = controllers.placement.views(), worker_pool.unavailable_balancer()
    return FleetView(
        version=__version__,
        uptime=uptime,
        workers=worker_pool.status(),
        balancer=worker_pool.balancer_status(),
        models=model_views,
        replicas=shown,
        discovery=discovery,
        alarms=tuple(current_alarms(fleet, scaling, discovery, placing, uptime, worker_pool.workers(), unavailable)),
        devices=devices,
        model_memory=sizes,
        placement=placing,
        scaling=scaling,
        slo=controllers.slo.views(fleet.now()),
    )


def _decided(worker_pool: WorkerPool) -> dict[ReplicaKey, ReplicaReport]:
    """What the balancer says of each replica."""
    return {(r.model, r.id): r for report in worker_pool.reports() for r in report.replicas if r.state}


def _model(fleet: Fleet, model: ModelConfig, status: ModelTotals, replicas: list[ReplicaView]) -> ModelView:
    p50, p99 = quantiles(status.latency, 0.5, 0.99)
    return ModelView.of(
        status,
        policy=model.policy,
        policy_options=model.policy_options,
        concurrency=model.concurrency,
        replicas=len(replicas),
        ready=sum(r.state == State.READY.value for r in replicas),
        failing=sum(r.state == State.READY.value and is_failing(r.recent) for r in replicas),
        p50=p50,
        p99=p99,
        panic_mode=status.panicking,
        overridden=tuple(fleet.members.registry.model_overrides.get(status.model, {})),
    )


def _replica(
    fleet: Fleet,
    member: Member,
    totals: ReplicaTotals,
    decided: ReplicaReport | None,
    ejected: ActiveEjection | None,
) -> ReplicaView:
    now, key, settings = fleet.now(), (totals.model, totals.id), member.settings
    status = fleet.health.statuses[key]
    out = status.state is State.READY and totals.state == State.EJECTED.value
    ejected = ejected if out else None
    return ReplicaView.of(
        totals,
        url=settings.url,
        source=member.source,
        state=State.EJECTED.value if out else status.state.value,
        state_age=now - (status.since if ejected is None else ejected.since),
        reason=status.reason if ejected is None else str(ejected.reason),
        weight=settings.weight,
        zone=settings.zone,
        device=settings.device,
        draining=status.state is State.DRAINING,
        recent=fleet.health.failures.recent(key, now),
        slowness=totals.slowness if totals.samples >= MIN_SLOWNESS_SAMPLES else None,
        slowness_samples=totals.samples,
        slowness_age=totals.sampled_age if totals.samples else None,
        lease=fleet.registrations.leases.seconds_left(key, now),
        probe=fleet.health.prober.view(key),
        load_signals=_signals(fleet, key),
        balancer=(BalancerReplicaView.of(decided, ejected_for=decided.ejection_left) if decided is not None else None),
    )


def _signals(fleet: Fleet, key: ReplicaKey) -> LoadSignalView | None:
    known = fleet.health.scraper.view(key)
    if known is None:
        return None
    return LoadSignalView.of(
        known.load or EngineLoad(),
        age=known.age,
        stale=known.age is not None and known.age > LOAD_READING_LIFETIME_INTERVALS * known.interval,
        problem=known.problem,
    )


# ---------------------------------------------------------------------- for the metrics alone


class MetricsSnapshot(NamedTuple):
    models: Mapping[str, ModelTotals] = {}
    replicas: Mapping[ReplicaKey, ReplicaTotals] = {}
    processes: Mapping[int, ProcessUsage] = {}  # workers and the balancer process, by pid
    supervisor: ProcessUsage | None = None
    unexpected_exits: int | None = None  # of workers
    unexpected_balancer_exits: int | None = None
    unrouted: Mapping[str, int] = {}  # requests, by outcome
    probes: Mapping[tuple[str, str], int] = {}  # by model and result
    lost_telemetry: Mapping[str, int] = {}  # log lines and spans, by kind


def take_metrics_snapshot(fleet: Fleet, worker_pool: WorkerPool, totals: FleetTotals) -> MetricsSnapshot:
    usage = {worker.pid: process_usage(worker.pid) for worker in worker_pool.processes()}
    return MetricsSnapshot(
        *totals,
        {pid: used for pid, used in usage.items() if used is not None},
        process_usage(os.getpid()),
        worker_pool.unexpected_exits,
        worker_pool.unexpected_balancer_exits,
        unrouted_requests(worker_pool.reports(), worker_pool.retired),
        fleet.health.prober.result_counts,
        lost_telemetry(worker_pool.reports(), worker_pool.retired),
    )
