"""Crawling is slow against a replica's own usual speed: a fleet of unequal hardware loses nobody."""

from __future__ import annotations

from random import Random

import pytest

from steelyard.core.outcome import Outcome
from steelyard.core.outliers.ejection_reason import EjectionRule

from ..open_loop import OpenLoop

SPEED = dict.fromkeys("abcd", 4.5) | {"e": 2.0, "f": 1.0}
SLOWDOWN_AT_SECONDS = 120.0


def unequal(spread, seed, slows="", factor=5.0):
    """Four of six are fast, speeds 4.5 : 2 : 1, sizes that no feature tells; some turn slower later."""
    rng = Random(seed)

    def behave(id, request, now):
        seconds = 0.09 / SPEED[id] * rng.lognormvariate(0.0, spread)
        return (seconds * factor if id in slows and now >= SLOWDOWN_AT_SECONDS else seconds), Outcome.OK

    return behave


def ejections(world):
    return {r.id: r.ejection_count for r in world.balancer.pool().replicas.values() if r.ejection_count}


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("spread", [0.1, 1.0])
@pytest.mark.parametrize("policy", ["least_work", "round_robin"])
def test_slower_hardware_is_never_ejected(policy, spread, seed):
    world = OpenLoop("abcdef", unequal(spread, seed), policy=policy, rate=40.0, seed=seed)
    world.run(180.0)
    assert ejections(world) == {}


@pytest.mark.parametrize("slow", ["a", "e", "f"])
@pytest.mark.parametrize("policy", ["least_work", "round_robin"])
def test_one_that_turns_five_times_slower_than_itself_is_ejected_or_avoided(policy, slow):
    world = OpenLoop("abcdef", unequal(0.3, 1, slow), policy=policy, rate=40.0 if policy == "least_work" else 12.0)
    world.run(SLOWDOWN_AT_SECONDS + 60.0)
    assert set(ejections(world)) <= {slow}
    if ejections(world):
        reason = world.replica(slow).ejection
        assert reason.rule is EjectionRule.SLOWED
        assert reason.value == pytest.approx(5.0, rel=0.4)
    else:
        late = [id for when, id in world.sent if when > SLOWDOWN_AT_SECONDS + 20.0]
        assert late.count(slow) < 0.02 * len(late)


def test_what_slows_them_all_ejects_none():
    world = OpenLoop("abcdef", unequal(0.3, 1, "abcdef"), policy="round_robin", rate=40.0)
    world.run(SLOWDOWN_AT_SECONDS + 60.0)
    assert ejections(world) == {}


def test_one_that_leaves_and_comes_back_changes_nothing_for_the_others():
    """The typical replica is another then, but nobody is slower than before."""
    world = OpenLoop("abef", unequal(0.1, 1), policy="round_robin", rate=30.0)
    world.run(60.0)
    world.balancer.remove_replica("a", now=world.now)
    world.run(90.0)
    world.balancer.add_replica("a", now=world.now)
    world.run(130.0)
    assert ejections(world) == {}
