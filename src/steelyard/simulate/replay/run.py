"""A recording run again in virtual time: the same requests on the same replicas, and a policy of your choice."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from random import Random

import numpy as np

from ...core.request import INFINITY, RequestPhase
from ...documents import Seconds
from ..engine.job import Job
from ..engine.result import RunResult
from ..run import TIMELINE_SAMPLES, plan_load_exchange, plan_samples
from ..scenario.schema import Balancers
from .calibration import Calibration
from .fleet import initial_balancer, plan_fleet
from .recording import RecordedRequest, Recording
from .server_models import FloatArray
from .simulation import ReplaySimulation

WARMUP_SHARE = 0.1  # of the recording: what the gateway had learned before it began is not in the log
MIN_EXCHANGE_SECONDS = 0.005  # seconds: workers of one machine see each other's counts at once
CLOCK_RESOLUTION_SECONDS = 1e-6  # seconds: no clock of the log is finer
MAX_EXCHANGES = 20_000  # times in a run that they hear of each other


@dataclass
class ReplayRun:
    """Every request answered after the warm-up: when it came, since the recording began, and how long it took.

    Whoever left before being answered, really, counts neither here nor there.
    """

    policy: str
    intended_at: FloatArray
    seconds: FloatArray
    lost: int  # failed or refused
    result: RunResult = field(repr=False)


def replay(recording: Recording, explanation: Calibration, policy: str, seed: int = 1, *, recorded: bool) -> ReplayRun:
    """`recorded`: this is the policy that ran; where it was changed during the recording, it changes here too."""
    jobs = _jobs(recording, explanation)
    result = RunResult(recording.model or "default", policy, 0.0, seed)
    servers = [explanation.server_model.build(id, explanation.speeds[id][0].speed) for id in explanation.replicas]
    workers = range(recording.workers)
    balancers = [initial_balancer(recording, policy, seed, worker, recorded=recorded) for worker in workers]
    warmup = WARMUP_SHARE * recording.seconds
    turns = _RecordedWorkers([one.worker for one in recording.requests], len(balancers))
    simulation = ReplaySimulation(servers, balancers, iter(jobs), result, turns, warmup=warmup)
    simulation.set_stalls(explanation.stalls)
    simulation.request_failures = {jobs[number]: fate for number, fate in explanation.request_failures.items()}
    simulation.disconnected = {job for one, job in zip(recording.requests, jobs, strict=True) if one.outcome == "left"}
    _plan_speeds(simulation, explanation)
    plan_fleet(simulation, recording, policy, recorded=recorded)
    _plan_disconnects(simulation, recording, jobs)
    _plan_deadlines(simulation, recording, jobs)
    if len(balancers) > 1:
        every = max(MIN_EXCHANGE_SECONDS, recording.seconds / MAX_EXCHANGES)
        plan_load_exchange(simulation, balancers, Balancers(len(balancers), Seconds(every)))
    last = max(one.arrived_at + one.seconds for one in recording.requests) - recording.begin
    plan_samples(simulation, servers, result, max(last, 1e-3) / TIMELINE_SAMPLES)
    simulation.run()
    born, seconds = np.array(simulation.answers).reshape(-1, 2).T
    return ReplayRun(
        policy, born, np.maximum(seconds + explanation.overhead, CLOCK_RESOLUTION_SECONDS), simulation.lost, result
    )


class _RecordedWorkers(Random):
    """Where the engine asks chance which balancer a request comes to: the worker that really had it."""

    def __init__(self, workers: list[int], count: int) -> None:
        super().__init__(0)
        self._workers: Iterator[int] = iter(workers)
        self._count = count

    def random(self) -> float:
        return (next(self._workers) + 0.5) / self._count


def _jobs(recording: Recording, explanation: Calibration) -> list[Job]:
    return [
        _job(one, one.arrived_at - recording.begin, float(work))
        for one, work in zip(recording.requests, explanation.work, strict=True)
    ]


def _job(one: RecordedRequest, born: float, work: float) -> Job:
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


def _plan_speeds(simulation: ReplaySimulation, explanation: Calibration) -> None:
    for id, speeds in explanation.speeds.items():
        server = simulation.servers[id]
        for one in speeds[1:]:
            simulation.call_at(one.begin, lambda now, s=server, v=one.speed: s.set_speed(v, now, simulation.schedule))  # type: ignore[misc]
    for id, stretches in explanation.failure_windows.items():
        for stretch in stretches:
            simulation.call_at(stretch.begin, lambda now, id=id, t=stretch.failure: simulation.set_failing(id, t))  # type: ignore[misc]
            simulation.call_at(stretch.end, lambda now, id=id: simulation.set_failing(id, None))  # type: ignore[misc]


def _plan_disconnects(simulation: ReplaySimulation, recording: Recording, jobs: list[Job]) -> None:
    """Who lost patience then does so now, unless answered sooner."""

    def leave(job: Job, now: float) -> None:
        if job.phase in (RequestPhase.WAITING, RequestPhase.RUNNING) and job.balancer is not None:
            simulation.carry_out(job.balancer.cancel(job, now), now)

    for one, job in zip(recording.requests, jobs, strict=True):
        if one.outcome == "left":
            simulation.call_at(job.intended_at + one.seconds, lambda now, job=job: leave(job, now))  # type: ignore[misc]


def _plan_deadlines(simulation: ReplaySimulation, recording: Recording, jobs: list[Job]) -> None:
    """What still runs when its deadline comes is cut off, as by the gateway; an answer that had begun went on."""
    for one, job in zip(recording.requests, jobs, strict=True):
        if one.deadline is not None and not (one.answered and one.seconds > one.deadline):
            simulation.call_at(job.deadline, lambda now, job=job: simulation.expire(job, now))  # type: ignore[misc]
