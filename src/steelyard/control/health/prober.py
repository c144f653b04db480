"""Looks at every replica when it is due and tells what has changed. One timer, a bounded number of looks at once."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from functools import partial
from random import Random

from ...core.replica import Event
from ..observability.views import ProbeView
from .client.origin import TlsContexts
from .concurrency import ConcurrencyLimiter
from .probe import CheckResult, ProbeResult, ProbeStatus, ProbeTarget, ReplicaKey
from .probed_replica import ProbedReplica
from .schedule import Schedule
from .tracker import HealthChange

# Looks at once. Ready replicas have a lane of their own: a hundred dead ones, each a timeout long, do not delay them.
MAX_READY_PROBES, MAX_NOT_READY_PROBES, MAX_COMMAND_PROBES = 256, 128, 16
MAX_REQUEST_CHECKS = 128  # warm-ups and inferences at once
MAX_UNSPREAD_PROBES = 50  # replicas that are all looked at at once when they are new; the looks at more are spread
MAX_SPREAD_SECONDS = 1.0  # seconds, or `interval` if that is less
MIN_PROBE_SPACING_SECONDS = 0.2  # seconds between two looks at one replica, however often somebody asks for one
MAX_NOT_READY_PROBES_PER_SECOND = (
    400.0  # looks a second at all replicas that are not ready: a thousand cold ones are looked at less often
)
INTERNAL_ERROR_RETRY_SECONDS = 5.0  # seconds until it is looked at again
BUSY_CHECK_TIMEOUT_SECONDS = 1.0  # seconds for workers to say whether a replica makes progress

log = logging.getLogger("steelyard.control.health")


class Prober:
    """To be made and used inside a running loop.

    `saw(key, event, why)` is told changes: LIVE (answers, not ready), LOADED (ready and warmed up), LOST (does not
    answer). `progress(key)` says whether real requests there go on: then silence is no failure.
    """

    def __init__(
        self,
        saw: Callable[[ReplicaKey, Event, str], None],
        progress: Callable[[ReplicaKey], Awaitable[bool]],
        *,
        rng: Random | None = None,
    ) -> None:
        self.result_counts: Counter[tuple[str, str]] = Counter()  # looks, by model and what they saw
        self._saw = saw
        self._progress = progress
        self._rng = rng or Random()
        self._loop = asyncio.get_running_loop()
        self._contexts = TlsContexts()
        self._courses: dict[ReplicaKey, ProbedReplica] = {}
        self._out: set[ReplicaKey] = set()  # those that are not ready
        self._tasks: set[asyncio.Task[None]] = set()
        self._schedule = Schedule(self._is_due)
        self._ready: ConcurrencyLimiter[ProbedReplica] = ConcurrencyLimiter(
            MAX_READY_PROBES, lambda course: self._begin(course, self._ready)
        )
        self._not_ready: ConcurrencyLimiter[ProbedReplica] = ConcurrencyLimiter(
            MAX_NOT_READY_PROBES, lambda course: self._begin(course, self._not_ready)
        )
        self._commands: ConcurrencyLimiter[ProbedReplica] = ConcurrencyLimiter(
            MAX_COMMAND_PROBES, lambda course: self._begin(course, self._commands)
        )
        self._trials: ConcurrencyLimiter[ProbedReplica] = ConcurrencyLimiter(MAX_REQUEST_CHECKS, self._begin_trial)

    # ------------------------------------------------------------------ what others want

    def set_targets(self, targets: Mapping[ReplicaKey, ProbeTarget]) -> None:
        """From now on exactly these. Where only settings changed, what is known of the server stays."""
        now = self._loop.time()
        probed = {key: target for key, target in targets.items() if target.health.enabled}
        fresh: list[ProbedReplica] = []
        for key, course in list(self._courses.items()):
            wanted = probed.get(key)
            if wanted is None or not course.target.is_same_server(wanted):
                self._drop(course)
            elif course.target != wanted:
                course.change(wanted, now)
                self._see_to_trial(course)
                fresh.append(course)
        for key, target in probed.items():
            if key not in self._courses:
                course = self._courses[key] = ProbedReplica(key, target, self._contexts, self._rng, now)
                self._out.add(key)
                fresh.append(course)
        models = {model for model, _ in probed}
        for gone in [key for key in self.result_counts if key[0] not in models]:
            del self.result_counts[gone]
        for course in fresh:
            spread = min(MAX_SPREAD_SECONDS, course.target.health.interval) if len(fresh) > MAX_UNSPREAD_PROBES else 0.0
            self._look_at(course, now + self._rng.uniform(0.0, spread))

    def probe_now(self, key: ReplicaKey) -> None:
        """Somebody had trouble with it. A few times a second at most, however often this is called."""
        course = self._courses.get(key)
        if course is None:
            return
        if course.probe_task is not None:
            course.probe_again = True
        elif course.tracker.next_probe_at != float("inf"):
            now = self._loop.time()
            self._look_at(
                course,
                min(self._schedule.time_of(course), max(now, course.probe_started_at + MIN_PROBE_SPACING_SECONDS)),
            )

    def reprobe(self, key: ReplicaKey) -> None:
        """What was seen before does not count: LOADED only after a look that begins now."""
        if (course := self._courses.get(key)) is not None:
            course.tracker.reprobe(self._loop.time())
            self._begin_anew(key, course)

    def model_unloaded(self, key: ReplicaKey) -> None:
        """Its model was taken off its server on purpose."""
        if (course := self._courses.get(key)) is not None:
            course.tracker.model_unloaded(self._loop.time())
            self._begin_anew(key, course)

    def _begin_anew(self, key: ReplicaKey, course: ProbedReplica) -> None:
        now = self._loop.time()
        course.discard_result = course.probe_task is not None
        self._out.add(key)
        self._see_to_trial(course)
        self._look_at(course, max(now, course.probe_started_at + MIN_PROBE_SPACING_SECONDS))

    def view(self, key: ReplicaKey) -> ProbeView | None:
        """None: it is not probed."""
        course = self._courses.get(key)
        return course.view(self._loop.time()) if course is not None else None

    async def close(self) -> None:
        """Returns when nothing is under way any more."""
        self._schedule.close()
        for course in list(self._courses.values()):
            self._drop(course)
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _drop(self, course: ProbedReplica) -> None:
        del self._courses[course.key]
        self._out.discard(course.key)
        self._schedule.forget(course)
        for lane in (self._ready, self._not_ready, self._commands, self._trials):
            lane.forget(course)
        for task in (course.probe_task, course.check_task):
            if task is not None:
                task.cancel()

    def _is_followed(self, course: ProbedReplica) -> bool:
        return self._courses.get(course.key) is course

    # ------------------------------------------------------------------ looks

    def _look_at(self, course: ProbedReplica, when: float) -> None:
        """Unless that is under way, or about to be."""
        if course.probe_task is None and not course.queued:
            self._schedule.at(course, when)

    def _is_due(self, course: ProbedReplica) -> None:
        course.queued = True
        if course.target.health.command:
            self._commands.submit(course)
        else:
            (self._ready if course.tracker.ready else self._not_ready).submit(course)

    def _begin(self, course: ProbedReplica, lane: ConcurrencyLimiter[ProbedReplica]) -> None:
        course.queued = course.probe_again = course.discard_result = False
        course.probe_started_at = self._loop.time()
        course.probe_task = self._do(course, self._look(course), lane)

    def _do(
        self, course: ProbedReplica, work: Coroutine[None, None, None], lane: ConcurrencyLimiter[ProbedReplica]
    ) -> asyncio.Task[None]:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(partial(self._done, course, lane))
        return task

    def _done(self, course: ProbedReplica, lane: ConcurrencyLimiter[ProbedReplica], task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        lane.release()
        if not task.cancelled() and (problem := task.exception()) is not None:  # a mistake of ours: look again later
            log.error("%s of %s cannot be probed", course.key[1], course.key[0], exc_info=problem)
            if self._is_followed(course):
                self._look_at(course, self._loop.time() + INTERNAL_ERROR_RETRY_SECONDS)

    async def _look(self, course: ProbedReplica) -> None:
        try:
            seen = await course.probe()
        except Exception as problem:  # of a dialect of the user's own, or of ours: it must not end the others
            seen = self._failed(course, problem)
        if self._is_followed(course):
            self.result_counts[course.key[0], seen.status.value] += 1
        silent = seen.status is ProbeStatus.NO_RESPONSE and course.tracker.ready
        busy = silent and not course.discard_result and await self._is_busy(course.key)
        course.probe_task = None
        if self._is_followed(course):
            if not course.discard_result:
                self._tell(course, course.tracker.probe_finished(seen, self._loop.time(), busy=busy))
            self._plan(course)

    def _failed(self, course: ProbedReplica, problem: Exception) -> ProbeResult:
        detail = f"the probe itself failed: {type(problem).__name__}: {problem}"
        if detail != course.tracker.last_result.detail:
            log.error("%s of %s: %s", course.key[1], course.key[0], detail, exc_info=problem)
        return ProbeResult(ProbeStatus.UNKNOWN, detail)

    async def _is_busy(self, key: ReplicaKey) -> bool:
        try:
            return await asyncio.wait_for(self._progress(key), BUSY_CHECK_TIMEOUT_SECONDS)
        except Exception:  # who cannot say does not say yes
            return False

    def _plan(self, course: ProbedReplica) -> None:
        now = self._loop.time()
        when = min(course.tracker.next_probe_at, self._schedule.time_of(course))
        if course.tracker.ready:
            self._out.discard(course.key)
        else:
            self._out.add(course.key)
            when = max(when, now + len(self._out) / MAX_NOT_READY_PROBES_PER_SECOND)
        if course.probe_again or course.discard_result:
            when = min(when, max(now, course.probe_started_at + MIN_PROBE_SPACING_SECONDS))
        self._look_at(course, when)

    def _tell(self, course: ProbedReplica, news: list[HealthChange]) -> None:
        course.reset_after_restart()
        self._see_to_trial(course)
        for event, why in news:
            try:
                self._saw(course.key, event, why)
            except Exception:
                log.exception("%s of %s: %s could not be told", course.key[1], course.key[0], event.value)

    # ------------------------------------------------------------------ warm-ups and inferences

    def _see_to_trial(self, course: ProbedReplica) -> None:
        """Begin what is wanted, end what is not wanted any more."""
        wanted = course.tracker.check_wanted is not None
        if wanted and course.check_task is None and course not in self._trials:
            self._trials.submit(course)
        elif not wanted:
            self._trials.forget(course)
            if course.check_task is not None:
                course.check_task.cancel()
                course.check_task = None

    def _begin_trial(self, course: ProbedReplica) -> None:
        course.check_task = self._do(course, self._attempt(course), self._trials)

    async def _attempt(self, course: ProbedReplica) -> None:
        trial = course.tracker.check_wanted
        assert trial is not None
        try:
            outcome = await course.run_check(trial)
        except Exception as problem:
            outcome = CheckResult(self._failed(course, problem).detail, inconclusive=True)
        busy = outcome.ambiguous and course.tracker.ready and await self._is_busy(course.key)
        if self._is_followed(course) and course.check_task is asyncio.current_task():
            course.check_task = None
            self._tell(course, course.tracker.check_finished(outcome, self._loop.time(), busy=busy))
            self._plan(course)
