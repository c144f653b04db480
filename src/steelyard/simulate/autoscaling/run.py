"""One run with a scaler: the fleet, its balancer, and the samples that charts are made of."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from random import Random

from ...core.options import Concurrency
from ..engine.job import Job
from ..engine.result import FleetRecord, RunResult
from ..engine.simulation import Simulation
from ..scenario.scaler_spec import initial_replicas, make_scaler
from ..scenario.schema import Scenario
from .fleet import AutoscaledBalancer, AutoscaledFleet

FLEET_SAMPLES = 400  # points in time of a run's record


def run_scaled(
    scenario: Scenario,
    policy: tuple[str, Concurrency | None],
    scaler: str,
    seed: int,
    jobs: Iterator[Job],
    result: RunResult,
    *,
    seconds: float,
    slo: float,
) -> RunResult:
    autoscale = scenario.autoscale
    assert autoscale is not None
    balancer = AutoscaledBalancer(Random(f"{seed}/0"))
    options = scenario.balancing.options(policy[1], 0)
    balancer.add_model("", policy[0], replace(options, wait_for_ready=True))
    warmup = scenario.warmup * seconds
    simulation = Simulation([], [balancer], jobs, result, Random(seed), warmup=warmup, slo=slo)
    result.fleet = record = FleetRecord()
    fleet = AutoscaledFleet(
        simulation,
        balancer,
        scenario.fleet[0],
        autoscale,
        make_scaler(scaler, autoscale),
        record,
        Random(f"{seed}/starts"),
        start=initial_replicas(scaler, autoscale),
        warmup=warmup,
        slo=slo,
    )
    if seconds:
        _plan_samples(simulation, fleet, balancer, record, seconds / FLEET_SAMPLES, scenario.capacity)
    simulation.run()
    fleet.close(result.seconds)
    record.seconds = max(0.0, result.seconds - warmup)
    return result


def _plan_samples(
    simulation: Simulation,
    fleet: AutoscaledFleet,
    balancer: AutoscaledBalancer,
    record: FleetRecord,
    every: float,
    capacity: float,
) -> None:
    before = (0.0, 0, 0)

    def sample(now: float) -> None:
        nonlocal before
        if len(record.times) >= 2 * FLEET_SAMPLES:
            return  # the tail after the last arrival may be long
        ready, starting, _ = fleet.counts
        over, late = fleet.finished_and_late
        work, over_then, late_then = before
        before = (balancer.offered_work, over, late)
        record.times.append(now)
        record.wanted.append(fleet.target)
        record.ready.append(ready)
        record.starting.append(starting)
        record.offered.append((balancer.offered_work - work) / every / capacity)
        record.late.append((late - late_then) / (over - over_then) if over > over_then else 0.0)

    simulation.call_every(every, sample)
