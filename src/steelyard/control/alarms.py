"""What a person should know now: every alarm of the fleet, and its beginning and end for the log."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from ..core.replica import State
from ..units import show_duration
from .alarm_codes import PAGE
from .chronicle import Chronicle
from .standing import AWAITED, Standing
from .views import Alarm, DiscoveryView, PlacingView, ScalingView

if TYPE_CHECKING:
    from .fleet import Fleet
    from .worker_process import WorkerProcess

LOADING_SECONDS: Final = 600.0  # after which a replica that loads is an alarm, where nothing is known of its start
UNREACHABLE_SECONDS: Final = 120.0  # and one that does not answer
STARTS: Final = 2.0  # times its usual start
BEGIN_SECONDS: Final = 2.0  # for which an alarm lasts before it is logged …
END_SECONDS: Final = 5.0  # … and is gone before its end is: one that comes and goes is one line


def current_alarms(
    fleet: Fleet,
    scaling: Sequence[ScalingView],
    discovery: Iterable[DiscoveryView],
    placing: PlacingView,
    uptime: float,
    workers: Iterable[WorkerProcess] = (),
) -> list[Alarm]:
    now = fleet.now()
    without = unserved(_ready(fleet), _unloaded(fleet), scaling)
    return [
        *(
            Alarm(
                code="no_ready_replica",
                what=what + _why_none(fleet, model),
                age=_unready(fleet, model, uptime),
                model=model,
            )
            for model, what in without.items()
        ),
        *fleet.failures.alarms(now),
        *_not_ready(fleet, without, _usual_starts(scaling, placing), now),
        *(
            Alarm(
                code="discovery",
                what=f"{view.model}: {view.source}: {view.problem}",
                age=uptime if view.age is None else view.age,
                model=view.model,
                about=view.source,
            )
            for view in discovery
            if view.problem
        ),
        *([Alarm(code="board_full", what=fleet.too_many, age=0.0)] if fleet.too_many else []),
        *_of_workers(workers),
        *fleet.holdings.alarms(),
        *fleet.starting.alarms(),
        *fleet.scaling.alarms(),
        *fleet.slo.alarms(now),
    ]


def _of_workers(workers: Iterable[WorkerProcess]) -> Iterator[Alarm]:
    for worker in workers:
        name = f"worker {worker.index}"
        for said in worker.report.alarms if worker.report is not None else ():
            yield Alarm(code=said.code, what=f"{name}: {said.what}", age=said.age, about=name)


def _ready(fleet: Fleet) -> dict[str, int]:
    """How many replicas of each model get requests."""
    ready = dict.fromkeys(fleet.config.models, 0)
    for key, standing in fleet.standings.items():
        if standing.state is State.READY and key not in fleet.failures.ejected and key[0] in ready:
            ready[key[0]] += 1
    return ready


def _unloaded(fleet: Fleet) -> set[str]:
    return {key[0] for key, standing in fleet.standings.items() if standing.state is State.UNLOADED}


def unserved(ready: Mapping[str, int], unloaded: Iterable[str], scaling: Iterable[ScalingView]) -> dict[str, str]:
    """Which models nobody serves, nor would if a request came, in words: one that is loaded or started on demand is as
    it should be."""
    could = {*unloaded, *(scaled.model for scaled in scaling if _rests(scaled))}
    return {model: f"no replica of {model} is ready" for model, n in ready.items() if not n and model not in could}


def _why_none(fleet: Fleet, model: str) -> str:
    """Why its first replica is not ready: usually the others are not for the same reason."""
    for key, standing in fleet.standings.items():
        if key[0] == model:
            ejected = fleet.ejections.current.get(key)
            state, why = ("ejected", ejected.reason) if ejected else (standing.state.value, standing.why)
            return f": {key[1]} is {state}: {why}" if why else f": {key[1]} is {state}"
    return ""


def _rests(scaled: ScalingView) -> bool:
    """It has no replica because nobody asked for it, and would have one if somebody did; or is just getting one, and
    requests wait for it."""
    looping = scaled.setback is not None and scaled.setback.looping
    return scaled.mode == "act" and not scaled.least and (not scaled.wanted or scaled.starting > 0) and not looping


def _unready(fleet: Fleet, model: str, uptime: float) -> float:
    """Seconds since one of its replicas was last ready; none: for as long as anything is known."""
    last = max((standing.was_ready for key, standing in fleet.standings.items() if key[0] == model), default=None)
    return uptime if last is None else fleet.now() - last


def _usual_starts(scaling: Iterable[ScalingView], placing: PlacingView) -> dict[str, float]:
    """Seconds that a start of a model's replica was measured to take."""
    loads = {view.model: view.seconds for view in placing.load_times if view.measured}
    return loads | {view.model: view.cold_start for view in scaling if view.cold_start_measured}


def _not_ready(fleet: Fleet, without: Mapping[str, str], usual: Mapping[str, float], now: float) -> Iterator[Alarm]:
    """Replicas that should be ready by now. Where no replica of the model is, that says it all."""
    for (model, id), standing in fleet.standings.items():
        if standing.state in AWAITED and model not in without:
            waited = now - standing.awaited_since
            if waited > _patience(standing, usual.get(model)):
                how = f"{standing.state.value}: {standing.why}"
                what = f"{model}/{id}: not ready for {show_duration(waited)}: {how}"
                yield Alarm(code="replica_not_ready", what=what, age=waited, model=model, replica=id)


def _patience(standing: Standing, usual: float | None) -> float:
    if standing.state is State.UNREACHABLE or usual is None:
        return UNREACHABLE_SECONDS if standing.state is State.UNREACHABLE else LOADING_SECONDS
    return max(UNREACHABLE_SECONDS, STARTS * usual)


class Known(NamedTuple):
    alarm: Alarm  # as it was when it was logged
    since: float
    seen: float
    logged: bool


class AlarmLog:
    """Beginnings and ends of alarms, as events and in the log: an error for a page, a warning for a ticket."""

    def __init__(self, chronicle: Chronicle) -> None:
        self._chronicle = chronicle
        self._known: dict[tuple[str, str, str, str], Known] = {}

    def see(self, alarms: Iterable[Alarm], now: float) -> None:
        """All that there are now. To be called about once a second."""
        for alarm in alarms:
            key = (alarm.code, alarm.model, alarm.replica, alarm.about)
            before = self._known.get(key)
            since = before.since if before is not None else now
            logged = before is not None and before.logged
            if not logged and now - since >= BEGIN_SECONDS:
                self._note(alarm, f"alarm: {_sentence(alarm)}")
                self._known[key] = Known(alarm, since, now, logged=True)
            else:
                self._known[key] = Known(before.alarm if before is not None else alarm, since, now, logged)
        for key, known in list(self._known.items()):
            if now - known.seen >= (END_SECONDS if known.logged else BEGIN_SECONDS):
                del self._known[key]
                if known.logged:
                    lasted = show_duration(known.seen - known.since)
                    self._note(known.alarm, f"alarm over after {lasted}: {_sentence(known.alarm)}")

    def _note(self, alarm: Alarm, what: str) -> None:
        level = logging.ERROR if alarm.severity == PAGE else logging.WARNING
        self._chronicle.note("alarm", what, model=alarm.model, replica=alarm.replica, level=level, code=alarm.code)


def _sentence(alarm: Alarm) -> str:
    """Without the names that stand beside it."""
    for name in (f"{alarm.model}/{alarm.replica}", alarm.model):
        if name.strip("/") and alarm.what.startswith(f"{name}: "):
            return alarm.what.removeprefix(f"{name}: ")
    return alarm.what
