"""What an independent review broke, kept from breaking again: odd callers, odd policies, long running."""

from random import Random

import pytest

from steelyard.core.balancer import Balancer
from steelyard.core.decision import Reject, Send
from steelyard.core.errors import OptionError
from steelyard.core.options import HedgeOptions, OutlierDetectionOptions, PoolOptions
from steelyard.core.outcome import Outcome
from steelyard.core.policies.base import Policy
from steelyard.core.replica import State
from steelyard.core.request import Request, RequestPhase

from .driving import NO_EJECTION, fleet, pass_time, serve, serve_on, start


class Raises(Policy):
    """A user's policy with a bug in the hook named by `where`."""

    where = ""

    def choose(self, request, candidates, now):
        if self.where == "choose" and request.id == "second":
            raise RuntimeError("choose is broken")
        return candidates[0]

    def sent(self, attempt, now):
        if self.where == "sent":
            raise RuntimeError("sent is broken")

    def finished(self, attempt, seconds, outcome, now):
        if self.where == "finished":
            raise RuntimeError("finished is broken")

    def released(self, attempt, now):
        if self.where == "released":
            raise RuntimeError("released is broken")


class RaisesInSent(Raises):
    where = "sent"


class RaisesInFinished(Raises):
    where = "finished"


class RaisesInReleased(Raises):
    where = "released"


class RaisesInChoose(Raises):
    where = "choose"


def with_policy(kind, **options):
    balancer = Balancer(Random(1))
    balancer.add_model("", f"{__name__}:{kind.__name__}", PoolOptions(**options))
    balancer.add_replica("a", now=0.0)
    return balancer


def test_a_policy_that_raises_when_told_of_a_dispatch_leaves_a_request_that_can_be_ended():
    balancer = with_policy(RaisesInSent)
    request = Request()
    with pytest.raises(RuntimeError):
        balancer.submit(request, 0.0)
    assert request.phase is RequestPhase.RUNNING
    balancer.cancel(request, 1.0)
    assert balancer.pool().find("a").in_flight == 0


@pytest.mark.parametrize("kind", [RaisesInFinished, RaisesInReleased])
def test_a_policy_that_raises_when_told_of_an_end_does_not_keep_the_request(kind):
    balancer = with_policy(kind)
    request = Request()
    balancer.submit(request, 0.0)
    with pytest.raises(RuntimeError):
        balancer.finish(request, Outcome.OK, 1.0)
    assert request.phase is RequestPhase.DONE
    assert balancer.pool().find("a").in_flight == 0


def test_what_was_decided_before_a_policy_raised_reaches_the_driver():
    balancer = Balancer(Random(1))
    balancer.add_model("", f"{__name__}:RaisesInChoose", PoolOptions(wait_for_ready=True))
    first, second = Request(id="first"), Request(id="second")
    balancer.submit(first, 0.0)
    balancer.submit(second, 0.0)
    decisions = balancer.add_replica("a", now=1.0)
    assert [d.request for d in decisions] == [first]
    assert first.phase is RequestPhase.RUNNING
    assert second.phase is RequestPhase.WAITING


def test_features_that_are_no_numbers_do_not_break_the_pool():
    balancer = fleet("a")
    broken = 0
    for i in range(200):
        request = Request("", (None,) if i == 5 else (3.0,))
        try:
            balancer.submit(request, float(i))
            balancer.finish(request, Outcome.OK, i + 0.1)
        except TypeError:
            broken += 1
            assert request.phase is not RequestPhase.RUNNING
    assert broken <= 1  # whoever passes such a thing may be told; nobody else
    assert balancer.pool().estimator.typical_seconds == pytest.approx(0.1, rel=0.05)


def test_a_priority_that_cannot_be_compared_changes_nothing():
    balancer = fleet("a", concurrency=1)
    start(balancer, 0.0)
    balancer.submit(Request(), 0.0)
    with pytest.raises(TypeError):
        balancer.submit(Request(priority="high"), 0.0)
    assert len(balancer.pool().queue) == 1
    assert [r.priority for r in balancer.pool().queue.ordered()] == [0]


@pytest.mark.parametrize("policy", ["least_work", "peak_ewma", "least_response_time", "prequal"])
def test_a_clock_that_steps_back_does_no_harm(policy):
    balancer = fleet(*"abc", policy=policy)
    for i in range(40):
        serve(balancer, 0.1, 1000.0 + i)
    running = [start(balancer, 1050.0) for _ in range(6)]
    for back in (1049.0, 1030.0, 100.0):
        running.append(start(balancer, back))
    for request in running:
        balancer.finish(request, Outcome.OK, 1040.0)
    assert all(r.in_flight == 0 for r in balancer.pool().members)


@pytest.mark.parametrize("policy", ["least_work", "prequal"])
def test_in_a_large_fleet_too_a_retry_goes_elsewhere(policy):
    balancer = fleet(*(f"r{n}" for n in range(100)), policy=policy, outlier_detection=NO_EJECTION)
    for i in range(200):
        serve(balancer, 0.1, float(i))
    for i in range(100):
        request = start(balancer, 300.0 + i)
        failed = request.attempt.replica
        for decision in balancer.finish(request, Outcome.CONNECTION_LOST, 300.5 + i):
            assert isinstance(decision, Send)
            assert decision.replica is not failed
            balancer.finish(request, Outcome.OK, 300.6 + i)


