"""A second attempt elsewhere while the first still runs: off by default, cheap, and given back exactly once."""

import pytest

from steelyard.core.balancer import Balancer
from steelyard.core.decision import Cancel, Send
from steelyard.core.errors import MisuseError
from steelyard.core.options import HedgeOptions, PoolOptions
from steelyard.core.outcome import Outcome
from steelyard.core.request import Request, RequestPhase

from ..driving import NO_EJECTION, Random, fleet, pass_time, replica, runs_on, serve_on, start

ALWAYS = HedgeOptions(enabled=True, budget=1.0)


def slow_and_fast(hedge=ALWAYS, **options):
    """Two replicas, one known to be eight times slower: a request there is worth doubling as soon as it is late."""
    balancer = Balancer(Random(1))
    balancer.add_model("", "round_robin", PoolOptions(hedge=hedge, outlier_detection=NO_EJECTION, **options))
    balancer.add_replica("slow", weight=0.125, now=0.0)
    balancer.add_replica("fast", now=0.0)
    return balancer


def late(balancer, now=0.0, **fields):
    """A request on the slow replica."""
    request = Request(**fields)
    request.avoid = (replica(balancer, "fast"),)
    balancer.submit(request, now)
    request.avoid = ()
    assert runs_on(request) == "slow"
    return request


def hedged(balancer, now=0.0, until=9.0, **fields):
    """A request that runs on both replicas."""
    request = late(balancer, now, **fields)
    (decision,) = pass_time(balancer, now, until)
    assert isinstance(decision, Send)
    assert decision.hedged
    assert decision.request is request
    assert decision.replica.id == "fast"
    return request


def loads(balancer):
    return {r.id: (r.in_flight, r.load, r.outstanding_work) for r in balancer.pool().replicas.values()}


IDLE = {"slow": (0, 0, 0.0), "fast": (0, 0, 0.0)}


def test_nothing_is_hedged_by_default():
    balancer = slow_and_fast(hedge=HedgeOptions())
    late(balancer)
    assert pass_time(balancer, 0.0, 100.0) == []
    assert loads(balancer)["fast"][0] == 0


def test_a_request_that_is_late_is_sent_to_a_second_replica():
    balancer = slow_and_fast()
    request = late(balancer)
    assert pass_time(balancer, 0.0, 7.9) == []
    (decision,) = pass_time(balancer, 7.9, 9.0)
    assert isinstance(decision, Send)
    assert decision.hedged
    assert decision.replica.id == "fast"
    assert request.phase is RequestPhase.RUNNING
    assert [n for n, _, _ in loads(balancer).values()] == [1, 1]


def test_a_request_that_is_on_time_is_not_hedged():
    balancer = slow_and_fast()
    request = late(balancer)
    balancer.finish(request, Outcome.OK, 7.0)
    assert pass_time(balancer, 7.0, 100.0) == []


def test_a_request_is_hedged_once():
    balancer = slow_and_fast()
    balancer.add_replica("third", now=0.0)
    request = late(balancer)
    decisions = pass_time(balancer, 0.0, 200.0)
    assert [d.request for d in decisions] == [request]


def test_a_request_that_hangs_is_hedged_though_its_kind_is_always_on_time():
    """One stuck request among a hundred that all took one second: what hedging is for."""
    balancer = fleet(*"ab", hedge=ALWAYS, outlier_detection=NO_EJECTION)
    for i in range(100):
        serve_on(balancer, "ab"[i % 2], 1.0, 2.0 * i)
    pass_time(balancer, 200.0, 201.0)
    request = start(balancer, 201.0)
    decisions = pass_time(balancer, 201.0, 240.0)
    assert [d.request for d in decisions if isinstance(d, Send)] == [request]


def test_a_hedge_that_finds_nobody_idle_is_made_when_somebody_is():
    balancer = slow_and_fast()
    request = late(balancer)
    blocker = Request()
    blocker.avoid = (replica(balancer, "slow"),)
    balancer.submit(blocker, 1.0)
    assert [d for d in pass_time(balancer, 1.0, 9.0) if d.request is request] == []
    balancer.finish(blocker, Outcome.OK, 10.0)
    decisions = pass_time(balancer, 10.0, 30.0)
    assert [d.request for d in decisions if isinstance(d, Send)] == [request]


def test_the_second_attempt_wins_and_the_first_is_cancelled():
    balancer = slow_and_fast()
    request = hedged(balancer)
    (decision,) = balancer.finish(request, Outcome.OK, 10.0, replica=replica(balancer, "fast"))
    assert isinstance(decision, Cancel)
    assert decision.replica.id == "slow"
    assert request.phase is RequestPhase.DONE
    assert loads(balancer) == IDLE


def test_the_first_attempt_wins_and_the_second_is_cancelled():
    balancer = slow_and_fast()
    request = hedged(balancer)
    (decision,) = balancer.finish(request, Outcome.OK, 10.0, replica=replica(balancer, "slow"))
    assert isinstance(decision, Cancel)
    assert decision.replica.id == "fast"
    assert request.phase is RequestPhase.DONE
    assert loads(balancer) == IDLE


@pytest.mark.parametrize("winner", ["slow", "fast"])
def test_the_loser_gives_its_load_back_once_only(winner):
    balancer = slow_and_fast()
    request = hedged(balancer)
    balancer.finish(request, Outcome.OK, 10.0, replica=replica(balancer, winner))
    for id in ("slow", "fast"):
        with pytest.raises(MisuseError):
            balancer.finish(request, Outcome.OK, 11.0, replica=replica(balancer, id))
    with pytest.raises(MisuseError):
        balancer.cancel(request, 11.0)
    assert loads(balancer) == IDLE


