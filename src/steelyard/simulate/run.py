"""From a scenario to results: one run per policy, scaler, load and seed, in parallel."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
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
from .autoscaling.fleet import AutoscaledBalancer, AutoscaledFleet
from .engine.ideal import run_ideal
from .engine.job import Job
from .engine.result import FleetRecord, RunResult, TokenRecord
from .engine.servers import Server, make_server
from .engine.simulation import Simulation
from .llm.conversations import BLOCK_TOKENS, ConversationSource, conversation_mix
from .llm.model import EngineModel, TokenMix, find_engine
from .llm.server import EngineServer
from .peers import PEERS, policy_target
from .peers.base import PeerPolicy
from .placement.balancer import build_multi_model_balancer, model_names, route_by_model
from .placement.placer import SimulatedPlacer, perfect_placement
from .scenario.scaler_spec import initial_replicas, make_scaler
from .scenario.schema import Balancers, Fault, ReplicaGroup, Scenario
from .workload.generator import arrival_seconds, model_shares, random_jobs, trace_jobs, trace_load, trace_mix

IDEAL = "ideal"
PERFECT_PLACEMENT = "perfect"
PLACEMENTS = ("placement", PERFECT_PLACEMENT)  # by core.placement, or by known popularity
TIMELINE_SAMPLES = 200
FLEET_SAMPLES = 400


@dataclass(frozen=True)
class Task:
    scenario: Scenario
    policy: str
    load: float
    seed: int
    scaler: str = ""  # empty: the fleet stays as it is


def split_placement(text: str) -> tuple[str, str]:
    """`least_work@1+placement` is least_work@1 and `placement`; without one, servers load models themselves."""
    policy, plus, placing = text.rpartition("+")
    if not plus:
        return text, ""
    if placing not in PLACEMENTS:
        raise OptionError(f"policy {text!r}: after + comes {' or '.join(PLACEMENTS)}")
    return policy, placing


def base_policy(policy: str) -> str:
    """Without its concurrency."""
    name, placing = split_policy(policy)[0], split_placement(policy)[1]
    return f"{name}+{placing}" if placing else name


def is_peer(policy: str) -> bool:
    """A model of another project's rule."""
    return split_policy(policy)[0] in PEERS


def is_reference(policy: str) -> bool:
    """It knows the future, so it is no policy to choose."""
    return policy == IDEAL or policy.endswith(f"+{PERFECT_PLACEMENT}")


def split_policy(text: str) -> tuple[str, int | Literal["auto", "unlimited"] | None]:
    """`least_work@1+placement` is least_work with concurrency 1."""
    name, at, limit = split_placement(text)[0].partition("@")
    if not at:
        return name, None
    if limit in ("auto", "unlimited"):
        return name, cast(Literal["auto", "unlimited"], limit)
    if limit.isdigit() and int(limit) >= 1:
        return name, int(limit)
    raise OptionError(f"policy {text!r}: after @ comes a whole number from 1, auto or unlimited")


def check_scenario(scenario: Scenario) -> None:
    for policy in scenario.policies:
        check_policy(scenario, policy)
    for scaler in scenario.scalers:
        check_scaler(scenario, scaler)
    check_trace(scenario)


def check_trace(scenario: Scenario) -> None:
    if scenario.workload.trace is not None:
        read = trace_mix if scenario.has_engines else trace_load
        read(scenario)


def check_policy(scenario: Scenario, policy: str) -> None:
    name, _ = split_policy(policy)
    if name != IDEAL:
        make_policy(policy_target(name), Random(0), {})
    if name in PEERS and not scenario.has_engines:
        raise OptionError(f"policy {policy!r}: a model of a peer needs engines (fleet[].engine)")
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


def check_scaler(scenario: Scenario, scaler: str) -> None:
    assert scenario.autoscale is not None
    make_scaler(scaler, scenario.autoscale)


def has_ideal(scenario: Scenario) -> bool:
    if scenario.autoscale is not None:
        return False
    simple = all(
        g.engine is None and g.batching is None and not g.prefix_blocks and not g.models for g in scenario.fleet
    )
    return simple and sum(g.count for g in scenario.fleet) <= 256


def tasks(scenario: Scenario) -> list[Task]:
    policies = [p for p in scenario.policies if p != IDEAL or has_ideal(scenario)]
    # A trace, and so the ideal over it, is the same for every seed.
    once = scenario.workload.trace is not None
    return [
        Task(scenario, policy, load, seed, scaler)
        for load in scenario.loads
        for policy in policies
        for scaler in scenario.scalers or ("",)
        for seed in range(1, 2 if once and policy == IDEAL else scenario.seeds + 1)
    ]


def run_all(
    todo: list[Task], *, processes: int = 1, done: Callable[[RunResult], None] | None = None
) -> list[RunResult]:
    def collect(coming: Iterable[RunResult]) -> list[RunResult]:
        results: list[RunResult] = []
        for result in coming:
            results.append(result)
            if done is not None:
                done(result)
        return results

    if processes <= 1:
        return collect(map(run_task, todo))
    # Ctrl-C is for the parent alone: workers would each print a traceback.
    with get_context("spawn").Pool(processes, signal.signal, (signal.SIGINT, signal.SIG_IGN)) as pool:
        return collect(pool.imap(run_task, todo))