def test_refused_requests_do_not_pay_for_retries():
    balancer = fleet("a", concurrency=1, max_queue=0)
    tokens = balancer.pool().retry_budget.tokens
    running = start(balancer, 0.0)
    for _ in range(100):
        assert isinstance(balancer.submit(Request(), 0.0), Reject)
    assert balancer.pool().retry_budget.tokens <= tokens + 0.2
    balancer.finish(running, Outcome.OK, 1.0)


def test_at_cold_start_a_short_deadline_may_wait():
    balancer = fleet("a", concurrency=1)
    running = start(balancer, 0.0)
    waiting = Request(deadline=0.5)
    balancer.submit(waiting, 0.0)
    assert pass_time(balancer, 0.0, 0.2) == []
    balancer.finish(running, Outcome.OK, 0.2)
    assert waiting.phase is RequestPhase.RUNNING


def test_news_of_other_balancers_is_forgotten_when_nobody_confirms_it():
    """The one that reported may be gone: its requests must not close a replica for ever."""
    balancer = fleet("a", concurrency=1)
    balancer.report_peer_load("a", 1, now=0.0)
    request = Request()
    balancer.submit(request, 0.5)
    assert request.phase is RequestPhase.WAITING
    pass_time(balancer, 0.5, 10.0)
    assert request.phase is RequestPhase.RUNNING


def test_a_long_good_time_shortens_the_next_sentence():
    balancer = fleet(*"abc", outlier_detection=OutlierDetectionOptions(max_ejection_time=100.0))
    replica = balancer.pool().find("a")
    replica.ejection_backoff = 3
    pass_time(balancer, 0.0, 350.0)
    assert replica.ejection_backoff == 0


def test_weights_are_relative_to_each_other():
    """Four times the weight of the others means the same whatever the numbers are."""
    found = []
    for scale in (1.0, 100.0):
        balancer = Balancer(Random(1))
        balancer.add_model("", "least_work", PoolOptions(outlier_detection=NO_EJECTION))
        for id, weight in (("a", 4.0), ("b", 4.0), ("c", 1.0)):
            balancer.add_replica(id, weight=weight * scale, now=0.0)
        for i in range(300):
            id = "abc"[i % 3]
            serve_on(balancer, id, 0.4 if id == "c" else 0.1, float(i))
            pass_time(balancer, float(i), i + 0.9)
        replicas = balancer.pool().replicas
        found.append(replicas["c"].slowness / replicas["a"].slowness)
    assert found[0] == pytest.approx(4.0, rel=0.1)
    assert found[1] == pytest.approx(found[0], rel=0.01)


INTERPRETED = pytest.mark.interpreted("a compiled function checks types by itself: TypeError, and True is 1.0")


@pytest.mark.parametrize(
    "weight",
    [1e308, 5e-324, 0.0, float("inf"), float("nan"), *(pytest.param(w, marks=INTERPRETED) for w in ("2", True))],
)
def test_a_weight_that_cannot_be_worked_with_is_refused(weight):
    balancer = fleet("a")
    with pytest.raises(OptionError, match="weight"):
        balancer.add_replica("b", weight=weight, now=0.0)
    with pytest.raises(OptionError, match="weight"):
        balancer.set_weight("a", weight, now=0.0)
    assert list(balancer.pool().replicas) == ["a"]


def test_the_plan_of_hedges_keeps_nothing_of_what_is_over():
    balancer = fleet(*"ab", hedge=HedgeOptions(enabled=True))
    for i in range(50):
        balancer.cancel(start(balancer, float(i)), i + 0.01)
    assert len(balancer.hedging) == 0


def test_two_shapes_of_requests_do_not_make_the_model_start_over():
    balancer = fleet("a", policy="least_work")
    rng = Random(3)
    for i in range(3000):
        size = rng.choice((1.0, 10.0))
        request = Request("", (size,) if i % 2 else ())
        balancer.submit(request, float(i))
        balancer.finish(request, Outcome.OK, i + size / 20)
    small, large = Request("", (1.0,)), Request("", (10.0,))
    for request in (small, large):
        balancer.pool().estimator.prepare(request)
    assert small.base < 0.5 * large.base
    assert balancer.pool().estimator.samples > 500


def test_an_overstated_warm_up_does_not_make_the_base_vanish():
    balancer = fleet("a", warm_keys=1)
    for i in range(200):
        request = Request("", key=f"k{i}", cold_seconds=1.0)
        balancer.submit(request, float(i))
        balancer.finish(request, Outcome.OK, i + 0.3)
    assert balancer.pool().estimator.typical_seconds > 0.01


def test_a_replica_cannot_be_added_as_gone():
    balancer = fleet("a")
    with pytest.raises(OptionError, match="gone"):
        balancer.add_replica("b", state=State.GONE, now=0.0)
