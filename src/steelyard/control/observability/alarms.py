"""All alarms of the fleet, and their begin and end for the log."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from ...core.replica import State
from ...units import format_duration
from ..fleet.health import NOT_YET_READY, ReplicaStatus
from .alarm_codes import PAGE
from .event_log import EventLog
from .views import Alarm, BalancerProcessView, DiscoveryView, PlacementView, ScalingView

if TYPE_CHECKING:
    from ..fleet.fleet import Fleet
    from ..workers.process import WorkerProcess

LOADING_ALARM_SECONDS: Final = 600.0  # where no start was measured
UNREACHABLE_ALARM_SECONDS: Final = 120.0
USUAL_START_FACTOR: Final = 2.0  # times the measured start
BALANCER_UNAVAILABLE: Final = "the balancer process does not serve, so requests wait"
RAISE_AFTER_SECONDS: Final = 2.0  # before an alarm is logged …
CLEAR_AFTER_SECONDS: Final = 5.0  # … and before its end is: one that comes and goes is one line


def current_alarms(
    fleet: Fleet,
    scaling: Sequence[ScalingView],
    discovery: Iterable[DiscoveryView],
    placing: PlacementView,
    uptime: float,
    workers: Iterable[WorkerProcess] = (),
    unavailable_balancer: BalancerProcessView | None = None,
) -> list[Alarm]:
    now, full = fleet.now(), fleet.members.capacity_problem
    unloaded = {key[0] for key, status in fleet.health.statuses.items() if status.state is State.UNLOADED}
    without = models_without_replicas(_ready_counts(fleet), unloaded, scaling)
    return [
        *(
            Alarm(
                code="no_ready_replica",
                message=what + _first_reason(fleet, model),
                age=_seconds_without_ready(fleet, model, uptime),
                model=model,
            )
            for model, what in without.items()
        ),
        *_balancer_alarms(unavailable_balancer),
        *fleet.health.failures.alarms(now),
        *_overdue_replicas(fleet, without, _measured_start_seconds(scaling, placing), now),
        *(
            Alarm(
                code="discovery_failed",
                message=f"{view.model}: {view.source}: {view.problem}",
                age=uptime if view.age is None else view.age,
                model=view.model,
                subject=view.source,
            )
            for view in discovery
            if view.problem
        ),
        *([Alarm(code="shared_memory_full", message=full, age=0.0)] if full else []),
        *_worker_alarms(workers),
        *(alarm for observer in fleet.observers for alarm in observer.alarms(now)),
    ]


def _worker_alarms(workers: Iterable[WorkerProcess]) -> Iterator[Alarm]:
    for worker in workers:
        name = f"worker {worker.index}"
        for said in worker.report.alarms if worker.report is not None else ():
            yield Alarm(code=said.code, message=f"{name}: {said.message}", age=said.age, subject=name)


def _balancer_alarms(balancer: BalancerProcessView | None) -> Iterator[Alarm]:
    if balancer is not None:
        message = f"{BALANCER_UNAVAILABLE}: {balancer.problem}"
        yield Alarm(code="balancer_unavailable", message=message, age=balancer.unavailable_for)


def _ready_counts(fleet: Fleet) -> dict[str, int]:
    """Replicas of each model that get requests."""
    ready = dict.fromkeys(fleet.config.models, 0)
    for key, status in fleet.health.statuses.items():
        if status.state is State.READY and key not in fleet.health.failures.ejected and key[0] in ready:
            ready[key[0]] += 1
    return ready


def models_without_replicas(
    ready: Mapping[str, int], unloaded: Iterable[str], scaling: Iterable[ScalingView]
) -> dict[str, str]:
    """Models that no replica serves, nor would on a request, with a message. Loading on demand is no alarm."""
    could = {*unloaded, *(scaled.model for scaled in scaling if _can_scale_from_zero(scaled))}
    return {model: f"no replica of {model} is ready" for model, n in ready.items() if not n and model not in could}


def _first_reason(fleet: Fleet, model: str) -> str:
    """Why the first replica is not ready; usually the reason of all."""
    for key, status in fleet.health.statuses.items():
        if key[0] == model:
            ejected = fleet.health.ejections.current.get(key)
            state, reason = ("ejected", ejected.reason) if ejected else (status.state.value, status.reason)
            return f": {key[1]} is {state}: {reason}" if reason else f": {key[1]} is {state}"
    return ""


def _can_scale_from_zero(scaled: ScalingView) -> bool:
    """Scaled to zero for lack of requests, or starting now."""
    looping = scaled.start_failure is not None and scaled.start_failure.crash_looping
    return (
        scaled.mode == "act" and not scaled.min_replicas and (not scaled.desired or scaled.starting > 0) and not looping
    )


def _seconds_without_ready(fleet: Fleet, model: str, uptime: float) -> float:
    """Since one of its replicas was last ready; without replicas, since the start."""
    ready = [status.last_ready_at for key, status in fleet.health.statuses.items() if key[0] == model]
    return fleet.now() - max(ready) if ready else uptime


def _measured_start_seconds(scaling: Iterable[ScalingView], placing: PlacementView) -> dict[str, float]:
    loads = {view.model: view.seconds for view in placing.load_times if view.measured}
    return loads | {view.model: view.cold_start for view in scaling if view.cold_start_measured}


def _overdue_replicas(
    fleet: Fleet, without: Mapping[str, str], usual: Mapping[str, float], now: float
) -> Iterator[Alarm]:
    """Replicas that should be ready by now. Skips models with `no_ready_replica`."""
    for (model, id), status in fleet.health.statuses.items():
        if status.state in NOT_YET_READY and model not in without:
            waited = now - status.not_ready_since
            if waited > _overdue_after_seconds(status, usual.get(model)):
                how = f"{status.state.value}: {status.reason}"
                what = f"{model}/{id}: not ready for {format_duration(waited)}: {how}"
                yield Alarm(code="replica_not_ready", message=what, age=waited, model=model, replica=id)


def _overdue_after_seconds(status: ReplicaStatus, usual: float | None) -> float:
    if status.state is State.UNREACHABLE:
        return UNREACHABLE_ALARM_SECONDS
    if usual is None:
        return LOADING_ALARM_SECONDS
    return max(UNREACHABLE_ALARM_SECONDS, USUAL_START_FACTOR * usual)


class ActiveAlarm(NamedTuple):
    alarm: Alarm  # as it was when it was logged
    raised_at: float
    last_seen: float
    logged: bool


class AlarmLog:
    """Records begin and end of alarms as events: a page as an error, a ticket as a warning."""

    def __init__(self, event_log: EventLog) -> None:
        self._events = event_log
        self._known: dict[tuple[str, str, str, str], ActiveAlarm] = {}

    def update(self, alarms: Iterable[Alarm], now: float) -> None:
        """Takes all current alarms, about once a second."""
        for alarm in alarms:
            key = (alarm.code, alarm.model, alarm.replica, alarm.subject)
            known = self._known.get(key, ActiveAlarm(alarm, now, now, logged=False))._replace(last_seen=now)
            if not known.logged and now - known.raised_at >= RAISE_AFTER_SECONDS:
                self._record(alarm, f"alarm: {_without_subject(alarm)}")
                known = known._replace(alarm=alarm, logged=True)
            self._known[key] = known
        for key, known in list(self._known.items()):
            if now - known.last_seen >= (CLEAR_AFTER_SECONDS if known.logged else RAISE_AFTER_SECONDS):
                del self._known[key]
                if known.logged:
                    lasted = format_duration(known.last_seen - known.raised_at)
                    what = f"{self._end(known.alarm)} after {lasted}: {_without_subject(known.alarm)}"
                    self._record(known.alarm, f"alarm {what}")

    def _end(self, alarm: Alarm) -> str:
        """The replica is still not ready when `no_ready_replica` of its model takes over."""
        broader = ("no_ready_replica", alarm.model, "", "")
        superseded = alarm.code == "replica_not_ready" and broader in self._known
        return "superseded by no_ready_replica" if superseded else "over"

    def _record(self, alarm: Alarm, what: str) -> None:
        level = logging.ERROR if alarm.severity == PAGE else logging.WARNING
        self._events.record("alarm", what, model=alarm.model, replica=alarm.replica, level=level, code=alarm.code)


def _without_subject(alarm: Alarm) -> str:
    """Without the names that the event has anyway."""
    for name in (f"{alarm.model}/{alarm.replica}", alarm.model):
        if name.strip("/") and alarm.message.startswith(f"{name}: "):
            return alarm.message.removeprefix(f"{name}: ")
    return alarm.message
