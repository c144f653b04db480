"""Who may get requests, and how a replica comes into rotation and goes out of it."""

import pytest

from steelyard.core.errors import IllegalTransitionError, OptionError, UnknownModelError, UnknownReplicaError
from steelyard.core.options import OutlierDetectionOptions
from steelyard.core.outcome import Outcome
from steelyard.core.replica import Event, Replica, State, next_state
from steelyard.core.request import Request, RequestPhase

from .driving import NO_RETRY, fleet, pass_time, refused, replica, sent, serve, start, waits

# The whole lifecycle, written a second time: a change of the table must be meant. A dash is an illegal move.
TABLE = """
             live      loaded    lost         eject    restore  drain     undrain  remove  load     unload
starting     loading   ready     unreachable  -        -        draining  -        gone    -        unloaded
loading      loading   ready     unreachable  -        -        draining  -        gone    -        unloaded
unloaded     unloaded  unloaded  unloaded     -        -        draining  -        gone    loading  unloaded
ready        loading   ready     unreachable  ejected  -        draining  -        gone    -        unloaded
ejected      loading   ejected   unreachable  -        ready    draining  -        gone    -        unloaded
unreachable  loading   ready     unreachable  -        -        draining  -        gone    -        unloaded
draining     draining  draining  draining     -        -        draining  loading  gone    -        draining
gone         -         -         -            -        -        -         -        -       -        -
"""
HEADER, *ROWS = (line.split() for line in TABLE.strip().splitlines())
MOVES = [(row[0], event, new) for row in ROWS for event, new in zip(HEADER, row[1:], strict=True)]


def test_the_table_here_names_every_state_and_event():
    assert {row[0] for row in ROWS} == {state.value for state in State}
    assert set(HEADER) == {event.value for event in Event}


@pytest.mark.parametrize(("old", "event", "new"), MOVES)
def test_every_move_is_as_the_table_says_or_illegal(old, event, new):
    if new == "-":
        with pytest.raises(IllegalTransitionError, match=f"a replica that is {old} cannot {event}"):
            next_state(State(old), Event(event))
    else:
        assert next_state(State(old), Event(event)) is State(new)


@pytest.mark.parametrize("state", [s for s in State if s is not State.READY])
def test_only_a_ready_replica_gets_requests(state):
    balancer = fleet("a")
    if state is not State.GONE:
        balancer.add_replica("b", state=state, now=0.0)
    assert {sent(balancer.submit(Request(), 0.0)) for _ in range(10)} == {"a"}


@pytest.mark.parametrize("state", [State.STARTING, State.LOADING, State.DRAINING, State.UNREACHABLE])
def test_with_no_ready_replica_a_request_is_refused_even_if_one_is_about_to_be(state):
    balancer = fleet()
    balancer.add_replica("a", state=state, now=0.0)
    assert refused(balancer.submit(Request(), 0.0)) == "no_replica"


def test_a_new_replica_gets_nothing_before_it_is_loaded():
    balancer = fleet("a")
    balancer.add_replica("b", state=State.STARTING, now=0.0)
    balancer.report("b", Event.LIVE, now=1.0)
    assert {sent(balancer.submit(Request(), 1.0)) for _ in range(6)} == {"a"}
    balancer.report("b", Event.LOADED, now=2.0)
    assert {sent(balancer.submit(Request(), 2.0)) for _ in range(6)} == {"a", "b"}


def test_a_ready_replica_that_is_only_live_goes_out_of_rotation():
    balancer = fleet("a", "b")
    balancer.report("b", Event.LIVE, now=1.0)
    assert {sent(balancer.submit(Request(), 1.0)) for _ in range(6)} == {"a"}


@pytest.mark.parametrize("seen", [Event.LIVE, Event.LOADED, Event.LOST])
def test_a_drain_outlives_whatever_probes_see(seen):
    balancer = fleet("a", "b")
    balancer.report("b", Event.DRAIN, now=1.0)
    for event in (seen, Event.LOADED):
        balancer.report("b", event, now=2.0)
    assert replica(balancer, "b").state is State.DRAINING
    assert {sent(balancer.submit(Request(), 3.0)) for _ in range(6)} == {"a"}


