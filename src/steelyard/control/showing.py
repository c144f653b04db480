"""The fleet made visible: what the supervisor knows and what workers report, put together for people and programs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from math import isnan

import msgspec

from .. import __version__
from ..config import ModelConfig
from ..core.replica import State
from ..link.messages import ModelReport, ReplicaReport
from ..protocols.load import EngineLoad
from .crew import Crew
from .fleet import LASTING, Fleet
from .live import Totals
from .roster import Key, Member
from .standing import Standing
from .status import ModelStatus, ReplicaStatus, merge
from .views import (
    Alarm,
    FleetView,
    ModelView,
    ReplicaView,
    ScalingView,
    SignalView,
    WorkerReplicaView,
    WorkerView,
)

LONG_LOADING = 600.0  # seconds after which loading is worth an alarm
LATEST = 5  # steps of scaling shown of each model, where all models are


def fleet_view(fleet: Fleet, crew: Crew, began: float, totals: Totals | None = None) -> FleetView:
    """`totals`: of `merge`, for those who want nothing else of the workers: what each of them sees is left out then."""
    models, replicas = totals or merge(crew.reports(), crew.past, fleet.in_force.slots.table)
    fleet.slo.take_in(crew.reports(), crew.past, fleet.now())
    seen = _by_replica(crew) if totals is None else {}
    members = fleet.members()
    shown = tuple(
        _replica(fleet, key, member, fleet.standings[key], replicas[key], seen.get(key, []))
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
    alarms = [
        *(
            _alarm("no_ready_replica", what, _unready(fleet, by_model[model], uptime))
            for model, what in unserved(model_views, shown, scaling).items()
        ),
        *(
            _alarm(
                "discovery", f"{view.model}: {view.source}: {view.problem}", uptime if view.age is None else view.age
            )
            for view in discovery
            if view.problem
        ),
        *_loading_long(shown),
        *([_alarm("board_full", fleet.too_many)] if fleet.too_many else []),
        *fleet.holdings.alarms(),
        *fleet.starting.alarms(),
        *fleet.scaling.alarms(),
        *fleet.slo.alarms(fleet.now()),
    ]
    return FleetView(
        version=__version__,
        uptime=uptime,
        workers=workers,
        models=model_views,
        replicas=shown,
        discovery=discovery,
        alarms=tuple(alarms),
        devices=devices,
        sizes=sizes,
        placing=fleet.holdings.placer.views(),
        scaling=scaling,
        slo=fleet.slo.views(fleet.now()),
    )


def unserved(
    models: Iterable[ModelView], replicas: Iterable[ReplicaView], scaling: Iterable[ScalingView]
) -> dict[str, str]:
    """Which models nobody serves, nor would if a request came, in words: one that is loaded or started on demand is as
    it should be."""
    could = {r.model for r in replicas if r.state == State.UNLOADED.value}
    could |= {s.model for s in scaling if _rests(s)}
    return {m.model: f"no replica of {m.model} is ready" for m in models if not m.ready and m.model not in could}


def _unready(fleet: Fleet, replicas: Iterable[ReplicaView], uptime: float) -> float:
    """Seconds since one of them was last ready; none: for as long as anything is known."""
    last = max((fleet.standings[r.model, r.id].was_ready for r in replicas), default=None)
    return uptime if last is None else fleet.now() - last


def _rests(scaled: ScalingView) -> bool:
    """It has no replica because nobody asked for it, and would have one if somebody did; or is just getting one, and
    requests wait for it."""
    looping = scaled.setback is not None and scaled.setback.looping
    return scaled.mode == "act" and not scaled.least and (not scaled.wanted or scaled.starting > 0) and not looping


def _latest(scaled: ScalingView) -> ScalingView:
    """Without the older part of its history."""
    return msgspec.structs.replace(scaled, history=scaled.history[-LATEST:])


def _alarm(code: str, what: str, age: float = 0.0) -> Alarm:
    return Alarm(code=code, what=what, age=age)


def _loading_long(replicas: tuple[ReplicaView, ...]) -> list[Alarm]:
    return [
        _alarm("loading_long", f"{r.model}/{r.id} has been loading for {r.since:.0f} s: {r.why}", r.since)
        for r in replicas
        if r.state == State.LOADING.value and r.since > LONG_LOADING
    ]


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
) -> ReplicaView:
    now = fleet.now()
    settings = member.settings
    out = standing.state is State.READY and status.state == State.EJECTED.value
    return ReplicaView(
        model=key[0],
        id=key[1],
        url=settings.url,
        source=member.source,
        state=State.EJECTED.value if out else standing.state.value,
        since=now - standing.since,
        why="it fails or crawls with real requests" if out else standing.why,
        weight=settings.weight,
        zone=settings.zone,
        device=settings.device,
        draining=standing.state is State.DRAINING,
        in_flight=status.in_flight,
        picks=status.picks,
        failures=status.failures,
        work=status.seconds,
        slowness=status.slowness,
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
