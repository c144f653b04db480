"""Who gets in, who waits, and who is told at once that it makes no sense."""

import pytest

from steelyard.core.decision import Reject
from steelyard.core.errors import MisuseError, OptionError
from steelyard.core.options import HedgeOptions, PoolOptions, RetryOptions
from steelyard.core.outcome import Outcome
from steelyard.core.reason import Reason
from steelyard.core.replica import Event
from steelyard.core.request import INFINITY, Request, RequestPhase

from .driving import NO_EJECTION, fleet, pass_time, refused, sent, serve, start, waits


def busy(waiting, seconds=1.0, **options):
    """One replica that takes one request of so many seconds at a time, with some requests waiting already."""
    balancer = fleet("a", concurrency=1, **options)
    for i in range(100):
        serve(balancer, seconds, 100.0 * seconds * i)
    now = 10_000.0 * seconds
    balancer.expire(now)
    start(balancer, now)
    for _ in range(waiting):
        assert waits(balancer.submit(Request(), now))
    return balancer, now


# ---------------------------------------------------------------------- deadlines


def test_a_deadline_that_cannot_be_met_is_refused_at_once_and_says_when_to_come_back():
    balancer, now = busy(waiting=5)
    request = Request(deadline=now + 3.0)
    decision = balancer.submit(request, now)
    assert refused(decision) == "deadline"
    assert decision.reason.status == 503
    assert decision.retry_after == pytest.approx(5.0, rel=0.1)
    assert request.phase is RequestPhase.DONE
    assert len(balancer.pool().queue) == 5


def test_a_deadline_that_can_be_met_waits():
    balancer, now = busy(waiting=5)
    assert waits(balancer.submit(Request(deadline=now + 9.0), now))


def test_on_an_idle_replica_only_the_request_itself_counts():
    balancer = fleet("a")
    for i in range(100):
        serve(balancer, 1.0, 2.0 * i)
    assert refused(balancer.submit(Request(deadline=300.5), 300.0)) == "deadline"
    assert sent(balancer.submit(Request(deadline=301.5), 300.0)) == "a"


def test_a_deadline_in_the_past_is_refused():
    balancer = fleet("a")
    assert refused(balancer.submit(Request(deadline=9.0), 10.0)) == "deadline"


def test_before_anything_was_learned_no_deadline_ahead_is_refused():
    """Nothing is known of how long requests take. A guess that refuses them all would never be corrected."""
    balancer = fleet("a")
    admitted = 0
    for i in range(100):
        request = Request(deadline=i + 0.2)
        if not isinstance(balancer.submit(request, float(i)), Reject):
            admitted += 1
            balancer.finish(request, Outcome.OK, i + 0.05)
    assert admitted == 100


def test_an_idle_fleet_does_not_refuse_for_ever_because_it_was_slow_once():
    """Refused requests teach nothing: a few must be let through, or yesterday's slowness is believed for ever."""
    balancer = fleet("a", "b", outlier_detection=NO_EJECTION)
    for i in range(300):
        serve(balancer, 2.0, 3.0 * i)  # a bad quarter of an hour
    now, admitted = 1000.0, 0
    for _ in range(2000):
        now += 0.5
        pass_time(balancer, now, now)
        request = Request(deadline=now + 1.0)
        if not isinstance(balancer.submit(request, now), Reject):
            admitted += 1
            balancer.finish(request, Outcome.OK, now + 0.1)
    assert admitted > 200


def test_a_deadline_that_passes_in_line_is_refused_when_it_can_no_longer_be_met():
    balancer, now = busy(waiting=0)
    request = Request(deadline=now + 4.0)
    assert waits(balancer.submit(request, now))
    assert pass_time(balancer, now, now + 2.8) == []
    (decision,) = pass_time(balancer, now + 2.8, now + 3.2)
    assert refused(decision) == "deadline"
    assert decision.request is request
    assert request.phase is RequestPhase.DONE


