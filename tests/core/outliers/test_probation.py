"""A replica that gives no answer while the others do is suspected at the second request, tried by one at a time, and
ejected when that fails; what clients give up at deadlines of their own ejects nobody."""

from __future__ import annotations

from random import Random

import pytest

from steelyard.core.options import OutlierDetectionOptions
from steelyard.core.outcome import Outcome
from steelyard.core.outliers.ejection_reason import EjectionRule
from steelyard.core.replica import State
from steelyard.core.request import INFINITY, Request

from ..driving import fleet, pass_time, replica, sent, serve_on
from ..open_loop import NEVER, OpenLoop

FAULT_AT_SECONDS = 20.0


def with_sick(ends, sick="d", seconds=0.02):
    """Replicas that need about 20 ms, some of which end every request like this from then on."""
    rng = Random(5)

    def behave(id, request, now):
        return ends if id in sick and now >= FAULT_AT_SECONDS else (seconds * rng.uniform(0.7, 1.4), Outcome.OK)

    return behave


# ---------------------------------------------------------------------- hanging and half-answering replicas


@pytest.mark.parametrize("policy", ["least_work", "least_connections", "round_robin"])
def test_a_hanging_replica_costs_nobody_whose_request_may_be_retried(policy):
    world = OpenLoop("abcd", with_sick(NEVER), policy=policy)
    world.run(60.0)
    assert set(world.counts(0.0)) == {"ok"}
    assert world.states()["d"] is State.EJECTED
    assert sum(id == "d" and when >= FAULT_AT_SECONDS for when, id in world.sent) <= 12


@pytest.mark.parametrize("policy", ["least_work", "least_connections", "round_robin"])
def test_a_hanging_replica_costs_few_of_those_that_may_not(policy):
    world = OpenLoop("abcd", with_sick((30.0, Outcome.TIMEOUT)), policy=policy, idempotent=False)
    world.run(50.0)
    assert (
        sum(id == "d" and when >= FAULT_AT_SECONDS for when, id in world.sent) <= 12
    )  # those sent before the first was overdue, and one trial
    d = world.replica("d")
    assert d.state is State.EJECTED
    assert d.ejection.rule is EjectionRule.NO_RESPONSE
    assert str(d.ejection).startswith("no answer for ")


@pytest.mark.parametrize("ends", [(0.004, Outcome.TRUNCATED), (0.5, Outcome.TIMEOUT), (0.001, Outcome.CONNECTION_LOST)])
def test_one_that_gives_half_answers_is_out_after_three(ends):
    """It was five."""
    world = OpenLoop("abcd", with_sick(ends), idempotent=False, rate=40.0, policy="round_robin")
    world.run(FAULT_AT_SECONDS + 20.0)
    d = world.replica("d")
    assert (d.state, d.ejection.rule) == (State.EJECTED, EjectionRule.PROBATION_FAILED)
    assert "while other replicas answer" in str(d.ejection)
    in_flight = ends[0] * 10.0  # sent there before the first of them ended
    assert world.replica("d").failed <= 3 + in_flight


def test_back_from_an_ejection_one_failure_is_enough():
    world = OpenLoop("abcd", with_sick((0.004, Outcome.TRUNCATED)), idempotent=False)
    world.run(FAULT_AT_SECONDS + 300.0)
    d = world.replica("d")
    assert d.ejection_count >= 3
    assert d.failed <= 3 + d.ejection_count


def test_back_from_an_ejection_it_gets_one_request_until_it_answers():
    balancer = fleet(*"ab", slow_start=0.0)
    for _ in range(5):
        serve_on(balancer, "b", 0.0, 1.0, Outcome.TRUNCATED)
    pass_time(balancer, 1.0, 32.5)
    b = replica(balancer, "b")
    assert b.state is State.READY
    first = [sent(balancer.submit(Request(), 33.0)) for _ in range(9)]
    assert first.count("b") == 1
    (attempt,) = b.running_attempts
    balancer.finish(attempt.request, Outcome.OK, 33.1)
    assert [sent(balancer.submit(Request(), 33.2)) for _ in range(10)].count("b") == 5


def test_two_errors_are_no_reason_for_suspicion():
    """A 500 is an answer, and may be the request's own fault: five in a row it takes."""
    world = OpenLoop("abcd", with_sick((0.004, Outcome.ERROR)), idempotent=False, policy="round_robin")
    world.run(FAULT_AT_SECONDS + 0.13)
    d = world.replica("d")
    assert (d.consecutive_failures, d.probation) == (3, None)
    world.run(FAULT_AT_SECONDS + 1.0)
    assert d.ejection.rule is EjectionRule.CONSECUTIVE_FAILURES


def test_where_nobody_answers_nobody_is_suspected():
    world = OpenLoop("abcd", with_sick((0.2, Outcome.TIMEOUT), sick="abcd"), idempotent=False)
    world.run(FAULT_AT_SECONDS + 0.35)
    assert all(r.probation is None for r in world.balancer.pool().replicas.values())