def test_what_runs_on_a_draining_replica_goes_on():
    balancer = fleet("a")
    request = start(balancer)
    balancer.report("a", Event.DRAIN, now=1.0)
    assert replica(balancer, "a").in_flight == 1
    assert list(balancer.finish(request, Outcome.OK, 2.0)) == []
    assert request.phase is RequestPhase.DONE
    assert replica(balancer, "a").in_flight == 0


def test_after_a_drain_readiness_must_be_seen_again():
    balancer = fleet("a", "b")
    balancer.report("b", Event.DRAIN, now=1.0)
    balancer.report("b", Event.UNDRAIN, now=2.0)
    assert replica(balancer, "b").state is State.LOADING
    assert {sent(balancer.submit(Request(), 2.0)) for _ in range(6)} == {"a"}
    balancer.report("b", Event.LOADED, now=3.0)
    assert {sent(balancer.submit(Request(), 3.0)) for _ in range(6)} == {"a", "b"}


def eject(balancer, id, now):
    """By the book: failures in a row."""
    others = [r for r in balancer.pool().members if r.id != id]
    for i in range(5):
        request = Request()
        request.avoid = tuple(others)
        assert sent(balancer.submit(request, now + i / 100)) == id
        balancer.finish(request, Outcome.TRUNCATED, now + i / 100)
    assert replica(balancer, id).state is State.EJECTED


def test_a_good_probe_does_not_lift_an_ejection():
    balancer = fleet("a", "b", "c")
    eject(balancer, "b", 1.0)
    balancer.report("b", Event.LOADED, now=2.0)
    assert replica(balancer, "b").state is State.EJECTED
    assert "b" not in {sent(balancer.submit(Request(), 3.0)) for _ in range(6)}


def test_time_lifts_an_ejection():
    balancer = fleet("a", "b", "c")
    eject(balancer, "b", 1.0)
    pass_time(balancer, 1.1, 30.0)
    assert replica(balancer, "b").state is State.EJECTED
    pass_time(balancer, 30.0, 33.0)
    assert replica(balancer, "b").state is State.READY


def test_an_ejected_replica_that_restarts_is_new_again():
    balancer = fleet("a", "b", "c")
    eject(balancer, "b", 1.0)
    balancer.report("b", Event.LOST, now=2.0)
    balancer.report("b", Event.LOADED, now=3.0)
    assert replica(balancer, "b").state is State.READY
    assert replica(balancer, "b").slowness == 1.0


def test_an_illegal_move_changes_nothing():
    balancer = fleet("a")
    with pytest.raises(IllegalTransitionError):
        balancer.report("a", Event.UNDRAIN, now=1.0)
    assert replica(balancer, "a").state is State.READY
    assert sent(balancer.submit(Request(), 1.0)) == "a"


def test_requests_that_wait_go_to_a_replica_that_becomes_ready():
    balancer = fleet("a", concurrency=1)
    balancer.add_replica("b", state=State.STARTING, now=0.0)
    start(balancer)
    second = Request()
    assert waits(balancer.submit(second, 0.0))
    (decision,) = balancer.report("b", Event.LOADED, now=1.0)
    assert decision.request is second
    assert sent(decision) == "b"


def test_requests_that_wait_go_to_a_replica_that_is_added():
    balancer = fleet("a", concurrency=1)
    start(balancer)
    assert waits(balancer.submit(Request(), 0.0))
    (decision,) = balancer.add_replica("b", now=1.0)
    assert sent(decision) == "b"


def test_a_held_request_goes_to_the_first_replica_there_is():
    balancer = fleet(wait_for_ready=True)
    assert waits(balancer.submit(Request(), 0.0))
    (decision,) = balancer.add_replica("a", now=1.0)
    assert sent(decision) == "a"


