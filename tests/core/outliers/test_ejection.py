"""Replicas that fail or crawl with real requests are taken out, within bounds, and come back with care."""

from math import log

import pytest

from steelyard.core.estimator.slowness import SlownessFilter
from steelyard.core.options import OutlierDetectionOptions
from steelyard.core.outcome import Outcome
from steelyard.core.outliers.detector import SUCCESS_RATE_INTERVAL_SECONDS, OutlierDetector
from steelyard.core.outliers.ejection_reason import EjectionReason, EjectionRule
from steelyard.core.replica import Event, Replica, State
from steelyard.core.request import Request

from ..driving import NO_EJECTION, NO_RETRY, fleet, pass_time, replica, sent, serve_on

NAMES = "abcdefghijklmnopqrstuvwxyz"


def fail(balancer, id, times, now, outcome=Outcome.TRUNCATED):
    """An outcome nobody tries again, so that each failure is one."""
    for _ in range(times):
        serve_on(balancer, id, 0.0, now, outcome)


def out(balancer):
    return "".join(r.id for r in balancer.pool().replicas.values() if r.state is State.EJECTED)


def chosen(balancer, now, times=40):
    return "".join(sorted({sent(balancer.submit(Request(), now)) for _ in range(times)}))


# ---------------------------------------------------------------------- failures in a row


def test_five_failures_in_a_row_eject_at_once():
    balancer = fleet(*"abc")
    fail(balancer, "b", 4, 1.0)
    assert out(balancer) == ""
    fail(balancer, "b", 1, 1.0)
    assert out(balancer) == "b"
    assert chosen(balancer, 1.0) == "ac"


def test_a_success_in_between_starts_the_count_again():
    balancer = fleet(*"abc")
    for _ in range(5):
        fail(balancer, "b", 4, 1.0)
        serve_on(balancer, "b", 0.1, 1.0)
    assert out(balancer) == ""


@pytest.mark.parametrize("outcome", [o for o in Outcome if o.failed])
def test_every_failure_counts(outcome):
    balancer = fleet(*"abc", retry=NO_RETRY)
    fail(balancer, "b", 5, 1.0, outcome)
    assert out(balancer) == "b"


@pytest.mark.parametrize("outcome", [Outcome.CLIENT_ERROR, Outcome.CANCELLED])
def test_the_clients_own_doing_neither_counts_nor_forgives(outcome):
    balancer = fleet(*"abc")
    fail(balancer, "b", 50, 1.0, outcome)
    assert out(balancer) == ""
    fail(balancer, "b", 4, 1.0)
    fail(balancer, "b", 1, 1.0, outcome)
    fail(balancer, "b", 1, 1.0)
    assert out(balancer) == "b"


def test_the_number_of_failures_can_be_set_and_all_of_it_switched_off():
    balancer = fleet(*"abc", outlier_detection=OutlierDetectionOptions(consecutive_failures=2))
    fail(balancer, "b", 2, 1.0)
    assert out(balancer) == "b"
    balancer = fleet(*"abc", outlier_detection=NO_EJECTION)
    fail(balancer, "b", 50, 1.0)
    pass_time(balancer, 1.0, 100.0)
    assert out(balancer) == ""


def test_failures_in_a_row_may_eject_more_than_a_tenth():
    """Each stands for itself; only rules that compare replicas are bounded."""
    balancer = fleet(*NAMES[:10])
    for id in "abc":
        fail(balancer, id, 5, 1.0)
    assert out(balancer) == "abc"


def test_late_failures_of_a_replica_already_out_change_nothing():
    balancer = fleet(*"abc")
    requests = []
    for _ in range(10):
        request = Request()
        request.avoid = tuple(r for r in balancer.pool().members if r.id != "b")
        balancer.submit(request, 1.0)
        requests.append(request)
    for i, request in enumerate(requests):
        balancer.finish(request, Outcome.TRUNCATED, 1.0 + i)
    assert replica(balancer, "b").ejection_backoff == 1
    assert replica(balancer, "b").ejected_until == pytest.approx(5.0 + 30.0)


# ---------------------------------------------------------------------- success rates


def with_rates(rates, requests=100):
    """Replicas that had so many requests with these success rates since the last look."""
    replicas = []
    for name, rate in zip(NAMES, rates, strict=False):
        r = Replica(name, state=State.READY)
        r.slowness_filter = SlownessFilter(1.0, 0.0)
        r.successes = round(rate * requests)
        r.failures = requests - r.successes
        replicas.append(r)
    return replicas


