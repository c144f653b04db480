"""The fleet made visible: what the supervisor knows and what workers report, put together for people and programs."""

from __future__ import annotations

from collections import defaultdict
from math import isnan

import msgspec

from .. import __version__
from ..config import ModelConfig
from ..core.replica import State
from ..link.messages import ModelReport, ReplicaReport
from ..protocols.load import EngineLoad
from .alarms import current_alarms
from .crew import Crew
from .ejections import Ejected, ejected_in
from .fleet import LASTING, Fleet
from .live import Totals
from .replica_failures import fails
from .roster import Key, Member
from .standing import Standing
from .status import ModelStatus, ReplicaStatus, merge
from .views import (
    FleetView,
    ModelView,
    ReplicaView,
    ScalingView,
    SignalView,
    WorkerReplicaView,
    WorkerView,
)

MIN_SAMPLES = 20  # answers, before it is said how slow a replica is
LATEST = 5  # steps of scaling shown of each model, where all models are


def fleet_view(fleet: Fleet, crew: Crew, began: float, totals: Totals | None = None) -> FleetView:
    """`totals`: of `merge`, for those who want nothing else of the workers: what each of them sees is left out then."""
    models, replicas = totals or merge(crew.reports(), crew.past, fleet.in_force.slots.table)
    fleet.slo.take_in(crew.reports(), crew.past, fleet.now())
    fleet.failures.take_in(replicas, fleet.now())
    seen = _by_replica(crew) if totals is None else {}
    members = fleet.members()
    ejected = ejected_in(crew.reports(), fleet.now())
    shown = tuple(
        _replica(fleet, key, member, fleet.standings[key], replicas[key], seen.get(key, []), ejected.get(key))
        for key, member in members.items()
        if key in fleet.standings and key in replicas
    )
    by_model: dict[str, list[ReplicaView]] = defaultdict(list)
    for replica in shown:
        by_model[replica.model].append(replica)
    reports = _by_model(crew)
    model_views = tuple(
        _model(fleet, name, model, models[name], by_model[name], reports[name])
        for name, model in fleet.config.models.items()
    )
    discovery = fleet.discoverer.views()
    devices, sizes = fleet.holdings.views()
    scaling = tuple(map(_latest, fleet.scaling.views()))
    workers = tuple(
        WorkerView(index=w.index, pid=w.pid, serving=w.serving, connections=w.connections) for w in crew.status()
    )
    uptime = fleet.now() - began
    placing = fleet.holdings.placer.views()
    return FleetView(
        version=__version__,
        uptime=uptime,
        workers=workers,
        models=model_views,
        replicas=shown,
        discovery=discovery,
        alarms=tuple(current_alarms(fleet, scaling, discovery, placing, uptime, crew.workers())),
        devices=devices,
        sizes=sizes,
        placing=placing,
        scaling=scaling,
        slo=fleet.slo.views(fleet.now()),
    )


def _latest(scaled: ScalingView) -> ScalingView:
    """Without the older part of its history."""
    return msgspec.structs.replace(scaled, history=scaled.history[-LATEST:])


def _by_replica(crew: Crew) -> dict[Key, list[tuple[int, ReplicaReport]]]:
    seen: dict[Key, list[tuple[int, ReplicaReport]]] = defaultdict(list)
    for worker in crew.workers():
        for replica in worker.report.replicas if worker.report is not None else ():
            seen[replica.model, replica.id].append((worker.index, replica))
    return seen


def _by_model(crew: Crew) -> dict[str, list[ModelReport]]:
    seen: dict[str, list[ModelReport]] = defaultdict(list)
    for report in crew.reports():
        for model in report.models:
            seen[model.model].append(model)
    return seen


def _model(
    fleet: Fleet,
    name: str,
    model: ModelConfig,
    status: ModelStatus,
    replicas: list[ReplicaView],
    reports: list[ModelReport],
) -> ModelView:
    answered = [r.typical for r in reports if r.verdicts.get("ok")] or [r.typical for r in reports]
    return ModelView(
        model=name,
        policy=model.policy,
        policy_options=model.policy_options,
        concurrency=model.concurrency,
        replicas=len(replicas),
        ready=sum(r.state == State.READY.value for r in replicas),
        failing=sum(r.state == State.READY.value and fails(r.recent) for r in replicas),
        waiting=status.waiting,
        in_flight=status.in_flight,
        verdicts=status.verdicts,
        p50=_finite(status.quantile(0.5)),
        p99=_finite(status.quantile(0.99)),
        typical=sum(answered) / len(answered) if answered else 0.0,
        drain_rate=max((r.drain_rate for r in reports), default=0.0),
        panicking=any(r.panicking for r in reports),
        overridden=tuple(fleet.roster.models.get(name, {})),
    )


def _finite(seconds: float) -> float | None:
    return None if isnan(seconds) else seconds


def _replica(
    fleet: Fleet,
    key: Key,
    member: Member,
    standing: Standing,
    status: ReplicaStatus,
    seen: list[tuple[int, ReplicaReport]],
    ejected: Ejected | None,
) -> ReplicaView:
    now = fleet.now()
    settings = member.settings
    out = standing.state is State.READY and status.state == State.EJECTED.value
    ejected = ejected if out else None
    return ReplicaView(
        model=key[0],
        id=key[1],
        url=settings.url,
        source=member.source,
        state=State.EJECTED.value if out else standing.state.value,
        since=now - (standing.since if ejected is None else ejected.since),
        why=standing.why if ejected is None else str(ejected.reason),
        weight=settings.weight,
        zone=settings.zone,
        device=settings.device,
        draining=standing.state is State.DRAINING,
        in_flight=status.in_flight,
        picks=status.picks,
        failures=status.failures,
        recent=fleet.failures.recent(key, now),
        work=status.seconds,
        slowness=status.slowness if status.samples >= MIN_SAMPLES else None,
        slowness_samples=status.samples,
        slowness_age=status.sampled_age if status.samples else None,
        lease=fleet.registrations.leases.left(key, now),
        probe=fleet.prober.view(key),
        signals=_signals(fleet, key, seen),
        workers=tuple(_as_seen_by(worker, report) for worker, report in seen),
    )


def _signals(fleet: Fleet, key: Key, seen: list[tuple[int, ReplicaReport]]) -> SignalView | None:
    known = fleet.scraper.view(key)
    if known is None:
        return None
    load = known.load or EngineLoad()
    return SignalView(
        running=load.running,
        waiting=load.waiting,
        cache=load.cache,
        memory_used=load.memory_used,
        memory_total=load.memory_total,
        utilization=load.utilization,
        age=known.age,
        stale=known.age is not None and known.age > LASTING * known.interval,
        problem=known.problem,
        foreign=max((report.foreign for _, report in seen), default=0),
    )


def _as_seen_by(worker: int, report: ReplicaReport) -> WorkerReplicaView:
    return WorkerReplicaView(
        worker=worker,
        state=report.state,
        in_flight=report.in_flight,
        outside=report.outside,
        limit=report.limit,
        work=report.seconds,
        slowness=report.slowness,
        slowness_samples=report.samples,
        weight=report.weight,
        share=report.share,
        picks=report.picks,
        failures=report.failures,
        consecutive_failures=report.consecutive,
        ejections=report.ejections,
        ejected_for=report.ejected_for,
        p50=report.p50,
        p99=report.p99,
        overdue=report.overdue,
        cache=report.cache,
        utilization=report.utilization,
    )
