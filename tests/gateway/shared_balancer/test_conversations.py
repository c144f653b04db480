"""What workers and the balancer process say to each other, message by message."""

from __future__ import annotations

import pytest

from steelyard.core.options import HedgeOptions, RetryOptions
from steelyard.core.outcome import Outcome
from steelyard.core.prompt import Prompt
from steelyard.core.replica import State
from steelyard.core.request import Request

from .wired import MODEL, Wired


def test_a_request_is_sent_and_finished() -> None:
    stage = Wired()
    one, _ = stage.workers
    request = one.submit(features=(3.0,), kind="chat")
    assert one.running == []
    stage.settle()
    ((sent, replica),) = one.running
    assert (sent, request.attempt_count) == (request, 1)
    assert stage.loads()[replica.id] == 1
    assert replica.in_flight == 1
    stage.now += 0.5
    one.finish(request, replica)
    stage.settle()
    assert stage.loads() == {"a": 0, "b": 0}
    assert one.over == [request]


def test_workers_share_the_slots_of_a_replica_and_one_queue() -> None:
    stage = Wired(ids=["a"], concurrency=1)
    one, other = stage.workers
    first = one.submit()
    stage.settle()
    second = other.submit()
    stage.settle()
    third = one.submit()
    stage.settle()
    assert (other.waiting, one.waiting) == ([second], [third])
    one.finish(first, one.running[0][1])
    stage.settle()
    assert [request for request, _ in other.running] == [second], "it came first, and is in another worker"
    assert one.waiting == [third]
    other.finish(second, other.running[0][1])
    stage.settle()
    assert [request for request, _ in one.running] == [third]


def test_what_one_worker_learns_all_know() -> None:
    stage = Wired(ids=["fast", "slow"], concurrency=1)
    for number in range(60):
        worker = stage.workers[number % 2]
        request = worker.submit()
        stage.settle()
        ((_, replica),) = worker.running
        stage.now += 0.1 if replica.id == "fast" else 0.8
        worker.finish(request, replica)
        stage.settle()
        stage.now += 1.0
        stage.settle()
    slow = stage.balancer.pool(MODEL).find("slow")
    assert slow.slowness > 2.0 * stage.balancer.pool(MODEL).find("fast").slowness


def test_a_failed_attempt_is_tried_elsewhere() -> None:
    stage = Wired()
    one, _ = stage.workers
    request = one.submit()
    stage.settle()
    ((_, first),) = one.running
    one.finish(request, first, Outcome.UNREACHABLE)
    stage.settle()
    ((again, second),) = one.running
    assert (again, request.attempt_count) == (request, 2)
    assert second is not first
    assert first.failed == 1


def test_retries_have_a_budget_in_each_worker() -> None:
    stage = Wired()
    one, _ = stage.workers
    for _ in range(40):
        request = one.submit()
        stage.settle()
        while one.running:
            one.finish(*one.running[0], Outcome.ERROR)
            stage.settle()
        assert request.phase.value == "done"
    assert sum(stage.balancer.pool(MODEL).replicas[id].dispatched for id in "ab") <= 1.2 * 40 + 4


def test_a_client_that_leaves_gives_its_slot_to_the_next() -> None:
    stage = Wired(ids=["a"], concurrency=1)
    one, other = stage.workers
    first, second = one.submit(), other.submit()
    stage.settle()
    one.cancel(first)
    stage.settle()
    assert [request for request, _ in other.running] == [second]
    other.cancel(second)
    stage.settle()
    assert stage.loads() == {"a": 0}


def test_one_that_leaves_while_its_answer_is_under_way_is_not_sent() -> None:
    stage = Wired()
    one, _ = stage.workers
    request = one.submit()
    stage.deliver(one)
    one.cancel(request)
    stage.settle()
    assert one.running == []
    assert stage.loads() == {"a": 0, "b": 0}