def run_task(task: Task) -> RunResult:
    scenario = task.scenario
    jobs, seconds = make_jobs(task)
    result = RunResult(scenario.name, task.policy, task.load, task.seed, scaler=task.scaler)
    warmup = scenario.warmup * seconds
    slo = float(scenario.slo) if scenario.slo is not None else INFINITY
    if task.policy == IDEAL:
        return run_ideal(scenario.fleet, scenario.faults, jobs, result, warmup=warmup, slo=slo)
    if task.scaler:
        return _run_scaled(task, jobs, result, seconds, warmup, slo)
    if split_placement(task.policy)[1]:
        return _run_placed(task, jobs, result, seconds, warmup, slo)
    servers = build_servers(scenario)
    balancers = [build_balancer(task, servers, n) for n in range(scenario.balancers.count)]
    simulation = Simulation(servers, balancers, jobs, result, Random(task.seed), warmup=warmup, slo=slo)
    if scenario.has_engines:
        result.tokens = TokenRecord(float(scenario.stream_slo.first_byte), float(scenario.stream_slo.per_token))
    if isinstance(jobs, ConversationSource):
        jobs.attach(simulation)
    connect_peers(simulation, balancers, servers)
    for fault in scenario.faults:
        _plan_fault(simulation, servers[fault.replica], scenario.groups[fault.replica].weight, fault)
    if len(balancers) > 1:
        plan_load_exchange(simulation, balancers, scenario.balancers)
    if seconds:
        plan_samples(simulation, servers, result, seconds / TIMELINE_SAMPLES)
    return simulation.run()


def _run_placed(
    task: Task, jobs: Iterable[Job], result: RunResult, seconds: float, warmup: float, slo: float
) -> RunResult:
    """As `run_task`, with a pool for each model."""
    scenario = task.scenario
    servers = build_servers(scenario, load_themselves=False)
    balancer = build_multi_model_balancer(scenario, *split_policy(task.policy), servers, task.seed)
    rng = Random(task.seed)
    simulation = Simulation(servers, [balancer], route_by_model(iter(jobs)), result, rng, warmup=warmup, slo=slo)
    perfect = split_placement(task.policy)[1] == PERFECT_PLACEMENT
    placer = SimulatedPlacer(simulation, balancer, scenario.groups, None if perfect else PlacementPlanner())
    if perfect:
        names, shares = model_names(scenario), model_shares(scenario.workload.models).tolist()
        places = perfect_placement(shares, [group.models for group in scenario.groups])
        held = ([names[model] for model in models] for models in places)
        placer.place_initially(dict(zip((server.id for server in servers), held, strict=True)))
    plan_samples(simulation, servers, result, seconds / TIMELINE_SAMPLES)
    return simulation.run()


def _run_scaled(
    task: Task, jobs: Iterable[Job], result: RunResult, seconds: float, warmup: float, slo: float
) -> RunResult:
    """As `run_task`, with a fleet whose size a scaler decides."""
    scenario, autoscale = task.scenario, task.scenario.autoscale
    assert autoscale is not None
    name, concurrency = split_policy(task.policy)
    balancer = AutoscaledBalancer(Random(f"{task.seed}/0"))
    balancer.add_model("", name, replace(scenario.balancing.options(concurrency, 0), wait_for_ready=True))
    simulation = Simulation([], [balancer], jobs, result, Random(task.seed), warmup=warmup, slo=slo)
    result.fleet = FleetRecord()
    fleet = AutoscaledFleet(
        simulation,
        balancer,
        scenario.fleet[0],
        autoscale,
        make_scaler(task.scaler, autoscale),
        result.fleet,
        Random(f"{task.seed}/starts"),
        start=initial_replicas(task.scaler, autoscale),
        warmup=warmup,
        slo=slo,
    )
    if seconds:
        fleet.plan_samples(seconds, FLEET_SAMPLES)
    simulation.run()
    fleet.close(result.seconds)
    return result


def make_jobs(task: Task) -> tuple[Iterable[Job], float]:
    """The jobs of a run, and roughly the seconds they span."""
    scenario = task.scenario
    if (talk := scenario.workload.conversations) is not None:
        rate = task.load * engine_capacity(scenario, conversation_mix(talk)[0])
        allowance = float(scenario.workload.deadline or INFINITY)
        return ConversationSource(talk, scenario.requests, rate, task.seed, allowance), scenario.requests / rate
    if scenario.workload.trace is not None:
        if scenario.has_engines:
            mix, offered = trace_mix(scenario)
            capacity = engine_capacity(scenario, mix)
        else:
            offered, capacity = trace_load(scenario), scenario.capacity
        # Rows that all arrive at once cannot be stretched to a load.
        pace = task.load * capacity / offered if task.load and isfinite(offered) else 1.0
        last = max((job.intended_at for job in trace_jobs(scenario, pace)), default=0.0)
        return trace_jobs(scenario, pace), last
    rate = task.load * scenario.capacity / scenario.workload.sizes.mean
    return random_jobs(scenario, rate, task.seed), arrival_seconds(scenario, rate)


