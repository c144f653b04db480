"""The jobs that are under way, and what comes of them: load times that are learned, and setbacks."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial

from ...link.messages import Coming
from .errors import PlacingError
from .hands import Hands
from .host import Copy
from .job import Job
from .load_times import LoadTimes
from .setbacks import Setbacks

log = logging.getLogger("steelyard.control.placing")


class Works:
    """`ended(job)` is told of each, when its servers are free again."""

    def __init__(self, hands: Hands, ended: Callable[[Job], None], clock: Callable[[], float]) -> None:
        self.times = LoadTimes()
        self.setbacks = Setbacks()
        self._hands = hands
        self._tell_ended = ended
        self._clock = clock
        self._jobs: dict[asyncio.Task[None], Job] = {}
        self._closed = False

    @property
    def jobs(self) -> list[Job]:
        return list(self._jobs.values())

    def start(self, coming: Copy | None, going: list[Copy], why: str) -> None:
        """Unless one of their servers does something else just now, or does not answer."""
        job = Job(self._hands, self.times, self._clock, coming, going, why)
        hosts = {copy.host for copy in job.copies}
        if self._closed or any(host.busy or not host.known for host in hosts):
            return
        for host in hosts:
            host.busy = host.doubted = True
        if coming is not None:
            coming.ordered = self._clock()
        if going and coming is not None:
            gone = " and ".join(f"{copy.model} at {copy.host.name}" for copy in going)
            self._hands.note(f"to be loaded in place of {gone}: {why}", *coming.key)
        task = asyncio.get_running_loop().create_task(job.run())
        self._jobs[task] = job
        task.add_done_callback(partial(self._ended, job))

    def end_with(self, copy: Copy) -> None:
        """Whatever has to do with it."""
        for task, job in self._jobs.items():
            if copy in job.copies:
                task.cancel()

    def coming(self) -> list[Coming]:
        """What is being loaded, and when it should be ready."""
        found = []
        for job in self.jobs:
            if job.coming is not None and job.loads_since is not None:
                usual = self.times.of(job.coming.model, float(job.coming.settings.load_time))
                found.append(Coming(job.coming.model, max(0.0, job.loads_since + usual - self._clock())))
        return found

    async def close(self) -> None:
        self._closed = True
        for task in self._jobs:
            task.cancel()
        await asyncio.gather(*self._jobs, return_exceptions=True)

    def _ended(self, job: Job, task: asyncio.Task[None]) -> None:
        del self._jobs[task]
        if not task.cancelled():
            problem = task.exception()
            if problem is None:
                self._went_well(job)
            else:
                self._failed(job.main, problem)
        for copy in job.copies:
            copy.host.busy, copy.ordered = False, None
            if copy.host.is_unsure:
                copy.host.look_by(self._clock())
        self._tell_ended(job)

    def _failed(self, copy: Copy, problem: BaseException) -> None:
        if not isinstance(problem, PlacingError):
            log.error("a load or unload of %s at %s went wrong", copy.model, copy.host.name, exc_info=problem)
            problem = PlacingError(f"{type(problem).__name__}: {problem}")
        if not copy.dropped:
            self.setbacks.failed(copy.key, problem, self._clock())
            self._hands.note(str(problem), *copy.key)

    def _went_well(self, job: Job) -> None:
        if job.coming is not None and not job.coming.dropped:
            self.setbacks.went_well(job.coming.key)
            seconds = self._clock() - (job.loads_since or job.began)
            self._hands.note(f"loaded in {seconds:.1f} s", *job.coming.key)
            job.coming.host.look_by(self._clock())  # it may say how much it holds now
