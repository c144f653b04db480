"""The engine of a replay: recorded failures and stalls happen again."""

from __future__ import annotations

from bisect import bisect_right
from typing import Any

from ...core.decision import Cancel, Send
from ...core.outcome import Outcome
from ...core.request import RequestPhase
from ..engine.job import Job
from ..engine.simulation import Simulation
from .failures import AttemptFailure, RequestFailures
from .stalls import Stall


class ReplaySimulation(Simulation):
    def __init__(self, *arguments: Any, stalls: list[Stall], **more: Any) -> None:
        super().__init__(*arguments, **more)
        self.answers: list[tuple[float, float]] = []
        self.lost = 0
        self.request_failures: dict[Job, RequestFailures] = {}
        self.disconnected: set[Job] = set()  # count neither as answered nor as lost
        self.failing_replicas: dict[str, AttemptFailure] = {}  # fail every attempt, for now
        self._work: dict[Job, float] = {}  # of requests with failures: if answered
        self._sent: dict[Job, int] = {}  # of requests with failures: attempts so far
        self._failing_attempts: dict[Job, Outcome] = {}  # attempts that occupy the replica, then fail
        self._stalls = stalls  # the gateway sees answers only afterwards
        self._stall_begins = [stall.begin for stall in stalls]
        self._unobserved: set[Job] = set()
        self.on_request_end = self._record

    def cancel(self, job: Job, now: float) -> None:
        if job.phase in (RequestPhase.WAITING, RequestPhase.RUNNING) and job.balancer is not None:
            self.carry_out(job.balancer.cancel(job, now), now)

    def expire(self, job: Job, now: float) -> None:
        if job.phase is RequestPhase.RUNNING and job.balancer is not None:
            self._record(job, False, now)
            self.carry_out(job.balancer.cancel(job, now), now)

    def _record(self, job: Job, answered: bool, now: float) -> None:
        if job in self.disconnected or job.intended_at < self._warmup:
            return
        if answered:
            self.answers.append((job.intended_at, now - job.intended_at))
        else:
            self.lost += 1

    def _end(self, job: Job, outcome: Outcome, now: float) -> None:
        super()._end(job, self._failing_attempts.pop(job, outcome) if outcome is Outcome.OK else outcome, now)

    def _send(self, decision: Send, now: float) -> None:
        job = decision.request
        assert isinstance(job, Job)
        server = self.servers[decision.replica.id]
        failure = self._next_failure(job)
        if not server.down and server.id in self.failing_replicas:
            self._fail_after_delay(decision, self.failing_replicas[server.id], now)
        elif not server.down and failure is not None and not failure.work:
            self._fail_after_delay(decision, failure, now)
        elif failure is not None:
            self._fail_after_work(decision, failure, now)
        else:
            self._failing_attempts.pop(job, None)
            super()._send(decision, now)

    def _next_failure(self, job: Job) -> AttemptFailure | None:
        failures = self.request_failures.get(job)
        if failures is None:
            return None
        nth = self._sent.get(job, 0)
        self._sent[job] = nth + 1
        job.work = self._work.setdefault(job, job.work)
        return failures.of(nth)

    def _fail_after_delay(self, decision: Send, failure: AttemptFailure, now: float) -> None:
        """Without any work at the replica."""
        job = decision.request
        assert isinstance(job, Job)
        if decision.hedged:
            job.context = job = job.hedge_attempt()
        job.server = self.servers[decision.replica.id]
        job.planned_outcome = failure.outcome
        job.finish = now + failure.seconds
        self.schedule(job.finish, job)

    def _fail_after_work(self, decision: Send, failure: AttemptFailure, now: float) -> None:
        job = decision.request
        assert isinstance(job, Job)
        usual, job.work = job.work, failure.work or job.work
        super()._send(decision, now)
        if decision.hedged:
            job.work = usual
        attempt = job.context if decision.hedged else job
        assert isinstance(attempt, Job)
        self._failing_attempts[attempt] = failure.outcome

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
