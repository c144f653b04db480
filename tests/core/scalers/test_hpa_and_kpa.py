"""Knative's and Kubernetes' formulas, by worked examples: their documentation's, and their own tests' cases."""

from itertools import pairwise

import pytest

from steelyard.core.request import INFINITY
from steelyard.core.scalers import ScalingMetrics, make_scaler


def kpa(**options):
    return make_scaler("kpa", options)


def hpa(**options):
    return make_scaler("hpa", options)


def steadily(scaler, seconds, start=0.0, **seen):
    """The last thing it says when it sees the same for so long, every half second."""
    for step in range(int(seconds * 2) + 1):
        want = scaler.recommend(ScalingMetrics(now=start + step / 2, **seen))
    return want


# ---------------------------------------------------------------------- Knative


@pytest.mark.parametrize(
    ("requests", "slots", "target", "wanted"),
    [
        (50, 10.0, 1.0, 5),  # "a concurrency target of 10 and 50 concurrent requests: five pods"
        (50, 10.0, 0.7, 8),  # 70 %: seven each
        (7, 10.0, 0.7, 1),
        (8, 10.0, 0.7, 2),
        (10, INFINITY, 0.7, 1),  # 100 is the target where there is no limit
        (141, INFINITY, 0.7, 3),
        (4, 1.0, 0.7, 6),
        (0, 1.0, 0.7, 0),
    ],
)
def test_requests_at_once_over_the_target(requests, slots, target, wanted):
    assert steadily(kpa(target=target), 60, ready=1, running=requests, slots=slots).replicas == wanted


def test_what_waits_counts():
    assert steadily(kpa(target=1.0), 60, ready=2, running=2, waiting=3).replicas == 5


def test_twice_as_many_in_the_short_window_is_panic():
    scaler = kpa(target=1.0)
    assert not steadily(scaler, 64, ready=1, running=1).panicking
    assert not steadily(kpa(target=1.0), 64, ready=4, running=7).panicking
    want = steadily(scaler, 6, start=64.5, ready=1, running=2)
    assert want.panicking
    assert want.replicas == 2


def test_panic_lasts_a_stable_window_and_never_shrinks():
    scaler = kpa(target=1.0)
    steadily(scaler, 60, ready=1, running=1)
    assert steadily(scaler, 10, start=60.5, ready=1, running=6).replicas == 6  # the last time over the threshold: 70
    quiet = [scaler.recommend(ScalingMetrics(now=71.0 + t, ready=6, running=0)) for t in range(200)]
    panicking = [w for w in quiet if w.panicking]
    assert all(w.replicas == 6 for w in panicking)
    assert 58 <= len(panicking) <= 63
    assert quiet[-1].replicas == 3  # half of what is there: the max scale-down rate


def test_at_most_half_is_taken_away_and_thousandfold_added():
    fewer = kpa()
    steadily(fewer, 130, ready=1)  # out of what it began with
    assert steadily(fewer, 4, start=131.0, ready=9).replicas == 4
    assert steadily(kpa(max_scale_up_rate=2.0, target=1.0), 4, ready=3, running=100).replicas == 6
    assert steadily(kpa(target=1.0), 4, ready=3, running=10_000).replicas == 3000


def test_grows_by_at_least_one_with_a_small_rate():
    # The comment in Scale(): MSUR=1.1, OCC=3, RPC=2, TV=1 → three pods, not 2.2
    assert steadily(kpa(max_scale_up_rate=1.1, target=1.0), 4, ready=2, running=3).replicas == 3


def test_begins_in_panic_when_there_is_more_than_one():
    assert steadily(kpa(), 0, ready=5).replicas == 5
    assert steadily(kpa(), 59, ready=5).panicking
    assert steadily(kpa(), 0, ready=1).replicas == 0


def test_decides_every_two_seconds():
    scaler = kpa(target=1.0, panic_window=1.0)
    said = [scaler.recommend(ScalingMetrics(now=t / 2, ready=1, running=t)).replicas for t in range(21)]
    assert {t for t, (a, b) in enumerate(pairwise(said), 1) if a != b} <= {4, 8, 12, 16, 20}


