"""The queue: bounded, urgent first, fair between tenants."""

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from steelyard.core.queue import MAX_REMEMBERED_TENANTS, RequestQueue
from steelyard.core.request import INFINITY, Request


def waiting(name="", *, tenant="", priority=0, base=1.0, expires=INFINITY):
    request = Request(id=name, tenant=tenant, priority=priority)
    request.base = base
    request.expires = expires
    return request


def line_of(*requests, limit=100):
    line = RequestQueue(limit)
    for request in requests:
        line.add(request)
    return line


def order(line):
    return " ".join(request.id for request in line.ordered())


def serve_first(line):
    request = next(line.ordered())
    line.remove(request, served=True)
    return request


# ---------------------------------------------------------------------- order


def test_who_came_first_goes_first():
    assert order(line_of(waiting("a"), waiting("b"), waiting("c"))) == "a b c"


def test_who_must_start_sooner_goes_first():
    line = line_of(waiting("a", expires=9.0), waiting("b", expires=3.0), waiting("c"), waiting("d", expires=5.0))
    assert order(line) == "b d a c"


def test_equally_urgent_requests_go_in_order_of_arrival():
    line = line_of(waiting("a", expires=5.0), waiting("b", expires=3.0), waiting("c", expires=5.0))
    assert order(line) == "b a c"


def test_a_higher_priority_goes_first_however_late_and_patient():
    line = line_of(waiting("a", expires=1.0), waiting("b", priority=2), waiting("c", priority=-1, expires=0.5))
    line.add(waiting("d", priority=1))
    assert order(line) == "b d a c"


def test_tenants_take_turns():
    line = line_of(*(waiting(f"a{i}", tenant="a") for i in range(3)), *(waiting(f"b{i}", tenant="b") for i in range(3)))
    assert order(line) == "a0 b0 a1 b1 a2 b2"


def test_turns_are_by_seconds_of_work_not_by_requests():
    large = [waiting(f"L{i}", tenant="large", base=4.0) for i in range(3)]
    small = [waiting(f"s{i}", tenant="small", base=1.0) for i in range(9)]
    assert order(line_of(*large, *small)) == "L0 s0 s1 s2 s3 L1 s4 s5 s6 s7 L2 s8"


def test_urgency_counts_inside_a_tenant_and_between_tenants_that_are_level():
    line = line_of(
        waiting("a1", tenant="a", expires=9.0),
        waiting("b1", tenant="b", expires=5.0),
        waiting("a2", tenant="a", expires=1.0),
        waiting("b2", tenant="b", expires=4.0),
    )
    assert order(line) == "a2 b2 b1 a1"


def test_one_tenants_urgency_does_not_cost_another_its_turn():
    line = line_of(*(waiting(f"a{i}", tenant="a", expires=1.0) for i in range(3)), waiting("b0", tenant="b"))
    assert order(line) == "a0 b0 a1 a2"


def test_who_was_silent_has_no_credit():
    line = line_of(*(waiting(f"a{i}", tenant="a") for i in range(20)))
    for _ in range(10):
        serve_first(line)
    for i in range(5):
        line.add(waiting(f"b{i}", tenant="b"))
    served = Counter(serve_first(line).tenant for _ in range(6))
    assert served == {"a": 3, "b": 3}


def test_who_leaves_after_a_large_request_does_not_come_back_as_new():
    line = line_of(waiting("a0", tenant="a", base=10.0), *(waiting(f"b{i}", tenant="b") for i in range(30)))
    assert serve_first(line).id == "a0"
    serve_first(line)
    line.add(waiting("a1", tenant="a"))
    served = [serve_first(line).id for _ in range(12)]
    assert served.index("a1") >= 8


def test_past_service_is_remembered_for_a_bounded_number_of_tenants():
    line = line_of(*(waiting(tenant="busy") for _ in range(2)), limit=10**6)
    for i in range(3 * MAX_REMEMBERED_TENANTS):
        line.add(waiting(tenant=f"t{i}", base=100.0))
        line.remove(next(r for r in line.ordered() if r.tenant == f"t{i}"), served=True)
        line.add(waiting(tenant="busy"))
        line.remove(next(line.ordered()), served=True)
    (inside,) = line.classes.values()
    assert len(inside.absent_tags) <= MAX_REMEMBERED_TENANTS
    assert len(inside.tenants) == 1