# ---------------------------------------------------------------------- removal


def test_a_removed_replica_is_forgotten_and_its_requests_go_on():
    balancer = fleet("a", "b")
    requests = [start(balancer) for _ in range(2)]
    gone = replica(balancer, "b")
    balancer.remove_replica("b", now=1.0)
    assert gone.state is State.GONE
    assert {sent(balancer.submit(Request(), 1.0)) for _ in range(4)} == {"a"}
    for request in requests:
        balancer.finish(request, Outcome.OK, 2.0)
    assert gone.in_flight == 0
    assert gone.load == 0
    with pytest.raises(UnknownReplicaError, match="no replica 'b'"):
        balancer.report("b", Event.LOADED, now=3.0)


def test_a_name_may_be_used_again_after_removal_and_starts_at_zero():
    balancer = fleet("a", concurrency=1)
    old = start(balancer)
    balancer.remove_replica("a", now=1.0)
    balancer.add_replica("a", now=2.0)
    new = start(balancer, 2.0)
    assert replica(balancer, "a").in_flight == 1
    balancer.finish(old, Outcome.OK, 3.0)
    assert replica(balancer, "a").in_flight == 1
    balancer.finish(new, Outcome.OK, 4.0)
    assert replica(balancer, "a").in_flight == 0


def test_a_removal_that_is_reported_is_a_removal():
    balancer = fleet("a", "b")
    balancer.report("b", Event.REMOVE, now=1.0)
    assert {sent(balancer.submit(Request(), 1.0)) for _ in range(4)} == {"a"}
    balancer.add_replica("b", now=2.0)
    assert {sent(balancer.submit(Request(), 2.0)) for _ in range(4)} == {"a", "b"}


def test_a_name_can_be_used_once_only():
    balancer = fleet("a")
    with pytest.raises(OptionError, match="'a' is already in the pool"):
        balancer.add_replica("a", now=1.0)


def test_unknown_names_are_said_with_those_that_are_known():
    balancer = fleet("a", "b")
    with pytest.raises(UnknownReplicaError, match=r"no replica 'x'.*known: a, b"):
        balancer.report("x", Event.LOST, now=0.0)
    with pytest.raises(UnknownModelError, match="no model 'x'"):
        balancer.add_replica("c", "x", now=0.0)


@pytest.mark.parametrize("weight", [0.0, -1.0, float("nan"), float("inf")])
def test_a_weight_that_cannot_work_is_refused_and_changes_nothing(weight):
    balancer = fleet("a")
    with pytest.raises(OptionError, match="weight must be a positive number"):
        balancer.set_weight("a", weight, now=0.0)
    with pytest.raises(OptionError, match="replica 'b': weight must be a positive number"):
        balancer.add_replica("b", weight=weight, now=0.0)
    with pytest.raises(OptionError):
        Replica("c", weight)
    assert replica(balancer, "a").weight == 1.0
    assert list(balancer.pool().replicas) == ["a"]


# ---------------------------------------------------------------------- slow start


def test_a_replica_that_becomes_ready_takes_up_its_weight_slowly():
    balancer = fleet("a", slow_start=10.0)
    balancer.add_replica("b", weight=4.0, state=State.STARTING, now=0.0)
    balancer.report("b", Event.LOADED, now=100.0)
    b = replica(balancer, "b")
    shares = {}
    for now in (100.0, 100.5, 102.0, 105.0, 109.0, 110.0, 111.0):
        pass_time(balancer, now, now)
        balancer.expire(now)
        shares[now] = b.effective_weight
    assert shares[100.0] == pytest.approx(0.4)
    assert shares[100.5] == pytest.approx(0.4)
    assert shares[102.0] == pytest.approx(0.8, abs=0.41)  # a tick may lie up to a second back
    assert shares[105.0] == pytest.approx(2.0, abs=0.41)
    assert shares[109.0] == pytest.approx(3.6, abs=0.41)
    assert shares[111.0] == 4.0
    assert list(shares.values()) == sorted(shares.values())


