"""A balancer for several models that share servers: a pool for each, and each server is a device for them all."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
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

MODEL_BYTES = 1 << 30  # bytes of a model: all are alike
DEMAND_WINDOW_SECONDS = 30.0  # seconds over which what is offered is averaged


def route_by_model(jobs: Iterator[Job]) -> Iterator[Job]:
    """The same jobs, each to the pool of its model: nothing there depends on what else its server holds."""
    for job in jobs:
        job.model, job.kind, job.key, job.cold_seconds = job.kind, "", None, 0.0
        yield job


def model_names(scenario: Scenario) -> list[str]:
    return [f"model-{n}" for n in range(scenario.workload.models.count)]


class MultiModelBalancer(Balancer):
    """A balancer that counts what is offered of each model, and says when one is wanted that is nowhere."""

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
    at_once = options.concurrency
    groups = [group for group in scenario.fleet for _ in range(group.count)]
    devices = [
        ledger.set_device(
            server.id, n, group.models * MODEL_BYTES, 0.0, group.slots if isinstance(at_once, int) else INFINITY
        )
        for n, (server, group) in enumerate(zip(servers, groups, strict=True))
    ]
    slots = 0
    for model in model_names(scenario):
        pool = balancer.add_model(model, policy, options, sizes=RequestSizeModel())
        pool.memory.load_state(MODEL_BYTES, RequestSizeState(), unmeasured=True)
        for server, device, group in zip(servers, devices, groups, strict=True):
            place = ledger.add_residency(device, server.id, slots, permanent=False)
            slots += 1
            balancer.add_replica(server.id, model, weight=group.weight, state=State.UNLOADED, place=place, now=0.0)
    return balancer
