"""From a scenario to results: one run per policy, scaler, load and seed, in parallel where there are cores."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import isfinite
from multiprocessing import get_context
from random import Random
from typing import Literal, cast

from ..core.balancer import Balancer
from ..core.errors import OptionError
from ..core.placement.planner import PlacementPlanner
from ..core.policies import make_policy
from ..core.replica import Event, State
from ..core.request import INFINITY
from .autoscaling.run import run_scaled
from .engine.ideal import run_ideal
from .engine.job import Job
from .engine.result import RunResult
from .engine.servers import Server, make_server
from .engine.simulation import Simulation
from .placement.balancer import build_multi_model_balancer, model_names, route_by_model
from .placement.placer import SimulatedPlacer, perfect_placement
from .scenario.scaler_spec import make_scaler
from .scenario.schema import Balancers, Fault, Scenario
from .workload.generator import arrival_seconds, model_shares, random_jobs, trace_jobs, trace_load

IDEAL = "ideal"
PERFECT_PLACEMENT = "perfect"
PLACEMENTS = ("placement", PERFECT_PLACEMENT)  # by core.placement, or by known popularity
TIMELINE_SAMPLES = 200  # points in time of a run's timeline


@dataclass(frozen=True)
class Task:
    scenario: Scenario
    policy: str
    load: float
    seed: int
    scaler: str = ""  # empty: the fleet stays as it is


def split_placement(text: str) -> tuple[str, str]:
    """`least_work@1+placement` is least_work@1, and `placement` says which models are where. Empty: servers do."""
    policy, plus, placing = text.rpartition("+")
    if not plus:
        return text, ""
    if placing not in PLACEMENTS:
        raise OptionError(f"policy {text!r}: after + comes {' or '.join(PLACEMENTS)}")
    return policy, placing


def base_policy(policy: str) -> str:
    """A policy whatever its concurrency; who places the models makes a difference."""
    name, placing = split_policy(policy)[0], split_placement(policy)[1]
    return f"{name}+{placing}" if placing else name


def is_reference(policy: str) -> bool:
    """A yardstick, not a policy to choose: it knows the future."""
    return policy == IDEAL or policy.endswith(f"+{PERFECT_PLACEMENT}")


def split_policy(text: str) -> tuple[str, int | Literal["auto", "unlimited"] | None]:
    """`least_work@1` is least_work with concurrency 1; how its models are placed is left out."""
    name, at, limit = split_placement(text)[0].partition("@")
    if not at:
        return name, None
    if limit in ("auto", "unlimited"):
        return name, cast(Literal["auto", "unlimited"], limit)
    if limit.isdigit() and int(limit) >= 1:
        return name, int(limit)
    raise OptionError(f"policy {text!r}: after @ comes a whole number from 1, auto or unlimited")


def check_scenario(scenario: Scenario) -> None:
    """Everything that can be wrong with a scenario besides its form, before anything runs or is written."""
    for policy in scenario.policies:
        check_policy(scenario, policy)
    for scaler in scalers_of(scenario):
        check_scaler(scenario, scaler)
    if scenario.workload.trace is not None:
        trace_load(scenario)


def check_policy(scenario: Scenario, policy: str) -> None:
    name, _ = split_policy(policy)
    if name != IDEAL:
        make_policy(name, Random(0), {})
    if not split_placement(policy)[1]:
        return
    needs = {
        "fleet[].models above 0 in every group": all(group.models for group in scenario.fleet),
        "workload.models.count above 1": scenario.workload.models.count > 1 and scenario.workload.trace is None,
        "one balancer": scenario.balancers.count == 1,
        "no faults": not scenario.faults,
    }
    for wanted, there in needs.items():
        if not there:
            raise OptionError(f"policy {policy!r}: placing models needs {wanted}")


def scalers_of(scenario: Scenario) -> tuple[str, ...]:
    return scenario.autoscale.scalers if scenario.autoscale is not None else ()


def check_scaler(scenario: Scenario, scaler: str) -> None:
    assert scenario.autoscale is not None
    make_scaler(scaler, scenario.autoscale)


def has_ideal(scenario: Scenario) -> bool:
    if scenario.autoscale is not None:
        return False
    simple = all(g.batching is None and not g.prefix_blocks and not g.models for g in scenario.fleet)
    return simple and sum(g.count for g in scenario.fleet) <= 256


def tasks(scenario: Scenario) -> list[Task]:
    policies = [p for p in scenario.policies if p != IDEAL or has_ideal(scenario)]
    # A trace is the same for every seed: so is the ideal over it, and one run tells all.
    once = scenario.workload.trace is not None
    return [
        Task(scenario, policy, load, seed, scaler)
        for load in scenario.loads
        for policy in policies
        for scaler in scalers_of(scenario) or ("",)
        for seed in range(1, 2 if once and policy == IDEAL else scenario.seeds + 1)
    ]


def run_all(
    todo: list[Task], *, processes: int = 1, done: Callable[[RunResult], None] | None = None
) -> list[RunResult]:
    """All results, in the order of the tasks whatever the number of processes."""
    results: list[RunResult] = []
    # Ctrl-C is for the parent alone: workers that heard it too would each print a traceback.
    quiet = (signal.SIGINT, signal.SIG_IGN)
    with get_context("spawn").Pool(processes, signal.signal, quiet) if processes > 1 else _InlinePool() as pool:
        for result in pool.imap(run_task, todo):
            results.append(result)
            if done is not None:
                done(result)
    return results


class _InlinePool:
    """This process, looking like a pool."""

    def __enter__(self) -> _InlinePool:
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def imap(self, function: Callable[[Task], RunResult], todo: list[Task]) -> Iterator[RunResult]:
        return map(function, todo)


def run_task(task: Task) -> RunResult:
    scenario = task.scenario
    jobs, seconds = make_jobs(task)
    result = RunResult(scenario.name, task.policy, task.load, task.seed, scaler=task.scaler)
    warmup = scenario.warmup * seconds
    slo = float(scenario.slo) if scenario.slo is not None else INFINITY
    if task.policy == IDEAL:
        return run_ideal(scenario.fleet, scenario.faults, jobs, result, warmup=warmup, slo=slo)
    if task.scaler:
        policy = split_policy(task.policy)
        return run_scaled(scenario, policy, task.scaler, task.seed, jobs, result, seconds=seconds, slo=slo)
    if split_placement(task.policy)[1]:
        return _run_placed(task, jobs, result, seconds, warmup, slo)
    servers = build_servers(scenario)
    balancers = [build_balancer(task, servers, n) for n in range(scenario.balancers.count)]
    simulation = Simulation(servers, balancers, jobs, result, Random(task.seed), warmup=warmup, slo=slo)
    weights = _weights(scenario)
    for fault in scenario.faults:
        _plan_fault(simulation, servers[fault.replica], weights[fault.replica], fault)
    if len(balancers) > 1:
        plan_load_exchange(simulation, balancers, scenario.balancers)
    if seconds:
        plan_samples(simulation, servers, result, seconds / TIMELINE_SAMPLES)
    return simulation.run()


def _run_placed(
    task: Task, jobs: Iterator[Job], result: RunResult, seconds: float, warmup: float, slo: float
) -> RunResult:
    """As `run_task`, with a pool for each model, and its copies placed."""
    scenario = task.scenario
    servers = build_servers(scenario, load_themselves=False)
    balancer = build_multi_model_balancer(scenario, *split_policy(task.policy), servers, task.seed)
    rng = Random(task.seed)
    simulation = Simulation(servers, [balancer], route_by_model(jobs), result, rng, warmup=warmup, slo=slo)
    groups = [group for group in scenario.fleet for _ in range(group.count)]
    if split_placement(task.policy)[1] == PERFECT_PLACEMENT:
        placer = SimulatedPlacer(simulation, balancer, groups, None)
        names = model_names(scenario)
        places = perfect_placement(model_shares(scenario.workload.models).tolist(), [group.models for group in groups])
        placer.place_initially(
            {server.id: [names[m] for m in held] for server, held in zip(servers, places, strict=True)}
        )
    else:
        SimulatedPlacer(simulation, balancer, groups, PlacementPlanner())
    plan_samples(simulation, servers, result, seconds / TIMELINE_SAMPLES)
    return simulation.run()


def make_jobs(task: Task) -> tuple[Iterator[Job], float]:
    """The jobs of a run, and about how many seconds they span."""
    scenario = task.scenario
    if scenario.workload.trace is not None:
        offered = trace_load(scenario)
        # Rows that all arrive at once cannot be stretched to a load.
        pace = task.load * scenario.capacity / offered if task.load and isfinite(offered) else 1.0
        last = max((job.intended_at for job in trace_jobs(scenario, pace)), default=0.0)
        return trace_jobs(scenario, pace), last
    rate = task.load * scenario.capacity / scenario.workload.sizes.mean
    return random_jobs(scenario, rate, task.seed), arrival_seconds(scenario, rate)


def build_servers(scenario: Scenario, *, load_themselves: bool = True) -> list[Server]:
    groups = [group for group in scenario.fleet for _ in range(group.count)]
    return [make_server(f"r{n}", group, loads_itself=load_themselves) for n, group in enumerate(groups)]


def _weights(scenario: Scenario) -> list[float]:
    return [group.weight for group in scenario.fleet for _ in range(group.count)]


def build_balancer(task: Task, servers: list[Server], number: int) -> Balancer:
    scenario = task.scenario
    name, concurrency = split_policy(task.policy)
    balancer = Balancer(Random(f"{task.seed}/{number}"))
    warm_keys = max(group.models for group in scenario.fleet)
    balancer.add_model("", name, scenario.balancing.options(concurrency, warm_keys))
    joins = {fault.replica for fault in scenario.faults if fault.kind == "join"}
    weights = _weights(scenario)
    for place, server in enumerate(servers):
        if place not in joins:
            balancer.add_replica(server.id, weight=weights[place], state=State.READY, now=0.0)
    return balancer


def _plan_fault(simulation: Simulation, server: Server, weight: float, fault: Fault) -> None:
    end = fault.at + fault.duration
    if fault.kind == "slow":
        simulation.call_at(fault.at, lambda now: server.slow_down(fault.factor, now, simulation.schedule))
        simulation.call_at(end, lambda now: server.restore_speed(fault.factor, now, simulation.schedule))
    elif fault.kind == "errors":
        simulation.call_at(fault.at, lambda now: setattr(server, "failing", server.failing + 1))
        simulation.call_at(end, lambda now: setattr(server, "failing", server.failing - 1))
    elif fault.kind == "crash":
        simulation.call_at(fault.at, lambda now: simulation.crash(server.id, now))
        simulation.call_at(
            fault.at + fault.detection_delay, lambda now: simulation.report_event(server.id, Event.LOST, now)
        )
        simulation.call_at(end, lambda now: setattr(server, "down", server.down - 1))
        simulation.call_at(end + fault.detection_delay, lambda now: simulation.report_event(server.id, Event.LIVE, now))
        ready = end + fault.cold_start + fault.detection_delay
        simulation.call_at(ready, lambda now: simulation.report_event(server.id, Event.LOADED, now))
    else:
        simulation.call_at(fault.at, lambda now: simulation.join(server.id, weight, now))
        simulation.call_at(
            fault.at + fault.cold_start, lambda now: simulation.report_event(server.id, Event.LOADED, now)
        )


def plan_load_exchange(simulation: Simulation, balancers: list[Balancer], timing: Balancers) -> None:
    """Every so often each balancer hears, late, how many requests the others have on each replica."""

    def publish(now: float) -> None:
        seen = [{r.id: r.in_flight for r in b.pool().replicas.values()} for b in balancers]
        if timing.signal_delay:
            simulation.call_at(now + timing.signal_delay, lambda later: hear(seen, later))
        else:
            hear(seen, now)

    def hear(seen: list[dict[str, int]], now: float) -> None:
        for mine, balancer in enumerate(balancers):
            for id in list(balancer.pool().replicas):
                others = sum(counts.get(id, 0) for n, counts in enumerate(seen) if n != mine)
                # On average it is used half an interval after it was heard.
                age = timing.signal_delay + timing.signal_every / 2
                simulation.carry_out(balancer.report_peer_load(id, others, now=now, age=age), now)

    simulation.call_every(timing.signal_every, publish)


def plan_samples(simulation: Simulation, servers: list[Server], result: RunResult, every: float) -> None:
    timeline = result.timeline
    shown = servers if len(servers) <= 64 else servers[:64]
    timeline.load = {server.id: [] for server in shown}

    def sample(now: float) -> None:
        if len(timeline.times) >= 2 * TIMELINE_SAMPLES:
            return  # the tail after the last arrival may be long
        timeline.times.append(now)
        timeline.waiting.append(sum(len(b.pool(m).queue) for b in simulation.balancers for m in b.models))
        for server in shown:
            timeline.load[server.id].append(len(server.queue) + server.busy)

    simulation.call_every(every, sample)