def test_the_first_replica_takes_everything_at_once():
    balancer = fleet(slow_start=10.0)
    balancer.add_replica("a", state=State.STARTING, now=0.0)
    balancer.report("a", Event.LOADED, now=100.0)
    assert replica(balancer, "a").effective_weight == 1.0


def test_a_replica_added_as_ready_has_been_ready():
    balancer = fleet("a", slow_start=10.0)
    balancer.add_replica("b", now=100.0)
    assert replica(balancer, "b").effective_weight == 1.0


def test_slow_start_can_be_switched_off():
    balancer = fleet("a", slow_start=0.0)
    balancer.report("a", Event.LOST, now=1.0)
    balancer.report("a", Event.LOADED, now=2.0)
    assert replica(balancer, "a").effective_weight == 1.0


def test_slow_start_keeps_to_a_weight_that_is_changed_meanwhile():
    balancer = fleet("a", "b", slow_start=10.0)
    balancer.report("b", Event.LOST, now=1.0)
    balancer.report("b", Event.LOADED, now=2.0)
    balancer.set_weight("b", 10.0, now=7.0)
    assert replica(balancer, "b").effective_weight == pytest.approx(5.0)


def test_a_replica_in_slow_start_gets_less():
    balancer = fleet("a", "b", policy="weighted_round_robin", slow_start=10.0)
    balancer.report("b", Event.LOST, now=1.0)
    balancer.report("b", Event.LOADED, now=2.0)
    for i in range(110):
        serve(balancer, 0.001, 2.0 + i / 1000)
    assert replica(balancer, "b").dispatched == 10


# ---------------------------------------------------------------------- load told by others


def test_load_of_other_balancers_counts_against_the_limit():
    balancer = fleet("a", "b", concurrency=2)
    balancer.report_peer_load("a", 2, now=0.0)
    assert {sent(balancer.submit(Request(), 0.0)) for _ in range(2)} == {"b"}
    assert waits(balancer.submit(Request(), 0.0))
    (decision,) = balancer.report_peer_load("a", 1, now=1.0)
    assert sent(decision) == "a"


def test_negative_load_of_others_is_refused():
    balancer = fleet("a")
    with pytest.raises(OptionError, match="cannot be negative"):
        balancer.report_peer_load("a", -1, now=0.0)


def test_in_a_panic_only_replicas_that_answer_are_used():
    balancer = fleet("a", "b", "c", "d", outlier_detection=OutlierDetectionOptions(panic_threshold=1.0))
    eject(balancer, "b", 1.0)
    balancer.report("c", Event.LOST, now=2.0)
    balancer.report("d", Event.DRAIN, now=2.0)
    assert {sent(balancer.submit(Request(), 3.0)) for _ in range(8)} == {"a", "b"}


# ---------------------------------------------------------------------- many, one by one


def test_who_comes_and_goes_one_by_one_leaves_the_rotation_as_a_look_at_all_would():
    balancer = fleet(slow_start=0.0)
    for number in range(6):
        balancer.add_replica(f"r{number}", state=State.STARTING, now=0.0)
    pool = balancer.pool()
    for number in (3, 0, 5, 1):
        balancer.report(f"r{number}", Event.LOADED, now=1.0)
    assert [r.id for r in pool.members] == ["r0", "r1", "r3", "r5"]
    balancer.report("r3", Event.LOST, now=2.0)
    balancer.remove_replica("r0", now=2.0)
    assert [r.id for r in pool.members] == [r.id for r in pool.open] == ["r1", "r5"]
    balancer.report("r3", Event.LOADED, now=3.0)
    assert [r.id for r in pool.members] == [r.id for r in pool.open] == ["r1", "r3", "r5"]
    before = pool.service_rate
    pool.rebuild_rotation(3.0)
    assert pool.service_rate == pytest.approx(before)