def test_who_waits_with_a_sooner_deadline_goes_first():
    balancer = fleet("a", concurrency=1)
    first = start(balancer)
    patient, urgent = Request(), Request(deadline=20.0)
    assert waits(balancer.submit(patient, 0.0))
    assert waits(balancer.submit(urgent, 0.0))
    (decision,) = balancer.finish(first, Outcome.OK, 1.0)
    assert decision.request is urgent


# ---------------------------------------------------------------------- the line


def test_a_full_line_refuses_and_says_when_to_come_back():
    balancer, now = busy(waiting=3, max_queue=3)
    decision = balancer.submit(Request(), now)
    assert refused(decision) == "queue_full"
    assert decision.reason.status == 503
    assert decision.retry_after == pytest.approx(3.0, rel=0.1)


def test_the_promise_of_a_retry_grows_with_the_line_and_shrinks_with_the_fleet():
    after = {}
    for replicas in (1, 4):
        for waiting in (4, 40):
            balancer, now = busy(waiting=0, max_queue=waiting)
            for i in range(replicas - 1):
                balancer.add_replica(f"more{i}", now=now)
                start(balancer, now)
            for _ in range(waiting):
                assert waits(balancer.submit(Request(), now))
            after[replicas, waiting] = balancer.submit(Request(), now).retry_after
    assert after[1, 40] == pytest.approx(10 * after[1, 4], rel=0.1)
    assert after[1, 40] == pytest.approx(4 * after[4, 40], rel=0.1)


def test_without_a_line_what_finds_no_place_is_refused():
    balancer = fleet("a", concurrency=1, max_queue=0)
    start(balancer)
    assert refused(balancer.submit(Request(), 0.0)) == "queue_full"


def test_nobody_waits_longer_than_may_be_waited():
    balancer = fleet("a", concurrency=1, queue_timeout=5.0)
    start(balancer)
    request = Request()
    assert waits(balancer.submit(request, 1.0))
    assert pass_time(balancer, 1.0, 5.9) == []
    (decision,) = pass_time(balancer, 5.9, 6.0)
    assert refused(decision) == "queue_timeout"
    assert decision.reason.status == 503
    assert decision.request is request


def test_the_balancer_says_when_it_must_be_woken():
    balancer = fleet("a", concurrency=1, queue_timeout=0.25)
    start(balancer, 0.5)
    balancer.submit(Request(), 0.5)
    assert balancer.next_wake() == pytest.approx(0.75)
    assert list(balancer.expire(0.7)) == []
    assert [refused(d) for d in balancer.expire(0.75)] == ["queue_timeout"]


def test_a_client_that_leaves_gives_up_its_place():
    balancer = fleet("a", concurrency=1, max_queue=1)
    first = start(balancer)
    second, third = Request(), Request()
    assert waits(balancer.submit(second, 0.0))
    assert list(balancer.cancel(second, 1.0)) == []
    assert second.phase is RequestPhase.DONE
    assert waits(balancer.submit(third, 1.0))
    (decision,) = balancer.finish(first, Outcome.OK, 2.0)
    assert decision.request is third


def test_a_client_that_leaves_frees_its_replica_for_the_next():
    balancer = fleet("a", concurrency=1)
    first, second = start(balancer), Request()
    assert waits(balancer.submit(second, 0.0))
    cancelled, decision = balancer.cancel(first, 1.0)
    assert cancelled.request is first
    assert cancelled.replica.id == "a"
    assert decision.request is second
    assert sent(decision) == "a"


# ---------------------------------------------------------------------- nobody to send to


def test_an_unknown_model_is_not_found():
    decision = fleet("a").submit(Request("nonsense"), 0.0)
    assert refused(decision) == "unknown_model"
    assert decision.reason.status == 404


def test_a_model_without_replicas_is_unavailable():
    decision = fleet().submit(Request(), 0.0)
    assert refused(decision) == "no_replica"
    assert decision.reason.status == 503
    assert decision.retry_after > 0


