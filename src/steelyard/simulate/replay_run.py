"""A recording run again in virtual time: the same requests on the same replicas, and a policy of your choice."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from random import Random
from typing import cast

import numpy as np

from ..core.balancer import Balancer
from ..core.options import Concurrency, PoolOptions
from ..core.policies import find_policy
from ..core.replica import Event, Replica, State
from ..core.request import INFINITY, Phase
from ..documents import Seconds
from ..link.decision_lines import FleetLine
from .engine import Simulation
from .job import Job
from .replay_fit import Explanation
from .replay_log import Asked, Recording
from .replay_servers import Numbers
from .result import RunResult
from .run import SAMPLES, _plan_samples, _plan_signals, split_policy
from .scenario import Balancers

WARMUP = 0.1  # of the recording: what the gateway had learned before it began is not in the log
HEARD_EVERY = 0.005  # seconds: workers of one machine see each other's counts at once
MOST_NEWS = 20_000  # times in a run that they hear of each other
OUT_OF_ROTATION = {
    "starting": Event.LIVE,
    "loading": Event.LIVE,
    "unreachable": Event.LOST,
    "draining": Event.DRAIN,
    "unloaded": Event.UNLOAD,
}


@dataclass
class Replayed:
    """`seconds`: of every request answered after the warm-up, in order."""

    policy: str
    seconds: Numbers
    result: RunResult = field(repr=False)

    @property
    def lost(self) -> int:
        return self.result.failed + sum(self.result.refused.values())


def replay(recording: Recording, explanation: Explanation, policy: str, seed: int = 1, *, recorded: bool) -> Replayed:
    """`recorded`: this is the policy that ran; where it was changed during the recording, it changes here too."""
    jobs = _jobs(recording, explanation)
    result = RunResult(recording.model or "default", policy, 0.0, seed)
    servers = [explanation.kind.build(id, explanation.speeds[id][0][1]) for id in explanation.replicas]
    balancers = [_balancer(recording, policy, seed, worker) for worker in range(recording.workers)]
    warmup = WARMUP * recording.seconds
    turns = _InTurn([one.worker for one in recording.asked], len(balancers))
    simulation = Simulation(servers, balancers, iter(jobs), result, turns, warmup=warmup)
    _plan_speeds(simulation, explanation)
    _plan_fleet(simulation, recording, policy, recorded=recorded)
    _plan_leaving(simulation, recording, jobs)
    if len(balancers) > 1:
        every = max(HEARD_EVERY, recording.seconds / MOST_NEWS)
        _plan_signals(simulation, balancers, Balancers(len(balancers), Seconds(every)))
    _plan_samples(simulation, servers, result, max(recording.seconds, 1e-3) / SAMPLES)
    seconds: list[float] = []

    def over(took: float, answered: bool, now: float) -> None:
        if answered and now - took >= warmup:
            seconds.append(took + explanation.overhead)

    simulation.over = over
    simulation.run()
    return Replayed(policy, np.sort(np.array(seconds)), result)


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


def _balancer(recording: Recording, policy: str, seed: int, worker: int) -> Balancer:
    """As the worker was when the recording began."""
    first = next((line for line in recording.fleet if line.worker == worker), recording.fleet[0])
    name, concurrency = split_policy(policy)
    balancer = Balancer(Random(f"{seed}/{worker}"))
    options = first.policy_options if name == first.policy else {}
    balancer.add_model("", name, _options(first, concurrency), options)
    for member in first.replicas:
        state = State.READY if member.state == State.EJECTED.value else State(member.state)
        balancer.add_replica(member.id, weight=member.weight, state=state, now=0.0)
    return balancer


def _options(line: FleetLine, concurrency: Concurrency | None) -> PoolOptions:
    limit = cast(Concurrency, line.concurrency) if concurrency is None else concurrency
    return PoolOptions(concurrency=limit, queue=line.queue, max_wait=line.max_wait)


# ---------------------------------------------------------------------- what happened meanwhile


def _plan_speeds(simulation: Simulation, explanation: Explanation) -> None:
    for id, speeds in explanation.speeds.items():
        server = simulation.servers[id]
        for when, speed in speeds[1:]:
            simulation.at(when, lambda now, s=server, v=speed: s.set_speed(v, now, simulation.schedule))  # type: ignore[misc]
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


def _plan_fleet(simulation: Simulation, recording: Recording, policy: str, *, recorded: bool) -> None:
    """Replicas that came, went, died or got another weight, for each worker when it knew."""
    begun: set[int] = set()
    for line in recording.fleet:
        if line.worker not in begun:
            begun.add(line.worker)
        else:
            change = _Change(simulation, line, policy, recorded)
            simulation.at(max(0.0, line.at - recording.begin), change.carry_out)


@dataclass(frozen=True)
class _Change:
    simulation: Simulation
    line: FleetLine
    policy: str
    recorded: bool

    def carry_out(self, now: float) -> None:
        simulation, line = self.simulation, self.line
        balancer = simulation.balancers[line.worker]
        known = balancer.pool().replicas
        for member in line.replicas:
            if member.id not in known:
                state = State.READY if member.state == State.EJECTED.value else State(member.state)
                decisions = balancer.add_replica(member.id, weight=member.weight, state=state, now=now)
                simulation.carry_out(decisions, now)
                continue
            replica = known[member.id]
            if replica.weight != member.weight:
                balancer.set_weight(member.id, member.weight, now=now)
            for event in _events(replica, member.state):
                simulation.carry_out(balancer.report(member.id, event, now=now), now)
            self._live_or_dead(member.id, member.state, now)
        for id in set(known) - {member.id for member in line.replicas}:
            simulation.carry_out(balancer.remove_replica(id, now=now), now)
        self._set(balancer, now)

    def _live_or_dead(self, id: str, state: str, now: float) -> None:
        server = self.simulation.servers[id]
        if state == State.UNREACHABLE.value and not server.down:
            self.simulation.crash(id, now)
        elif state != State.UNREACHABLE.value:
            server.down = 0

    def _set(self, balancer: Balancer, now: float) -> None:
        _, concurrency = split_policy(self.policy)
        options = _options(self.line, concurrency)
        if options != balancer.pool().options:
            self.simulation.carry_out(balancer.set_options("", options, now=now), now)
        if self.recorded and not isinstance(balancer.pool().policy, find_policy(self.line.policy)):
            decisions = balancer.set_policy("", self.line.policy, self.line.policy_options, now=now)
            self.simulation.carry_out(decisions, now)


def _events(replica: Replica, state: str) -> list[Event]:
    """What brings the replica there, as far as it is not the balancer's own decision."""
    events: list[Event] = []
    if replica.state is State.DRAINING and state != State.DRAINING.value:
        events.append(Event.UNDRAIN)
    if replica.state is State.UNLOADED and state not in (State.UNLOADED.value, State.DRAINING.value):
        events.append(Event.LOAD)
    if state in (State.READY.value, State.EJECTED.value):
        return events if replica.state in (State.READY, State.EJECTED) else [*events, Event.LOADED]
    event = OUT_OF_ROTATION.get(state)
    return [*events, event] if event is not None and replica.state.value != state else events