def outliers(replicas, already=0, options=None, now=100.0):
    return "".join(
        r.id for r, _ in OutlierDetector(options or OutlierDetectionOptions()).outliers(replicas, already, now)
    )


def test_a_success_rate_far_under_the_others_ejects():
    assert outliers(with_rates([1.0, 1.0, 0.5, 1.0, 1.0, 1.0])) == "c"


def test_under_five_replicas_success_rates_mean_nothing():
    assert outliers(with_rates([1.0, 1.0, 0.2, 1.0])) == ""
    assert outliers(with_rates([1.0, 1.0, 0.2, 1.0, 1.0])) == "c"


def test_under_twenty_requests_a_success_rate_means_nothing():
    replicas = with_rates([1.0] * 5 + [0.0], requests=20)
    replicas[5].failures = 19
    assert outliers(replicas) == ""
    replicas = with_rates([1.0] * 5 + [0.0], requests=20)
    assert outliers(replicas) == "f"


def test_small_differences_eject_nobody():
    assert outliers(with_rates([1.0, 1.0, 1.0, 1.0, 1.0, 0.95])) == ""


def test_when_all_fail_alike_nobody_is_an_outlier():
    assert outliers(with_rates([0.1] * 8)) == ""


def test_of_several_outliers_the_worst_goes_first():
    assert outliers(with_rates([1.0] * 20 + [0.3, 0.1, 0.2])) == "vw"


def test_rates_are_looked_at_now_and_then_and_counted_afresh():
    ejection = OutlierDetector(OutlierDetectionOptions())
    replicas = with_rates([1.0] * 6)
    assert ejection.outliers(replicas, 0, 100.0) == []
    assert {(r.successes, r.failures) for r in replicas} == {(0, 0)}
    for r, seen in zip(replicas, with_rates([1.0] * 5 + [0.0]), strict=True):
        r.successes, r.failures = seen.successes, seen.failures
    assert ejection.outliers(replicas, 0, 100.0 + SUCCESS_RATE_INTERVAL_SECONDS - 1) == []
    ((found, reason),) = ejection.outliers(replicas, 0, 100.0 + SUCCESS_RATE_INTERVAL_SECONDS)
    assert found is replicas[5]
    assert reason == EjectionReason(EjectionRule.SUCCESS_RATE, 0.0, pytest.approx(5 / 6), SUCCESS_RATE_INTERVAL_SECONDS)


def test_a_replica_that_fails_a_third_of_its_requests_is_out_within_a_minute():
    balancer = fleet(*NAMES[:6])
    now = 0.0
    for i in range(300):
        for id in NAMES[:6]:
            if replica(balancer, id).state is State.READY:
                bad = id == "d" and i % 3 == 0
                serve_on(balancer, id, 0.05, now, Outcome.TRUNCATED if bad else Outcome.OK)
        now += 0.2
        balancer.expire(now)
    assert replica(balancer, "d").ejection_backoff >= 1
    assert sum(r.ejection_backoff for r in balancer.pool().replicas.values()) == replica(balancer, "d").ejection_backoff


def test_what_a_replica_did_before_its_sentence_is_not_held_against_it_after():
    balancer = fleet(*NAMES[:6])
    fail(balancer, "a", 5, 1.0)
    pass_time(balancer, 1.0, 32.5)
    assert replica(balancer, "a").state is State.READY
    for i in range(25):
        for id in NAMES[:6]:
            serve_on(balancer, id, 0.05, 32.5 + i / 10)
    pass_time(balancer, 35.0, 50.0)
    assert out(balancer) == ""
    assert replica(balancer, "a").ejection_backoff == 1


# ---------------------------------------------------------------------- crawling


class Used(SlownessFilter):
    """A speed that was observed at any time."""

    updated_at = property(lambda self: 1e9, lambda self, value: None)


def with_slowness(*values, usual=1.0):
    """Replicas that are so slow now and were `usual` before."""
    replicas = []
    for name, value in zip(NAMES, values, strict=False):
        r = Replica(name, state=State.READY)
        r.slowness_filter = Used(1.0, 0.0)
        r.slowness_filter.baseline = log(usual)
        r.slowness_filter.variance = 0.0
        turn(r, value)
        replicas.append(r)
    return replicas


