"""Probe results of one replica in, state changes out: ready, loading or lost. Pure: time and rng are arguments.

A replica becomes ready after `rise` good probes in a row (more while it flaps: `FlapDamping`), its warm-up and, if
configured, an inference. It stops being ready

- at once if connections are refused, another process answers, or the server says that it is not ready (503 on its
  readiness path, exit code 75 of a command) or broken;
- after `fall` bad probes in a row, the next coming soon, if the result is ambiguous: a timeout, another status, an
  invalid response, a failed inference. While real requests make progress, timeouts do not count; once they stop, the
  earlier ones do.

After a restart, or after it was lost, the replica is warmed up again, unless it names the same instance as before.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from operator import eq
from random import Random
from typing import Generic, NamedTuple, TypeVar

from ...config import HealthConfig
from ...core.replica import Event
from ...core.request import INFINITY
from ..backoff import exponential_delay, jittered
from .probe import ALIVE_STATUSES, CheckResult, ProbeResult, ProbeStatus

T = TypeVar("T")
MAX_REMEMBERED_IDENTITIES = 64
UNREACHABLE_GRACE_SECONDS = 60.0  # then it is probed less and less often
SECONDS_PER_ADDED_SECOND = 12.0  # beyond the grace, each adds a second to the interval
STABLE_SECONDS = 60.0
MAX_REQUIRED_SUCCESSES = 32  # unless `rise` is more
NOT_PROBED_YET = ProbeResult(ProbeStatus.UNKNOWN, "not looked at yet")


class HealthChange(NamedTuple):
    event: Event
    reason: str


class RequestCheck(Enum):
    """A real request that a replica must pass before and while it is ready."""

    WARM_UP = "warm-up"
    INFERENCE = "inference"


class HealthTracker:
    """`probe_finished` and `check_finished` return the changes. Then probe at `next_probe_at`, and run `check_wanted`.

    While a check runs before the replica is ready, `next_probe_at` is infinite. A check that is no longer wanted when
    it ends is ignored.
    """

    def __init__(self, health: HealthConfig, rng: Random, now: float) -> None:
        self.ready = False
        self.next_probe_at = now
        self.check_wanted: RequestCheck | None = None
        self.last_result = NOT_PROBED_YET
        self.last_probe_at = -INFINITY  # its end
        self.successes = 0  # in a row
        self.failures = 0
        self.restarts = RestartDetector()
        self.generation = 0  # grows with every possible restart: what was known before is void
        self.loading_since: float | None = None
        self._fall_threshold = health.fall
        self._damping = FlapDamping(health.rise)
        self._interval = ProbeInterval(health, rng)
        self._checks = CheckSchedule(health)
        self._reported: Event | None = None  # None: nothing that still counts
        self._lost_since = now
        self._no_answers = 0  # probes in a row without an answer
        self._excused = 0  # timeouts in a row that did not count, as it was busy
        self._was_ready = False  # before `reprobe`
        self._just_ready = False  # since this probe
        self.changes: list[HealthChange] = []

    @property
    def required_successes(self) -> int:
        return self._damping.required_successes

    def reprobe(self, now: float) -> None:
        self._was_ready = self._was_ready or self.ready
        self.ready = False
        self.check_wanted = self._reported = None
        self.successes = self.failures = self._no_answers = self._excused = 0
        self.restarts.lost_contact()
        self._checks.doubt()
        self.next_probe_at = now

    def model_unloaded(self, now: float) -> None:
        """On purpose: this is no flapping, and it is cold when it comes back."""
        self.reprobe(now)
        self._was_ready = False
        self._checks.cool()
        self.generation += 1

    def change(self, health: HealthConfig, now: float) -> None:
        """Other settings for the same server; its state is reported again."""
        self._fall_threshold = health.fall
        self._damping.change(health.rise)
        self._interval.change(health)
        self._checks.health = health
        self._reported = self.check_wanted = None
        self.next_probe_at = now

    def probe_finished(self, result: ProbeResult, now: float, *, busy: bool = False) -> list[HealthChange]:
        """`busy`: real requests make progress there."""
        self.last_result, self.last_probe_at = result, now
        if result.status in ALIVE_STATUSES:
            self._identify(result.instance, now)
        if result.status is ProbeStatus.READY:
            self._probe_passed(now)
        elif result.status is ProbeStatus.NO_RESPONSE and busy and self.ready:
            self._excused += 1
            self.last_result = result._replace(message=f"{result.message}; busy: real requests make progress")
        elif result.status is not ProbeStatus.UNKNOWN:
            self._probe_failed(result, now)
        self._plan(now - result.seconds, now)
        return self._take_changes()

    def _probe_passed(self, now: float) -> None:
        self.successes += 1
        self._no_answers = self._excused = 0
        self._was_ready = False
        if not self._checks.failing:
            self.failures = 0
        if not self.ready:
            self._advance(now)
            return
        self._damping.stays_ready(now)
        self._report(Event.LOADED, self.last_result.message, now)
        if self.check_wanted is None and self._checks.due(now):
            self.check_wanted = RequestCheck.INFERENCE

    def _advance(self, now: float) -> None:
        message = self.last_result.message
        if self.successes < self.required_successes:
            reason = f"{message}; {self.successes} of {self.required_successes} good probes in a row"
            self._report(Event.LIVE, reason, now)
        elif (check := self._checks.pending()) is not None:
            self.check_wanted = check
            self._report_loading(f"{message}; its {check.value} is under way", now)
        else:
            self.ready = self._just_ready = True
            self._damping.became_ready(now)
            self._report(Event.LOADED, message, now)

    def _probe_failed(self, result: ProbeResult, now: float) -> None:
        alive = result.status in ALIVE_STATUSES
        sure = result.definitive or result.status is ProbeStatus.CONNECTION_REFUSED
        event = Event.LIVE if alive else Event.LOST
        self.successes = 0
        self.failures += 1
        if result.status is ProbeStatus.NO_RESPONSE:  # the excused ones count after all
            self.failures += self._excused
        self._excused = 0
        self._no_answers = 0 if alive else self._no_answers + 1
        if result.status is ProbeStatus.CONNECTION_REFUSED:
            self.restarts.refused()
        if self._was_ready:
            self._was_ready = False
            self._damping.became_unready(now)
        if self.ready:
            if sure or self.failures >= self._fall_threshold:
                self._become_unready(event, result.message, now)
        elif alive or sure or self._no_answers >= self._fall_threshold or self._reported is None:
            self._report(event, result.message, now)

    def check_finished(self, result: CheckResult, now: float, *, busy: bool = False) -> list[HealthChange]:
        check, self.check_wanted = self.check_wanted, None
        if check is None:
            return []
        if result.instance and self._identify(result.instance, now):
            result = result._replace(problem=result.problem or "it restarted meanwhile")
        if self.ready:
            self._inference_finished(result, now, busy)
        elif result.problem:
            self.successes = 0
            self.failures += 1
            self._checks.failed(check)
            self._report_loading(result.problem, now)
            self.next_probe_at = self._interval.loading(now, self._checks.failures)
        else:
            self._checks.passed(check, now)
            message = result.note or f"its {check.value} went well"
            self.last_result = self.last_result._replace(status=ProbeStatus.READY, message=message)
            self._advance(now)
            self._plan(now, now)
        return self._take_changes()

    def _inference_finished(self, result: CheckResult, now: float, busy: bool) -> None:
        if result.inconclusive or (result.ambiguous and busy):
            self._checks.skipped(now)
        elif not result.problem:
            self._checks.passed(RequestCheck.INFERENCE, now)
            if self.last_result.status is ProbeStatus.READY:
                self.failures = 0
        else:
            self._checks.failed(RequestCheck.INFERENCE)
            self.successes = 0
            self.failures += 1
            self.last_result = self.last_result._replace(message=result.problem)
            if self.failures >= self._fall_threshold:
                self._become_unready(Event.LIVE, result.problem, now)
                self.next_probe_at = self._interval.loading(now)
            else:
                self.next_probe_at = min(self.next_probe_at, self._interval.after_failure(now, now))

    def _identify(self, instance: str, now: float) -> bool:
        """It answered. True: certainly another process than before."""
        change = self.restarts.answered(instance)
        if change is ProcessChange.NONE:
            return False
        self._checks.cool()
        self.generation += 1
        if change is ProcessChange.POSSIBLE:
            return False
        self.successes = self.failures = 0
        if self.ready:
            self._become_unready(Event.LIVE, "restarted: another process answers", now)
        return True

    def _become_unready(self, event: Event, reason: str, now: float) -> None:
        self.ready = False
        self.check_wanted = None
        self.successes = 0
        self._checks.doubt()
        self._damping.became_unready(now)
        self._report(event, reason, now)

    def _report_loading(self, message: str, now: float) -> None:
        self._report(Event.LIVE, message, now)
        self.last_result = self.last_result._replace(status=ProbeStatus.LOADING, message=message)

    def _report(self, event: Event, reason: str, now: float) -> None:
        if event is Event.LOST and self._reported is not Event.LOST:
            self._lost_since = now
            self.restarts.lost_contact()
        if event is not Event.LIVE:
            self.loading_since = None
        elif self.loading_since is None:
            self.loading_since = now
        if event is not self._reported:
            self._reported = event
            self.changes.append(HealthChange(event, reason))

    def _take_changes(self) -> list[HealthChange]:
        changes, self.changes = self.changes, []
        return changes

    def _plan(self, began: float, now: float) -> None:
        if self.ready:
            known = self.check_wanted is None and self.last_result.status is not ProbeStatus.UNKNOWN
            first, self._just_ready = self._just_ready, False
            if known and (self.failures or self._excused):
                self.next_probe_at = self._interval.after_failure(began, now)
            elif first:
                self.next_probe_at = self._interval.after_becoming_ready(began, now)
            else:
                self.next_probe_at = self._interval.ready(began, now)
        elif self.check_wanted is not None:
            self.next_probe_at = INFINITY
        elif self._reported is Event.LOST:
            self.next_probe_at = self._interval.while_unreachable(now, now - self._lost_since)
        else:
            self.next_probe_at = self._interval.loading(now)


class ProbeInterval:
    """When to probe next. Jittered by a tenth: the probes of a fleet must not synchronize."""

    def __init__(self, health: HealthConfig, rng: Random) -> None:
        self.change(health)
        self._rng = rng

    def change(self, health: HealthConfig) -> None:
        self._interval = float(health.interval)
        self._loading_interval = float(health.loading_interval)

    def ready(self, began: float, now: float) -> float:
        """`interval` after the last probe began, and at least a tenth of it after that ended."""
        return max(began + jittered(self._interval, self._rng), now + 0.1 * self._interval)

    def after_becoming_ready(self, began: float, now: float) -> float:
        """Some time within `interval`: replicas that started together spread out."""
        return max(began + self._rng.uniform(0.2, 1.0) * self._interval, now + 0.1 * self._interval)

    def after_failure(self, began: float, now: float) -> float:
        """`loading_interval` after the bad probe began, or at once if that took longer: a ready replica that hangs is
        detected within `interval` and two timeouts."""
        return max(began + jittered(min(self._interval, self._loading_interval), self._rng), now)

    def loading(self, now: float, failures: int = 0) -> float:
        """`loading_interval`, doubled for each failed check in a row, up to `interval`."""
        longest = max(self._interval, self._loading_interval)
        return now + jittered(exponential_delay(self._loading_interval, longest, max(1, failures)), self._rng)

    def while_unreachable(self, now: float, seconds: float) -> float:
        """`loading_interval` at first; after a minute slower and slower, up to `interval`."""
        pause = min(self._interval, (seconds - UNREACHABLE_GRACE_SECONDS) / SECONDS_PER_ADDED_SECOND)
        return now + jittered(max(pause, self._loading_interval), self._rng)


class FlapDamping:
    """Good probes in a row that a replica needs: failing within a minute of becoming ready doubles them, from `rise` up
    to 32 (16 seconds at two probes a second); each minute ready halves them."""

    def __init__(self, rise: int) -> None:
        self.required_successes = rise
        self._rise = rise
        self._ready_since = self._halved_at = float("-inf")

    def change(self, rise: int) -> None:
        self._rise = rise
        self.required_successes = max(rise, self.required_successes)

    def became_ready(self, now: float) -> None:
        self._ready_since = self._halved_at = now

    def stays_ready(self, now: float) -> None:
        while self.required_successes > self._rise and now - self._halved_at >= STABLE_SECONDS:
            self.required_successes = max(self._rise, self.required_successes // 2)
            self._halved_at += STABLE_SECONDS

    def became_unready(self, now: float) -> None:
        if now - self._ready_since < STABLE_SECONDS:
            self.required_successes = min(self.required_successes * 2, max(MAX_REQUIRED_SUCCESSES, self._rise))


class CheckSchedule:
    """The warm-up goes first: an inference on a cold model may well exceed its time limit."""

    def __init__(self, health: HealthConfig) -> None:
        self.health = health
        self.failing = False  # the last inference failed
        self.failures = 0  # in a row, of either check
        self._warm = False
        self._passed_at: float | None = None  # the last inference that succeeded

    def cool(self) -> None:
        self._warm = False
        self.failures = 0

    def doubt(self) -> None:
        self.failing = False
        self._passed_at = None

    def pending(self) -> RequestCheck | None:
        if self.health.warm_up and not self._warm:
            return RequestCheck.WARM_UP
        if self.health.inference is not None and self._passed_at is None:
            return RequestCheck.INFERENCE
        return None

    def due(self, now: float) -> bool:
        """Whether a ready replica needs another inference; at once if the last failed."""
        probe = self.health.inference
        return probe is not None and (
            self.failing or self._passed_at is None or now >= self._passed_at + probe.interval
        )

    def passed(self, check: RequestCheck, now: float) -> None:
        self.failures = 0
        if check is RequestCheck.WARM_UP:
            self._warm = True
        else:
            self.failing = False
            self._passed_at = now

    def failed(self, check: RequestCheck) -> None:
        self.failures += 1
        self.failing = check is RequestCheck.INFERENCE

    def skipped(self, now: float) -> None:
        """Inconclusive: the next inference comes at its regular time."""
        self._passed_at = now


class ProcessIdentity(Generic[T]):
    """A new name that a server gives itself is a restart, unless several processes take turns."""

    def __init__(self, is_same: Callable[[T, T], bool] = eq) -> None:
        self.current: T | None = None
        self._is_same = is_same
        self._before: list[T] = []
        self._several = False  # an earlier name came back, as with `--workers 4`

    def is_restart(self, name: T) -> bool:
        """The first name is none."""
        if self.current is None:
            self.current = name
            return False
        if self._is_same(name, self.current):
            return False
        if any(self._is_same(name, other) for other in self._before):
            self._several = True
        else:
            self._before = [*self._before, self.current][-MAX_REMEMBERED_IDENTITIES:]
        self.current = name
        return not self._several

    def is_current(self, name: T) -> bool:
        return self.current is not None and self._is_same(name, self.current)


class ProcessChange(Enum):
    NONE = "none"  # as far as one can tell
    POSSIBLE = "possible"  # contact was lost meanwhile
    RESTARTED = "restarted"


class RestartDetector:
    """Another name is a restart; so is an answer after refused connections, unless the name is the same."""

    def __init__(self) -> None:
        self.count = 0
        self._identity: ProcessIdentity[str] = ProcessIdentity()
        self._answered = False
        self._refused = False  # since it answered
        self._in_doubt = False

    @property
    def instance(self) -> str:
        return self._identity.current or ""

    def lost_contact(self) -> None:
        self._in_doubt = True

    def refused(self) -> None:
        self._refused = self._refused or self._answered

    def answered(self, instance: str) -> ProcessChange:
        same = bool(instance) and self._identity.is_current(instance)
        renamed = bool(instance) and self._identity.is_restart(instance)
        gone, doubt = self._refused, self._in_doubt
        self._answered = True
        self._refused = self._in_doubt = False
        if renamed or (gone and not same):
            self.count += 1
            return ProcessChange.RESTARTED
        return ProcessChange.POSSIBLE if doubt and not same else ProcessChange.NONE