def test_a_model_whose_replicas_all_left_is_unavailable():
    balancer = fleet("a", "b")
    balancer.report("a", Event.LOST, now=1.0)
    balancer.report("b", Event.DRAIN, now=1.0)
    assert refused(balancer.submit(Request(), 1.0)) == "no_replica"


def test_requests_are_held_for_a_model_that_is_woken():
    balancer = fleet(wait_for_ready=True, queue_timeout=20.0)
    request = Request()
    assert waits(balancer.submit(request, 0.0))
    (decision,) = pass_time(balancer, 0.0, 20.0)
    assert refused(decision) == "queue_timeout"


def test_models_do_not_share_a_line():
    balancer = fleet("a", concurrency=1, max_queue=1)
    balancer.add_model("other", "round_robin", PoolOptions(concurrency=1, max_queue=1))
    balancer.add_replica("a", "other", now=0.0)
    for model in ("", "other"):
        assert sent(balancer.submit(Request(model), 0.0)) == "a"
        assert waits(balancer.submit(Request(model), 0.0))
        assert refused(balancer.submit(Request(model), 0.0)) == "queue_full"


# ---------------------------------------------------------------------- tenants and priorities


def test_a_tenant_that_holds_its_share_of_a_full_line_is_told_to_slow_down():
    balancer, now = busy(waiting=0, max_queue=4)
    for tenant in "abab":
        assert waits(balancer.submit(Request(tenant=tenant), now))
    decision = balancer.submit(Request(tenant="a"), now)
    assert refused(decision) == "tenant_share"
    assert decision.reason.status == 429
    assert decision.retry_after > 0


def test_a_lone_tenant_is_not_told_that_others_have_their_share():
    balancer, now = busy(waiting=0, max_queue=2)
    for _ in range(2):
        assert waits(balancer.submit(Request(tenant="a"), now))
    assert refused(balancer.submit(Request(tenant="a"), now)) == "queue_full"


def test_a_tenant_with_nothing_in_line_is_not_told_that_it_holds_its_share():
    balancer, now = busy(waiting=0, max_queue=2)
    for tenant in "ab":
        assert waits(balancer.submit(Request(tenant=tenant), now))
    assert refused(balancer.submit(Request(tenant="c"), now)) == "queue_full"


def test_a_tenant_that_floods_the_line_makes_room_for_another():
    balancer, now = busy(waiting=0, max_queue=4)
    flood = [Request(tenant="a") for _ in range(4)]
    for request in flood:
        assert waits(balancer.submit(request, now))
    small = Request(tenant="b")
    assert waits(balancer.submit(small, now))
    assert balancer.next_wake() <= now  # the refusal is due at once
    (decision,) = balancer.expire(now)
    assert refused(decision) == "preempted"
    assert decision.request is flood[-1]
    assert flood[-1].phase is RequestPhase.DONE
    assert len(balancer.pool().queue) == 4


def test_tenants_that_wait_are_served_by_turns():
    balancer = fleet("a", concurrency=1)
    running = start(balancer)
    for tenant in "aaaabbbb":
        assert waits(balancer.submit(Request(tenant=tenant), 0.0))
    order = ""
    for now in range(1, 9):
        (decision,) = balancer.finish(running, Outcome.OK, float(now))
        running = decision.request
        order += running.tenant
    assert order == "abababab"


def test_a_more_urgent_request_displaces_the_last_of_the_least_urgent():
    balancer, now = busy(waiting=0, max_queue=2)
    low = [Request(priority=0), Request(priority=0)]
    for request in low:
        assert waits(balancer.submit(request, now))
    assert waits(balancer.submit(Request(priority=1), now))
    (decision,) = balancer.expire(now)
    assert refused(decision) == "preempted"
    assert decision.reason.status == 503
    assert decision.request is low[1]


