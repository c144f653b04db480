"""A recording run again in virtual time: the same requests on the same replicas, and a policy of your choice."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from random import Random

import numpy as np

from ..core.request import INFINITY, Phase
from ..documents import Seconds
from .job import Job
from .replay_fit import Explanation
from .replay_fleet import first_balancer, plan_fleet
from .replay_log import Asked, Recording
from .replay_servers import Numbers
from .replay_simulation import ReplaySimulation
from .result import RunResult
from .run import SAMPLES, plan_samples, plan_signals
from .scenario import Balancers

WARMUP = 0.1  # of the recording: what the gateway had learned before it began is not in the log
HEARD_EVERY = 0.005  # seconds: workers of one machine see each other's counts at once
SHORTEST = 1e-6  # seconds: no clock of the log is finer
MOST_NEWS = 20_000  # times in a run that they hear of each other


@dataclass
class Replayed:
    """Every request answered after the warm-up: when it came, since the recording began, and how long it took.

    Whoever left before being answered, really, counts neither here nor there.
    """

    policy: str
    born: Numbers
    seconds: Numbers
    lost: int  # failed or refused
    result: RunResult = field(repr=False)


def replay(recording: Recording, explanation: Explanation, policy: str, seed: int = 1, *, recorded: bool) -> Replayed:
    """`recorded`: this is the policy that ran; where it was changed during the recording, it changes here too."""
    jobs = _jobs(recording, explanation)
    result = RunResult(recording.model or "default", policy, 0.0, seed)
    servers = [explanation.kind.build(id, explanation.speeds[id][0].speed) for id in explanation.replicas]
    workers = range(recording.workers)
    balancers = [first_balancer(recording, policy, seed, worker, recorded=recorded) for worker in workers]
    warmup = WARMUP * recording.seconds
    turns = _InTurn([one.worker for one in recording.asked], len(balancers))
    simulation = ReplaySimulation(servers, balancers, iter(jobs), result, turns, warmup=warmup)
    simulation.stand_still(explanation.stalls)
    simulation.fates = {jobs[number]: fate for number, fate in explanation.fates.items()}
    simulation.left = {job for one, job in zip(recording.asked, jobs, strict=True) if one.verdict == "left"}
    _plan_speeds(simulation, explanation)
    plan_fleet(simulation, recording, policy, recorded=recorded)
    _plan_leaving(simulation, recording, jobs)
    _plan_deadlines(simulation, recording, jobs)
    if len(balancers) > 1:
        every = max(HEARD_EVERY, recording.seconds / MOST_NEWS)
        plan_signals(simulation, balancers, Balancers(len(balancers), Seconds(every)))
    last = max(one.at + one.seconds for one in recording.asked) - recording.begin
    plan_samples(simulation, servers, result, max(last, 1e-3) / SAMPLES)
    simulation.run()
    born, seconds = np.array(simulation.answers).reshape(-1, 2).T
    return Replayed(policy, born, np.maximum(seconds + explanation.overhead, SHORTEST), simulation.lost, result)


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


def _plan_speeds(simulation: ReplaySimulation, explanation: Explanation) -> None:
    for id, speeds in explanation.speeds.items():
        server = simulation.servers[id]
        for one in speeds[1:]:
            simulation.at(one.begin, lambda now, s=server, v=one.speed: s.set_speed(v, now, simulation.schedule))  # type: ignore[misc]
    for id, stretches in explanation.failing.items():
        for stretch in stretches:
            simulation.at(stretch.begin, lambda now, id=id, t=stretch.trouble: simulation.fail(id, t))  # type: ignore[misc]
            simulation.at(stretch.end, lambda now, id=id: simulation.fail(id, None))  # type: ignore[misc]


def _plan_leaving(simulation: ReplaySimulation, recording: Recording, jobs: list[Job]) -> None:
    """Who lost patience then does so now, unless answered sooner."""

    def leave(job: Job, now: float) -> None:
        if job.phase in (Phase.WAITING, Phase.RUNNING) and job.balancer is not None:
            simulation.carry_out(job.balancer.cancel(job, now), now)

    for one, job in zip(recording.asked, jobs, strict=True):
        if one.verdict == "left":
            simulation.at(job.born + one.seconds, lambda now, job=job: leave(job, now))  # type: ignore[misc]


def _plan_deadlines(simulation: ReplaySimulation, recording: Recording, jobs: list[Job]) -> None:
    """What still runs when its deadline comes is cut off, as by the gateway; an answer that had begun went on."""
    for one, job in zip(recording.asked, jobs, strict=True):
        if one.deadline is not None and not (one.answered and one.seconds > one.deadline):
            simulation.at(job.deadline, lambda now, job=job: simulation.cut_off(job, now))  # type: ignore[misc]
