"""The scenarios that compare scalers, A1 to A6: a load is in replicas' worth of work."""

from __future__ import annotations

from ...documents import Seconds
from .dynamics import Autoscale, TrafficShape
from .schema import Arrivals, Batching, ReplicaGroup, Scenario, Sizes, Trace, Workload


def a1() -> list[Scenario]:
    """scaling: a spike, five times the load within 2 s"""
    return [
        Scenario(
            name=f"A1 spike ×5 in 2 s, cold start {cold} s",
            requests=14_000,
            seeds=3,
            loads=(0.7,),
            slo=Seconds(1.0),
            fleet=(ReplicaGroup(),),
            workload=Workload(
                sizes=Sizes(kind="lognormal", mean=Seconds(0.2), cv=0.7),
                shape=TrafficShape(
                    kind="spike",
                    at=Seconds(300),
                    factor=5.0,
                    rise=Seconds(2),
                    duration=Seconds(300),
                    period=Seconds(900),
                ),
            ),
            autoscale=Autoscale(cold_start=Seconds(cold)),
        )
        for cold in (3, 30)
    ]


def a2() -> list[Scenario]:
    """scaling: day and night"""
    return [
        Scenario(
            name="A2 day and night in 2 h, cold start 60 s",
            requests=36_000,
            seeds=3,
            loads=(10.0,),
            slo=Seconds(10.0),
            fleet=(ReplicaGroup(),),
            workload=Workload(
                sizes=Sizes(kind="lognormal", mean=Seconds(2.0), cv=0.7),
                shape=TrafficShape(kind="diurnal", period=Seconds(7200), low=0.3, high=1.7),
            ),
            autoscale=Autoscale(cold_start=Seconds(60), start=4),
        )
    ]


def a3() -> list[Scenario]:
    """scaling: chat, as recorded at Azure"""
    return [
        Scenario(
            name="A3 Azure LLM trace, cold start 45 s",
            seeds=3,
            loads=(8.0,),
            slo=Seconds(30.0),
            fleet=(ReplicaGroup(slots=8, batching=Batching(slope=0.05)),),
            workload=Workload(trace=Trace(file="builtin:azure")),
            autoscale=Autoscale(cold_start=Seconds(45), start=8),
        )
    ]


def a4() -> list[Scenario]:
    """scaling: long contexts, as recorded for Mooncake"""
    return [
        Scenario(
            name="A4 Mooncake trace, cold start 45 s",
            seeds=3,
            loads=(8.0,),
            slo=Seconds(40.0),
            fleet=(ReplicaGroup(slots=4, batching=Batching(slope=0.05), prefix_blocks=1_000),),
            workload=Workload(trace=Trace(file="builtin:mooncake")),
            autoscale=Autoscale(cold_start=Seconds(45), start=8),
        )
    ]


def a5() -> list[Scenario]:
    """scaling: image generation, drawn after a recording of Alibaba"""
    # 23 days in 14 hours: quiet, then up to a hundred replicas' worth.
    return [
        Scenario(
            name="A5 diffusion trace, cold start 60 s",
            seeds=3,
            loads=(15.0,),
            slo=Seconds(120.0),
            fleet=(ReplicaGroup(),),
            workload=Workload(trace=Trace(file="builtin:diffusion")),
            autoscale=Autoscale(cold_start=Seconds(60)),
        )
    ]


def a6() -> list[Scenario]:
    """scaling: rare requests, from zero"""
    return [
        Scenario(
            name="A6 rare requests, from zero, cold start 10 s",
            requests=1_000,
            seeds=3,
            loads=(0.02,),
            slo=Seconds(15.0),
            fleet=(ReplicaGroup(),),
            workload=Workload(
                sizes=Sizes(kind="lognormal", mean=Seconds(1.0), cv=1.0), arrivals=Arrivals(kind="gamma", cv=4.0)
            ),
            autoscale=Autoscale(cold_start=Seconds(10), start=0, min=0, scale_to_zero_after=Seconds(120)),
        )
    ]