def test_who_was_displaced_may_leave_before_it_is_told():
    balancer, now = busy(waiting=0, max_queue=1)
    low = Request()
    assert waits(balancer.submit(low, now))
    assert waits(balancer.submit(Request(priority=1), now))
    assert low.phase is RequestPhase.WAITING
    assert list(balancer.cancel(low, now)) == []
    assert low.phase is RequestPhase.DONE
    assert list(balancer.expire(now)) == []


def test_who_was_displaced_is_not_sent_anywhere():
    balancer, now = busy(waiting=0, max_queue=1)
    low, high = Request(), Request(priority=1)
    assert waits(balancer.submit(low, now))
    assert waits(balancer.submit(high, now))
    decisions = balancer.add_replica("b", now=now)
    assert [d.request for d in decisions] == [high]
    balancer.add_replica("c", now=now)
    assert [refused(d) for d in balancer.expire(now)] == ["preempted"]


# ---------------------------------------------------------------------- reasons and misuse


def test_every_reason_has_its_own_code_a_status_and_a_sentence():
    assert len({reason.code for reason in Reason}) == len(Reason)
    for reason in Reason:
        assert reason.status in (404, 413, 429, 500, 503)
        assert reason.sentence.endswith(".")


def test_a_request_is_submitted_once():
    balancer = fleet("a")
    request = start(balancer)
    with pytest.raises(MisuseError, match="was submitted before"):
        balancer.submit(request, 1.0)
    balancer.finish(request, Outcome.OK, 1.0)
    with pytest.raises(MisuseError, match="was submitted before"):
        balancer.submit(request, 1.0)


def test_a_request_ends_once():
    balancer = fleet("a")
    request = start(balancer)
    balancer.finish(request, Outcome.OK, 1.0)
    for _ in range(2):
        with pytest.raises(MisuseError):
            balancer.finish(request, Outcome.OK, 2.0)
        with pytest.raises(MisuseError):
            balancer.cancel(request, 2.0)
    assert balancer.pool().find("a").in_flight == 0


def test_a_request_that_waits_cannot_be_finished():
    balancer = fleet("a", concurrency=1)
    start(balancer)
    request = Request()
    balancer.submit(request, 0.0)
    with pytest.raises(MisuseError, match="is not running"):
        balancer.finish(request, Outcome.OK, 1.0)
    assert request.phase is RequestPhase.WAITING


def test_a_request_never_submitted_cannot_be_finished_or_cancelled():
    balancer = fleet("a")
    with pytest.raises(MisuseError):
        balancer.finish(Request(), Outcome.OK, 1.0)
    with pytest.raises(MisuseError):
        balancer.cancel(Request(), 1.0)


@pytest.mark.parametrize(
    ("options", "named"),
    [
        (lambda: PoolOptions(concurrency=0), "concurrency"),
        (lambda: PoolOptions(concurrency="many"), "concurrency"),
        (lambda: PoolOptions(concurrency=1.5), "concurrency"),
        (lambda: PoolOptions(max_queue=-1), "max_queue"),
        (lambda: PoolOptions(queue_timeout=0), "queue_timeout"),
        (lambda: PoolOptions(queue_timeout=INFINITY), "queue_timeout"),
        (lambda: PoolOptions(queue_timeout=float("nan")), "queue_timeout"),
        (lambda: PoolOptions(slow_start=-1), "slow_start"),
        (lambda: PoolOptions(evaluation_interval=0), "evaluation_interval"),
        (lambda: PoolOptions(warm_keys=-1), "warm_keys"),
        (lambda: RetryOptions(max_attempts=0), "retry.max_attempts"),
        (lambda: RetryOptions(budget=1.5), "retry.budget"),
        (lambda: RetryOptions(initial_tokens=60), "retry.initial_tokens"),
        (lambda: HedgeOptions(quantile=1.0), "hedge.quantile"),
        (lambda: HedgeOptions(budget=0), "hedge.budget"),
    ],
)
def test_an_option_that_cannot_work_is_refused_by_name(options, named):
    with pytest.raises(OptionError, match=f"^{named}: must be"):
        options()


