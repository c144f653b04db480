"""A decision log of a simulated gateway: what it would have written, with the truth beside it."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import msgspec

from steelyard.core.balancer import Balancer
from steelyard.core.decision import Reject, Send
from steelyard.core.options import PoolOptions
from steelyard.core.outcome import Outcome
from steelyard.core.replica import State
from steelyard.link.decision_log.lines import DecisionLine, FleetLine, FleetMember, LoggedAttempt
from steelyard.simulate.engine.job import Job
from steelyard.simulate.engine.result import RunResult
from steelyard.simulate.engine.servers import Server
from steelyard.simulate.engine.simulation import Simulation

LogLine = DecisionLine | FleetLine
CLOCK_START_SECONDS = 5000.0  # CLOCK_MONOTONIC when it began


class Recorder(Simulation):
    """A simulation that keeps a line of each request."""

    def __init__(self, *arguments: Any, policy: str, model: str, **more: Any) -> None:
        super().__init__(*arguments, **more)
        self.policy = policy
        self.model = model
        self.lines: list[LogLine] = []
        self.attempts: dict[Job, list[LoggedAttempt]] = {}

    def _send(self, decision: Send, now: float) -> None:
        job = decision.request
        assert isinstance(job, Job)
        started = LoggedAttempt(decision.replica.id, now - job.intended_at, 0.1, concurrent=decision.replica.load - 1)
        self.attempts.setdefault(job, []).append(started)
        super()._send(decision, now)

    def _end(self, job: Job, outcome: Outcome, now: float) -> None:
        attempts = self.attempts[job]
        last = attempts.pop()
        label = "" if outcome is Outcome.OK else outcome.label
        attempts.append(msgspec.structs.replace(last, seconds=now - job.intended_at - last.after, outcome=label))
        super()._end(job, outcome, now)
        if outcome is Outcome.OK:
            self._write(job, "met", 200, now)
        elif job.attempt is None:
            self._write(job, "failed", 502, now, fault="replica")

    def _refused(self, decision: Reject) -> None:
        super()._refused(decision)
        assert isinstance(decision.request, Job)
        self._write(decision.request, "refused", 503, self.now, fault="overload")

    def _write(self, job: Job, verdict: str, status: int, now: float, fault: str = "") -> None:
        self.lines.append(
            DecisionLine(
                id=f"{job.intended_at:.9f}",
                time="2026-11-16T00:00:00Z",
                at=CLOCK_START_SECONDS + job.intended_at,
                worker=0,
                model=self.model,
                policy=self.policy,
                verdict=verdict,
                fault=fault,
                seconds=now - job.intended_at,
                estimate=0.1,
                status=status,
                call=job.kind,
                features=job.features,
                attempts=tuple(self.attempts.pop(job, ())),
            )
        )


def jobs(count: int, rate: float, mean: float, seed: int, *, explained_share: float = 0.7) -> list[Job]:
    """Lognormal work, of which a feature tells a part; arrivals by chance."""
    rng = Random(seed)
    now, made = 0.0, []
    for _ in range(count):
        now += rng.expovariate(rate)
        size, noise = rng.gauss(0.0, explained_share), rng.gauss(0.0, 1.0 - explained_share)
        work = mean * 2.718281828 ** (size + noise - (explained_share**2 + (1 - explained_share) ** 2) / 2)
        made.append(Job(now, work, (100.0 * 2.718281828**size,), kind="chat"))
    return made


def record(
    servers: list[Server], todo: list[Job], policy: str, model: str = "m", plan: Any = None, **options: Any
) -> list[LogLine]:
    balancer = Balancer(Random(99))
    balancer.add_model("", policy, PoolOptions(**options))
    for server in servers:
        balancer.add_replica(server.id, state=State.READY, now=0.0)
    run = Recorder(servers, [balancer], todo, RunResult(model, policy, 0.0, 1), Random(1), policy=policy, model=model)
    if plan is not None:
        plan(run)
    run.run()
    return [fleet_line([server.id for server in servers], policy, model, **options), *run.lines]


def fleet_line(ids: list[str], policy: str, model: str = "m", at: float = 0.0, **more: Any) -> FleetLine:
    members = tuple(FleetMember(id, "ready") for id in ids)
    given: dict[str, Any] = {"worker": 0, "workers": 1, "sample_rate": 1.0, **more}
    return FleetLine(
        time="2026-11-16T00:00:00Z", at=CLOCK_START_SECONDS + at, model=model, policy=policy, replicas=members, **given
    )


def write(path: Path, lines: list[LogLine]) -> Path:
    path.write_bytes(b"".join(msgspec.json.encode(line) + b"\n" for line in lines))
    return path
