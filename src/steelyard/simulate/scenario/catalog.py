"""The built-in scenarios W1 to W11 and A1 to A6; a docstring is a title. Also a default scenario for any trace."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from ...core.errors import OptionError
from ...documents import Seconds
from ..workload.traces import detect
from .engine_catalog import w6, w7
from .scaling_catalog import a1, a2, a3, a4, a5, a6
from .schema import Arrivals, Balancers, Fault, ModelMix, ReplicaGroup, Scenario, Sizes, Trace, Workload

# The classics, the best of them behind a central queue (HAProxy's maxconn 1), and ours.
CLASSIC_POLICIES = (
    "ideal",
    "round_robin",
    "random",
    "power_of_two",
    "least_response_time",
    "peak_ewma",
    "latency_aware",
    "prequal",
    "least_connections",
    "least_connections@1",
    "least_work@unlimited",
    "least_work@auto",
    "least_work@1",
)

EXPONENTIAL_SIZES = Sizes(kind="exponential", mean=Seconds(0.05))
LOGNORMAL_SIZES = Sizes(kind="lognormal", mean=Seconds(0.05), cv=2.0)
PARETO_SIZES = Sizes(kind="pareto", mean=Seconds(0.05), alpha=1.5)
UNEQUAL_FLEET = (ReplicaGroup(count=4, speed=1.0), ReplicaGroup(count=4, speed=2.0), ReplicaGroup(count=4, speed=4.0))
TWO_SLOW_FLEET = (ReplicaGroup(count=14, speed=1.0), ReplicaGroup(count=2, speed=1 / 16))


def w1() -> list[Scenario]:
    """equal replicas, equal kind of requests"""
    return [
        Scenario(
            name=f"W1 {n} equal, exponential",
            loads=(0.5, 0.7, 0.85, 0.95),
            fleet=(ReplicaGroup(count=n),),
            workload=Workload(sizes=EXPONENTIAL_SIZES, features=0.0),
            policies=CLASSIC_POLICIES,
        )
        for n in (4, 8)
    ]


def w2() -> list[Scenario]:
    """replicas of unequal speed"""
    return [
        Scenario(
            name=f"W2 {title}, features {features:g}",
            fleet=fleet,
            workload=Workload(sizes=EXPONENTIAL_SIZES, features=features),
            policies=CLASSIC_POLICIES,
        )
        for title, fleet in (("14 fast + 2 at 1/16", TWO_SLOW_FLEET), ("speeds 1:2:4", UNEQUAL_FLEET))
        for features in (0.0, 0.9)
    ]


def w3() -> list[Scenario]:
    """requests of very unequal size"""
    return [
        Scenario(
            name=f"W3 {fleet_name}, {sizes.kind}, features {features:g}",
            fleet=fleet,
            workload=Workload(sizes=sizes, features=features),
            policies=CLASSIC_POLICIES,
        )
        for fleet_name, fleet in (("8 equal", (ReplicaGroup(count=8),)), ("speeds 1:2:4", UNEQUAL_FLEET))
        for sizes in (LOGNORMAL_SIZES, PARETO_SIZES)
        for features in (0.0, 0.5, 0.9)
    ]


def w4() -> list[Scenario]:
    """bursts"""
    return [
        Scenario(
            name=f"W4 bursts, gaps CV {cv}",
            loads=(0.5, 0.7, 0.85),
            fleet=UNEQUAL_FLEET,
            workload=Workload(sizes=LOGNORMAL_SIZES, features=0.5, arrivals=Arrivals(kind="gamma", cv=cv)),
            policies=CLASSIC_POLICIES,
        )
        for cv in (1, 3, 8)
    ]


def w5() -> list[Scenario]:
    """image generation, drawn after a recording of Alibaba"""
    # 0.38 replicas' worth of work on average, 3.4 in the busiest hour: four replicas.
    return [
        Scenario(
            name=f"W5 diffusion trace, {title}",
            loads=(0.0,),
            fleet=fleet,
            workload=Workload(trace=Trace(file="builtin:diffusion")),
            policies=CLASSIC_POLICIES,
        )
        for title, fleet in (
            ("4 equal", (ReplicaGroup(count=4),)),
            ("2 fast, 4 slow", (ReplicaGroup(count=2, speed=1.5), ReplicaGroup(count=4, speed=0.5))),
        )
    ]


def w8() -> list[Scenario]:
    """faults, and several balancers with stale load counts"""
    base = Workload(sizes=LOGNORMAL_SIZES, features=0.5)
    faults = {
        "×5 slower for 30 s": Fault(kind="slow", at=Seconds(30), duration=Seconds(30), factor=5.0),
        "instant 500s for 30 s": Fault(kind="errors", at=Seconds(30), duration=Seconds(30)),
        "crash": Fault(kind="crash", at=Seconds(30), duration=Seconds(10), cold_start=Seconds(5)),
        "cold join": Fault(kind="join", at=Seconds(30), cold_start=Seconds(5)),
    }
    scenarios = [
        Scenario(
            name=f"W8 {title}",
            requests=20_000,
            loads=(0.7, 0.85),
            fleet=(ReplicaGroup(count=8),),
            workload=base,
            faults=(fault,),
            policies=CLASSIC_POLICIES,
        )
        for title, fault in faults.items()
    ]
    scenarios += [
        Scenario(
            name=f"W8 {count} balancers, signals {delay:g} s old" if count > 1 else "W8 one balancer",
            requests=20_000,
            loads=(0.7, 0.85),
            fleet=(ReplicaGroup(count=16),),
            workload=base,
            balancers=Balancers(count=count, signal_delay=Seconds(delay), signal_every=Seconds(max(0.05, delay / 4))),
            policies=CLASSIC_POLICIES,
        )
        for count, delay in ((1, 0.0), (2, 0.2), (4, 0.2), (4, 1.0), (4, 5.0))
    ]
    return scenarios


def w9() -> list[Scenario]:
    """more traffic than the fleet can serve"""
    return [
        Scenario(
            name="W9 overload, deadline 1 s",
            loads=(0.9, 1.03, 1.2, 1.74),
            fleet=(ReplicaGroup(count=8),),
            workload=Workload(sizes=LOGNORMAL_SIZES, features=0.5, deadline=Seconds(1.0)),
            policies=("round_robin", "least_connections", "least_connections@1", "least_work@auto", "least_work@1"),
        )
    ]


def w10() -> list[Scenario]:
    """more models than fit into memory"""
    return [
        Scenario(
            name="W10 20 models, 4 fit",
            loads=(0.3, 0.5, 0.7, 0.85),
            warmup=0.3,  # at first nothing is loaded
            fleet=(ReplicaGroup(count=8, models=4, load_time=Seconds(2.0)),),
            workload=Workload(sizes=LOGNORMAL_SIZES, features=0.5, models=ModelMix(count=20, zipf=1.0)),
            policies=(
                "round_robin",
                "least_connections",
                "least_connections@1",
                "consistent_hash",
                "least_work@unlimited",
                "least_work@1",
                "least_work@1+perfect",
                "least_work@1+placement",
            ),
        )
    ]


def w11() -> list[Scenario]:
    """a very large fleet on a very busy day"""
    return [
        Scenario(
            name="W11 5,000 replicas, 1,000,000 requests/s",
            requests=300_000,
            seeds=2,
            loads=(0.8,),
            warmup=0.3,
            fleet=(ReplicaGroup(count=1000, speed=2.0), ReplicaGroup(count=3000), ReplicaGroup(count=1000, speed=0.5)),
            # 5,500 seconds of work a second at 0.8 are 1,000,000 requests of 4.4 ms
            workload=Workload(sizes=Sizes(kind="lognormal", mean=Seconds(0.0044), cv=2.0), features=0.5),
            policies=("power_of_two", "peak_ewma", "prequal", "least_work@unlimited", "least_work@1"),
        )
    ]


BUILDERS = (w1, w2, w3, w4, w5, w6, w7, w8, w9, w10, w11, a1, a2, a3, a4, a5, a6)
CATALOG: dict[str, Callable[[], list[Scenario]]] = {build.__name__.upper(): build for build in BUILDERS}
TITLES = {name: build.__doc__ or "" for name, build in CATALOG.items()}


def find_scenarios(name: str) -> list[Scenario]:
    try:
        return CATALOG[name.upper()]()
    except KeyError:
        raise OptionError(f"no built-in scenario {name!r}; there are {', '.join(CATALOG)}") from None


def scenario_for_trace(path: str | Path) -> Scenario:
    """A sensible fleet for a trace of any format."""
    name, place = {"azure": ("W7", 0), "mooncake": ("W7", 2)}.get(detect(path), ("W5", -1))
    scenario = find_scenarios(name)[place]
    return Scenario(
        name=Path(path).name,
        loads=scenario.loads,
        warmup=scenario.warmup,
        fleet=scenario.fleet,
        workload=Workload(trace=Trace(file=str(path))),
        policies=scenario.policies,
    )
