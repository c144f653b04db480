"""What the looks at one replica add up to: is it ready, loading or lost? Pure: time and rng are arguments.

A replica becomes ready after `rise` good looks in a row (more, if it keeps changing: damping.py), its warm-up and, if
one is configured, a real inference. It is taken out

- at once, if nobody listens there any more, if it is another process than before, or if it says itself that it is not
  ready (503 on its readiness path, exit code 75 of a command) or that it is beyond help;
- after `fall` bad looks in a row for whatever is ambiguous: silence, other statuses, answers that make no sense, a
  failed inference. After the first of them the next look comes soon. Silence does not count while real requests make
  progress there: then it is merely busy. If they stop, the silence before them counts too.

What was learned about a process holds for that process alone: after a restart, and after it was lost, it is warmed up
again, unless it names itself and is the same as before.
"""

from __future__ import annotations

from random import Random
from typing import NamedTuple

from ...config import HealthConfig
from ...core.replica import Event
from .probe import ALIVE_STATUSES, CheckResult, ProbeResult, ProbeStatus
from .probe_interval import FlapDamping, ProbeInterval
from .request_checks import CheckSchedule, RequestCheck
from .restarts import ProcessChange, RestartDetector

INFINITY = float("inf")
NOT_PROBED_YET = ProbeResult(ProbeStatus.UNKNOWN, "not looked at yet")


class HealthChange(NamedTuple):
    event: Event
    why: str


