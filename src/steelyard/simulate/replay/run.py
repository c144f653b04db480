"""A recording run again in virtual time with a policy of your choice."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from random import Random

import numpy as np

from ...core.request import INFINITY
from ..engine.job import Job
from ..engine.result import RunResult
from ..run import TIMELINE_SAMPLES, plan_samples
from .calibration import Calibration
from .failures import AttemptFailure
from .fleet import initial_balancer, plan_fleet
from .recording import RecordedRequest, Recording
from .server_models import FloatArray
from .simulation import ReplaySimulation

WARMUP_SHARE = 0.1  # what the gateway had learned before is not in the log
CLOCK_RESOLUTION_SECONDS = 1e-6


@dataclass
class ReplayRun:
    """Arrivals since the recording began and latencies of requests answered after the warm-up, without those whose
    client disconnected in the recording."""

    policy: str
    intended_at: FloatArray
    seconds: FloatArray
    lost: int  # failed or refused
    result: RunResult = field(repr=False)


def replay(recording: Recording, calibration: Calibration, policy: str, seed: int = 1) -> ReplayRun:
    jobs = [
        _job(one, one.at - recording.begin, float(work))
        for one, work in zip(recording.requests, calibration.work, strict=True)
    ]
    result = RunResult(recording.model or "default", policy, 0.0, seed)
    servers = [calibration.server_model.build(id, calibration.speeds[id][0].speed) for id in calibration.replicas]
    simulation = ReplaySimulation(
        servers,
        [initial_balancer(recording, policy, seed)],
        iter(jobs),
        result,
        Random(0),
        warmup=WARMUP_SHARE * recording.seconds,
        stalls=calibration.stalls,
    )
    simulation.request_failures = {jobs[number]: failures for number, failures in calibration.request_failures.items()}
    _plan_replicas(simulation, calibration)
    plan_fleet(simulation, recording, policy)
    _plan_clients(simulation, recording, jobs)
    last = max(one.at + one.seconds for one in recording.requests) - recording.begin
    plan_samples(simulation, servers, result, max(last, 1e-3) / TIMELINE_SAMPLES)
    simulation.run()
    arrived, seconds = np.array(simulation.answers).reshape(-1, 2).T
    seconds = np.maximum(seconds + calibration.overhead, CLOCK_RESOLUTION_SECONDS)
    return ReplayRun(policy, arrived, seconds, simulation.lost, result)


def _job(one: RecordedRequest, arrived: float, work: float) -> Job:
    deadline = one.answer_deadline
    job = Job(
        arrived,
        work,
        one.features,
        deadline=INFINITY if deadline is None else arrived + deadline,
        priority=one.priority,
        tenant=one.tenant,
        kind=one.call,
        key=one.key or None,
    )
    job.idempotent = one.idempotent
    return job


def _plan_replicas(simulation: ReplaySimulation, calibration: Calibration) -> None:
    def set_speed(id: str, speed: float, now: float) -> None:
        simulation.servers[id].set_speed(speed, now, simulation.schedule)

    def fail(id: str, failure: AttemptFailure, now: float) -> None:
        simulation.failing_replicas[id] = failure

    def recover(id: str, now: float) -> None:
        simulation.failing_replicas.pop(id, None)

    for id, segments in calibration.speeds.items():
        for segment in segments[1:]:
            simulation.call_at(segment.begin, partial(set_speed, id, segment.speed))
    for id, windows in calibration.failure_windows.items():
        for window in windows:
            simulation.call_at(window.begin, partial(fail, id, window.failure))
            simulation.call_at(window.end, partial(recover, id))


def _plan_clients(simulation: ReplaySimulation, recording: Recording, jobs: list[Job]) -> None:
    """Clients disconnect after the same time; past the deadline the gateway cancels."""
    for one, job in zip(recording.requests, jobs, strict=True):
        if one.abandoned:
            simulation.disconnected.add(job)
            simulation.call_at(job.intended_at + one.seconds, partial(simulation.cancel, job))
        limit = one.answer_deadline
        if limit is not None and not (one.answered and one.seconds > limit):
            simulation.call_at(job.deadline, partial(simulation.expire, job))