REQUESTS = st.lists(
    st.builds(
        waiting,
        tenant=st.sampled_from("abc"),
        priority=st.integers(0, 1),
        base=st.sampled_from([0.1, 0.5, 1.0, 3.0]),
        expires=st.sampled_from([1.0, 2.0, 5.0, INFINITY]),
    ),
    max_size=30,
)


@settings(max_examples=100, deadline=None)
@given(REQUESTS)
def test_the_order_shown_is_the_order_in_which_they_go(requests):
    line = line_of(*requests)
    shown = list(line.ordered())
    went = [serve_first(line) for _ in requests]
    assert [id(r) for r in shown] == [id(r) for r in went]
    assert sorted(map(id, shown)) == sorted(map(id, requests))


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from([0.1, 0.5, 1.0, 3.0])), min_size=20, max_size=60))
def test_tenants_that_always_wait_get_equal_seconds_of_work_but_for_one_request(sizes):
    """Goyal's bound: two tenants that both wait all the time differ by no more than a largest request of each."""
    line = line_of(*(waiting(tenant=tenant, base=base) for tenant, base in sizes))
    had = Counter()
    waits = Counter(tenant for tenant, _ in sizes)
    while len(waits) == 3 and min(waits.values()) > 0:
        request = serve_first(line)
        had[request.tenant] += request.base
        waits[request.tenant] -= 1
        assert max(had[t] for t in "abc") - min(had[t] for t in "abc") <= 2 * 3.0 + 1e-9


# ---------------------------------------------------------------------- bounds and displacement


def test_a_line_is_full_at_its_limit():
    line = line_of(waiting(), waiting(), limit=3)
    assert not line.full
    line.add(waiting())
    assert line.full


def test_a_line_of_length_zero_is_always_full_and_has_no_victim():
    line = RequestQueue(0)
    assert line.full
    assert line.preemption_victim(waiting(priority=5)) is None


def test_in_a_full_line_an_equal_gets_no_place():
    line = line_of(waiting("a"), waiting("b"))
    assert line.preemption_victim(waiting("c")) is None
    assert line.preemption_victim(waiting("c", expires=0.1)) is None


def test_a_higher_priority_takes_the_place_of_the_last_of_the_lowest():
    line = line_of(waiting("a", priority=1), waiting("b"), waiting("c"), waiting("d", priority=2))
    assert line.preemption_victim(waiting(priority=3)).id == "c"
    assert line.preemption_victim(waiting(priority=1)).id == "c"


def test_a_lower_priority_takes_nobodys_place():
    line = line_of(waiting("a", priority=1), waiting("b", priority=1))
    assert line.preemption_victim(waiting(priority=0)) is None


def test_a_tenant_that_holds_much_more_gives_up_its_last_place():
    line = line_of(*(waiting(f"a{i}", tenant="a") for i in range(3)), waiting("b0", tenant="b"))
    assert line.preemption_victim(waiting(tenant="b")).id == "a2"
    assert line.preemption_victim(waiting(tenant="c")).id == "a2"
    assert line.preemption_victim(waiting(tenant="a")) is None


def test_displacement_stops_when_shares_are_level():
    """Else two tenants would push each other out for ever."""
    line = line_of(waiting(tenant="a"), waiting(tenant="a"), waiting(tenant="b"), limit=3)
    assert line.preemption_victim(waiting(tenant="b")) is None