class HealthTracker:
    """`saw` and `tried` return what has changed. Then look again at `due`, and see to what is to be tried.

    While something is tried and it is not ready, `due` is infinite: the outcome comes first. If `trying` is None again
    before there is an outcome, it is not wanted any more.
    """

    def __init__(self, health: HealthConfig, rng: Random, now: float) -> None:
        self.ready = False
        self.next_probe_at = now
        self.check_wanted: RequestCheck | None = None
        self.last_result = NOT_PROBED_YET
        self.last_probe_at = -INFINITY  # when the last look ended
        self.successes = 0  # looks in a row
        self.failures = 0
        self.lives = RestartDetector()
        self.generation = 0  # how often it had to begin anew: what others know of it before is void
        self.loading_since: float | None = None
        self._fall_at = health.fall
        self._damping = FlapDamping(health.rise)
        self._pace = ProbeInterval(health, rng)
        self._trials = CheckSchedule(health)
        self._told: Event | None = None  # None: nothing, or nothing that still counts
        self._lost_since = now
        self._unheard = 0  # looks in a row without an answer
        self._excused = 0  # silent looks in a row that did not count, because it was busy
        self._was_ready = False  # when it was to be seen anew
        self._risen = False  # it became ready with this look
        self._news: list[HealthChange] = []

    @property
    def required_successes(self) -> int:
        """Good looks in a row, to be ready."""
        return self._damping.required_successes

    def reprobe(self, now: float) -> None:
        """What was seen before does not count: ready only after a look that begins now."""
        self._was_ready = self._was_ready or self.ready
        self.ready = False
        self.check_wanted = self._told = None
        self.successes = self.failures = self._unheard = self._excused = 0
        self.lives.lost_contact()
        self._trials.doubt()
        self.next_probe_at = now

    def model_unloaded(self, now: float) -> None:
        """Its model was taken off its server on purpose: that is no fall, and it is cold when it comes back."""
        self.reprobe(now)
        self._was_ready = False
        self._trials.cool()
        self.generation += 1

    def change(self, health: HealthConfig, now: float) -> None:
        """Other settings for the same server. How it stands is told again."""
        self._fall_at = health.fall
        self._damping.change(health.rise)
        self._pace.change(health)
        self._trials.health = health
        self._told = self.check_wanted = None
        self.next_probe_at = now

    # ------------------------------------------------------------------ a look

    def probe_finished(self, seen: ProbeResult, now: float, *, busy: bool = False) -> list[HealthChange]:
        """A look ended now. `busy`: real requests make progress there."""
        self.last_result, self.last_probe_at = seen, now
        if seen.status in ALIVE_STATUSES:
            self._identify(seen.instance, now)
        if seen.status is ProbeStatus.READY:
            self._good(now)
        elif seen.status is ProbeStatus.NO_RESPONSE and busy and self.ready:
            self._excused += 1
            self.last_result = seen._replace(detail=f"{seen.detail}; busy: real requests make progress")
        elif seen.status is not ProbeStatus.UNKNOWN:
            self._bad(seen, now)
        self._plan(now - seen.seconds, now)
        return self._told_now()

    def _good(self, now: float) -> None:
        self.successes += 1
        self._unheard = self._excused = 0
        self._was_ready = False
        if not self._trials.failing:
            self.failures = 0
        if not self.ready:
            self._rise(now)
            return
        self._damping.stays(now)
        self._tell(Event.LOADED, self.last_result.detail, now)
        if self.check_wanted is None and self._trials.due(now):
            self.check_wanted = RequestCheck.INFERENCE

    def _rise(self, now: float) -> None:
        """A good look, or a trial that went well: is anything left before it is ready?"""
        detail = self.last_result.detail
        if self.successes < self.required_successes:
            self._tell(Event.LIVE, f"{detail}; {self.successes} of {self.required_successes} good probes in a row", now)
        elif (trial := self._trials.pending()) is not None:
            self.check_wanted = trial
            self._loads(f"{detail}; its {trial.value} is under way", now)
        else:
            self.ready = self._risen = True
            self._damping.became_ready(now)
            self._tell(Event.LOADED, detail, now)

    def _bad(self, seen: ProbeResult, now: float) -> None:
        answers = seen.status in ALIVE_STATUSES
        sure = seen.definitive or seen.status is ProbeStatus.REFUSED
        event = Event.LIVE if answers else Event.LOST
        self.successes = 0
        self.failures += 1
        if seen.status is ProbeStatus.NO_RESPONSE:  # it has been so for longer
            self.failures += self._excused
        self._excused = 0
        self._unheard = 0 if answers else self._unheard + 1
        if seen.status is ProbeStatus.REFUSED:
            self.lives.refused()
        if self._was_ready:
            self._was_ready = False
            self._damping.became_unready(now)
        if self.ready:
            if sure or self.failures >= self._fall_at:
                self._fall(event, seen.detail, now)
        elif answers or sure or self._unheard >= self._fall_at or self._told is None:
            self._tell(event, seen.detail, now)

    # ------------------------------------------------------------------ a trial

    def check_finished(self, outcome: CheckResult, now: float, *, busy: bool = False) -> list[HealthChange]:
        """A trial ended now. `busy`: real requests make progress there."""
        trial, self.check_wanted = self.check_wanted, None
        if trial is None:
            return []
        if outcome.instance and self._identify(outcome.instance, now):
            outcome = outcome._replace(problem=outcome.problem or "it restarted meanwhile")
        if self.ready:
            self._tried_again(outcome, now, busy)
        elif outcome.problem:
            self.successes = 0
            self.failures += 1
            self._trials.failed(trial)
            self._loads(outcome.problem, now)
            self.next_probe_at = self._pace.loading(now, self._trials.failures)
        else:
            self._trials.passed(trial, now)
            detail = outcome.note or f"its {trial.value} went well"
            self.last_result = self.last_result._replace(status=ProbeStatus.READY, detail=detail)
            self._rise(now)
            self._plan(now, now)
        return self._told_now()

    def _tried_again(self, outcome: CheckResult, now: float, busy: bool) -> None:
        """An inference while it is ready."""
        if outcome.inconclusive or (outcome.ambiguous and busy):
            self._trials.skipped(now)
        elif not outcome.problem:
            self._trials.passed(RequestCheck.INFERENCE, now)
            if self.last_result.status is ProbeStatus.READY:
                self.failures = 0
        else:
            self._trials.failed(RequestCheck.INFERENCE)
            self.successes = 0
            self.failures += 1
            self.last_result = self.last_result._replace(detail=outcome.problem)
            if self.failures >= self._fall_at:
                self._fall(Event.LIVE, outcome.problem, now)
                self.next_probe_at = self._pace.loading(now)
            else:
                self.next_probe_at = min(self.next_probe_at, self._pace.after_failure(now, now))

    # ------------------------------------------------------------------ what follows

    def _identify(self, instance: str, now: float) -> bool:
        """Somebody answered. Is it surely another than before?"""
        change = self.lives.answered(instance)
        if change is ProcessChange.NONE:
            return False
        self._trials.cool()
        self.generation += 1
        if change is ProcessChange.POSSIBLE:
            return False
        self.successes = self.failures = 0
        if self.ready:
            self._fall(Event.LIVE, "restarted: another process answers", now)
        return True

    def _fall(self, event: Event, why: str, now: float) -> None:
        self.ready = False
        self.check_wanted = None
        self.successes = 0
        self._trials.doubt()
        self._damping.became_unready(now)
        self._tell(event, why, now)

    def _loads(self, detail: str, now: float) -> None:
        self._tell(Event.LIVE, detail, now)
        self.last_result = self.last_result._replace(status=ProbeStatus.LOADING, detail=detail)

    def _tell(self, event: Event, why: str, now: float) -> None:
        if event is Event.LOST and self._told is not Event.LOST:
            self._lost_since = now
            self.lives.lost_contact()
        if event is not Event.LIVE:
            self.loading_since = None
        elif self.loading_since is None:
            self.loading_since = now
        if event is not self._told:
            self._told = event
            self._news.append(HealthChange(event, why))

    def _told_now(self) -> list[HealthChange]:
        news, self._news = self._news, []
        return news

    def _plan(self, began: float, now: float) -> None:
        if self.ready:
            soon = (
                (self.failures or self._excused)
                and self.check_wanted is None
                and self.last_result.status is not ProbeStatus.UNKNOWN
            )
            first, self._risen = self._risen, False
            if soon:
                self.next_probe_at = self._pace.after_failure(began, now)
            else:
                self.next_probe_at = (
                    self._pace.after_becoming_ready(began, now) if first else self._pace.ready(began, now)
                )
        elif self.check_wanted is not None:
            self.next_probe_at = INFINITY
        elif self._told is Event.LOST:
            self.next_probe_at = self._pace.while_unreachable(now, now - self._lost_since)
        else:
            self.next_probe_at = self._pace.loading(now)