def test_a_model_is_added_once():
    balancer = fleet("a")
    with pytest.raises(OptionError, match="already there"):
        balancer.add_model("")


def test_a_request_held_for_a_pool_without_replicas_waits_until_its_deadline():
    """Scaling from zero: how long the first replica takes to start is not the line's business."""
    balancer = fleet("a", wait_for_ready=True)
    for i in range(40):
        serve(balancer, 0.1, float(i))
    balancer.report("a", Event.LOST, now=50.0)
    request = Request(deadline=55.0)
    assert waits(balancer.submit(request, 50.0))
    (decision,) = balancer.report("a", Event.LOADED, now=53.0)
    assert sent(decision) == "a"


# ---------------------------------------------------------------------- what was asked of a model


def test_what_comes_is_counted_whether_it_is_sent_waits_or_is_refused():
    balancer = fleet("a", concurrency=1, max_queue=1)
    for i in range(100):
        serve(balancer, 2.0, 10.0 * i)
    pool = balancer.pool()
    arrived, offered = pool.arrived, pool.offered_work
    assert sent(balancer.submit(Request(), 2000.0)) == "a"
    assert waits(balancer.submit(Request(), 2000.0))
    assert refused(balancer.submit(Request(), 2000.0)) == "queue_full"
    assert pool.arrived - arrived == 3
    assert pool.offered_work - offered == pytest.approx(6.0, rel=0.1)


def test_while_a_replica_is_coming_whoever_is_refused_is_told_when_it_is_there():
    balancer = fleet(wait_for_ready=True, max_queue=1)
    balancer.pool().next_ready_at = 40.0
    assert waits(balancer.submit(Request(), 10.0))
    for request in (Request(), Request(deadline=20.0)):
        decision = balancer.submit(request, 10.0)
        assert isinstance(decision, Reject)
        assert decision.retry_after == 30.0


def test_who_waits_and_cannot_wait_until_one_comes_is_refused_when_that_is_known():
    balancer = fleet(wait_for_ready=True)
    hurried, patient, ageless = Request(deadline=20.0), Request(deadline=60.0), Request()
    for request in (hurried, patient, ageless):
        assert waits(balancer.submit(request, 10.0))
    assert not balancer.expect_replica("", 15.0, True, now=10.0), "a guess"
    (decision,) = balancer.expect_replica("", 15.0, now=10.0)
    assert decision.request is hurried
    assert (refused(decision), decision.retry_after) == ("deadline", 15.0)
    assert len(balancer.pool().queue) == 2
    (decision,) = balancer.expect_replica("", 45.0, now=20.0)  # it takes longer than was thought
    assert decision.request is patient


def test_with_a_replica_that_is_ready_nobody_is_refused_for_one_that_comes():
    balancer = fleet("a", concurrency=1)
    assert sent(balancer.submit(Request(), 0.0)) == "a"
    assert waits(balancer.submit(Request(deadline=20.0), 0.0))
    assert not balancer.expect_replica("", 30.0, now=1.0)


# ---------------------------------------------------------------------- while a replica is started, or restarts


def starting(start_wait: float = 600.0, **options):
    """No replica is ready, and requests may wait for one that is started."""
    balancer = fleet(wait_for_ready=True, queue_timeout=30.0, start_wait=start_wait, **options)
    request = Request()
    assert waits(balancer.submit(request, 0.0))
    return balancer, request


def test_a_request_waits_for_a_start_that_takes_longer_than_the_queue_timeout():
    balancer, request = starting()
    assert not balancer.expect_replica("", 119.0, now=1.0)
    assert not pass_time(balancer, 1.0, 119.0)
    (decision,) = balancer.add_replica("a", now=120.0)
    assert decision.request is request
    assert sent(decision) == "a"