def turn(replica, slowness):
    replica.slowness = slowness
    replica.slowness_filter.ln = log(slowness)


def crawlers(ejection, replicas, now):
    return [r.id for r, _ in ejection.outliers(replicas, 0, float(now))]


@pytest.mark.interpreted("derives a class from a compiled one")
def test_three_times_as_slow_as_its_own_usual_for_ten_seconds_ejects():
    ejection = OutlierDetector(OutlierDetectionOptions())
    replicas = with_slowness(1.0, 1.1, 3.5, 0.9)
    found = {now: crawlers(ejection, replicas, now) for now in (100.0, 105.0, 109.9, 110.0)}
    assert found == {100.0: [], 105.0: [], 109.9: [], 110.0: ["c"]}


@pytest.mark.interpreted("derives a class from a compiled one")
def test_slow_for_a_moment_is_forgiven():
    ejection = OutlierDetector(OutlierDetectionOptions())
    replicas = with_slowness(1.0, 1.0, 4.0)
    for now in range(100, 200):
        turn(replicas[2], 1.0 if now % 8 == 0 else 4.0)
        assert crawlers(ejection, replicas, now) == []


@pytest.mark.interpreted("derives a class from a compiled one")
def test_under_three_times_nobody_is_ejected():
    ejection = OutlierDetector(OutlierDetectionOptions())
    replicas = with_slowness(1.0, 1.0, 2.9)
    assert [crawlers(ejection, replicas, now) for now in range(100, 130)] == [[]] * 30


@pytest.mark.interpreted("derives a class from a compiled one")
def test_slower_hardware_is_no_outlier():
    """It always was so slow: what it is compared with is itself, whatever its weight says."""
    ejection = OutlierDetector(OutlierDetectionOptions())
    replicas = with_slowness(1.0, 1.0, 8.0)
    replicas[2].slowness_filter.baseline = log(8.0)
    assert [crawlers(ejection, replicas, now) for now in range(100, 130)] == [[]] * 30


@pytest.mark.interpreted("derives a class from a compiled one")
def test_slower_hardware_that_turns_slower_still_is_one():
    ejection = OutlierDetector(OutlierDetectionOptions())
    replicas = with_slowness(1.0, 1.0, 24.0 * 1.01)
    replicas[2].slowness_filter.baseline = log(8.0)
    assert [crawlers(ejection, replicas, now) for now in (100, 111)] == [[], ["c"]]


@pytest.mark.interpreted("derives a class from a compiled one")
def test_what_slows_all_replicas_makes_none_an_outlier():
    ejection = OutlierDetector(OutlierDetectionOptions())
    replicas = with_slowness(5.0, 5.0, 6.0, 4.5)
    assert [crawlers(ejection, replicas, now) for now in range(100, 130)] == [[]] * 30


@pytest.mark.interpreted("derives a class from a compiled one")
def test_slow_beyond_any_use_is_an_outlier_even_if_it_is_usual():
    ejection = OutlierDetector(OutlierDetectionOptions())
    replicas = with_slowness(1.0, 1.0, 1.1, 31.0)
    replicas[3].slowness_filter.baseline = log(31.0)
    assert ejection.outliers(replicas, 0, 100.0) == []
    ((found, reason),) = ejection.outliers(replicas, 0, 110.0)
    assert found is replicas[3]
    assert str(reason) == "31 × slower than the others for 10 s"


@pytest.mark.interpreted("derives a class from a compiled one")
def test_a_lone_replica_is_never_ejected_for_being_slow():
    ejection = OutlierDetector(OutlierDetectionOptions())
    replicas = with_slowness(50.0)
    assert [ejection.outliers(replicas, 0, float(now)) for now in range(100, 130)] == [[]] * 30


def test_a_replica_that_turns_six_times_slower_is_out_and_stays_out_for_its_sentence():
    balancer = fleet(*"abcd", slow_start=0.0)
    now = 0.0
    went_out = None
    while now < 60.0:
        for id in "abcd":
            if replica(balancer, id).state is State.READY:
                serve_on(balancer, id, 0.6 if id == "c" and now > 20.0 else 0.1, now)
        now += 0.7
        pass_time(balancer, now, now)
        if went_out is None and out(balancer):
            went_out = now
    assert went_out is not None
    assert 30.0 <= went_out <= 40.0
    assert [r.ejection_backoff for r in balancer.pool().replicas.values()] == [0, 0, 1, 0]
    reason = replica(balancer, "c").ejection
    assert reason.rule is EjectionRule.SLOWED
    assert reason.value == pytest.approx(6.0, rel=0.2)


