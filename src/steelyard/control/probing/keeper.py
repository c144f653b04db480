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

from ...config import Health
from ...core.replica import Event
from .damping import Damping
from .lives import Change, Lives
from .pace import Pace
from .seen import ANSWERS, Kind, Seen, Tried
from .trials import Trial, Trials

INFINITY = float("inf")
UNSEEN = Seen(Kind.UNKNOWN, "not looked at yet")


class Told(NamedTuple):
    event: Event
    why: str


class Keeper:
    """`saw` and `tried` return what has changed. Then look again at `due`, and see to what is to be tried.

    While something is tried and it is not ready, `due` is infinite: the outcome comes first. If `trying` is None again
    before there is an outcome, it is not wanted any more.
    """

    def __init__(self, health: Health, rng: Random, now: float) -> None:
        self.ready = False
        self.due = now
        self.trying: Trial | None = None
        self.last = UNSEEN
        self.looked_at = -INFINITY  # when the last look ended
        self.good = 0  # looks in a row
        self.bad = 0
        self.lives = Lives()
        self.cooled = 0  # how often it had to begin anew: what others know of it before is void
        self.loading_since: float | None = None
        self._fall_at = health.fall
        self._damping = Damping(health.rise)
        self._pace = Pace(health, rng)
        self._trials = Trials(health)
        self._told: Event | None = None  # None: nothing, or nothing that still counts
        self._lost_since = now
        self._unheard = 0  # looks in a row without an answer
        self._excused = 0  # silent looks in a row that did not count, because it was busy
        self._was_ready = False  # when it was to be seen anew
        self._risen = False  # it became ready with this look
        self._news: list[Told] = []

    @property
    def needed(self) -> int:
        """Good looks in a row, to be ready."""
        return self._damping.needed

    def see_anew(self, now: float) -> None:
        """What was seen before does not count: ready only after a look that begins now."""
        self._was_ready = self._was_ready or self.ready
        self.ready = False
        self.trying = self._told = None
        self.good = self.bad = self._unheard = self._excused = 0
        self.lives.doubt()
        self._trials.doubt()
        self.due = now

    def unloaded(self, now: float) -> None:
        """Its model was taken off its server on purpose: that is no fall, and it is cold when it comes back."""
        self.see_anew(now)
        self._was_ready = False
        self._trials.cool()
        self.cooled += 1

    def change(self, health: Health, now: float) -> None:
        """Other settings for the same server. How it stands is told again."""
        self._fall_at = health.fall
        self._damping.change(health.rise)
        self._pace.change(health)
        self._trials.health = health
        self._told = self.trying = None
        self.due = now

    # ------------------------------------------------------------------ a look

    def saw(self, seen: Seen, now: float, *, busy: bool = False) -> list[Told]:
        """A look ended now. `busy`: real requests make progress there."""
        self.last, self.looked_at = seen, now
        if seen.kind in ANSWERS:
            self._identify(seen.instance, now)
        if seen.kind is Kind.READY:
            self._good(now)
        elif seen.kind is Kind.SILENT and busy and self.ready:
            self._excused += 1
            self.last = seen._replace(detail=f"{seen.detail}; busy: real requests make progress")
        elif seen.kind is not Kind.UNKNOWN:
            self._bad(seen, now)
        self._plan(now - seen.seconds, now)
        return self._told_now()

    def _good(self, now: float) -> None:
        self.good += 1
        self._unheard = self._excused = 0
        self._was_ready = False
        if not self._trials.failing:
            self.bad = 0
        if not self.ready:
            self._rise(now)
            return
        self._damping.stays(now)
        self._tell(Event.LOADED, self.last.detail, now)
        if self.trying is None and self._trials.due(now):
            self.trying = Trial.INFERENCE

    def _rise(self, now: float) -> None:
        """A good look, or a trial that went well: is anything left before it is ready?"""
        detail = self.last.detail
        if self.good < self.needed:
            self._tell(Event.LIVE, f"{detail}; {self.good} of {self.needed} good probes in a row", now)
        elif (trial := self._trials.missing()) is not None:
            self.trying = trial
            self._loads(f"{detail}; its {trial.value} is under way", now)
        else:
            self.ready = self._risen = True
            self._damping.rose(now)
            self._tell(Event.LOADED, detail, now)

    def _bad(self, seen: Seen, now: float) -> None:
        answers = seen.kind in ANSWERS
        sure = seen.sure or seen.kind is Kind.REFUSED
        event = Event.LIVE if answers else Event.LOST
        self.good = 0
        self.bad += 1
        if seen.kind is Kind.SILENT:  # it has been so for longer
            self.bad += self._excused
        self._excused = 0
        self._unheard = 0 if answers else self._unheard + 1
        if seen.kind is Kind.REFUSED:
            self.lives.refused()
        if self._was_ready:
            self._was_ready = False
            self._damping.fell(now)
        if self.ready:
            if sure or self.bad >= self._fall_at:
                self._fall(event, seen.detail, now)
        elif answers or sure or self._unheard >= self._fall_at or self._told is None:
            self._tell(event, seen.detail, now)

    # ------------------------------------------------------------------ a trial

    def tried(self, outcome: Tried, now: float, *, busy: bool = False) -> list[Told]:
        """A trial ended now. `busy`: real requests make progress there."""
        trial, self.trying = self.trying, None
        if trial is None:
            return []
        if outcome.instance and self._identify(outcome.instance, now):
            outcome = outcome._replace(problem=outcome.problem or "it restarted meanwhile")
        if self.ready:
            self._tried_again(outcome, now, busy)
        elif outcome.problem:
            self.good = 0
            self.bad += 1
            self._trials.failed(trial)
            self._loads(outcome.problem, now)
            self.due = self._pace.loading(now, self._trials.failures)
        else:
            self._trials.passed(trial, now)
            detail = outcome.note or f"its {trial.value} went well"
            self.last = self.last._replace(kind=Kind.READY, detail=detail)
            self._rise(now)
            self._plan(now, now)
        return self._told_now()

    def _tried_again(self, outcome: Tried, now: float, busy: bool) -> None:
        """An inference while it is ready."""
        if outcome.void or (outcome.doubtful and busy):
            self._trials.skipped(now)
        elif not outcome.problem:
            self._trials.passed(Trial.INFERENCE, now)
            if self.last.kind is Kind.READY:
                self.bad = 0
        else:
            self._trials.failed(Trial.INFERENCE)
            self.good = 0
            self.bad += 1
            self.last = self.last._replace(detail=outcome.problem)
            if self.bad >= self._fall_at:
                self._fall(Event.LIVE, outcome.problem, now)
                self.due = self._pace.loading(now)
            else:
                self.due = min(self.due, self._pace.doubted(now, now))

    # ------------------------------------------------------------------ what follows

    def _identify(self, instance: str, now: float) -> bool:
        """Somebody answered. Is it surely another than before?"""
        change = self.lives.answered(instance)
        if change is Change.NONE:
            return False
        self._trials.cool()
        self.cooled += 1
        if change is Change.PERHAPS:
            return False
        self.good = self.bad = 0
        if self.ready:
            self._fall(Event.LIVE, "restarted: another process answers", now)
        return True

    def _fall(self, event: Event, why: str, now: float) -> None:
        self.ready = False
        self.trying = None
        self.good = 0
        self._trials.doubt()
        self._damping.fell(now)
        self._tell(event, why, now)

    def _loads(self, detail: str, now: float) -> None:
        self._tell(Event.LIVE, detail, now)
        self.last = self.last._replace(kind=Kind.LOADING, detail=detail)

    def _tell(self, event: Event, why: str, now: float) -> None:
        if event is Event.LOST and self._told is not Event.LOST:
            self._lost_since = now
            self.lives.doubt()
        if event is not Event.LIVE:
            self.loading_since = None
        elif self.loading_since is None:
            self.loading_since = now
        if event is not self._told:
            self._told = event
            self._news.append(Told(event, why))

    def _told_now(self) -> list[Told]:
        news, self._news = self._news, []
        return news

    def _plan(self, began: float, now: float) -> None:
        if self.ready:
            soon = (self.bad or self._excused) and self.trying is None and self.last.kind is not Kind.UNKNOWN
            first, self._risen = self._risen, False
            if soon:
                self.due = self._pace.doubted(began, now)
            else:
                self.due = self._pace.risen(began, now) if first else self._pace.ready(began, now)
        elif self.trying is not None:
            self.due = INFINITY
        elif self._told is Event.LOST:
            self.due = self._pace.lost(now, now - self._lost_since)
        else:
            self.due = self._pace.loading(now)
