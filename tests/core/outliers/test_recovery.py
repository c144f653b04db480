"""When all replicas fail and come back, so does the fleet: no refusals, no ejections that outlast the panic."""

from __future__ import annotations

from random import Random

import pytest

from steelyard.core.outcome import Outcome
from steelyard.core.outliers.ejection_reason import EjectionReason, EjectionRule
from steelyard.core.replica import State
from steelyard.core.request import INFINITY

from ..open_loop import NEVER, OpenLoop

OUTAGE_BEGIN_SECONDS, OUTAGE_END_SECONDS = 10.0, 20.0  # seconds: they fail from the one to the other
ALL_READY = dict.fromkeys("abcd", State.READY)


def trouble(ends, failing="abcd"):
    """Replicas that need about 20 ms, and for ten seconds end every request like this."""
    rng = Random(3)

    def behave(id, request, now):
        if id in failing and OUTAGE_BEGIN_SECONDS <= now < OUTAGE_END_SECONDS:
            return ends
        return 0.02 * rng.uniform(0.7, 1.4), Outcome.OK

    return behave


FAULTS = {
    "answer 500": (0.002, Outcome.ERROR),
    "answer 503": (0.002, Outcome.OVERLOADED),
    "answer half": (0.005, Outcome.TRUNCATED),
    "break the connection": (0.001, Outcome.CONNECTION_LOST),
    "refuse connections": (0.0, Outcome.UNREACHABLE),
    "hang": NEVER,
}


@pytest.mark.parametrize("ends", FAULTS.values(), ids=FAULTS)
@pytest.mark.parametrize("policy", ["least_work", "least_connections", "round_robin", "peak_ewma"])
def test_a_fleet_that_failed_for_ten_seconds_serves_when_its_replicas_do(policy, ends):
    world = OpenLoop("abcd", trouble(ends), allowed=0.5, policy=policy)
    world.run(OUTAGE_END_SECONDS)
    assert world.counts(OUTAGE_BEGIN_SECONDS, OUTAGE_END_SECONDS)["ok"] < 20
    world.run(OUTAGE_END_SECONDS + 1.0)
    good = next(when for when, how, _ in world.ended if how == "ok" and when >= OUTAGE_END_SECONDS)
    assert good < OUTAGE_END_SECONDS + 0.7
    world.run(good + 2.0)
    assert world.states() == ALL_READY
    world.run(OUTAGE_END_SECONDS + 10.0)
    assert set(world.counts(OUTAGE_END_SECONDS + 0.7)) == {"ok"}
    shares = [sum(when > good + 2.0 and id == one for when, id in world.sent) for one in "abcd"]
    assert min(shares) > 0.5 * max(shares)


@pytest.mark.parametrize("ends", FAULTS.values(), ids=FAULTS)
def test_the_same_without_deadlines_in_a_short_line(ends):
    if ends is NEVER:
        ends = (1.0, Outcome.TIMEOUT)
    world = OpenLoop("abcd", trouble(ends), concurrency=4, max_queue=20)
    world.run(OUTAGE_END_SECONDS + 10.0)
    assert set(world.counts(OUTAGE_END_SECONDS + 1.5)) == {"ok"}
    assert world.states() == ALL_READY


def test_those_that_stay_broken_stay_out():
    """Three of four fail; one recovers, which ends the panic. The other two are tried, by one request each, and out."""
    world = OpenLoop("abcd", trouble((0.002, Outcome.ERROR), failing="abc"), idempotent=False)
    world.run(OUTAGE_END_SECONDS - 1.0)
    assert world.balancer.pool().panicking
    healed = world.behave

    def behave(id, request, now):
        return (0.002, Outcome.ERROR) if id in "ab" else healed(id, request, now)

    world.behave = behave
    world.run(OUTAGE_END_SECONDS + 5.0)
    assert world.states() == {"a": State.EJECTED, "b": State.EJECTED, "c": State.READY, "d": State.READY}
    assert world.counts(OUTAGE_END_SECONDS + 0.5)["error"] <= 4


def test_a_slow_replica_is_not_back_by_answering_in_a_panic():
    world = OpenLoop("ab", lambda id, request, now: (0.02, Outcome.OK), rate=20.0)
    world.run(20.0)
    pool = world.balancer.pool()
    for id in "ab":
        world.balancer.eject(id, 30.0, now=world.now, reason=EjectionReason(EjectionRule.SLOWED, 4.0))
    assert pool.panicking
    world.run(25.0)
    assert set(world.states().values()) == {State.EJECTED}
    assert world.counts(20.0).keys() == {"ok"}
    assert INFINITY > world.replica("a").ejected_until > 49.0
