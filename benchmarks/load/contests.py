"""What the arena plays: W1–W4 and W8 of the simulator's catalog, as far as sockets of one machine can carry them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import msgspec

from steelyard.documents import Seconds
from steelyard.simulate.scenario.catalog import (
    EXPONENTIAL_SIZES,
    LOGNORMAL_SIZES,
    PARETO_SIZES,
    TWO_SLOW_FLEET,
    UNEQUAL_FLEET,
)
from steelyard.simulate.scenario.schema import Arrivals, Fault, ReplicaGroup, Scenario, Workload

EIGHT_EQUAL = (ReplicaGroup(count=8),)
FAULT_AT_SECONDS = 10.0
FAULT_SECONDS = 30.0
MIN_FAULT_RUN_SECONDS = 50.0


@dataclass(frozen=True)
class Contest:
    """`goal`: which of the goals it decides, if any."""

    scenario: Scenario
    load: float
    goal: Literal["even", "uneven", ""] = ""

    @property
    def rate(self) -> float:
        return self.load * self.scenario.capacity / self.scenario.workload.sizes.mean

    @property
    def title(self) -> str:
        return f"{self.scenario.name}, {self.load:.0%}"

    def of(self, requests: int) -> Contest:
        """With that many requests, or as many as the fault takes."""
        least = round(MIN_FAULT_RUN_SECONDS * self.rate) if self.scenario.faults else 0
        return Contest(msgspec.structs.replace(self.scenario, requests=max(requests, least)), self.load, self.goal)


def contest(
    name: str, load: float, fleet: tuple[ReplicaGroup, ...], workload: Workload, goal: str = "", **more: Fault
) -> Contest:
    scenario = Scenario(name=name, fleet=fleet, workload=workload, faults=tuple(more.values()), loads=(load,))
    return Contest(scenario, load, goal)  # type: ignore[arg-type]


def fault(kind: Literal["slow", "errors", "crash"]) -> Fault:
    return Fault(kind=kind, at=Seconds(FAULT_AT_SECONDS), duration=Seconds(FAULT_SECONDS), cold_start=Seconds(0.0))


def bursty(cv: float) -> Workload:
    return Workload(sizes=LOGNORMAL_SIZES, features=0.5, arrivals=Arrivals(kind="gamma", cv=cv))


HALF_EXPLAINED = Workload(sizes=LOGNORMAL_SIZES, features=0.5)

# By the catalog's names, and by goal.
CONTESTS: dict[str, list[Contest]] = {
    "W1": [
        contest("W1 8 equal, exponential", load, EIGHT_EQUAL, Workload(sizes=EXPONENTIAL_SIZES, features=0.0), "even")
        for load in (0.7, 0.85)
    ],
    "W2": [
        contest(
            "W2 14 fast + 2 at 1/16, exponential", 0.7, TWO_SLOW_FLEET, Workload(sizes=EXPONENTIAL_SIZES, features=0.5)
        )
    ],
    "W3": [
        *(
            contest(f"W3 speeds 1:2:4, lognormal, features {share:g}", 0.8, UNEQUAL_FLEET, workload, "uneven")
            for share, workload in ((0.5, HALF_EXPLAINED), (0.9, Workload(sizes=LOGNORMAL_SIZES, features=0.9)))
        ),
        contest("W3 8 equal, lognormal, features 0.5", 0.8, EIGHT_EQUAL, HALF_EXPLAINED),
        contest("W3 8 equal, Pareto, features 0.5", 0.8, EIGHT_EQUAL, Workload(sizes=PARETO_SIZES, features=0.5)),
    ],
    "W4": [contest("W4 speeds 1:2:4, bursts of CV 3", 0.7, UNEQUAL_FLEET, bursty(3.0))],
    "W8": [
        contest("W8 one ×5 slower for 30 s", 0.7, EIGHT_EQUAL, HALF_EXPLAINED, fault=fault("slow")),
        contest("W8 one with instant 500s for 30 s", 0.7, EIGHT_EQUAL, HALF_EXPLAINED, fault=fault("errors")),
        contest("W8 one crashed for 30 s", 0.7, EIGHT_EQUAL, HALF_EXPLAINED, fault=fault("crash")),
    ],
}
CONTESTS |= {
    goal: [contest for contests in CONTESTS.values() for contest in contests if contest.goal == goal]
    for goal in ("even", "uneven")  # those that decide a goal
}
