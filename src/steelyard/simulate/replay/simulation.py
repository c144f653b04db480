"""The engine of a replay: what went wrong goes wrong again, and the gateway stands still when it did."""

from __future__ import annotations

from bisect import bisect_right
from typing import Any

from ...core.decision import Cancel, Reject, Send
from ...core.outcome import Outcome
from ...core.request import RequestPhase
from ..engine.job import Job
from ..engine.simulation import Simulation
from .failures import AttemptFailure, RequestFailures
from .stalls import Stall


class ReplaySimulation(Simulation):
    """`answers`: when each request came that was answered, and how long it took."""

    def __init__(self, *arguments: Any, **more: Any) -> None:
        super().__init__(*arguments, **more)
        self.answers: list[tuple[float, float]] = []
        self.lost = 0
        self.request_failures: dict[Job, RequestFailures] = {}
        self.disconnected: set[Job] = set()  # they count neither as answered nor as lost
        self._work: dict[Job, float] = {}  # of those with a fate, if they are served
        self._sent: dict[Job, int] = {}  # and how many attempts they had
        self._failing_attempts: dict[Job, Outcome] = {}  # attempts that take their turn, and then fail
        self._failing: dict[str, AttemptFailure] = {}  # by replica
        self._current: Job | None = None  # whose end is being dealt with
        self._stalls: list[Stall] = []
        self._stall_begins: list[float] = []
        self._unobserved: set[Job] = set()
        self.on_request_end = self._on_request_end

    def set_stalls(self, stalls: list[Stall]) -> None:
        """Replicas go on, but what they finish is seen only afterwards."""
        self._stalls = stalls
        self._stall_begins = [stall.begin for stall in stalls]

    def set_failing(self, id: str, trouble: AttemptFailure | None) -> None:
        """From now on the replica fails whatever it gets in this way; None: no more."""
        if trouble is None:
            self._failing.pop(id, None)
        else:
            self._failing[id] = trouble

    def expire(self, job: Job, now: float) -> None:
        """Its deadline has come."""
        if job.phase is RequestPhase.RUNNING and job.balancer is not None:
            self._record(job, False, now)
            self.carry_out(job.balancer.cancel(job, now), now)

    # ------------------------------------------------------------------ figures

    def _end(self, job: Job, outcome: Outcome, now: float) -> None:
        outcome = self._failing_attempts.pop(job, outcome) if outcome is Outcome.OK else outcome
        before, self._current = self._current, job.origin or job
        super()._end(job, outcome, now)
        self._current = before

    def _refused(self, decision: Reject) -> None:
        before, self._current = self._current, decision.request  # type: ignore[assignment]
        super()._refused(decision)
        self._current = before

    def _on_request_end(self, took: float, answered: bool, now: float) -> None:
        assert self._current is not None
        self._record(self._current, answered, now)

    def _record(self, job: Job, answered: bool, now: float) -> None:
        if job in self.disconnected or job.intended_at < self._warmup:
            return
        if answered:
            self.answers.append((job.intended_at, now - job.intended_at))
        else:
            self.lost += 1

    # ------------------------------------------------------------------ what goes wrong

    def _send(self, decision: Send, now: float) -> None:
        job = decision.request
        assert isinstance(job, Job)
        server = self.servers[decision.replica.id]
        trouble = self._next_failure(job)
        if not server.down and server.id in self._failing:
            self._fail_after_delay(decision, self._failing[server.id], now)
        elif not server.down and trouble is not None and not trouble.work:
            self._fail_after_delay(decision, trouble, now)
        elif trouble is not None:
            self._fail_after_work(decision, trouble, now)
        else:
            self._failing_attempts.pop(job, None)
            super()._send(decision, now)

    def _next_failure(self, job: Job) -> AttemptFailure | None:
        fate = self.request_failures.get(job)
        if fate is None:
            return None
        nth = self._sent.get(job, 0)
        self._sent[job] = nth + 1
        job.work = self._work.setdefault(job, job.work)
        return fate.of(nth)

    def _fail_after_delay(self, decision: Send, trouble: AttemptFailure, now: float) -> None:
        """The failure is told after its time; nothing is done at the replica."""
        job = self._attempt(decision)
        job.server = self.servers[decision.replica.id]
        job.planned_outcome = trouble.outcome
        job.finish = now + trouble.seconds
        self.schedule(job.finish, job)

    def _fail_after_work(self, decision: Send, trouble: AttemptFailure, now: float) -> None:
        """It takes the replica's time as any other, and then fails."""
        job = decision.request
        assert isinstance(job, Job)
        usual, job.work = job.work, trouble.work or job.work
        super()._send(decision, now)
        if decision.hedged:
            job.work = usual
        attempt = job.context if decision.hedged else job
        assert isinstance(attempt, Job)
        self._failing_attempts[attempt] = trouble.outcome

    def _attempt(self, decision: Send) -> Job:
        job = decision.request
        assert isinstance(job, Job)
        if decision.hedged:
            job.context = job = job.hedge_attempt()
        return job

    # ------------------------------------------------------------------ standing still

    def _complete(self, job: Job, now: float) -> None:
        if job in self._unobserved:
            self._unobserved.remove(job)
            job.finish = -1.0
            self._end(job, job.planned_outcome, now)
            return
        place = bisect_right(self._stall_begins, now) - 1
        if place < 0 or now >= self._stalls[place].end:
            super()._complete(job, now)
            return
        if job.planned_outcome is Outcome.OK and job.server is not None:
            job.server.ended(job, now, self.schedule)
        self._unobserved.add(job)
        job.finish = self._stalls[place].end
        self.schedule(job.finish, job)

    def _cancel(self, decision: Cancel, now: float) -> None:
        job = decision.request
        assert isinstance(job, Job)
        for attempt in (job, job.context):
            server = attempt.server if isinstance(attempt, Job) and attempt in self._unobserved else None
            if server is not None and server.id == decision.replica.id:
                self._unobserved.remove(attempt)
                attempt.finish = -1.0
                return
        super()._cancel(decision, now)
