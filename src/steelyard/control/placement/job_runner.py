"""The jobs that are under way, and what comes of them: load times that are learned, and failures."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial

from ...link.messages import StartProgress
from ..fleet.observer import FleetControl
from ..memory import MemoryAccounting
from .hosts import ManagedCopy
from .job import PlacementJob
from .load_history import LoadBackoff, LoadTimes, PlacementError

log = logging.getLogger("steelyard.control.placement")


class JobRunner:
    """Calls `ended()` after each, when its servers are free again."""

    def __init__(self, fleet: FleetControl, memory: MemoryAccounting, ended: Callable[[], None]) -> None:
        self.load_times = LoadTimes()
        self.backoff = LoadBackoff()
        self._fleet = fleet
        self._memory = memory
        self._on_ended = ended
        self._clock = fleet.now
        self._jobs: dict[asyncio.Task[None], PlacementJob] = {}
        self._closed = False

    @property
    def jobs(self) -> list[PlacementJob]:
        return list(self._jobs.values())

    def start(self, coming: ManagedCopy | None, going: list[ManagedCopy], reason: str) -> None:
        """Skipped if one of the servers is busy or does not answer."""
        job = PlacementJob(self._fleet, self._memory, self.load_times, coming, going, reason)
        hosts = {copy.host for copy in job.copies}
        if self._closed or any(host.busy or not host.known for host in hosts):
            return
        for host in hosts:
            host.busy = host.discard_poll = True
        if coming is not None:
            coming.load_ordered_at = self._clock()
        if going and coming is not None:
            gone = " and ".join(f"{copy.model} at {copy.host.name}" for copy in going)
            self._fleet.record("placement", f"to be loaded in place of {gone}: {reason}", *coming.key)
        task = asyncio.get_running_loop().create_task(job.run())
        self._jobs[task] = job
        task.add_done_callback(partial(self._ended, job))

    def cancel_for(self, copy: ManagedCopy) -> None:
        for task, job in self._jobs.items():
            if copy in job.copies:
                task.cancel()

    def loads_in_progress(self) -> list[StartProgress]:
        """With the time until each should be ready."""
        found = []
        for job in self.jobs:
            if job.load is not None and job.load_started_at is not None:
                usual = self.load_times.seconds(job.load.model, float(job.load.settings.load_time))
                found.append(StartProgress(job.load.model, max(0.0, job.load_started_at + usual - self._clock())))
        return found

    async def close(self) -> None:
        self._closed = True
        for task in self._jobs:
            task.cancel()
        await asyncio.gather(*self._jobs, return_exceptions=True)

    def _ended(self, job: PlacementJob, task: asyncio.Task[None]) -> None:
        del self._jobs[task]
        if not task.cancelled():
            if (problem := task.exception()) is None:
                self._succeeded(job)
            else:
                self._failed(job.primary, problem)
        for copy in job.copies:
            copy.host.busy, copy.load_ordered_at = False, None
            if copy.host.is_unknown:
                copy.host.poll_by(self._clock())
        self._on_ended()

    def _failed(self, copy: ManagedCopy, problem: BaseException) -> None:
        if not isinstance(problem, PlacementError):
            log.error("a load or unload of %s at %s failed unexpectedly", copy.model, copy.host.name, exc_info=problem)
            problem = PlacementError(f"{type(problem).__name__}: {problem}")
        if not copy.removed:
            self.backoff.failed(copy.key, problem, self._clock())
            self._fleet.record("placement", str(problem), *copy.key)

    def _succeeded(self, job: PlacementJob) -> None:
        if job.load is not None and not job.load.removed:
            self.backoff.succeeded(job.load.key)
            seconds = self._clock() - (job.load_started_at or job.began)
            self._fleet.record("placement", f"loaded in {seconds:.1f} s", *job.load.key)
            job.load.host.poll_by(self._clock())  # the index may say how much it holds