def test_its_usual_speed_survives_an_ejection():
    """A replica four times slower than the others fails for a while: back again it is believed to be four times slower,
    not as fast as the others."""
    balancer = fleet(*"abcd", slow_start=0.0)
    now = 0.0
    while now < 60.0:
        for id in "abcd":
            serve_on(balancer, id, 0.4 if id == "c" else 0.1, now)
        now += 0.7
        pass_time(balancer, now, now)
    assert out(balancer) == ""
    fail(balancer, "c", 5, now)
    assert out(balancer) == "c"
    pass_time(balancer, now, now + 33.0)
    assert replica(balancer, "c").state is State.READY
    assert replica(balancer, "c").slowness == pytest.approx(4.0, rel=0.2)


# ---------------------------------------------------------------------- bounds


@pytest.mark.interpreted("derives a class from a compiled one")
def test_rules_that_compare_eject_a_tenth_at_most_and_one_at_least():
    at_once = OutlierDetectionOptions(slow_duration=0.0)

    def ejected(count, slow, already=0):
        replicas = with_slowness(*([9.0] * slow + [1.0] * (count - slow)))
        ejection = OutlierDetector(at_once)
        ejection.outliers(replicas, already, 100.0)
        return len(ejection.outliers(replicas, already, 101.0))

    assert ejected(5, 2) == 1
    assert ejected(19, 5) == 1
    assert ejected(20, 5) == 2
    assert ejected(26, 9) == 2


def test_those_already_out_count_against_the_bound():
    rates = [1.0] * 18 + [0.0, 0.0]
    assert outliers(with_rates(rates), already=0) == "st"
    assert outliers(with_rates(rates), already=1) == "s"
    assert outliers(with_rates(rates), already=2) == ""


# ---------------------------------------------------------------------- sentences


def test_each_ejection_lasts_longer_and_none_over_five_minutes():
    balancer = fleet(*"abc")
    now, sentences = 1.0, []
    for _ in range(13):
        fail(balancer, "b", 1 if sentences else 5, now)  # once back, one that fails again is out at once
        b = replica(balancer, "b")
        assert b.state is State.EJECTED
        sentences.append(round(b.ejected_until - now, 6))
        pass_time(balancer, now, b.ejected_until - 0.5)
        assert b.state is State.EJECTED
        pass_time(balancer, b.ejected_until - 0.5, b.ejected_until + 1.5)
        assert b.state is State.READY
        now = b.ejected_until + 1.5
    assert sentences == [30.0 * i for i in range(1, 11)] + [300.0] * 3


def test_a_replica_that_comes_back_takes_up_its_weight_slowly_and_with_a_clean_count():
    balancer = fleet(*"abc", slow_start=10.0)
    fail(balancer, "b", 5, 1.0)
    b = replica(balancer, "b")
    shares = {}
    for now in range(30, 46):
        pass_time(balancer, float(now), float(now))
        if b.state is State.READY:
            shares[now] = b.effective_weight
    back = min(shares)
    assert back in (31, 32)
    assert shares[back] == pytest.approx(0.1)
    assert shares[back + 5] == pytest.approx(0.5, abs=0.11)
    assert shares[back + 11] == 1.0
    fail(balancer, "b", 4, 46.0)
    assert b.state is State.READY


def test_a_replica_that_comes_back_is_not_believed_to_be_as_slow_as_it_was():
    balancer = fleet(*"abc")
    fail(balancer, "b", 5, 1.0)
    slow = replica(balancer, "b").slowness
    pass_time(balancer, 1.0, 33.0)
    assert replica(balancer, "b").slowness <= min(slow, 2.0)


# ---------------------------------------------------------------------- panic


def test_with_under_half_of_them_healthy_the_ejected_are_used_too():
    balancer = fleet(*"abcd")
    for id in "ab":
        fail(balancer, id, 5, 1.0)
    assert chosen(balancer, 1.0) == "cd"  # half is enough
    assert not balancer.pool().panicking
    fail(balancer, "c", 5, 1.0)
    assert balancer.pool().panicking
    assert chosen(balancer, 1.0) == "abcd"