def test_the_least_urgent_of_the_tenant_goes():
    line = line_of(
        waiting("a0", tenant="a"), waiting("a1", tenant="a", expires=5.0), waiting("a2", tenant="a", expires=1.0)
    )
    assert line.preemption_victim(waiting(tenant="b")).id == "a0"


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.sampled_from("abcd"), st.integers(0, 2)), max_size=60))
def test_displacement_never_makes_the_line_longer_than_its_limit_and_favours_the_urgent(arrivals):
    line = RequestQueue(6)
    for tenant, priority in arrivals:
        newcomer = waiting(tenant=tenant, priority=priority)
        if line.full:
            victim = line.preemption_victim(newcomer)
            if victim is None:
                assert min(r.priority for r in line.ordered()) >= priority
                continue
            assert victim.priority <= priority
            line.remove(victim)
        line.add(newcomer)
        assert len(line) <= 6


# ---------------------------------------------------------------------- expiry


def test_the_next_expiry_is_the_soonest_over_all_priorities_and_tenants():
    line = RequestQueue(10)
    assert line.next_expiry() == INFINITY
    line.add(waiting("a", expires=9.0, priority=5))
    line.add(waiting("b", expires=7.0, tenant="x"))
    line.add(waiting("c", expires=8.0, tenant="y"))
    assert line.next_expiry() == 7.0


def test_the_expired_are_told_soonest_first_and_stay_in_line():
    line = line_of(
        waiting("a", expires=3.0),
        waiting("b", expires=1.0, tenant="x", priority=1),
        waiting("c", expires=2.0, tenant="y"),
        waiting("d", expires=3.5),
    )
    assert [r.id for r in line.expired(0.9)] == []
    assert [r.id for r in line.expired(1.0)] == ["b"]
    assert [r.id for r in line.expired(3.0)] == ["b", "c", "a"]
    assert len(line) == 4


# ---------------------------------------------------------------------- removal and bookkeeping


def test_any_request_can_be_taken_out():
    requests = [waiting(f"{i}", expires=5.0, base=0.5) for i in range(5)]
    line = line_of(*requests)
    line.remove(requests[2])
    assert requests[2] not in line
    assert requests[3] in line
    assert order(line) == "0 1 3 4"
    assert line.work == pytest.approx(2.0)


def test_taking_out_what_does_not_wait_is_an_error():
    line = line_of(waiting())
    with pytest.raises(KeyError):
        line.remove(waiting())


def test_who_is_taken_out_unserved_has_not_had_its_turn():
    requests = [waiting(f"a{i}", tenant="a", base=9.0) for i in range(3)]
    line = line_of(*requests, waiting("b0", tenant="b"), waiting("b1", tenant="b"))
    line.remove(requests[0])
    assert order(line) == "a1 b0 b1 a2"


def test_an_empty_line_holds_no_work_at_all():
    """Exactly zero: what dust adds up to would make every later promise of a retry wrong."""
    requests = [waiting(base=0.1 * i) for i in range(1, 30)]
    line = line_of(*requests)
    for request in requests:
        line.remove(request)
    assert line.work == 0.0
    assert len(line) == 0
    assert order(line) == ""


def test_a_tenant_holds_its_share_only_among_others_of_its_priority():
    line = line_of(waiting(tenant="a"), waiting(tenant="a"), waiting(tenant="b"), waiting(tenant="c", priority=1))
    assert line.tenant_at_fair_share(waiting(tenant="a"))
    assert not line.tenant_at_fair_share(waiting(tenant="b"))  # one of three places, with two tenants
    assert not line.tenant_at_fair_share(waiting(tenant="new"))
    assert not line.tenant_at_fair_share(waiting(tenant="c", priority=1))  # alone there
    assert not line.tenant_at_fair_share(waiting(tenant="a", priority=7))


@settings(max_examples=60, deadline=None)
@given(REQUESTS, st.data())
def test_length_work_and_membership_follow_from_what_waits(requests, data):
    line = line_of(*requests)
    inside = list(requests)
    for _ in range(len(requests)):
        gone = data.draw(st.sampled_from(inside))
        line.remove(gone, served=data.draw(st.booleans()))
        inside.remove(gone)
        assert len(line) == len(inside)
        assert line.work == pytest.approx(sum(r.base for r in inside))
        assert {id(r) for r in line.ordered()} == {id(r) for r in inside}
        assert line.next_expiry() == min((r.expires for r in inside), default=INFINITY)
        assert gone not in line
