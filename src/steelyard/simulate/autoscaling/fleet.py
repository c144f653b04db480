"""A fleet whose size `core.scaling` decides, as for the supervisor.

A replica costs from the order to start it, cold start included, until it has drained.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import InitVar, dataclass
from random import Random

from ...core.balancer import Balancer
from ...core.decision import Decision, Wait
from ...core.replica import Event, State
from ...core.request import INFINITY, Request
from ...core.scalers.base import ScalingMetrics
from ...core.scaling.scale_down import ScaleDownCandidate, choose_removals
from ...core.statistics.latency import WindowedQuantiles
from ..engine.job import Job
from ..engine.result import FleetRecord
from ..engine.servers import make_server
from ..engine.simulation import Simulation
from ..scenario.dynamics import Autoscale
from ..scenario.scaler_spec import ScalerDriver
from ..scenario.schema import ReplicaGroup

COLD_STARTS_AVERAGED = 10  # the last ones


class AutoscaledBalancer(Balancer):
    """Counts true work, and says when a request waits and no replica is ready."""

    def __init__(self, rng: Random) -> None:
        super().__init__(rng)
        self.on_no_replica: Callable[[float], None] = lambda now: None
        self.offered_work = 0.0

    def submit(self, request: Request, now: float, *, wait: bool = True) -> Decision:
        assert isinstance(request, Job)
        self.offered_work += request.work
        decision = super().submit(request, now, wait=wait)
        if type(decision) is Wait and not self.pool().members:
            self.on_no_replica(now)
        return decision


@dataclass(slots=True)
class ScaledReplica:
    started: float
    ready: float = INFINITY  # since when


@dataclass(eq=False)
class AutoscaledFleet:
    """Starts and drains replicas, and records what they cost."""

    simulation: Simulation
    balancer: AutoscaledBalancer
    group: ReplicaGroup
    autoscale: Autoscale
    scaling: ScalerDriver
    record: FleetRecord
    rng: Random
    start: InitVar[int]
    warmup: float = 0.0
    slo: float = INFINITY

    def __post_init__(self, start: int) -> None:
        self._members: dict[str, ScaledReplica] = {}  # started and to stay
        self._draining: dict[str, ScaledReplica] = {}
        self._created = 0
        self._cold_starts: list[float] = []
        self._rate = float(self.group.slots)  # until it is known
        self._answered = self._late = 0
        self._latency = WindowedQuantiles()
        self.target = start
        self.simulation.on_request_end = self._on_request_end
        self.balancer.on_no_replica = self._on_no_replica
        for _ in range(start):
            self._ready(self._add(0.0), 0.0)
        self.simulation.call_every(float(self.autoscale.interval), self.decide)

    def _on_request_end(self, job: Job, answered: bool, now: float) -> None:
        seconds = now - job.intended_at
        self._answered += 1
        if answered:
            self._latency.add(seconds, now)
        if not answered or seconds > self.slo:
            self._late += 1

    @property
    def counts(self) -> tuple[int, int, int]:
        """Ready, starting, leaving."""
        ready = sum(member.ready < INFINITY for member in self._members.values())
        return ready, len(self._members) - ready, len(self._draining)

    def plan_samples(self, seconds: float, samples: int) -> None:
        record, every, capacity = self.record, seconds / samples, self.group.capacity
        before = (0.0, 0, 0)

        def sample(now: float) -> None:
            nonlocal before
            if len(record.times) >= 2 * samples:
                return  # the tail after the last arrival may be long
            ready, starting, _ = self.counts
            work, answered, late = self.balancer.offered_work, self._answered, self._late
            work_then, answered_then, late_then = before
            before = (work, answered, late)
            record.times.append(now)
            record.wanted.append(self.target)
            record.ready.append(ready)
            record.starting.append(starting)
            record.offered.append((work - work_then) / every / capacity)
            record.late.append((late - late_then) / (answered - answered_then) if answered > answered_then else 0.0)

        self.simulation.call_every(every, sample)

    def cold_start(self) -> float:
        """As measured lately; before the first one, as configured."""
        lately = self._cold_starts[-COLD_STARTS_AVERAGED:]
        return sum(lately) / len(lately) if lately else float(self.autoscale.cold_start)

    def signals(self, now: float) -> ScalingMetrics:
        pool = self.balancer.pool()
        if pool.members:
            self._rate = pool.service_rate / len(pool.members)
        ready, coming, _ = self.counts
        return ScalingMetrics(
            now=now,
            ready=ready,
            starting=coming,
            offered=pool.offered_work,
            arrived=pool.arrived,
            running=pool.active,
            waiting=len(pool.queue),
            backlog=pool.queue.work,
            estimates_learned=pool.estimator.samples > 0,
            rate=self._rate,
            completed_work=pool.completed_work,
            busy_seconds=pool.busy_seconds,
            slots=pool.limit if pool.limit < INFINITY else float(self.group.slots),
            cold_start=self.cold_start(),
            answered=self._answered,
            late=self._late,
            slo_seconds=self.slo,
            p99=self._latency.quantile(0.99, now),
        )

    def _on_no_replica(self, now: float) -> None:
        if not self._members:  # none is starting either
            self.decide(now)

    def decide(self, now: float) -> None:
        self.target = self.scaling.decide(self.signals(now)).replicas
        missing = self.target - len(self._members)
        for _ in range(missing):
            self._start(now)
        if missing < 0:
            for id, _ in choose_removals(self._candidates(now), -missing):
                self._drain(id, now)

    def _candidates(self, now: float) -> list[ScaleDownCandidate]:
        pool = self.balancer.pool()
        found = []
        for id, member in self._members.items():
            replica = pool.find(id)
            useful, ready = replica.state in (State.READY, State.LOADING), member.ready < INFINITY
            age, slowness = now - (member.ready if ready else member.started), replica.slowness
            found.append(ScaleDownCandidate(id, False, ready, useful, slowness, age, None, 0.0, replica.in_flight))
        return found

    def _add(self, now: float) -> str:
        id = f"r{self._created}"
        self._created += 1
        self.simulation.servers[id] = make_server(id, self.group)
        self._members[id] = ScaledReplica(now)
        self.simulation.join(id, self.group.weight, now)
        self.record.peak_replicas = max(self.record.peak_replicas, len(self._members))
        return id

    def _start(self, now: float) -> None:
        expected = now + self.cold_start()
        pool = self.balancer.pool()
        pool.next_ready_at = min(pool.next_ready_at, expected) if pool.next_ready_at > now else expected
        id = self._add(now)
        self.record.starts += 1
        scale = 1.0 + self.autoscale.cold_start_jitter * (2.0 * self.rng.random() - 1.0)
        seconds = self.autoscale.cold_start * scale + self.autoscale.probe_interval * self.rng.random()
        self.simulation.call_at(now + seconds, lambda later: self._ready(id, later))

    def _ready(self, id: str, now: float) -> None:
        member = self._members.get(id)
        if member is None:
            return  # no longer wanted
        member.ready = now
        if now > member.started:
            self._cold_starts.append(now - member.started)
        self.simulation.report_event(id, Event.LOADED, now)

    def _drain(self, id: str, now: float) -> None:
        self._draining[id] = self._members.pop(id)
        self.simulation.report_event(id, Event.DRAIN, now)
        self.simulation.when_idle(id, lambda later: self._remove(id, later), now)

    def _remove(self, id: str, now: float) -> None:
        self._charge(self._draining.pop(id), now)
        self.simulation.carry_out(self.balancer.remove_replica(id, now=now), now)
        del self.simulation.servers[id]

    def _charge(self, member: ScaledReplica, until: float) -> None:
        self.record.replica_seconds += max(0.0, until - max(member.started, self.warmup))

    def close(self, end: float) -> None:
        for member in (*self._members.values(), *self._draining.values()):
            self._charge(member, end)
        self.record.seconds = max(0.0, end - self.warmup)