def test_when_all_are_ejected_all_are_used():
    balancer = fleet(*"ab")
    for id in "ab":
        fail(balancer, id, 5, 1.0)
    assert out(balancer) == "ab"
    assert chosen(balancer, 1.0) == "ab"


def test_a_panic_ends_when_enough_are_back():
    balancer = fleet(*"abcd")
    for id in "abc":
        fail(balancer, id, 5, 1.0)
    assert balancer.pool().panicking
    balancer.add_replica("e", now=2.0)
    balancer.add_replica("f", now=2.0)
    assert not balancer.pool().panicking
    assert chosen(balancer, 2.0) == "def"


def test_a_panic_can_be_switched_off():
    balancer = fleet(*"abcd", outlier_detection=OutlierDetectionOptions(panic_threshold=0.0))
    for id in "abcd":
        fail(balancer, id, 5, 1.0)
    assert not balancer.pool().members


def test_what_is_not_there_is_not_used_in_a_panic():
    balancer = fleet(*"abcd")
    for id in "ab":
        fail(balancer, id, 5, 1.0)
    balancer.report("c", Event.LOST, now=2.0)
    assert balancer.pool().panicking
    assert chosen(balancer, 2.0) == "abd"


def test_errors_make_a_replica_look_costly_never_fast():
    balancer = fleet(*"ab", policy="least_work", outlier_detection=NO_EJECTION)
    a, score = replica(balancer, "a"), balancer.pool().policy.score
    before = score(Request(), a, 1.0)
    for i in range(30):
        fail(balancer, "a", 1, 1.0 + i)
        cost = score(Request(), a, 1.0 + i)
        assert cost >= before
        before = cost
    assert before > 2.0 * score(Request(), replica(balancer, "b"), 31.0)
    assert a.latency.quantile(0.5, 31.0) >= 1.0


def test_errors_tell_nothing_of_speed():
    """A fleet that failed for a while is as fast as it was: no belief that deadlines cannot be met is left."""
    balancer = fleet(*"abc", outlier_detection=NO_EJECTION, retry=NO_RETRY)
    for i in range(100):
        serve_on(balancer, "abc"[i % 3], 0.1, i / 10)
    typical = balancer.pool().estimator.typical_seconds
    for i in range(100):
        fail(balancer, "abc"[i % 3], 1, 10.0 + i / 10, Outcome.ERROR)
        balancer.expire(10.0 + i / 10)
    assert balancer.pool().estimator.typical_seconds == pytest.approx(typical, rel=0.05)
    assert [r.slowness for r in balancer.pool().replicas.values()] == pytest.approx([1.0] * 3, rel=0.05)


# ---------------------------------------------------------------------- reasons


def reason_after(*ends):
    balancer = fleet(*"abc", retry=NO_RETRY)
    for outcome, status in ends:
        request = Request()
        request.avoid = tuple(r for r in balancer.pool().members if r.id != "b")
        balancer.submit(request, 1.0)
        balancer.finish(request, outcome, 1.0, status=status)
    return replica(balancer, "b").ejection


def test_the_reason_says_which_rule_applied_with_figure_and_last_status():
    assert str(reason_after(*[(Outcome.ERROR, 500)] * 5)) == "5 in a row answered 500"
    assert str(reason_after(*[(Outcome.TIMEOUT, 0)] * 5)) == "5 in a row timed out"
    mixed = reason_after(*[(Outcome.CONNECTION_LOST, 0)] * 3, *[(Outcome.OVERLOADED, 503)] * 2)
    assert str(mixed) == "5 in a row failed; the last ones answered 503"
    assert (mixed.rule, mixed.value, mixed.last_failure) == (EjectionRule.CONSECUTIVE_FAILURES, 5, "answered 503")


def test_every_rule_makes_a_sentence():
    said = {rule: str(EjectionReason(rule, 4.2, 0.99, 10.0, "answered 500")) for rule in EjectionRule}
    assert said[EjectionRule.SLOWED] == "4.2 × slower than its own usual for 10 s"
    assert len(set(said.values())) == len(EjectionRule)


def test_an_ejection_says_since_when():
    balancer = fleet(*"abc")
    fail(balancer, "b", 5, 7.0)
    b = replica(balancer, "b")
    assert (b.ejected_at, b.ejected_until) == (7.0, 37.0)
