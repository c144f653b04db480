"""Our scaler: staffing by the square root, rises told from chance, backlog, SLO, forecast, and the way down."""

from itertools import pairwise
from math import ceil, sin, sqrt

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from steelyard.core.scalers import ScalingMetrics, make_scaler
from steelyard.core.scalers.work import square_root_staffing
from steelyard.core.scaling.decider import ScalingOptions

from ..toy_queue import Shared, Toy


def scaler(**options):
    return make_scaler("work", options)


def evenly(one, seconds, each, work=0.1, *, start=0.0, offered=0.0, arrived=0, ready=1, **more):
    """The last word after so many seconds with so many requests in each."""
    for step in range(1, seconds + 1):
        seen = ScalingMetrics(
            now=start + step,
            ready=ready,
            offered=offered + step * each * work,
            arrived=round(arrived + step * each),
            running=more.pop("running", 1),
            **more,
        )
        want = one.recommend(seen)
    return want, seen


# ---------------------------------------------------------------------- staffing


@pytest.mark.parametrize(
    ("work", "rate", "spare", "replicas"),
    [
        (4.0, 1.0, 1.5, 7.0),
        (100.0, 1.0, 1.5, 115.0),
        (100.0, 1.0, 2.0, 120.0),
        (100.0, 4.0, 1.5, 28.75),  # 115 servers, four in each replica
        (4.0, 0.25, 1.5, 22.0),  # 16 servers busy, each of a quarter of the speed: 16 + 1.5 × 4
        (0.0, 1.0, 1.5, 0.0),
    ],
)
def test_square_root(work, rate, spare, replicas):
    assert square_root_staffing(work, rate, spare) == pytest.approx(replicas)


@given(st.floats(0, 1000), st.floats(0.01, 50), st.floats(0.01, 50), st.floats(0, 4))
def test_more_work_never_needs_fewer_nor_faster_replicas_more(work, more, rate, spare):
    assert square_root_staffing(work + more, rate, spare) > square_root_staffing(work, rate, spare)
    assert square_root_staffing(work, rate + more, spare) <= square_root_staffing(work, rate, spare) + 1e-9


def test_one_large_fleet_needs_less_spare_than_two_small_ones():
    assert square_root_staffing(20.0, 1.0, 1.5) < 2 * square_root_staffing(10.0, 1.0, 1.5)


@pytest.mark.parametrize(("rate", "replicas"), [(1.0, 7), (2.0, 4), (7.0, 1), (0.5, 13)])
def test_a_steady_load(rate, replicas):
    want, _ = evenly(scaler(), 300, 40, ready=replicas, rate=rate)
    assert want.replicas == replicas
    assert want.offered == pytest.approx(4.0, rel=0.01)
    assert want.recent_work == pytest.approx(4.0)
    assert want.reason == "4.0 s/s of work offered"


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 20), st.floats(0.01, 2.0)), min_size=1, max_size=60),
    st.floats(1.0, 5.0),
    st.integers(0, 3),
)
def test_the_same_requests_with_more_work_never_want_fewer(load, times, waiting):
    less, more = scaler(), scaler()
    offered, arrived = 0.0, 0
    for now, (came, work) in enumerate(load):
        offered, arrived = offered + came * work, arrived + came
        seen = ScalingMetrics(float(now), 2, 0, offered, arrived, 2, waiting, waiting * work)
        larger = seen._replace(offered=offered * times, backlog=seen.backlog * times)
        assert less.recommend(seen).replicas <= more.recommend(larger).replicas


@pytest.mark.parametrize(("each", "replicas"), [(4, 1), (6, 2)])
def test_one_that_is_idle_most_of_the_time_gets_no_second_one(each, replicas):
    want, _ = evenly(scaler(), 300, each, ready=1)
    assert want.replicas == replicas  # by the root of the work it would be two from 0.25 s/s on


# ---------------------------------------------------------------------- few requests say little


def test_one_request_is_no_reason_for_many_replicas():
    one = scaler()
    one.recommend(ScalingMetrics(now=0.0, ready=1))
    for now in range(1, 30):
        want = one.recommend(ScalingMetrics(now=float(now), ready=1, offered=60.0, arrived=1, running=1))
        assert want.replicas == 1


def test_one_request_that_waits_at_zero_wakes_one():
    one = scaler()
    one.recommend(ScalingMetrics(now=0.0))
    assert one.recommend(ScalingMetrics(now=0.5, offered=60.0, arrived=1, waiting=1, backlog=60.0)).replicas == 1