def test_the_delay_on_the_way_down_holds_the_highest():
    scaler = kpa(target=1.0, scale_down_delay=100.0)
    steadily(scaler, 130, ready=1, running=4)
    assert steadily(scaler, 90, start=131.0, ready=4, running=1).replicas == 4
    assert steadily(scaler, 80, start=222.0, ready=4, running=1).replicas == 2


# ---------------------------------------------------------------------- Kubernetes


@pytest.mark.parametrize(
    ("ready", "running", "target", "wanted"),
    [
        # "if the current metric value is 200m, and the desired value is 100m, the number of replicas will be doubled"
        (2, 2, 0.5, 4),
        # "if the current value is instead 50m, you'll halve the number of replicas"
        (4, 1, 0.5, 2),
        # "any change within tolerance, by default 0.1, is skipped"
        (10, 5, 0.5, 10),
        (100, 55, 0.5, 100),
        (100, 45, 0.5, 100),
        (10, 6, 0.5, 12),
        (100, 44, 0.5, 88),
        (3, 3, 0.7, 5),  # 4.3
    ],
)
def test_replicas_times_use_over_target(ready, running, target, wanted):
    scaler = hpa(target=target, stabilization_window=0.0, tolerance=0.1)
    assert steadily(scaler, 60, ready=ready, running=running).replicas == wanted


def test_use_is_capped_at_all_slots_however_many_wait():
    assert steadily(hpa(target=0.5), 60, ready=2, running=50, waiting=500).replicas == 4


def test_it_looks_at_running_requests_for_each_slot():
    assert steadily(hpa(target=0.5), 60, ready=2, running=16, slots=8.0).replicas == 4
    assert steadily(hpa(target=0.5, stabilization_window=0.0), 60, ready=2, running=4, slots=8.0).replicas == 1


def test_those_that_are_coming_count_as_idle_when_more_are_wanted():
    # Two full of three at target 50 %: 2.0 × 2 = 4, but with the one that is coming 2/3 ÷ 0.5 × 3 = 4
    assert steadily(hpa(target=0.5), 60, ready=2, starting=1, running=2).replicas == 4
    # with two coming the use is exactly the target, and with three below it: it waits for them
    assert steadily(hpa(target=0.5), 60, ready=2, starting=2, running=2).replicas == 4
    assert steadily(hpa(target=0.5), 60, ready=2, starting=3, running=2).replicas == 5


def test_no_more_than_twice_as_many_or_four_are_added_in_a_period():
    assert steadily(hpa(target=0.1), 0, ready=1, running=1).replicas == 5
    assert steadily(hpa(target=0.1), 0, ready=20, running=20).replicas == 40


def test_down_only_to_the_highest_of_five_minutes():
    scaler, ready, when = hpa(target=0.5), 8, {}
    for now in range(1200):
        running = 4 if now < 100 else 2
        ready = scaler.recommend(ScalingMetrics(now=float(now), ready=ready, running=running)).replicas
        when.setdefault(ready, now)
    assert list(when) == [8, 6, 4]  # 6: when half of the average was from before
    assert 400 < when[6] < when[4] < 450


def test_it_decides_every_fifteen_seconds():
    scaler = hpa(target=0.5, window=1.0)
    said = [scaler.recommend(ScalingMetrics(now=float(t), ready=1 + t, running=1 + t)).replicas for t in range(61)]
    assert [t for t, (a, b) in enumerate(pairwise(said), 1) if a != b] == [15, 30, 45, 60]


def test_what_is_measured_is_the_average_of_the_last_half_minute():
    scaler = hpa(target=0.5, stabilization_window=0.0)
    steadily(scaler, 60, ready=4, running=2)
    assert steadily(scaler, 15, start=60.5, ready=4, running=4).replicas == 6  # 75 % on average


def test_nothing_is_measured_while_none_is_ready():
    assert steadily(hpa(), 60, starting=3).replicas == 3