def test_while_nobody_starts_anything_a_request_waits_no_longer_than_the_queue_timeout():
    balancer, _ = starting()
    assert [refused(d) for d in pass_time(balancer, 0.0, 31.0)] == ["queue_timeout"]


def test_a_start_that_is_late_is_waited_for_as_long_as_it_is_promised_anew():
    balancer, request = starting(start_wait=200.0)
    for second in range(1, 100):
        assert not pass_time(balancer, float(second - 1), float(second))
        assert not balancer.expect_replica("", 2.0, True, now=float(second)), "a guess, again and again"
    assert [refused(d) for d in pass_time(balancer, 99.0, 120.0)] == ["queue_timeout"], "nothing more was heard of it"
    assert request.phase is RequestPhase.DONE


def test_a_start_is_not_waited_for_longer_than_it_may_take_nor_past_a_deadline():
    balancer, _ = starting(start_wait=100.0)
    assert waits(balancer.submit(Request(deadline=50.0), 0.0))
    assert not balancer.expect_replica("", 1000.0, True, now=1.0)
    assert [refused(d) for d in pass_time(balancer, 1.0, 99.0)] == ["deadline"]
    assert [refused(d) for d in pass_time(balancer, 99.0, 101.0)] == ["queue_timeout"]


def test_a_start_that_fails_answers_those_who_wait_at_once():
    balancer, request = starting()
    (decision,) = balancer.expect_replica("", 12.0, True, "it ended: exit status 1", now=3.0)
    assert decision.request is request
    assert refused(decision) == "start_failed"
    assert decision.retry_after == pytest.approx(12.0)
    assert refused(balancer.submit(Request(), 4.0)) == "start_failed"
    assert not balancer.expect_replica("", 10.0, True, now=5.0)
    assert waits(balancer.submit(Request(), 6.0)), "the next start has begun"
    (decision,) = balancer.add_replica("a", now=7.0)
    assert sent(decision) == "a"


def test_the_only_replica_that_restarts_is_waited_for():
    balancer = fleet("a", restart_grace=5.0)
    balancer.report("a", Event.LOST, now=10.0)
    first, second = Request(), Request()
    assert waits(balancer.submit(first, 10.1))
    assert waits(balancer.submit(second, 10.9))
    balancer.report("a", Event.LIVE, now=11.0)
    assert [d.request for d in balancer.report("a", Event.LOADED, now=11.1)] == [first, second]


def test_one_that_stays_away_is_not_waited_for_longer_than_the_grace():
    balancer = fleet("a", restart_grace=5.0)
    balancer.report("a", Event.LOST, now=10.0)
    assert waits(balancer.submit(Request(), 12.0))
    assert [refused(d) for d in pass_time(balancer, 12.0, 15.5)] == ["no_replica"]
    assert refused(balancer.submit(Request(), 16.0)) == "no_replica"


def test_who_waits_when_it_is_back_has_its_usual_time():
    balancer = fleet("a", restart_grace=5.0, concurrency=1, queue_timeout=30.0)
    balancer.report("a", Event.LOST, now=10.0)
    first, second = Request(), Request()
    assert waits(balancer.submit(first, 10.1))
    assert waits(balancer.submit(second, 10.1))
    balancer.report("a", Event.LIVE, now=11.0)
    balancer.report("a", Event.LOADED, now=11.1)
    assert not pass_time(balancer, 11.1, 20.0), "it is there: now the second waits for its turn"
    (decision,) = balancer.finish(first, Outcome.OK, 20.0)
    assert decision.request is second


@pytest.mark.parametrize("leave", ["drain", "remove"])
def test_one_that_will_not_return_is_not_waited_for(leave):
    balancer = fleet("a", restart_grace=5.0)
    balancer.report("a", Event(leave), now=10.0)
    assert refused(balancer.submit(Request(), 10.1)) == "no_replica"