# ---------------------------------------------------------------------- slow start, and who needs none


def test_who_was_ready_when_first_looked_at_needs_no_slow_start():
    balancer = fleet(slow_start=10.0)
    for id in "abc":
        balancer.add_replica(id, state=State.STARTING, now=0.0)
    for number, id in enumerate("abc"):
        balancer.report(id, Event.LOADED, now=0.1 * number)
    assert [replica(balancer, id).effective_weight for id in "abc"] == [1.0, 1.0, 1.0]


def test_who_was_seen_loading_starts_slowly():
    balancer = fleet("a", slow_start=10.0)
    balancer.add_replica("b", state=State.STARTING, now=0.0)
    balancer.report("b", Event.LIVE, now=1.0)
    balancer.report("b", Event.LOADED, now=2.0)
    assert replica(balancer, "b").effective_weight == pytest.approx(0.1)


def test_who_joins_later_starts_slowly_even_if_it_is_ready_at_first_sight():
    balancer = fleet("a", slow_start=10.0)
    balancer.add_replica("b", state=State.STARTING, now=60.0)
    balancer.report("b", Event.LOADED, now=60.1)
    assert replica(balancer, "b").effective_weight == pytest.approx(0.1)


# ---------------------------------------------------------------------- ejected by a fellow


def test_what_a_fellow_balancer_found_counts_here_too():
    balancer = fleet("a", "b", "c")
    balancer.eject("a", 5.0, now=1.0)
    assert replica(balancer, "a").state is State.EJECTED
    assert {sent(balancer.submit(Request(), 1.0)) for _ in range(10)} == {"b", "c"}
    pass_time(balancer, 1.0, 7.5)
    assert replica(balancer, "a").state is State.READY


@pytest.mark.parametrize("event", [Event.LIVE, Event.LOST, Event.DRAIN])
def test_only_who_gets_requests_can_be_ejected(event):
    balancer = fleet("a", "b")
    balancer.report("a", event, now=0.5)
    state = replica(balancer, "a").state
    balancer.eject("a", 5.0, now=1.0)
    assert replica(balancer, "a").state is state


def test_ejections_are_counted_for_whoever_tells_others():
    balancer = fleet("a", "b", "c")
    balancer.eject("a", 5.0, now=1.0)
    assert balancer.ejections == 1


# ---------------------------------------------------------------------- may it go elsewhere?


def test_what_runs_on_a_frozen_replica_may_go_elsewhere_if_it_may_run_twice():
    balancer = fleet("a", "b")
    safe, unsafe = start(balancer, 0.0, idempotent=True), start(balancer, 0.0, idempotent=False)
    assert balancer.can_fail_over(safe, 1.0)
    assert not balancer.can_fail_over(unsafe, 1.0)


def test_but_not_if_there_is_nowhere_to_go():
    balancer = fleet("a")
    request = start(balancer, 0.0, idempotent=True)
    balancer.report("a", Event.LOST, now=1.0)
    assert not balancer.can_fail_over(request, 1.0)


def test_moving_off_a_lost_replica_is_no_attempt_too_many():
    balancer = fleet("a", "b", "c", "d", "e")
    request = start(balancer, 0.0, idempotent=True)
    request.attempt_count = 3  # all it has
    assert balancer.can_fail_over(request, 1.0)
    assert request.attempt_count == 2


def test_where_nothing_is_tried_twice_nothing_is_moved():
    balancer = fleet("a", "b", retry=NO_RETRY)
    request = start(balancer, 0.0, idempotent=True)
    assert not balancer.can_fail_over(request, 1.0)
    assert request.attempt_count == 1


def test_what_is_not_moved_keeps_its_count():
    balancer = fleet("a", "b")
    request = start(balancer, 0.0, idempotent=True, deadline=0.5)
    request.attempt_count = 3
    assert not balancer.can_fail_over(request, 1.0)
    assert request.attempt_count == 3