def test_a_refusal_says_why() -> None:
    stage = Wired(ids=["a"], concurrency=1, max_queue=0)
    one, other = stage.workers
    one.submit()
    stage.settle()
    refused = other.submit()
    stage.settle()
    assert other.reasons[refused] == "queue_full"


def test_a_deadline_that_cannot_be_met_is_refused() -> None:
    stage = Wired(ids=["a"], concurrency=1)
    one, _ = stage.workers
    one.submit()
    stage.settle()
    late = one.submit(deadline=stage.now + 2.0)
    stage.settle()
    assert one.waiting == [late]
    stage.now += 3.0
    stage.settle()
    assert one.reasons[late] == "deadline"


def test_while_the_balancer_process_is_away_a_deadline_still_holds() -> None:
    stage = Wired()
    one, _ = stage.workers
    stage.kill_balancer()
    request = one.submit(deadline=stage.now + 1.0)
    stage.now += 2.0
    one.carry_out(one.client.out_of_time(request, stage.now))
    assert one.reasons[request] == "deadline"
    stage.start_balancer(recover=stage.pids())
    stage.settle()
    assert one.running == []


def test_while_the_balancer_process_is_away_no_request_waits_longer_than_it_may() -> None:
    stage = Wired(ids=["a"], concurrency=1, queue_timeout=5.0)
    one, _ = stage.workers
    runs, before = one.submit(), one.submit()
    stage.settle()
    stage.kill_balancer()
    stage.now += 4.0
    meanwhile = one.submit()
    stage.settle()
    assert one.reasons == {}
    stage.now += 1.1
    stage.settle()
    assert one.reasons == {before: "queue_timeout"}
    stage.start_balancer(recover=stage.pids())
    stage.settle()
    assert one.waiting == [meanwhile]
    stage.now += 0.5
    one.finish(runs, one.running[0][1])
    stage.settle()
    assert [request for request, _ in one.running] == [meanwhile]


def test_a_worker_that_dies_takes_its_requests_with_it() -> None:
    stage = Wired(ids=["a"], concurrency=1)
    one, other = stage.workers
    one.submit()
    one.submit()
    stage.settle()
    mine = other.submit()
    stage.settle()
    stage.kill_worker(one)
    stage.settle()
    assert [request for request, _ in other.running] == [mine]
    assert stage.lost == [(0, {MODEL: 2})]


def test_a_worker_that_has_nothing_loses_nothing() -> None:
    stage = Wired()
    stage.kill_worker(stage.workers[0])
    assert stage.lost == []


def test_after_a_restart_of_the_balancer_process_what_runs_is_counted_before_anything_is_decided() -> None:
    stage = Wired(ids=["a"], concurrency=1)
    one, other = stage.workers
    first = one.submit()
    stage.settle()
    stage.kill_balancer()
    second = other.submit()
    stage.start_balancer(recover=stage.pids())
    while other.up:  # this one is quicker than the one whose request runs
        stage.deliver(other)
    assert other.running == []
    stage.settle()
    assert (other.waiting, stage.loads()) == ([second], {"a": 1})
    stage.now += 0.3
    one.finish(first, one.running[0][1])
    stage.settle()
    assert [request for request, _ in other.running] == [second]


def test_after_a_restart_of_the_balancer_process_prompts_that_were_read_do_not_count_as_unread() -> None:
    stage = Wired(ids=["a"], policy="prefix_work")
    one, other = stage.workers
    requests = [worker.submit(prompt=Prompt(8_000)) for worker in (one, one, other)]
    stage.settle()
    stage.now += 0.5
    for worker, request in ((one, requests[0]), (other, requests[2])):
        worker.client.response_started(request, worker.running[0][1], stage.now)
    stage.settle()
    for _ in range(2):
        load = stage.balancer.pool(MODEL).find("a").notes
        assert (load.attempts, load.prompts, load.uncached_tokens) == (3, 1, 2_000.0)
        stage.kill_balancer()
        stage.now += 1.0
        stage.start_balancer(recover=stage.pids())
        stage.settle()
    for worker, request in zip((one, one, other), requests, strict=True):
        worker.finish(request, worker.running[0][1])
    stage.settle()
    load = stage.balancer.pool(MODEL).find("a").notes
    assert (load.attempts, load.prompts, load.uncached_tokens, load.context_tokens) == (0, 0, 0.0, 0.0)


