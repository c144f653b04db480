"""What may be tried again: elsewhere, within a budget, within the deadline, never after the first byte."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steelyard.core.attempts.retry import RetryBudget
from steelyard.core.decision import Reject, Send
from steelyard.core.options import OutlierDetectionOptions, RetryOptions
from steelyard.core.outcome import Outcome, Retryable
from steelyard.core.replica import Event
from steelyard.core.request import Request, RequestPhase

from ..driving import NO_EJECTION, NO_RETRY, fleet, pass_time, refused, replica, runs_on, sent, start, waits

# May it be sent again: of an idempotent request, of another.
MAY = {
    Outcome.OK: (False, False),
    Outcome.CLIENT_ERROR: (False, False),
    Outcome.CANCELLED: (False, False),
    Outcome.UNREACHABLE: (True, True),
    Outcome.OVERLOADED: (True, True),
    Outcome.ERROR: (True, False),
    Outcome.OUT_OF_MEMORY: (True, False),
    Outcome.CONNECTION_LOST: (True, False),
    Outcome.TIMEOUT: (True, False),
    Outcome.DEADLINE_EXCEEDED: (False, False),
    Outcome.CLIENT_DEADLINE_EXCEEDED: (False, False),
    Outcome.TRUNCATED: (False, False),
}


def retried(balancer, request, outcome, now=1.0):
    """Where the request went next, or None if it is over."""
    decisions = balancer.finish(request, outcome, now)
    mine = [d for d in decisions if d.request is request]
    if not mine:
        assert request.phase is RequestPhase.DONE
        return None
    (decision,) = mine
    return sent(decision)


def test_the_table_here_names_every_outcome():
    assert set(MAY) == set(Outcome)


@pytest.mark.parametrize("idempotent", [True, False])
@pytest.mark.parametrize("outcome", Outcome)
def test_an_outcome_is_tried_again_or_final(outcome, idempotent):
    balancer = fleet(*"abc")
    request = start(balancer, idempotent=idempotent)
    again = retried(balancer, request, outcome)
    assert (again is not None) == MAY[outcome][0 if idempotent else 1]
    assert sum(r.in_flight for r in balancer.pool().replicas.values()) == (again is not None)


def test_nothing_is_sent_again_once_the_client_has_seen_a_byte():
    assert Outcome.TRUNCATED.failed
    assert Outcome.TRUNCATED.retryable is Retryable.NEVER


def test_a_success_is_no_failure_and_only_a_success_teaches():
    assert [o for o in Outcome if o.informative] == [Outcome.OK]
    assert not any(o.failed for o in (Outcome.OK, Outcome.CLIENT_ERROR, Outcome.CANCELLED))


def test_every_retry_goes_to_a_replica_that_has_not_failed_it():
    balancer = fleet(*"abc", outlier_detection=NO_EJECTION)
    for _ in range(20):
        request = start(balancer)
        seen = [runs_on(request)]
        while (again := retried(balancer, request, Outcome.UNREACHABLE)) is not None:
            seen.append(again)
        assert len(seen) == len(set(seen))


def test_where_there_is_no_other_replica_the_same_is_tried():
    balancer = fleet("a")
    assert retried(balancer, start(balancer), Outcome.UNREACHABLE) == "a"


def test_a_retry_waits_for_another_replica_rather_than_go_back():
    balancer = fleet(*"ab", concurrency=1)
    request, other = start(balancer), start(balancer)
    (decision,) = balancer.finish(request, Outcome.CONNECTION_LOST, 1.0)
    assert waits(decision)
    assert request.phase is RequestPhase.WAITING
    assert [r.id for r in balancer.pool().open] == ["a"]
    (decision,) = balancer.finish(other, Outcome.OK, 2.0)
    assert decision.request is request
    assert sent(decision) == "b"


def test_a_retry_that_waits_goes_back_when_the_other_replica_leaves():
    balancer = fleet(*"ab", concurrency=1)
    request = start(balancer)
    start(balancer)
    assert waits(balancer.finish(request, Outcome.CONNECTION_LOST, 1.0)[0])
    (decision,) = balancer.remove_replica("b", now=2.0)
    assert sent(decision) == "a"


def test_a_request_that_waits_for_another_replica_does_not_hold_up_those_behind_it():
    balancer = fleet(*"ab", concurrency=1)
    request, _ = start(balancer), start(balancer)
    behind = Request()
    assert waits(balancer.submit(behind, 0.5))
    decisions = balancer.finish(request, Outcome.CONNECTION_LOST, 1.0)
    assert [(type(d).__name__, d.request is request) for d in decisions] == [("Wait", True), ("Send", False)]
    assert runs_on(behind) == "a"


def test_a_request_that_ran_long_may_still_wait_its_time_for_another_replica():
    """`queue_timeout` bounds the waiting, and it has not waited yet."""
    balancer = fleet(*"ab", concurrency=1, queue_timeout=30.0)
    request, other = start(balancer), start(balancer)
    assert waits(balancer.finish(request, Outcome.CONNECTION_LOST, 40.0)[0])
    assert pass_time(balancer, 40.0, 41.0) == []
    (decision,) = balancer.finish(other, Outcome.OK, 42.0)
    assert sent(decision) == "b"


def test_without_any_replica_left_a_retry_is_refused():
    balancer = fleet("a")
    request = start(balancer)
    balancer.report("a", Event.LOST, now=1.0)
    (decision,) = balancer.finish(request, Outcome.CONNECTION_LOST, 1.0)
    assert refused(decision) == "no_replica"
    assert request.phase is RequestPhase.DONE


def test_without_any_replica_left_a_retry_is_held_where_that_is_wanted():
    balancer = fleet("a", wait_for_ready=True)
    request = start(balancer)
    balancer.report("a", Event.LOST, now=1.0)
    assert waits(balancer.finish(request, Outcome.CONNECTION_LOST, 1.0)[0])
    (decision,) = balancer.report("a", Event.LOADED, now=5.0)
    assert sent(decision) == "a"


def test_a_retry_that_finds_the_line_full_is_refused():
    balancer = fleet(*"ab", concurrency=1, max_queue=1)
    request, _ = start(balancer), start(balancer)
    balancer.report("a", Event.DRAIN, now=0.5)
    assert waits(balancer.submit(Request(), 0.5))
    (decision,) = balancer.finish(request, Outcome.CONNECTION_LOST, 1.0)
    assert refused(decision) == "queue_full"


# ---------------------------------------------------------------------- bounds


@pytest.mark.parametrize("attempts", [1, 2, 3, 5])
def test_a_request_is_tried_so_many_times_in_all(attempts):
    balancer = fleet(*"abcdefgh", retry=RetryOptions(max_attempts=attempts, initial_tokens=10.0))
    request = start(balancer)
    while retried(balancer, request, Outcome.UNREACHABLE) is not None:
        pass
    assert request.attempt_count == attempts


def test_nothing_is_tried_again_at_or_after_its_deadline():
    for now, expected in ((9.9, True), (10.0, False), (11.0, False)):
        balancer = fleet(*"ab")
        request = start(balancer, deadline=10.0)
        assert (retried(balancer, request, Outcome.UNREACHABLE, now) is not None) == expected


def test_a_retry_that_waits_past_its_deadline_is_refused():
    balancer = fleet(*"ab", concurrency=1)
    request, _ = start(balancer, deadline=5.0), start(balancer)
    assert waits(balancer.finish(request, Outcome.CONNECTION_LOST, 1.0)[0])
    (decision,) = pass_time(balancer, 1.0, 5.0)
    assert decision.request is request
    assert refused(decision) == "deadline"


@given(
    requests=st.integers(1, 300),
    outcomes=st.lists(st.sampled_from([o for o in Outcome if o.failed]), min_size=1, max_size=5),
    together=st.integers(1, 20),
    ejection=st.sampled_from([NO_EJECTION, OutlierDetectionOptions()]),
)
def test_when_every_replica_fails_at_once_attempts_stay_within_the_budget(requests, outcomes, together, ejection):
    """The retry storm. Failures are instant, so a share of what is active would bound nothing."""
    balancer = fleet(*"abcd", outlier_detection=ejection)
    attempts, running = 0, []
    for i in range(requests):
        running.append(start(balancer, i / 100))
        attempts += 1
        if len(running) < together and i < requests - 1:
            continue
        while running:
            request = running.pop()
            decisions = balancer.finish(request, outcomes[attempts % len(outcomes)], i / 100)
            for decision in decisions:
                if isinstance(decision, Send):
                    attempts += 1
                    running.append(decision.request)
                else:
                    assert isinstance(decision, Reject)
    assert attempts <= 1.2 * requests + 3
    assert all(r.in_flight == 0 for r in balancer.pool().replicas.values())


def test_a_storm_uses_the_whole_budget():
    balancer = fleet(*"abcd", outlier_detection=NO_EJECTION)
    attempts = 0
    for i in range(1000):
        request = start(balancer, i / 100)
        attempts += 1
        while retried(balancer, request, Outcome.ERROR, i / 100) is not None:
            attempts += 1
    assert 1.19 * 1000 <= attempts <= 1.2 * 1000 + 3


def test_good_times_save_up_for_bad_ones_but_not_without_bound():
    budget = RetryBudget(RetryOptions(budget=0.2, initial_tokens=3.0, max_tokens=50.0))
    for _ in range(10_000):
        budget.deposit()
    assert sum(budget.try_spend(Request(), Outcome.ERROR, 0.0) for _ in range(1000)) == 50


def test_a_refusal_costs_nothing():
    budget = RetryBudget(RetryOptions(initial_tokens=1.0, budget=0.0))
    expired = Request(deadline=1.0)
    assert not budget.try_spend(expired, Outcome.ERROR, 2.0)
    assert not budget.try_spend(Request(idempotent=False), Outcome.ERROR, 2.0)
    assert not budget.try_spend(Request(), Outcome.TRUNCATED, 2.0)
    assert budget.try_spend(Request(), Outcome.ERROR, 2.0)
    assert not budget.try_spend(Request(), Outcome.ERROR, 2.0)


def test_retries_can_be_switched_off():
    balancer = fleet(*"ab", retry=NO_RETRY)
    assert retried(balancer, start(balancer), Outcome.UNREACHABLE) is None


def test_a_retry_is_counted_like_any_other_load():
    balancer = fleet(*"ab")
    request = start(balancer)
    retried(balancer, request, Outcome.UNREACHABLE)
    assert {id: replica(balancer, id).in_flight for id in "ab"} == {"a": 0, "b": 1}
    assert list(balancer.finish(request, Outcome.OK, 2.0)) == []
    assert {id: replica(balancer, id).outstanding_work for id in "ab"} == {"a": 0.0, "b": 0.0}
