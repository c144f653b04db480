"""The engine of a replay: what went wrong goes wrong again, and the gateway stands still when it did."""

from __future__ import annotations

from bisect import bisect_right
from typing import Any

from ..core.decision import Cancel, Reject, Send
from ..core.outcome import Outcome
from ..core.request import Phase
from .engine import Simulation
from .job import Job
from .replay_stalls import Stall
from .replay_troubles import Fate, Trouble


class ReplaySimulation(Simulation):
    """`answers`: when each request came that was answered, and how long it took."""

    def __init__(self, *arguments: Any, **more: Any) -> None:
        super().__init__(*arguments, **more)
        self.answers: list[tuple[float, float]] = []
        self.lost = 0
        self.fates: dict[Job, Fate] = {}
        self.left: set[Job] = set()  # they count neither as answered nor as lost
        self._work: dict[Job, float] = {}  # of those with a fate, if they are served
        self._sent: dict[Job, int] = {}  # and how many attempts they had
        self._bad: dict[Job, Outcome] = {}  # attempts that take their turn, and then fail
        self._failing: dict[str, Trouble] = {}  # by replica
        self._current: Job | None = None  # whose end is being dealt with
        self._stalls: list[Stall] = []
        self._begins: list[float] = []
        self._unseen: set[Job] = set()
        self.over = self._count_it

    def stand_still(self, stalls: list[Stall]) -> None:
        """Replicas go on, but what they finish is seen only afterwards."""
        self._stalls = stalls
        self._begins = [stall.begin for stall in stalls]

    def fail(self, id: str, trouble: Trouble | None) -> None:
        """From now on the replica fails whatever it gets in this way; None: no more."""
        if trouble is None:
            self._failing.pop(id, None)
        else:
            self._failing[id] = trouble

    def cut_off(self, job: Job, now: float) -> None:
        """Its deadline has come."""
        if job.phase is Phase.RUNNING and job.balancer is not None:
            self._note(job, False, now)
            self.carry_out(job.balancer.cancel(job, now), now)

    # ------------------------------------------------------------------ figures

    def _end(self, job: Job, outcome: Outcome, now: float) -> None:
        outcome = self._bad.pop(job, outcome) if outcome is Outcome.OK else outcome
        before, self._current = self._current, job.origin or job
        super()._end(job, outcome, now)
        self._current = before

    def _refused(self, decision: Reject) -> None:
        before, self._current = self._current, decision.request  # type: ignore[assignment]
        super()._refused(decision)
        self._current = before

    def _count_it(self, took: float, answered: bool, now: float) -> None:
        assert self._current is not None
        self._note(self._current, answered, now)

    def _note(self, job: Job, answered: bool, now: float) -> None:
        if job in self.left or job.born < self._warmup:
            return
        if answered:
            self.answers.append((job.born, now - job.born))
        else:
            self.lost += 1

    # ------------------------------------------------------------------ what goes wrong

    def _send(self, decision: Send, now: float) -> None:
        job = decision.request
        assert isinstance(job, Job)
        server = self.servers[decision.replica.id]
        trouble = self._next_trouble(job)
        if not server.down and server.id in self._failing:
            self._fail_after(decision, self._failing[server.id], now)
        elif not server.down and trouble is not None and not trouble.work:
            self._fail_after(decision, trouble, now)
        elif trouble is not None:
            self._take_turn(decision, trouble, now)
        else:
            self._bad.pop(job, None)
            super()._send(decision, now)

    def _next_trouble(self, job: Job) -> Trouble | None:
        fate = self.fates.get(job)
        if fate is None:
            return None
        nth = self._sent.get(job, 0)
        self._sent[job] = nth + 1
        job.work = self._work.setdefault(job, job.work)
        return fate.of(nth)

    def _fail_after(self, decision: Send, trouble: Trouble, now: float) -> None:
        """The failure is told after its time; nothing is done at the replica."""
        job = self._attempt(decision)
        job.server = self.servers[decision.replica.id]
        job.fate = trouble.outcome
        job.finish = now + trouble.seconds
        self.schedule(job.finish, job)

    def _take_turn(self, decision: Send, trouble: Trouble, now: float) -> None:
        """It takes the replica's time as any other, and then fails."""
        job = decision.request
        assert isinstance(job, Job)
        usual, job.work = job.work, trouble.work or job.work
        super()._send(decision, now)
        if decision.hedged:
            job.work = usual
        attempt = job.context if decision.hedged else job
        assert isinstance(attempt, Job)
        self._bad[attempt] = trouble.outcome

    def _attempt(self, decision: Send) -> Job:
        job = decision.request
        assert isinstance(job, Job)
        if decision.hedged:
            job.context = job = job.twin()
        return job

    # ------------------------------------------------------------------ standing still

    def _complete(self, job: Job, now: float) -> None:
        if job in self._unseen:
            self._unseen.remove(job)
            job.finish = -1.0
            self._end(job, job.fate, now)
            return
        place = bisect_right(self._begins, now) - 1
        if place < 0 or now >= self._stalls[place].end:
            super()._complete(job, now)
            return
        if job.fate is Outcome.OK and job.server is not None:
            job.server.ended(job, now, self.schedule)
        self._unseen.add(job)
        job.finish = self._stalls[place].end
        self.schedule(job.finish, job)

    def _cancel(self, decision: Cancel, now: float) -> None:
        job = decision.request
        assert isinstance(job, Job)
        for attempt in (job, job.context):
            server = attempt.server if isinstance(attempt, Job) and attempt in self._unseen else None
            if server is not None and server.id == decision.replica.id:
                self._unseen.remove(attempt)
                attempt.finish = -1.0
                return
        super()._cancel(decision, now)