def test_a_cancelled_loser_teaches_nothing():
    balancer = slow_and_fast()
    request = hedged(balancer)
    before = replica(balancer, "slow").slowness, replica(balancer, "slow").latency.count(10.0)
    balancer.finish(request, Outcome.OK, 10.0, replica=replica(balancer, "fast"))
    assert (replica(balancer, "slow").slowness, replica(balancer, "slow").latency.count(10.0)) == before


def test_which_attempt_ended_must_be_said():
    balancer = slow_and_fast()
    request = hedged(balancer)
    before = loads(balancer)
    with pytest.raises(MisuseError, match="say which attempt ended"):
        balancer.finish(request, Outcome.OK, 10.0)
    assert loads(balancer) == before
    balancer.add_replica("third", now=10.0)
    with pytest.raises(MisuseError, match="does not run on replica 'third'"):
        balancer.finish(request, Outcome.OK, 10.0, replica=replica(balancer, "third"))


@pytest.mark.parametrize("outcome", [o for o in Outcome if o.failed and o is not Outcome.TRUNCATED])
@pytest.mark.parametrize("failing", ["slow", "fast"])
def test_a_failed_attempt_leaves_the_other_to_decide(failing, outcome):
    balancer = slow_and_fast()
    request = hedged(balancer)
    assert list(balancer.finish(request, outcome, 10.0, replica=replica(balancer, failing))) == []
    assert request.phase is RequestPhase.RUNNING
    other = "fast" if failing == "slow" else "slow"
    assert runs_on(request) == other
    assert loads(balancer)[failing] == (0, 0, 0.0)
    assert list(balancer.finish(request, Outcome.OK, 11.0)) == []
    assert loads(balancer) == IDLE


def test_when_both_fail_the_request_is_tried_again_as_usual():
    balancer = slow_and_fast()
    balancer.add_replica("third", now=0.0)
    balancer.report_peer_load("third", 1, now=0.0)
    request = hedged(balancer)
    balancer.finish(request, Outcome.CONNECTION_LOST, 10.0, replica=replica(balancer, "slow"))
    (decision,) = balancer.finish(request, Outcome.CONNECTION_LOST, 11.0)
    assert isinstance(decision, Send)
    assert not decision.hedged
    assert decision.replica.id == "third"


@pytest.mark.parametrize("outcome", [Outcome.TRUNCATED, Outcome.CLIENT_ERROR])
def test_an_answer_the_client_has_seen_ends_both(outcome):
    balancer = slow_and_fast()
    request = hedged(balancer)
    (decision,) = balancer.finish(request, outcome, 10.0, replica=replica(balancer, "fast"))
    assert isinstance(decision, Cancel)
    assert request.phase is RequestPhase.DONE
    assert loads(balancer) == IDLE


def test_a_client_that_leaves_cancels_both():
    balancer = slow_and_fast()
    request = hedged(balancer)
    decisions = balancer.cancel(request, 10.0)
    assert sorted((type(d).__name__, d.replica.id) for d in decisions) == [("Cancel", "fast"), ("Cancel", "slow")]
    assert loads(balancer) == IDLE
    assert request.phase is RequestPhase.DONE


def test_what_waits_takes_the_losers_place_at_once():
    balancer = slow_and_fast(concurrency=1)
    request = hedged(balancer)
    waiting = [Request(), Request()]
    for other in waiting:
        balancer.submit(other, 9.5)
    decisions = balancer.finish(request, Outcome.OK, 10.0, replica=replica(balancer, "fast"))
    assert [type(d).__name__ for d in decisions] == ["Cancel", "Send", "Send"]
    assert {runs_on(other) for other in waiting} == {"slow", "fast"}


def test_only_an_idempotent_request_is_hedged():
    balancer = slow_and_fast()
    late(balancer, idempotent=False)
    assert pass_time(balancer, 0.0, 100.0) == []


def test_a_busy_replica_is_no_place_for_a_hedge():
    balancer = slow_and_fast()
    balancer.report_peer_load("fast", 1, now=0.0)
    late(balancer)
    for second in range(100):
        balancer.report_peer_load("fast", 1, now=float(second))  # still so: unconfirmed news is forgotten
        assert pass_time(balancer, float(second), second + 1.0) == []


def test_a_hedge_goes_to_no_replica_that_failed_the_request():
    balancer = slow_and_fast()
    request = Request()
    request.avoid = (replica(balancer, "slow"),)
    balancer.submit(request, 0.0)
    (decision,) = balancer.finish(request, Outcome.CONNECTION_LOST, 1.0)
    assert decision.replica.id == "slow"
    assert pass_time(balancer, 1.0, 100.0) == []


def test_second_attempts_cost_a_bounded_share_of_all_work():
    """Every request is late, each would be hedged: two in a hundred seconds of work are all there is for it."""
    balancer = slow_and_fast(hedge=HedgeOptions(enabled=True, budget=0.02))
    work = second = 0.0
    now = 0.0
    for _ in range(400):
        request = late(balancer, now)
        work += request.attempt.seconds_alone
        for decision in pass_time(balancer, now, now + 40.0):
            assert decision.hedged
            second += request.hedge.seconds_alone
        now += 40.0
        if request.hedge is None:
            balancer.finish(request, Outcome.OK, now)
        else:
            balancer.cancel(request, now)
    assert 0.0 < second <= 0.02 * work


def test_a_hedge_is_nobodys_second_turn():
    """The attempts counted are those the retry budget knows."""
    balancer = slow_and_fast()
    request = hedged(balancer)
    assert request.attempt_count == 1
