"""A recording run again in virtual time: the same requests on the same replicas, and a policy of your choice."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field
from random import Random
from typing import Any

import numpy as np

from ..core.decision import Cancel
from ..core.outcome import Outcome
from ..core.request import INFINITY, Phase
from ..documents import Seconds
from .engine import Simulation
from .job import Job
from .replay_fit import Explanation
from .replay_fleet import first_balancer, plan_fleet
from .replay_log import Asked, Recording
from .replay_servers import Numbers
from .replay_stalls import Stall
from .result import RunResult
from .run import SAMPLES, plan_samples, plan_signals
from .scenario import Balancers

WARMUP = 0.1  # of the recording: what the gateway had learned before it began is not in the log
HEARD_EVERY = 0.005  # seconds: workers of one machine see each other's counts at once
MOST_NEWS = 20_000  # times in a run that they hear of each other


@dataclass
class Replayed:
    """Every request answered after the warm-up: when it came, since the recording began, and how long it took."""

    policy: str
    born: Numbers
    seconds: Numbers
    result: RunResult = field(repr=False)

    @property
    def lost(self) -> int:
        return self.result.failed + sum(self.result.refused.values())


def replay(recording: Recording, explanation: Explanation, policy: str, seed: int = 1, *, recorded: bool) -> Replayed:
    """`recorded`: this is the policy that ran; where it was changed during the recording, it changes here too."""
    jobs = _jobs(recording, explanation)
    result = RunResult(recording.model or "default", policy, 0.0, seed)
    servers = [explanation.kind.build(id, explanation.speeds[id][0].speed) for id in explanation.replicas]
    workers = range(recording.workers)
    balancers = [first_balancer(recording, policy, seed, worker, recorded=recorded) for worker in workers]
    warmup = WARMUP * recording.seconds
    turns = _InTurn([one.worker for one in recording.asked], len(balancers))
    simulation = _Replay(servers, balancers, iter(jobs), result, turns, warmup=warmup, stalls=explanation.stalls)
    _plan_speeds(simulation, explanation)
    plan_fleet(simulation, recording, policy, recorded=recorded)
    _plan_leaving(simulation, recording, jobs)
    if len(balancers) > 1:
        every = max(HEARD_EVERY, recording.seconds / MOST_NEWS)
        plan_signals(simulation, balancers, Balancers(len(balancers), Seconds(every)))
    plan_samples(simulation, servers, result, max(recording.seconds, 1e-3) / SAMPLES)
    answers: list[tuple[float, float]] = []

    def over(took: float, answered: bool, now: float) -> None:
        if answered and now - took >= warmup:
            answers.append((now - took, took + explanation.overhead))

    simulation.over = over
    simulation.run()
    born, seconds = np.array(answers).reshape(-1, 2).T
    return Replayed(policy, born, seconds, result)


class _Replay(Simulation):
    """While the gateway stood still replicas went on, but what they finished is seen only afterwards."""

    def __init__(self, *arguments: Any, stalls: list[Stall], **more: Any) -> None:
        super().__init__(*arguments, **more)
        self._stalls = stalls
        self._begins = [stall.begin for stall in stalls]
        self._unseen: set[Job] = set()

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


class _InTurn(Random):
    """Where the engine asks chance which balancer a request comes to: the worker that really had it."""

    def __init__(self, workers: list[int], count: int) -> None:
        super().__init__(0)
        self._workers: Iterator[int] = iter(workers)
        self._count = count

    def random(self) -> float:
        return (next(self._workers) + 0.5) / self._count


def _jobs(recording: Recording, explanation: Explanation) -> list[Job]:
    return [
        _job(one, one.at - recording.begin, float(work))
        for one, work in zip(recording.asked, explanation.work, strict=True)
    ]


def _job(one: Asked, born: float, work: float) -> Job:
    job = Job(
        born,
        work,
        one.features,
        deadline=INFINITY if one.deadline is None else born + one.deadline,
        priority=one.priority,
        tenant=one.tenant,
        kind=one.kind,
        key=one.key or None,
    )
    job.idempotent = one.idempotent
    return job


# ---------------------------------------------------------------------- what happened meanwhile


def _plan_speeds(simulation: Simulation, explanation: Explanation) -> None:
    for id, speeds in explanation.speeds.items():
        server = simulation.servers[id]
        for one in speeds[1:]:
            simulation.at(one.begin, lambda now, s=server, v=one.speed: s.set_speed(v, now, simulation.schedule))  # type: ignore[misc]
    for id, stretches in explanation.failing.items():
        server = simulation.servers[id]
        for begin, end in stretches:
            simulation.at(begin, lambda now, s=server: setattr(s, "failing", s.failing + 1))  # type: ignore[misc]
            simulation.at(end, lambda now, s=server: setattr(s, "failing", s.failing - 1))  # type: ignore[misc]


def _plan_leaving(simulation: Simulation, recording: Recording, jobs: list[Job]) -> None:
    """Who lost patience then does so now, unless answered sooner."""

    def leave(job: Job, now: float) -> None:
        if job.phase in (Phase.WAITING, Phase.RUNNING) and job.balancer is not None:
            simulation.carry_out(job.balancer.cancel(job, now), now)

    for one, job in zip(recording.asked, jobs, strict=True):
        if one.verdict == "left":
            simulation.at(job.born + one.seconds, lambda now, job=job: leave(job, now))  # type: ignore[misc]