def test_after_a_restart_requests_go_in_the_order_in_which_they_came() -> None:
    stage = Wired(ids=["a"], concurrency=1)
    one, other = stage.workers
    running = one.submit()
    stage.settle()
    order = []
    for worker in (other, one, other, one):
        stage.now += 0.1
        order.append(worker.submit())
        stage.settle()
    stage.kill_balancer()
    stage.start_balancer(recover=stage.pids())
    stage.settle()
    one.finish(running, one.running[0][1])
    seen = []
    while len(seen) < len(order):
        stage.settle()
        ((worker, request, replica),) = [(w, *attempt) for w in stage.workers for attempt in w.running]
        seen.append(request)
        worker.finish(request, replica)
    assert seen == order


def test_a_worker_that_does_not_come_back_is_not_waited_for_longer_than_a_second() -> None:
    stage = Wired(ids=["a"], concurrency=1)
    one, other = stage.workers
    stage.kill_balancer()
    stage.workers.remove(other)
    request = one.submit()
    stage.start_balancer(recover=stage.pids(one, other))
    stage.settle()
    assert one.running == []
    stage.now += 1.1
    stage.settle()
    assert [sent for sent, _ in one.running] == [request]


def test_a_request_that_ended_while_the_balancer_process_was_away_counts_no_more() -> None:
    stage = Wired(ids=["a"], concurrency=1)
    one, _ = stage.workers
    first = one.submit()
    stage.settle()
    stage.kill_balancer()
    one.finish(first, one.running[0][1])
    stage.start_balancer(recover=stage.pids())
    stage.settle()
    assert stage.loads() == {"a": 0}


def test_a_replica_that_was_removed_while_the_balancer_process_was_away() -> None:
    """Its request runs on. It fails and is tried elsewhere, its client leaves, or it is answered."""
    stage = Wired(ids=["a", "b"])
    one, _ = stage.workers
    stage.balancer.set_weight("b", 0.001, MODEL, now=stage.now)
    fails, leaves, ends = one.submit(), one.submit(), one.submit()
    stage.settle()
    assert {replica.id for _, replica in one.running} == {"a"}
    stage.kill_balancer()
    stage.ids.remove("a")
    stage.start_balancer(recover=stage.pids())
    stage.settle()
    assert stage.loads() == {"b": 0}
    one.cancel(leaves)
    for request, outcome in ((fails, Outcome.CONNECTION_LOST), (ends, Outcome.OK)):
        one.finish(request, one.client.pool(MODEL).find("a"), outcome)
        stage.settle()
    assert [(request, replica.id) for request, replica in one.running] == [(fails, "b")]
    one.finish(*one.running[0])
    stage.settle()
    assert (stage.loads(), stage.said) == ({"b": 0}, [])


def test_a_hedge_is_all_that_a_new_balancer_process_can_count() -> None:
    stage = Wired(hedge=HedgeOptions(enabled=True, budget=1.0))
    one, _ = stage.workers
    request = late_with_a_hedge(stage)
    stage.settle()
    (_, first), (_, hedge) = one.running
    stage.kill_balancer()
    stage.ids.remove(first.id)
    stage.start_balancer(recover=stage.pids())
    stage.settle()
    assert stage.loads() == {hedge.id: 1}
    one.finish(request, hedge)
    stage.settle()
    assert (stage.loads(), stage.said) == ({hedge.id: 0}, [])


