"""A balancer with a pool for each model; every server is a device that they share."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import count
from math import exp
from random import Random

from ...core.balancer import Balancer
from ...core.decision import Decision, Wait
from ...core.memory.ledger import MemoryLedger
from ...core.memory.request_size import RequestSizeModel, RequestSizeState
from ...core.options import Concurrency
from ...core.pool import Pool
from ...core.replica import State
from ...core.request import INFINITY, Request
from ...core.statistics.latency import DecayedMean
from ..engine.job import Job
from ..engine.servers import Server
from ..scenario.schema import Scenario

MODEL_BYTES = 1 << 30  # all models are alike
DEMAND_WINDOW_SECONDS = 30.0


def route_by_model(jobs: Iterator[Job]) -> Iterator[Job]:
    for job in jobs:
        job.model, job.kind, job.key, job.cold_seconds = job.kind, "", None, 0.0
        yield job


def model_names(scenario: Scenario) -> list[str]:
    return [f"model-{n}" for n in range(scenario.workload.models.count)]


class MultiModelBalancer(Balancer):
    """Counts requests of each model, and says when one waits for a model that is nowhere."""

    def __init__(self, rng: Random) -> None:
        super().__init__(rng, MemoryLedger())
        self.on_model_missing: Callable[[float], None] = lambda now: None
        self._offered: dict[str, DecayedMean] = {}

    def submit(self, request: Request, now: float, *, wait: bool = True) -> Decision:
        decision = super().submit(request, now, wait=wait)
        self._offered.setdefault(request.model, DecayedMean(DEMAND_WINDOW_SECONDS)).add(1.0, now)
        if type(decision) is Wait and not self.pool(request.model).members:
            self.on_model_missing(now)
        return decision

    def offered_load(self, pool: Pool, now: float) -> float:
        """Seconds of work a second that arrive for a model."""
        offered, estimator = self._offered.get(pool.model), pool.estimator
        if offered is None or not estimator.samples or now <= 0.0:
            return 0.0
        usual = estimator.typical_seconds * estimator.remaining.mean
        return offered.rate(now) * usual / (1.0 - exp(-now / DEMAND_WINDOW_SECONDS))


def build_multi_model_balancer(
    scenario: Scenario, policy: str, concurrency: Concurrency | None, servers: Sequence[Server], seed: int
) -> MultiModelBalancer:
    balancer = MultiModelBalancer(Random(f"{seed}/0"))
    ledger = balancer.ledger
    options = replace(scenario.balancing.options(concurrency, 0), wait_for_ready=True)
    devices = []
    for n, (server, group) in enumerate(zip(servers, scenario.groups, strict=True)):
        at_once = group.slots if isinstance(options.concurrency, int) else INFINITY
        devices.append(ledger.set_device(server.id, n, group.models * MODEL_BYTES, 0.0, at_once))
    columns = count()
    for model in model_names(scenario):
        pool = balancer.add_model(model, policy, options, sizes=RequestSizeModel())
        pool.memory.load_state(MODEL_BYTES, RequestSizeState(), unmeasured=True)
        for server, device, group in zip(servers, devices, scenario.groups, strict=True):
            place = ledger.add_residency(device, server.id, next(columns), permanent=False)
            balancer.add_replica(server.id, model, weight=group.weight, state=State.UNLOADED, place=place, now=0.0)
    return balancer
