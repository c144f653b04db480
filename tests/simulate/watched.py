"""Runs that are watched from outside: who was sent where and when, and how often each request was counted."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any, NamedTuple

import pytest

from steelyard.core.decision import Reject, Send
from steelyard.core.outcome import Outcome
from steelyard.core.statistics.histogram import Histogram
from steelyard.simulate import run
from steelyard.simulate.engine.job import Job
from steelyard.simulate.engine.result import RunResult
from steelyard.simulate.engine.simulation import Simulation
from steelyard.simulate.scenario.schema import Scenario


class Sent(NamedTuple):
    when: float
    replica: str
    job: Job
    hedged: bool


class Watched(Simulation):
    """A simulation that remembers what it did."""

    def __init__(self, *args: Any, **named: Any) -> None:
        super().__init__(*args, **named)
        self.sent: list[Sent] = []
        self.ended: list[tuple[float, Job, Outcome]] = []  # attempts
        self.counts: Counter[Job] = Counter()  # how often a request went into the figures

    def _send(self, decision: Send, now: float) -> None:
        assert isinstance(decision.request, Job)
        self.sent.append(Sent(now, decision.replica.id, decision.request, decision.hedged))
        super()._send(decision, now)

    def _end(self, job: Job, outcome: Outcome, now: float) -> None:
        self.ended.append((now, job, outcome))
        before = self._result.latency.count + self._result.failed
        super()._end(job, outcome, now)
        more = self._result.latency.count + self._result.failed - before
        if more:
            self.counts[job.origin or job] += more

    def _refused(self, decision: Reject) -> None:
        assert isinstance(decision.request, Job)
        before = sum(self._result.refused.values())
        super()._refused(decision)
        more = sum(self._result.refused.values()) - before
        if more:
            self.counts[decision.request] += more

    def times_sent_to(self, replica: str, since: float = 0.0, until: float = float("inf")) -> list[float]:
        return [sent.when for sent in self.sent if sent.replica == replica and since <= sent.when < until]

    def left_over(self) -> int:
        """What replicas and balancers still believe to have: nothing, after a run."""
        on_replicas = sum(server.busy + len(server.queue) for server in self.servers.values())
        pools = [balancer.pool() for balancer in self.balancers]
        believed = sum(
            replica.in_flight + len(replica.running_attempts) for pool in pools for replica in pool.replicas.values()
        )
        return on_replicas + believed + sum(len(pool.queue) + len(pool.preempted) for pool in pools)


def watch(scenario: Scenario, policy: str, load: float, seed: int = 1) -> tuple[RunResult, Watched]:
    made: list[Watched] = []

    def make(*args: Any, **named: Any) -> Watched:
        made.append(Watched(*args, **named))
        return made[0]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(run, "Simulation", make)
        result = run.run_task(run.Task(scenario, policy, load, seed))
    return result, made[0]


def arrivals_after_warmup(task: run.Task) -> int:
    jobs, seconds = run.make_jobs(task)
    return sum(job.intended_at >= task.scenario.warmup * seconds for job in jobs)


def everything(result: RunResult) -> str:
    """A result to the last bit, as text."""
    fields = dict(vars(result))
    histogram = fields.pop("latency")
    fields["timeline"] = vars(result.timeline)
    fields["fleet"] = result.fleet and vars(result.fleet)
    fields["latency"] = _parts(histogram)
    if result.tokens is not None:
        figures = vars(result.tokens)
        fields["tokens"] = {name: _parts(v) if isinstance(v, Histogram) else v for name, v in figures.items()}
    return json.dumps(fields, sort_keys=True)


def _parts(histogram: Histogram) -> dict[str, Any]:
    # a compiled class has no __slots__ to ask
    return {name: getattr(histogram, name) for name in ("count", "counts", "maximum", "total")}