def test_after_a_restart_nobody_speaks_for_a_worker_that_has_requests() -> None:
    """One that says hello twice, or has just been started, is not one more of those that are waited for."""
    stage = Wired(workers=3, ids=["a"], concurrency=1)
    one, other, fresh = stage.workers
    one.submit()
    stage.settle()
    waits = other.submit()
    stage.kill_balancer()
    stage.start_balancer(recover=stage.pids(one, other))
    for worker in (fresh, other, other):
        stage.connect(worker)
        while worker.up:
            stage.deliver(worker)
    stage.server.expire(stage.now)
    stage.settle()
    assert stage.running() == stage.loads() == {"a": 1}
    assert other.waiting == [waits]


def test_a_hedge_is_sent_beside_a_late_attempt_and_the_first_answer_wins() -> None:
    stage = Wired(hedge=HedgeOptions(enabled=True, budget=1.0))
    one, _ = stage.workers
    for _ in range(80):
        request = one.submit()
        stage.settle()
        stage.now += 0.1
        one.finish(*one.running[0])
        stage.settle()
    request = one.submit()
    stage.settle()
    for _ in range(20):
        stage.now += 0.1
        stage.settle()
    assert len(one.running) == 2
    (_, first), (_, hedge) = one.running
    assert request.hedge is not None
    one.carry_out(one.client.response_started(request, hedge, stage.now))
    stage.settle()
    assert one.running == [(request, hedge)]
    assert stage.loads()[first.id] == 0
    one.finish(request, hedge)
    stage.settle()
    assert stage.loads() == {"a": 0, "b": 0}


def late_with_a_hedge(stage: Wired) -> Request:
    """A request of the first worker runs on both replicas, as the balancer process sees it: the hedge is under way."""
    one = stage.workers[0]
    for _ in range(80):
        one.submit()
        stage.settle()
        stage.now += 0.1
        one.finish(*one.running[0])
        stage.settle()
    request = one.submit()
    stage.settle()
    for _ in range(20):
        stage.now += 0.1
        stage.server.expire(stage.now)
    assert sum(stage.loads().values()) == 2
    return request


def test_a_hedge_that_crosses_the_beginning_of_the_answer_is_not_sent() -> None:
    stage = Wired(hedge=HedgeOptions(enabled=True, budget=1.0))
    one, _ = stage.workers
    request = late_with_a_hedge(stage)
    ((_, first),) = one.running
    one.answer_begins(request, first)
    stage.settle()
    assert one.running == [(request, first)]
    assert stage.loads() == stage.running()


def test_a_hedge_to_a_replica_that_is_never_known_here_leaves_the_first_attempt_alone() -> None:
    stage = Wired(hedge=HedgeOptions(enabled=True, budget=1.0))
    one, _ = stage.workers
    request = late_with_a_hedge(stage)
    ((_, first),) = one.running
    (other,) = {"a", "b"} - {first.id}
    one.client.remove_replica(other, MODEL, now=stage.now)
    for _ in range(3):
        stage.now += 1.1
        stage.settle()
    assert one.running == [(request, first)]
    assert stage.loads()[first.id] == 1
    one.finish(request, first)
    stage.settle()
    assert one.over[-1] is request
    assert stage.loads() == {"a": 0, "b": 0}


def test_a_hedge_that_crosses_the_end_of_its_request_is_given_back() -> None:
    stage = Wired(hedge=HedgeOptions(enabled=True, budget=1.0), retry=RetryOptions(max_attempts=1))
    one, _ = stage.workers
    request = late_with_a_hedge(stage)
    one.finish(request, one.running[0][1], Outcome.ERROR)
    stage.settle()
    assert one.running == []
    assert stage.loads() == {"a": 0, "b": 0}