def test_half_of_the_replicas_at_least_stay_in_full_use():
    world = OpenLoop("abcd", with_sick(NEVER, sick="bcd"), allowed=1.0, policy="round_robin")
    for now in range(210, 600):
        world.run(now / 10)
        held = [r for r in world.balancer.pool().members if r.suspended]
        out = [r for r in world.balancer.pool().replicas.values() if r.state is State.EJECTED]
        assert len(held) + len(out) <= 2
        assert world.balancer.pool().open


def test_when_others_leave_one_that_is_held_back_is_used_again():
    world = OpenLoop("ab", with_sick(NEVER, sick="b"), allowed=1.0, policy="round_robin")
    world.run(FAULT_AT_SECONDS + 5.0)
    b = world.replica("b")
    assert b.suspended
    world.balancer.remove_replica("a", now=world.now)
    assert not b.suspended
    assert sent(world.balancer.submit(Request(), world.now)) == "b"


def test_long_requests_do_not_look_like_a_replica_that_hangs():
    """Two percent take a hundred times as long, and nothing tells them apart beforehand."""
    rng = Random(7)

    def behave(id, request, now):
        return (2.0 if rng.random() < 0.02 else 0.02 * rng.uniform(0.7, 1.4)), Outcome.OK

    world = OpenLoop("abcd", behave, policy="least_work")
    world.run(300.0)
    assert set(world.counts(0.0)) == {"ok"}
    assert sum(r.ejection_count for r in world.balancer.pool().replicas.values()) == 0


def test_it_can_be_switched_off():
    world = OpenLoop("abcd", with_sick(NEVER), allowed=0.5, outlier_detection=OutlierDetectionOptions(enabled=False))
    world.run(FAULT_AT_SECONDS + 10.0)
    assert world.replica("d").probation is None
    assert world.replica("d").ejection_count == 0


# ---------------------------------------------------------------------- deadlines that clients choose


@pytest.mark.parametrize("policy", ["least_work", "least_connections", "round_robin", "consistent_hash"])
@pytest.mark.parametrize("background", [False, True])
def test_slow_requests_with_deadlines_of_their_clients_eject_nobody(policy, background):
    """24 requests that take 5 s, each given up after 300 ms, on replicas that usually need 20 ms."""
    rng = Random(9)

    def behave(id, request, now):
        return (5.0 if request.context == "slow" else 0.02 * rng.uniform(0.7, 1.4)), Outcome.OK

    world = OpenLoop("abcd", behave, policy=policy)
    world.run(20.0)
    if not background:
        world.stop()
    for number in range(24):
        world.run(20.0 + number * 0.1)
        world.submit(Request(deadline=world.now + 0.3, context="slow", key="x"))
    world.run(30.0)
    assert world.counts(0.0)["client_deadline_exceeded"] == 24
    assert sum(r.ejection_count for r in world.balancer.pool().replicas.values()) == 0
    assert all(r.failed == 0 for r in world.balancer.pool().replicas.values())


def test_a_burst_of_them_beside_answers_holds_nobody_back():
    rng = Random(9)

    def behave(id, request, now):
        return (5.0 if request.context == "slow" else 0.02 * rng.uniform(0.7, 1.4)), Outcome.OK

    world = OpenLoop("abcd", behave, policy="round_robin")
    world.run(20.0)
    for _ in range(24):
        world.submit(Request(deadline=world.now + 0.3, context="slow"))
    world.run(20.5)
    assert world.counts(20.0)["client_deadline_exceeded"] == 24
    assert all(r.probation is None for r in world.balancer.pool().replicas.values())


def test_a_hanging_replica_with_impatient_clients_gets_ever_fewer_requests():
    """It may not be ejected for them, so it is held back, and tried with one request at a time."""
    world = OpenLoop("abcd", with_sick(NEVER), allowed=0.3, idempotent=False)
    world.run(FAULT_AT_SECONDS + 60.0)
    assert world.counts(FAULT_AT_SECONDS, FAULT_AT_SECONDS + 60.0)["client_deadline_exceeded"] <= 15
    assert world.replica("d").ejection_count == 0


def test_what_a_client_gave_up_teaches_no_speed():
    world = OpenLoop("abcd", with_sick(NEVER, sick="abcd"), allowed=0.3, idempotent=False)
    world.run(FAULT_AT_SECONDS)
    typical = world.balancer.pool().estimator.typical_seconds
    world.run(FAULT_AT_SECONDS + 10.0)
    assert world.balancer.pool().estimator.typical_seconds == pytest.approx(typical, rel=0.05)


def test_a_timeout_that_the_operator_chose_still_counts():
    world = OpenLoop("abcd", with_sick((0.3, Outcome.DEADLINE_EXCEEDED)), idempotent=False)
    world.run(FAULT_AT_SECONDS + 10.0)
    assert world.replica("d").state is State.EJECTED


def test_a_deadline_that_passes_soon_says_nothing():
    balancer = fleet(*"ab")
    for i in range(60):
        serve_on(balancer, "ab"[i % 2], 0.1, i / 10)
    before = replica(balancer, "a").effective_weight
    for i in range(10):
        serve_on(balancer, "a", 0.15, 10.0 + i, Outcome.CLIENT_DEADLINE_EXCEEDED)
    a = replica(balancer, "a")
    assert (a.unanswered, a.failed, a.effective_weight, a.probation) == (0, 0, before, None)
    assert a.ejected_until < INFINITY
