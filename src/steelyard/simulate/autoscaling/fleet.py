"""A fleet whose size changes: `core.scaling` decides as it does for the supervisor, and here it is carried out.

A replica costs from the order to start it, its cold start included, until it has finished what it had.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
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

COLD_STARTS_AVERAGED = 10  # the last cold starts, of which the mean counts


class AutoscaledBalancer(Balancer):
    """A balancer that counts the true work it is offered, and says when a request waits and no replica is ready."""

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


class AutoscaledFleet:
    """Starts and drains replicas as the scaling wants, and keeps the books."""

    def __init__(
        self,
        simulation: Simulation,
        balancer: AutoscaledBalancer,
        group: ReplicaGroup,
        autoscale: Autoscale,
        scaling: ScalerDriver,
        record: FleetRecord,
        rng: Random,
        *,
        start: int,
        warmup: float = 0.0,
        slo: float = INFINITY,
    ) -> None:
        self._simulation = simulation
        self._balancer = balancer
        self._group = group
        self._autoscale = autoscale
        self._scaling = scaling
        self._record = record
        self._rng = rng
        self._warmup = warmup
        self._slo = slo
        self._members: dict[str, ScaledReplica] = {}  # started and to stay
        self._draining: dict[str, ScaledReplica] = {}
        self._created = 0
        self._cold_starts: list[float] = []
        self._rate = float(group.slots)  # until it is known
        self._answered = self._late = 0
        self._latency = WindowedQuantiles()
        self.target = start
        simulation.on_request_end = self._on_request_end
        balancer.on_no_replica = self._on_no_replica
        for _ in range(start):
            id = self._add(0.0)
            self._ready(id, 0.0)
        simulation.call_every(float(autoscale.interval), self.decide)

    # ------------------------------------------------------------------ seeing

    def _on_request_end(self, job: Job, answered: bool, now: float) -> None:
        seconds = now - job.intended_at
        self._answered += 1
        if answered:
            self._latency.add(seconds, now)
        if not answered or seconds > self._slo:
            self._late += 1

    @property
    def counts(self) -> tuple[int, int, int]:
        """Ready, starting, leaving."""
        ready = sum(member.ready < INFINITY for member in self._members.values())
        return ready, len(self._members) - ready, len(self._draining)

    @property
    def finished_and_late(self) -> tuple[int, int]:
        """Requests that are over, and how many of them were late."""
        return self._answered, self._late

    def cold_start(self) -> float:
        """As measured lately; before the first one, as configured."""
        lately = self._cold_starts[-COLD_STARTS_AVERAGED:]
        return sum(lately) / len(lately) if lately else float(self._autoscale.cold_start)

    def signals(self, now: float) -> ScalingMetrics:
        pool = self._balancer.pool()
        if pool.members:
            self._rate = pool.drain_rate / len(pool.members)
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
            slots=pool.limit if pool.limit < INFINITY else float(self._group.slots),
            cold_start=self.cold_start(),
            answered=self._answered,
            late=self._late,
            slo_seconds=self._slo,
            p99=self._latency.quantile(0.99, now),
        )

    # ------------------------------------------------------------------ deciding

    def _on_no_replica(self, now: float) -> None:
        """A request waits for a replica: think at once, unless one is on its way."""
        if not self._members:
            self.decide(now)

    def decide(self, now: float) -> None:
        self.target = self._scaling.decide(self.signals(now)).replicas
        missing = self.target - len(self._members)
        for _ in range(missing):
            self._start(now)
        if missing < 0:
            for id, _ in choose_removals(self._candidates(now), -missing):
                self._drain(id, now)

    def _candidates(self, now: float) -> list[ScaleDownCandidate]:
        pool = self._balancer.pool()
        found = []
        for id, member in self._members.items():
            replica = pool.find(id)
            useful = replica.state in (State.READY, State.LOADING)
            ready = member.ready < INFINITY
            age = now - (member.ready if ready else member.started)
            found.append(
                ScaleDownCandidate(id, False, ready, useful, replica.slowness, age, None, 0.0, replica.in_flight)
            )
        return found

    # ------------------------------------------------------------------ carrying out

    def _add(self, now: float) -> str:
        id = f"r{self._created}"
        self._created += 1
        self._simulation.servers[id] = make_server(id, self._group)
        self._members[id] = ScaledReplica(now)
        self._simulation.join(id, self._group.weight, now)
        self._record.peak_replicas = max(self._record.peak_replicas, len(self._members))
        return id

    def _start(self, now: float) -> None:
        expected = now + self.cold_start()
        pool = self._balancer.pool()
        pool.next_ready_at = min(pool.next_ready_at, expected) if pool.next_ready_at > now else expected
        id = self._add(now)
        self._record.starts += 1
        scale = 1.0 + self._autoscale.cold_start_jitter * (2.0 * self._rng.random() - 1.0)
        seconds = self._autoscale.cold_start * scale + self._autoscale.probe_interval * self._rng.random()
        self._simulation.call_at(now + seconds, lambda later: self._ready(id, later))

    def _ready(self, id: str, now: float) -> None:
        member = self._members.get(id)
        if member is None:
            return  # no longer wanted
        member.ready = now
        if now > member.started:
            self._cold_starts.append(now - member.started)
        self._simulation.report_event(id, Event.LOADED, now)

    def _drain(self, id: str, now: float) -> None:
        self._draining[id] = self._members.pop(id)
        self._simulation.report_event(id, Event.DRAIN, now)
        self._simulation.when_idle(id, lambda later: self._remove(id, later), now)

    def _remove(self, id: str, now: float) -> None:
        self._charge(self._draining.pop(id), now)
        self._simulation.carry_out(self._balancer.remove_replica(id, now=now), now)
        del self._simulation.servers[id]

    def _charge(self, member: ScaledReplica, until: float) -> None:
        self._record.replica_seconds += max(0.0, until - max(member.started, self._warmup))

    def close(self, end: float) -> None:
        """The run is over: remaining replicas are charged until now."""
        for member in (*self._members.values(), *self._draining.values()):
            self._charge(member, end)
