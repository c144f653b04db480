"""Anything may happen at any time: clients, replicas, the clock and the configuration do as they like, and after every
step no request is lost, none is counted twice, and nobody hears a byte of another's answer."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from ..random_environment import CLIENTS, CONFIGS, REPLICAS, RandomEnvironment

PARTS = [0.1, 0.5, 0.9, 1.0, 1.0, 1.0, 1.0]
SIZES = [0, 10, 500, 2500, 6000]
METHODS = ["GET", "HEAD", "PUT", "POST", "POST"]
KINDS = ["", "", "", "", "", "", "", "old", "bad"]
OPTIONS = ["", "", "", "", "steelyard-timeout-ms: 2000", "steelyard-priority: 5", "connection: close"]
STATUSES = ["200 OK", "200 OK", "200 OK", "200 OK", "200 OK", "404 No", "500 Broken", "503 Busy", "429 Slow"]
FRAMINGS = ["sized", "chunked", "sized", "chunked", "until close"]
TIMES = [0.001, 0.1, 0.1, 0.3, 0.3, 1.0, 2.0, 12.0]
NUMBERS = st.integers(0, 5)


class Anything(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.environment = RandomEnvironment()

    @rule(
        which=NUMBERS,
        method=st.sampled_from(METHODS),
        kind=st.sampled_from(KINDS),
        model=st.sampled_from("mmn"),
        size=st.sampled_from(SIZES),
        framing=st.sampled_from(["sized", "chunked"]),
        option=st.sampled_from(OPTIONS),
        part=st.sampled_from(PARTS),
    )
    def asks(
        self, which: int, method: str, kind: str, model: str, size: int, framing: str, option: str, part: float
    ) -> None:
        self.environment.asks(which, method, kind, model, size, framing, option, part)

    asks_again = asks  # more often than the rest, or little happens

    @rule(
        which=NUMBERS,
        status=st.sampled_from(STATUSES),
        size=st.sampled_from(SIZES),
        framing=st.sampled_from(FRAMINGS),
        part=st.sampled_from(PARTS),
        early=st.booleans(),
    )
    def answers(self, which: int, status: str, size: int, framing: str, part: float, early: bool) -> None:
        self.environment.answers(which, status, size, framing, part, early)

    answers_again = answers_once_more = answers

    @rule(which=NUMBERS, how=st.sampled_from(["", "", *CLIENTS]))
    def a_client_does_as_it_likes(self, which: int, how: str) -> None:
        self.environment.a_client_does(which, how)

    @rule(which=NUMBERS, how=st.sampled_from(REPLICAS))
    def a_replica_does_as_it_likes(self, which: int, how: str) -> None:
        self.environment.a_replica_does(which, how)

    @rule(seconds=st.sampled_from([*TIMES, 40.0]))
    def time_passes(self, seconds: float) -> None:
        self.environment.stage.pass_time(seconds)

    @rule(which=st.integers(0, len(CONFIGS) - 1))
    def reloads(self, which: int) -> None:
        self.environment.stage.reload(CONFIGS[which])

    @invariant()
    def all_is_well(self) -> None:
        self.environment.check()

    def teardown(self) -> None:
        self.environment.end()


Anything.TestCase.settings = settings(max_examples=100, stateful_step_count=80)
TestAnything = pytest.mark.interpreted("replaces a method of a compiled object")(Anything.TestCase)


def step(environment: RandomEnvironment, random: Random) -> None:
    some, kind, which = random.choice, random.random(), random.randrange(6)
    if kind < 0.3:
        framing = some(["sized", "chunked"])
        environment.asks(
            which, some(METHODS), some(KINDS), some("mmn"), some(SIZES), framing, some(OPTIONS), some(PARTS)
        )
    elif kind < 0.75:
        environment.answers(which, some(STATUSES), some(SIZES), some(FRAMINGS), some(PARTS), random.random() < 0.1)
    elif kind < 0.85:
        environment.stage.loop.held = False
        environment.stage.pass_time(some(TIMES))
    elif kind < 0.91:
        environment.a_client_does(which, some(["", "", "", *CLIENTS]))
    elif kind < 0.97:
        environment.a_replica_does(which, some(REPLICAS))
    else:
        environment.stage.reload(some(CONFIGS))


@pytest.mark.interpreted("replaces a method of a compiled object")
@pytest.mark.parametrize("seed", range(16))
def test_long_walks(seed: int) -> None:
    """Hypothesis finds the shortest way to a fault; a long walk gets to places where no short way leads."""
    environment, random = RandomEnvironment(), Random(seed)
    for _ in range(150):
        environment.stage.loop.held = random.random() < 0.5  # several things in one turn of the loop, or one at a time
        for _ in range(random.randrange(1, 5)):
            step(environment, random)
        environment.stage.loop.held = False
        environment.check()
    environment.end()
    assert sum(len(asked.executions) for asked in environment.asked.values()) > 10, "little happened"