def test_a_replica_that_is_not_known_here_yet_is_waited_for() -> None:
    stage = Wired(ids=["a"])
    one, _ = stage.workers
    one.client.remove_replica("a", MODEL, now=stage.now)
    request = one.submit()
    stage.settle()
    assert one.running == []
    one.client.add_replica("a", MODEL, now=stage.now)
    one.expire()
    assert [sent for sent, _ in one.running] == [request]


def test_a_replica_that_stays_unknown_is_declined_however_often_the_timer_runs() -> None:
    """A worker's timer runs four times a second, for other things."""
    stage = Wired(ids=["a"])
    one, _ = stage.workers
    stage.balancer.add_replica("new", MODEL, weight=100.0, now=stage.now)
    request = one.submit()
    stage.settle()
    assert one.running == []
    for _ in range(5):
        stage.now += 0.25
        one.expire()
    stage.settle()
    assert [(sent, replica.id) for sent, replica in one.running] == [(request, "a")]
    assert stage.balancer.pool(MODEL).replicas["new"].in_flight == 0


def test_what_was_decided_for_a_replica_that_was_removed_here_goes_elsewhere_at_once() -> None:
    stage = Wired(ids=["a"])
    one, _ = stage.workers
    request = one.submit()
    stage.deliver(one)  # for a, the only one
    stage.balancer.add_replica("b", MODEL, now=stage.now)
    stage.balancer.remove_replica("a", MODEL, now=stage.now)
    one.client.add_replica("b", MODEL, now=stage.now)
    one.client.remove_replica("a", MODEL, now=stage.now)
    stage.settle()
    assert [(sent, replica.id) for sent, replica in one.running] == [(request, "b")]


def test_one_that_was_waited_for_when_the_balancer_process_died_is_not_used_without_being_counted() -> None:
    stage = Wired(ids=["a"], concurrency=1)
    one, _ = stage.workers
    one.client.remove_replica("a", MODEL, now=stage.now)
    request = one.submit()
    stage.settle()
    stage.kill_balancer()
    stage.start_balancer(recover=stage.pids())
    one.know_all()
    one.expire()
    assert one.running == []
    stage.settle()
    assert [sent for sent, _ in one.running] == [request]
    assert stage.running() == stage.loads() == {"a": 1}


def test_a_replica_that_is_never_known_here_is_declined_without_blame() -> None:
    stage = Wired(ids=["a", "b"])
    one, _ = stage.workers
    one.client.remove_replica("a", MODEL, now=stage.now)
    stage.balancer.set_weight("b", 0.001, MODEL, now=stage.now)
    request = one.submit()
    stage.settle()
    for _ in range(3):
        stage.now += 1.1
        stage.settle()
    assert [(sent, replica.id) for sent, replica in one.running] == [(request, "b")]
    assert stage.balancer.pool(MODEL).find("a").failed == 0


@pytest.mark.interpreted("stands in for a compiled class")
def test_one_that_refuses_connections_is_out_for_all_workers() -> None:
    stage = Wired(ids=["a", "b"])
    one, other = stage.workers
    one.client.replica_failed(Named("a"), True, stage.now)
    stage.settle()
    assert stage.balancer.pool(MODEL).find("a").state is State.UNREACHABLE
    for _ in range(6):
        other.submit()
    stage.settle()
    assert {replica.id for _, replica in other.running} == {"b"}


def test_a_policy_that_raises_refuses_the_request_and_the_next_is_served() -> None:
    stage = Wired()
    one, _ = stage.workers
    pool = stage.balancer.pool(MODEL)
    choose, pool.policy.choose = pool.policy.choose, lambda *_: 1 / 0
    request = one.submit()
    stage.settle()
    assert one.reasons[request] == "policy_failed"
    assert "ZeroDivisionError" in stage.said[0]
    pool.policy.choose = choose
    one.submit()
    stage.settle()
    assert len(one.running) == 1


class Named:
    """A replica, as far as a failure report looks at it."""

    def __init__(self, id: str) -> None:
        self.id = id
        self.context = self
        self.model = MODEL
