"""Looks at every replica when it is due and tells what has changed. One timer, a bounded number of looks at once."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from functools import partial
from random import Random

from ...core.replica import Event
from ..views import ProbeView
from .course import Course
from .keeper import Told
from .lane import Lane
from .schedule import Schedule
from .seen import Kind, Seen, Tried
from .target import Key, Target
from .tls import Contexts

# Looks at once. Ready replicas have a lane of their own: a hundred dead ones, each a timeout long, do not delay them.
READY, NOT_READY, COMMANDS = 256, 128, 16
TRIALS = 128  # warm-ups and inferences at once
FEW = 50  # replicas that are all looked at at once when they are new; the looks at more are spread
SPREAD = 1.0  # seconds, or `interval` if that is less
SPACING = 0.2  # seconds between two looks at one replica, however often somebody asks for one
RATE = 400.0  # looks a second at all replicas that are not ready: a thousand cold ones are looked at less often
MISTAKE = 5.0  # seconds until it is looked at again
ASKING = 1.0  # seconds for workers to say whether a replica makes progress

log = logging.getLogger("steelyard.control.probing")


class Prober:
    """To be made and used inside a running loop.

    `saw(key, event, why)` is told changes: LIVE (answers, not ready), LOADED (ready and warmed up), LOST (does not
    answer). `progress(key)` says whether real requests there go on: then silence is no failure.
    """

    def __init__(
        self,
        saw: Callable[[Key, Event, str], None],
        progress: Callable[[Key], Awaitable[bool]],
        *,
        rng: Random | None = None,
    ) -> None:
        self.counts: Counter[tuple[str, str]] = Counter()  # looks, by model and what they saw
        self._saw = saw
        self._progress = progress
        self._rng = rng or Random()
        self._loop = asyncio.get_running_loop()
        self._contexts = Contexts()
        self._courses: dict[Key, Course] = {}
        self._out: set[Key] = set()  # those that are not ready
        self._tasks: set[asyncio.Task[None]] = set()
        self._schedule = Schedule(self._is_due)
        self._ready: Lane[Course] = Lane(READY, lambda course: self._begin(course, self._ready))
        self._not_ready: Lane[Course] = Lane(NOT_READY, lambda course: self._begin(course, self._not_ready))
        self._commands: Lane[Course] = Lane(COMMANDS, lambda course: self._begin(course, self._commands))
        self._trials: Lane[Course] = Lane(TRIALS, self._begin_trial)

    # ------------------------------------------------------------------ what others want

    def follow(self, targets: Mapping[Key, Target]) -> None:
        """From now on exactly these. Where only settings changed, what is known of the server stays."""
        now = self._loop.time()
        probed = {key: target for key, target in targets.items() if target.health.enabled}
        fresh: list[Course] = []
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
                course = self._courses[key] = Course(key, target, self._contexts, self._rng, now)
                self._out.add(key)
                fresh.append(course)
        models = {model for model, _ in probed}
        for gone in [key for key in self.counts if key[0] not in models]:
            del self.counts[gone]
        for course in fresh:
            spread = min(SPREAD, course.target.health.interval) if len(fresh) > FEW else 0.0
            self._look_at(course, now + self._rng.uniform(0.0, spread))

    def look_now(self, key: Key) -> None:
        """Somebody had trouble with it. A few times a second at most, however often this is called."""
        course = self._courses.get(key)
        if course is None:
            return
        if course.looking is not None:
            course.hurried = True
        elif course.keeper.due != float("inf"):
            now = self._loop.time()
            self._look_at(course, min(self._schedule.time_of(course), max(now, course.began + SPACING)))

    def see_anew(self, key: Key) -> None:
        """What was seen before does not count: LOADED only after a look that begins now."""
        if (course := self._courses.get(key)) is not None:
            course.keeper.see_anew(self._loop.time())
            self._begin_anew(key, course)

    def unloaded(self, key: Key) -> None:
        """Its model was taken off its server on purpose."""
        if (course := self._courses.get(key)) is not None:
            course.keeper.unloaded(self._loop.time())
            self._begin_anew(key, course)

    def _begin_anew(self, key: Key, course: Course) -> None:
        now = self._loop.time()
        course.stale = course.looking is not None
        self._out.add(key)
        self._see_to_trial(course)
        self._look_at(course, max(now, course.began + SPACING))

    def view(self, key: Key) -> ProbeView | None:
        """None: it is not probed."""
        course = self._courses.get(key)
        return course.view(self._loop.time()) if course is not None else None

    async def close(self) -> None:
        """Returns when nothing is under way any more."""
        self._schedule.close()
        for course in list(self._courses.values()):
            self._drop(course)
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _drop(self, course: Course) -> None:
        del self._courses[course.key]
        self._out.discard(course.key)
        self._schedule.forget(course)
        for lane in (self._ready, self._not_ready, self._commands, self._trials):
            lane.forget(course)
        for task in (course.looking, course.trial):
            if task is not None:
                task.cancel()

    def _is_followed(self, course: Course) -> bool:
        return self._courses.get(course.key) is course

    # ------------------------------------------------------------------ looks

    def _look_at(self, course: Course, when: float) -> None:
        """Unless that is under way, or about to be."""
        if course.looking is None and not course.waits:
            self._schedule.at(course, when)

    def _is_due(self, course: Course) -> None:
        course.waits = True
        if course.target.health.command:
            self._commands.enter(course)
        else:
            (self._ready if course.keeper.ready else self._not_ready).enter(course)

    def _begin(self, course: Course, lane: Lane[Course]) -> None:
        course.waits = course.hurried = course.stale = False
        course.began = self._loop.time()
        course.looking = self._do(course, self._look(course), lane)

    def _do(self, course: Course, work: Coroutine[None, None, None], lane: Lane[Course]) -> asyncio.Task[None]:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(partial(self._done, course, lane))
        return task

    def _done(self, course: Course, lane: Lane[Course], task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        lane.leave()
        if not task.cancelled() and (problem := task.exception()) is not None:  # a mistake of ours: look again later
            log.error("%s of %s cannot be probed", course.key[1], course.key[0], exc_info=problem)
            if self._is_followed(course):
                self._look_at(course, self._loop.time() + MISTAKE)

    async def _look(self, course: Course) -> None:
        try:
            seen = await course.look()
        except Exception as problem:  # of a dialect of the user's own, or of ours: it must not end the others
            seen = self._failed(course, problem)
        if self._is_followed(course):
            self.counts[course.key[0], seen.kind.value] += 1
        silent = seen.kind is Kind.SILENT and course.keeper.ready
        busy = silent and not course.stale and await self._is_busy(course.key)
        course.looking = None
        if self._is_followed(course):
            if not course.stale:
                self._tell(course, course.keeper.saw(seen, self._loop.time(), busy=busy))
            self._plan(course)

    def _failed(self, course: Course, problem: Exception) -> Seen:
        detail = f"the probe itself failed: {type(problem).__name__}: {problem}"
        if detail != course.keeper.last.detail:
            log.error("%s of %s: %s", course.key[1], course.key[0], detail, exc_info=problem)
        return Seen(Kind.UNKNOWN, detail)

    async def _is_busy(self, key: Key) -> bool:
        try:
            return await asyncio.wait_for(self._progress(key), ASKING)
        except Exception:  # who cannot say does not say yes
            return False

    def _plan(self, course: Course) -> None:
        now = self._loop.time()
        when = min(course.keeper.due, self._schedule.time_of(course))
        if course.keeper.ready:
            self._out.discard(course.key)
        else:
            self._out.add(course.key)
            when = max(when, now + len(self._out) / RATE)
        if course.hurried or course.stale:
            when = min(when, max(now, course.began + SPACING))
        self._look_at(course, when)

    def _tell(self, course: Course, news: list[Told]) -> None:
        course.begin_anew()
        self._see_to_trial(course)
        for event, why in news:
            try:
                self._saw(course.key, event, why)
            except Exception:
                log.exception("%s of %s: %s could not be told", course.key[1], course.key[0], event.value)

    # ------------------------------------------------------------------ warm-ups and inferences

    def _see_to_trial(self, course: Course) -> None:
        """Begin what is wanted, end what is not wanted any more."""
        wanted = course.keeper.trying is not None
        if wanted and course.trial is None and course not in self._trials:
            self._trials.enter(course)
        elif not wanted:
            self._trials.forget(course)
            if course.trial is not None:
                course.trial.cancel()
                course.trial = None

    def _begin_trial(self, course: Course) -> None:
        course.trial = self._do(course, self._attempt(course), self._trials)

    async def _attempt(self, course: Course) -> None:
        trial = course.keeper.trying
        assert trial is not None
        try:
            outcome = await course.attempt(trial)
        except Exception as problem:
            outcome = Tried(self._failed(course, problem).detail, void=True)
        busy = outcome.doubtful and course.keeper.ready and await self._is_busy(course.key)
        if self._is_followed(course) and course.trial is asyncio.current_task():
            course.trial = None
            self._tell(course, course.keeper.tried(outcome, self._loop.time(), busy=busy))
            self._plan(course)