def test_a_burst_of_few_gets_no_more_than_one_each():
    one = scaler()
    one.recommend(ScalingMetrics(now=0.0, ready=1))
    want = one.recommend(ScalingMetrics(now=1.0, ready=1, offered=60.0, arrived=3, running=1, waiting=2, backlog=40.0))
    assert 1 <= want.replicas <= 3


def test_a_large_request_now_and_then_is_no_rise():
    one, offered = scaler(), 0.0
    for now in range(600):
        offered += 0.1 * 2 + (5.0 if now % 50 == 0 else 0.0)
        want = one.recommend(ScalingMetrics(float(now), 3, 0, offered, 2 * now + now // 50, 1))
        assert "lately" not in want.reason
        assert want.replicas <= 3


def test_what_came_before_the_first_look_is_not_taken_for_a_rise():
    one = scaler()
    for now in range(5):
        want = one.recommend(ScalingMetrics(now=float(now), ready=2, offered=1e6, arrived=10_000_000, running=1))
    assert want.replicas == 2


def test_a_count_that_begins_anew_is_no_load():
    one = scaler()
    evenly(one, 120, 10, ready=3)
    want, _ = evenly(one, 120, 10, start=120.0, ready=3)  # from 0 again
    assert want.replicas <= 3
    assert want.offered == pytest.approx(1.0, rel=0.05)


def test_while_nothing_is_learned_requests_count():
    one = scaler()
    for now in range(10):
        want = one.recommend(
            ScalingMetrics(float(now), 1, 0, 1000.0 * now, now, 2, 6, 900.0, estimates_learned=False, slots=2.0)
        )
    assert want.replicas == 4
    assert want.reason.startswith("8 requests at once, and not known yet how long they take")


def test_of_a_model_nothing_is_known_of_one_is_started_however_many_wait():
    one = scaler()
    for now in range(10):
        want = one.recommend(
            ScalingMetrics(float(now), 0, min(now, 1), 20.0, 20, 0, 20, 20.0, estimates_learned=False, slots=1.0)
        )
        assert want.replicas == 1
    want = one.recommend(
        ScalingMetrics(10.0, 1, 0, 20.0, 20, 1, 19, 19.0, estimates_learned=False, slots=1.0)
    )  # it is there: now they count
    assert want.replicas > 1


@pytest.mark.parametrize(
    ("ready", "running", "waiting", "says"),
    [
        (1, 1, 0, "1 request at once, and not known yet how long they take"),
        (1, 0, 0, "no request now, and not known yet how long one takes"),
        (0, 0, 1, "a request waits"),
        (0, 0, 3, "3 requests wait"),
    ],
)
def test_words_while_nothing_is_learned(ready, running, waiting, says):
    seen = ScalingMetrics(
        0.0, ready, running=running, waiting=waiting, arrived=running + waiting, estimates_learned=False
    )
    assert scaler().recommend(seen).reason.startswith(says)


def test_what_was_guessed_before_anything_was_learned_is_forgotten():
    one = scaler()
    for now in range(120):  # ten requests a second, taken for 1 s each, and they turn out to be 0.02 s
        learned = now >= 10
        offered = 10.0 * min(now, 10) + 0.2 * max(0, now - 10)
        want = one.recommend(ScalingMetrics(float(now), 1, 0, offered, 10 * now, now % 2, estimates_learned=learned))
        assert want.replicas == 1
    assert want.offered == pytest.approx(0.2, rel=0.05)


# ---------------------------------------------------------------------- rise and panic


def test_a_rise_is_seen_at_once_and_panic_never_shrinks():
    one = scaler(stabilization_window=0.0)
    _, seen = evenly(one, 120, 5, ready=1)
    more, seen = evenly(one, 2, 50, start=120.0, offered=seen.offered, arrived=seen.arrived, running=1, waiting=5)
    assert more.panicking
    assert more.replicas >= ceil(5 + 1.5 * sqrt(5))
    assert "5.0 lately, panicking" in more.reason
    quiet = [
        one.recommend(seen._replace(now=122.0 + t, ready=more.replicas, running=0, waiting=0)) for t in range(1, 100)
    ]
    assert all(w.replicas >= more.replicas for w in quiet if w.panicking)
    assert sum(w.panicking for w in quiet) in (58, 59)
    assert quiet[-1].replicas == 0


def test_a_burst_all_at_once_is_a_backlog_and_no_rise():
    one = scaler()
    _, seen = evenly(one, 120, 5, ready=2, running=1)
    want = one.recommend(seen._replace(now=121.0, offered=seen.offered + 10.0, arrived=seen.arrived + 100, running=2))
    assert "lately" not in want.reason
    assert want.replicas <= 3


def test_what_is_over_before_the_slo_is_no_rise():
    one, patient = scaler(), scaler()
    _, seen = evenly(one, 120, 5, ready=2)
    evenly(patient, 120, 5, ready=2, slo_seconds=60.0)
    for now in (121.0, 122.0):
        seen = seen._replace(now=now, offered=seen.offered + 5.0, arrived=seen.arrived + 50)
        want, later = one.recommend(seen), patient.recommend(seen._replace(slo_seconds=60.0))
    assert "5.0 lately" in want.reason
    assert "lately" not in later.reason


def test_few_more_requests_by_chance_are_no_rise():
    one, arrived = scaler(), 0
    for now in range(300):
        arrived += (3, 7, 5, 4, 6, 9, 2, 4)[now % 8]
        want = one.recommend(ScalingMetrics(float(now), 2, 0, arrived * 0.1, arrived, 1))
        assert "lately" not in want.reason
        assert not want.panicking


# ---------------------------------------------------------------------- backlog


def waits(backlog, waiting=100, **more):
    one = scaler()
    _, seen = evenly(one, 120, 5, ready=1)
    return one.recommend(seen._replace(now=121.0, waiting=waiting, backlog=backlog, offered=seen.offered + 0.5, **more))


def test_a_backlog_is_worked_off_within_a_few_seconds_of_readiness():
    # 0.5 s/s come, one replica does 1 s/s: of 30 s half a second a second goes in 15 s, the rest takes 22.5 / 5
    want = waits(30.0, cold_start=10.0)
    assert want.replicas == 1 + ceil((30.0 + 0.5 * 15 - 15) / 5)
    assert "30.0 s of work waiting" in want.reason


def test_a_longer_slo_gives_it_longer():
    # Half of the 40 s that are left of it after the start
    assert waits(30.0, cold_start=10.0, slo_seconds=50.0).replicas == 2 + ceil((30.0 + 0.5 * 30 - 30) / 20) - 1


def test_what_is_coming_is_taken_into_account():
    # They work for 10 of the 15 seconds: three of them are enough, and no more are needed if more are coming
    assert waits(30.0, cold_start=10.0, starting=1).replicas == 2 + ceil((22.5 - 10) / 5)
    assert waits(30.0, cold_start=10.0, starting=3).replicas == 4
    assert waits(30.0, cold_start=10.0, starting=6).replicas == 4


def test_a_line_that_stands_and_a_long_one_tell_sooner_than_the_long_window():
    standing, crowd = scaler(), scaler()
    for one, waiting, each in ((standing, 3, 1.2), (crowd, 8, 3.0)):
        _, seen = evenly(one, 120, 5, ready=3)
        for now in range(121, 128 if one is standing else 124):
            seen = seen._replace(
                now=float(now), ready=3, running=3, offered=seen.offered + each, arrived=seen.arrived + 1
            )
            want = one.recommend(seen._replace(waiting=waiting, backlog=30.0, cold_start=10.0))
        assert want.replicas > 3
        assert "30.0 s of work waiting" in want.reason


def test_a_small_backlog_goes_by_itself():
    assert waits(1.0).replicas == 2  # for the work that comes: 0.5 + 1.5 × 0.7
    assert "waiting" not in waits(1.0).reason


def test_one_request_is_not_shared_out():
    assert waits(500.0, waiting=1).replicas == 2


# ---------------------------------------------------------------------- the SLO


def judged(late_share, seconds=300, **more):
    """4 s/s of work at seven replicas, of which so many of a hundred are late."""
    one, ready = scaler(), more.pop("ready", 7)
    for now in range(seconds):
        arrived = now * 40
        seen = ScalingMetrics(
            now=float(now),
            ready=ready,
            offered=arrived * 0.1,
            arrived=arrived,
            running=4,
            answered=arrived,
            late=int(arrived * late_share),
            **{"slo_seconds": 0.2, "waiting": 1, **more},
        )
        want = one.recommend(seen)
    return one, want


def test_a_missed_slo_wants_more_to_spare():
    one, want = judged(0.05)
    assert want.burn == pytest.approx(5.0, rel=0.1)
    assert want.replicas == 12  # 4 + 4 × √4
    assert one.headroom.current == 4.0
    assert "more to spare (4) because too many were late" in want.reason


def test_not_while_replicas_are_coming():
    _, want = judged(0.05, starting=1)
    assert want.replicas == 7
    assert want.burn > 1


def test_not_when_nothing_waits():
    _, want = judged(0.05, waiting=0)
    assert want.replicas == 7
    assert "late requests though nothing waits: more replicas would not help" in want.reason


def test_requests_beside_each_other_wait_too_in_their_way():
    _, want = judged(0.05, waiting=0, ready=4)
    assert want.replicas > 7


def test_within_what_is_allowed_nothing_is_raised():
    one, want = judged(0.009)
    assert one.headroom.current == 1.5
    assert want.replicas == 7


def test_one_late_request_of_few_is_no_reason():
    one = scaler()
    for now in range(100):
        want = one.recommend(
            ScalingMetrics(float(now), 1, 0, now * 0.1, now, 1, 1, 0.1, answered=now, late=now > 50, slo_seconds=0.2)
        )
    assert want.burn > 1
    assert one.headroom.current <= 1.5


def test_an_slo_that_is_kept_needs_less_slowly():
    one, _ = judged(0.0, seconds=125)
    assert one.headroom.current == 1.25
    one, want = judged(0.0, seconds=1200, ready=5, cold_start=0.1)
    assert one.headroom.current == pytest.approx(0.5, abs=0.01)
    assert want.replicas == 6  # within the last 300 s
    one, want = judged(0.0, seconds=1200, ready=9)
    assert one.headroom.current == 1.5  # nobody knows whether seven would do


def test_with_a_long_start_the_spare_stays():
    one, _ = judged(0.0, seconds=1200, ready=5, cold_start=15.0)
    assert one.headroom.current == 1.0
    one, _ = judged(0.0, seconds=1200, ready=5, cold_start=30.0)
    assert one.headroom.current == 1.5


def test_without_an_slo_the_spare_stays():
    one, _ = judged(0.0, seconds=1200, slo_seconds=float("inf"))
    assert one.headroom.current == 1.5


# ---------------------------------------------------------------------- the forecast


def ramp(slope, seconds=200, until=1e9, **more):
    """From 4 s/s on so much more each second."""
    one, offered, arrived = scaler(**more), 0.0, 0
    for now in range(seconds):
        rate = 4.0 + slope * min(now, until)
        offered += rate
        arrived += round(rate * 10)
        want = one.recommend(ScalingMetrics(float(now), 5, 0, offered, arrived, 4, cold_start=20.0))
    return want, rate


def test_a_trend_goes_on_for_one_cold_start():
    want, rate = ramp(0.05)
    assert rate < want.forecast < rate + 0.05 * 20 * 1.1
    assert want.replicas == ceil(want.forecast + 1.5 * sqrt(want.forecast))
    assert f"forecast {want.forecast:.1f} in 20 s" in want.reason


def test_no_trend_no_forecast():
    want, _ = ramp(0.0)
    assert want.forecast == want.offered
    assert "forecast" not in want.reason


def test_down_is_not_forecast():
    want, _ = ramp(-0.015)
    assert want.forecast == want.offered


def test_a_step_is_no_trend():
    one, offered, arrived = scaler(stabilization_window=0.0), 0.0, 0
    for now in range(300):
        rate = 4.0 if now < 150 else 8.0
        offered, arrived = offered + rate, arrived + int(rate * 10)
        want = one.recommend(ScalingMetrics(float(now), 13, 0, offered, arrived, 6))
        assert want.replicas <= ceil(8 + 1.5 * sqrt(8)) + 1


def test_it_can_be_left_out():
    want, _ = ramp(0.05, forecast=False)
    assert "forecast" not in want.reason


# ---------------------------------------------------------------------- the way down


def test_the_highest_need_of_a_minute_holds():
    one = scaler()
    _, seen = evenly(one, 300, 40, ready=7)
    counts = [one.recommend(seen._replace(now=300.0 + t, running=0)).replicas for t in range(1, 400)]
    assert counts[:58] == [7] * 58
    assert counts[-1] == 0
    assert all(a >= b for a, b in pairwise(counts))


def test_it_begins_with_what_is_there():
    one = scaler()
    counts = [one.recommend(ScalingMetrics(now=float(t), ready=6)).replicas for t in range(100)]
    assert counts[:61] == [6] * 61
    assert counts[62:] == [0] * 38


def test_the_longer_a_start_takes_the_longer_a_need_holds():
    one, other = scaler(), scaler(stabilization_cold_starts=0.0)
    counts = [
        [each.recommend(ScalingMetrics(now=float(t), ready=6, cold_start=80.0)).replicas for t in range(200)]
        for each in (one, other)
    ]
    assert [count.count(6) for count in counts] == [101, 61]


# ---------------------------------------------------------------------- in a queue


@pytest.mark.parametrize("seed", range(4))
def test_after_the_load_it_comes_back_to_one_and_stays(seed):
    toy = Toy(lambda t: 2.0 if t < 200 else 10.0 if t < 260 else 0.0, work=0.1, seed=seed).run(800)
    assert max(toy.decided(60, 200)) <= 2
    assert max(toy.decided(200, 260)) >= 2
    assert toy.decided(400) == [1] * 401  # 60 s until it is out of the window, 60 s more, and a panic
    assert toy.answered == toy.arrived


@pytest.mark.parametrize("seed", range(4))
def test_five_times_the_load_is_met_within_three_decisions(seed):
    options = ScalingOptions(scaler_options={"stabilization_window": 60.0})
    toy = Toy(lambda t: 8.0 if t < 200 else 40.0 if t < 260 else 0.0, work=0.1, seed=seed, options=options).run(500)
    before = toy.decided(199, 200)[0]
    assert before <= 3
    assert max(toy.decided(200, 204)) >= 5  # four at the least are needed
    assert max(toy.decided()) <= 14
    late = [wait for came, wait in toy.waits if 208 <= came < 260]
    assert sorted(late)[int(0.99 * len(late))] < 1.0  # once they are ready nobody waits for long
    assert toy.decided(490) == [1] * 11


@pytest.mark.parametrize(("rate", "work"), [(40.0, 0.1), (200.0, 0.1), (0.5, 8.0)])
@pytest.mark.parametrize("seed", range(2))
def test_a_steady_load_at_random_does_not_make_it_swing(rate, work, seed):
    need = ceil(rate * work + 1.5 * sqrt(rate * work))
    toy = Toy(lambda t: rate, work=work, seed=seed, start=need).run(900)
    counts = toy.decided(310)
    changes = [b - a for a, b in pairwise(counts) if a != b]
    assert len(changes) <= 20
    assert rate * work < min(counts)
    assert sum(counts) / len(counts) < 1.5 * need


@pytest.mark.parametrize("seed", range(2))
def test_it_keeps_an_slo_through_waves(seed):
    toy = Toy(lambda t: 40 * (1 + 0.8 * sin(t / 100)), cold_start=10.0, slo_seconds=1.0, start=7, seed=seed).run(1300)
    assert toy.kept(60.0) > 0.99


def test_from_zero_and_back_to_zero():
    options = ScalingOptions(min_replicas=0, idle_seconds=60.0)
    toy = Toy(lambda t: 3.0 if 100 <= t < 130 else 0.0, options=options, start=0).run(300)
    assert set(toy.decided(0, 100)) == {0}
    assert toy.decided(102)[0] == 1
    assert toy.answered == toy.arrived > 50
    assert toy.decided(200)[0] == 0


# ---------------------------------------------------------------------- without a limit that somebody configured


def batch(n):
    return 1.0 / (1.0 + 0.02 * (n - 1))


@pytest.mark.parametrize("slots", [float("inf"), 64.0])
@pytest.mark.parametrize("rate", [4.0, 8.0, 16.0])
def test_one_that_batches_well_stays_alone(slots, rate):
    toy = Shared(lambda t: rate, work=1.0, slots=slots, speed=batch).run(300)
    assert set(toy.decided()) == {1}


def test_it_stays_alone_when_more_come_too():
    toy = Shared(lambda t: 1.0 if t < 100 else 10.0, work=1.0, speed=batch).run(200)
    assert set(toy.decided()) == {1}


@pytest.mark.parametrize("slots", [float("inf"), 64.0])
@pytest.mark.parametrize("seed", range(2))
def test_one_that_does_one_thing_at_a_time_gets_help(slots, seed):
    toy = Shared(lambda t: 5.0 if t < 100 else 20.0, work=0.1, slots=slots, seed=seed).run(400)
    assert max(toy.decided(0, 100)) <= 2
    assert max(toy.decided(100, 130)) >= 3  # 2 s of work come in a second
    assert max(toy.decided()) <= 8
    late = sorted(wait for came, wait in toy.waits if came > 200)
    assert late[len(late) // 2] < 0.2