def engine_capacity(scenario: Scenario, mix: TokenMix) -> float:
    """Requests a second of this mix that the fleet's engines serve, with the expected cache hits."""
    hits = scenario.workload.expected_hits
    return sum(engine_of(group).requests_per_second(mix, hits) * group.speed for group in scenario.groups)


def engine_of(group: ReplicaGroup) -> EngineModel:
    assert group.engine is not None
    return find_engine(group.engine)


def build_servers(scenario: Scenario, *, load_themselves: bool = True) -> list[Server]:
    if scenario.has_engines:
        trace = scenario.workload.trace
        tokens = trace.block_tokens if trace is not None else BLOCK_TOKENS
        groups = enumerate(scenario.groups)
        return [EngineServer(f"r{n}", engine_of(group), tokens, group.speed) for n, group in groups]
    return [make_server(f"r{n}", group, loads_itself=load_themselves) for n, group in enumerate(scenario.groups)]


def build_balancer(task: Task, servers: list[Server], number: int) -> Balancer:
    scenario = task.scenario
    name, concurrency = split_policy(task.policy)
    balancer = Balancer(Random(f"{task.seed}/{number}"))
    warm_keys = max(group.models for group in scenario.fleet)
    balancer.add_model("", policy_target(name), scenario.balancing.options(concurrency, warm_keys))
    joins = {fault.replica for fault in scenario.faults if fault.kind == "join"}
    for place, (server, group) in enumerate(zip(servers, scenario.groups, strict=True)):
        if place not in joins:
            balancer.add_replica(server.id, weight=group.weight, state=State.READY, now=0.0)
    return balancer


def connect_peers(simulation: Simulation, balancers: list[Balancer], servers: list[Server]) -> None:
    for balancer in balancers:
        policy = balancer.pool().policy
        if isinstance(policy, PeerPolicy):
            policy.connect(server for server in servers if isinstance(server, EngineServer))
            if policy.scrape_interval:
                simulation.call_every(policy.scrape_interval, policy.scrape)


def _plan_fault(simulation: Simulation, server: Server, weight: float, fault: Fault) -> None:
    def report_at(when: float, event: Event) -> None:
        call_at(when, lambda now: simulation.report_event(server.id, event, now))

    call_at, end, delay = simulation.call_at, fault.at + fault.duration, fault.detection_delay
    match fault.kind:
        case "slow":
            call_at(fault.at, lambda now: server.slow_down(fault.factor, now, simulation.schedule))
            call_at(end, lambda now: server.restore_speed(fault.factor, now, simulation.schedule))
        case "errors":
            call_at(fault.at, lambda now: setattr(server, "failing", server.failing + 1))
            call_at(end, lambda now: setattr(server, "failing", server.failing - 1))
        case "crash":
            call_at(fault.at, lambda now: simulation.crash(server.id, now))
            report_at(fault.at + delay, Event.LOST)
            call_at(end, lambda now: setattr(server, "down", server.down - 1))
            report_at(end + delay, Event.LIVE)
            report_at(end + fault.cold_start + delay, Event.LOADED)
        case "join":
            call_at(fault.at, lambda now: simulation.join(server.id, weight, now))
            report_at(fault.at + fault.cold_start, Event.LOADED)


def plan_load_exchange(simulation: Simulation, balancers: list[Balancer], timing: Balancers) -> None:
    """Each balancer hears, late, how many requests the others have on each replica."""

    def publish(now: float) -> None:
        seen = [{r.id: r.in_flight for r in b.pool().replicas.values()} for b in balancers]
        if timing.signal_delay:
            simulation.call_at(now + timing.signal_delay, lambda later: hear(seen, later))
        else:
            hear(seen, now)

    age = timing.signal_delay + timing.signal_every / 2  # it is used half an interval later on average

    def hear(seen: list[dict[str, int]], now: float) -> None:
        for mine, balancer in enumerate(balancers):
            for id in list(balancer.pool().replicas):
                others = sum(counts.get(id, 0) for n, counts in enumerate(seen) if n != mine)
                simulation.carry_out(balancer.report_peer_load(id, others, now=now, age=age), now)

    simulation.call_every(timing.signal_every, publish)


def plan_samples(simulation: Simulation, servers: list[Server], result: RunResult, every: float) -> None:
    timeline = result.timeline
    shown = servers[:64]
    timeline.load = {server.id: [] for server in shown}

    def sample(now: float) -> None:
        if len(timeline.times) >= 2 * TIMELINE_SAMPLES:
            return  # the tail after the last arrival may be long
        timeline.times.append(now)
        timeline.waiting.append(sum(len(b.pool(m).queue) for b in simulation.balancers for m in b.models))
        for server in shown:
            timeline.load[server.id].append(len(server.queue) + server.busy)

    simulation.call_every(every, sample)
