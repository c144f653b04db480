"""Bounds, steps, schedules and zero around a scaler's wish, and what is said of them."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from steelyard.core.errors import OptionError
from steelyard.core.scalers import Recommendation, Scaler, ScalingMetrics
from steelyard.core.scaling.decider import ScalingDecider, ScalingOptions


class Obedient(Scaler):
    """Wants what was written to the requests that run: 10 × replicas, so that tests say what a scaler wants."""

    def __init__(self, *, factor=0.1):
        self.factor = factor
        self.asked = 0

    def recommend(self, seen):
        self.asked += 1
        return Recommendation(round(seen.rate), "4.1 s/s of work offered")


def scaling(**options):
    return ScalingDecider(ScalingOptions(f"{__name__}:Obedient", **options))


def decide(one, now, wanted, there=0, planned=0, **more):
    return one.decide(ScalingMetrics(now=now, ready=there, rate=wanted, **more), planned=planned)


# ---------------------------------------------------------------------- words


def test_the_sentence():
    found = decide(scaling(), 0.0, 7, 5, slo_seconds=0.2, p99=0.32)
    assert found.reason == "5 → 7: 4.1 s/s of work offered, p99 320 ms against 200 ms"
    assert found.replicas == 7
    assert found.recommendation.replicas == 7


def test_no_change_and_no_slo():
    assert decide(scaling(), 0.0, 5, 5, p99=0.32).reason == "5: 4.1 s/s of work offered"
    assert decide(scaling(), 0.0, 5, 5, slo_seconds=0.2).reason == "5: 4.1 s/s of work offered"
    assert decide(scaling(), 0.0, 5, 5, slo_seconds=2.0, p99=12.345).reason.endswith("p99 12.3 s against 2 s")


def test_what_is_coming_counts_as_there():
    assert decide(scaling(), 0.0, 7, 3, starting=2).reason.startswith("5 → 7: ")


# ---------------------------------------------------------------------- bounds and schedules


@pytest.mark.parametrize(
    ("wanted", "planned", "replicas", "says"),
    [
        (3, 0, 3, ""),
        (9, 0, 7, "; 9 are wanted, but max is 7"),
        (1, 0, 2, "; 1 would do, but min is 2"),
        (3, 5, 5, "; 3 would do, but a schedule wants 5"),
        (6, 5, 6, ""),
        (1, 1, 2, "; 1 would do, but min is 2"),
        (3, 9, 7, "; 3 would do, but a schedule wants 9; 9 are wanted, but max is 7"),
    ],
)
def test_bounds(wanted, planned, replicas, says):
    found = decide(scaling(min_replicas=2, max_replicas=7), 0.0, wanted, 4, planned)
    assert found.replicas == replicas
    assert found.reason == f"4 → {replicas}: 4.1 s/s of work offered{says}".replace("4 → 4", "4")
    assert (found.min_replicas, found.max_replicas) == (min(7, max(2, planned)), 7)


def test_what_ran_already_is_no_schedule():
    found = scaling(min_replicas=2, max_replicas=7)
    assert found.decide(ScalingMetrics(0.0, 4), kept=4).reason.endswith("; 4 ran already, and stay at first")
    assert found.decide(ScalingMetrics(1.0, 4), planned=5, kept=4).reason.endswith("but a schedule wants 5")
    decision = found.decide(ScalingMetrics(2.0, 4), kept=9)
    assert (decision.replicas, decision.min_replicas) == (7, 7)
    assert "ran already" not in found.decide(ScalingMetrics(3.0, 4), kept=2).reason  # min is why
    assert "ran already" not in found.decide(ScalingMetrics(3.0, 4, rate=8), kept=9).reason  # max is


class Wild(Scaler):
    def recommend(self, seen):
        return Recommendation(seen.rate, "")


@pytest.mark.parametrize("wanted", [-1, 2.5, float("nan"), float("inf"), None])
def test_a_wish_that_is_no_whole_number_is_refused(wanted):
    wild = ScalingDecider(ScalingOptions(f"{__name__}:Wild"))
    with pytest.raises(ValueError, match=f"the scaler wants {wanted!r} replicas"):
        wild.decide(ScalingMetrics(0.0, rate=wanted))


@pytest.mark.parametrize(
    ("options", "what"),
    [
        ({"min_replicas": -1}, "min: must be 0 or more, not -1"),
        ({"min_replicas": 3, "max_replicas": 2}, "max: must be at least 3, not 2"),
        ({"min_replicas": 0, "max_replicas": 0}, "max: must be at least 1, not 0"),
        ({"idle_seconds": -1.0}, "scale_to_zero_after: must be 0 or more seconds"),
        ({"max_added_per_minute": 0}, "max_added_per_minute: must be at least 1"),
        ({"max_removed_per_minute": 0.5}, "max_removed_per_minute: must be at least 1"),
        ({"scaler": "nobody"}, "no scaler 'nobody'"),
        ({"scaler_options": {"factr": 1}}, "unknown option 'factr'"),
    ],
)
def test_wrong_options_are_named(options, what):
    with pytest.raises(OptionError, match=what):
        ScalingDecider(ScalingOptions(**{"scaler": f"{__name__}:Obedient", **options}))


# ---------------------------------------------------------------------- steps


def test_no_more_added_than_may_be_in_a_minute():
    one, there, counts = scaling(max_added_per_minute=2), 1, []
    for now in range(0, 200, 10):
        found = decide(one, float(now), 9, there)
        there = found.replicas
        counts.append(there)
    assert counts[:7] == [3, 3, 3, 3, 3, 3, 3]
    assert counts[7] == 5
    assert counts[14] == 7
    assert "9 are wanted, but only 2 may be added in a minute" in found.reason


def test_no_more_taken_away_than_may_be_in_a_minute():
    one, there, counts = scaling(max_removed_per_minute=1), 5, []
    for now in range(0, 200, 10):
        found = decide(one, float(now), 1, there)
        there = found.replicas
        counts.append(there)
    assert [counts[0], counts[6], counts[7], counts[14]] == [4, 4, 3, 2]
    assert "1 would do, but only 1 may be taken away in a minute" in found.reason


def test_what_would_do_is_never_less_than_there_may_be():
    one = scaling(min_replicas=2, max_removed_per_minute=1)
    assert decide(one, 0.0, 0, 4).reason.endswith("; 2 would do, but only 1 may be taken away in a minute")
    assert decide(one, 70.0, 0, 3).reason.endswith("; 0 would do, but min is 2")


def test_a_step_is_from_what_is_there_not_from_what_was_wanted():
    one = scaling(max_added_per_minute=2)
    for now in range(10):  # ordered, and none has come
        assert decide(one, float(now), 9, 1).replicas == 3


def test_bounds_and_schedules_are_above_steps():
    assert decide(scaling(min_replicas=5, max_added_per_minute=1), 0.0, 1, 1).replicas == 5
    assert decide(scaling(max_added_per_minute=1), 0.0, 1, 1, planned=6).replicas == 6
    assert decide(scaling(max_replicas=3, max_removed_per_minute=1), 0.0, 9, 9).replicas == 3


def test_after_a_long_silence_steps_begin_anew():
    one = scaling(max_added_per_minute=2, max_removed_per_minute=2)
    decide(one, 0.0, 4, 4)
    assert decide(one, 1000.0, 9, 4).replicas == 6
    assert decide(one, 2000.0, 1, 6).replicas == 4


# ---------------------------------------------------------------------- zero


def test_to_zero_after_the_idle_time():
    one = scaling(min_replicas=0, idle_seconds=60.0)
    assert decide(one, 0.0, 0, 2, running=1, arrived=1).replicas == 1
    assert decide(one, 59.9, 0, 1, arrived=1).replicas == 1
    assert "the last one stays for 60 s without a request" in decide(one, 59.9, 0, 1, arrived=1).reason
    found = decide(one, 60.0, 0, 1, arrived=1)
    assert found.replicas == 0
    assert found.reason == "1 → 0: 4.1 s/s of work offered; no request for 60 s"


def test_a_request_in_between_keeps_it():
    one = scaling(min_replicas=0, idle_seconds=60.0)
    decide(one, 0.0, 0, 1)
    assert decide(one, 50.0, 0, 1, arrived=1).replicas == 1  # came and went
    assert decide(one, 109.0, 0, 1, arrived=1).replicas == 1
    assert decide(one, 110.0, 0, 1, arrived=1).replicas == 0


@pytest.mark.parametrize("what", ["running", "waiting"])
def test_never_while_something_runs_or_waits(what):
    one = scaling(min_replicas=0, idle_seconds=10.0)
    for now in range(100):
        assert decide(one, float(now), 0, 1, arrived=1, **{what: 1}).replicas == 1


def test_whatever_the_scaler_still_holds():
    one = scaling(min_replicas=0, idle_seconds=10.0)
    assert decide(one, 0.0, 3, 3).replicas == 3
    assert decide(one, 10.0, 3, 3).replicas == 0


def test_what_was_needed_before_zero_starts_no_more_than_one():
    one = ScalingDecider(ScalingOptions(min_replicas=0, idle_seconds=5.0))
    for now in range(20):  # ten times as much as one replica does
        one.decide(ScalingMetrics(float(now), 6, 0, now * 10.0, now * 100, 6, 30, 3.0))
    quiet = ScalingMetrics(20.0, 6, 0, 190.0, 1900)
    assert one.decide(quiet).replicas > 6  # held, in a panic
    assert one.decide(quiet._replace(now=25.0)).replicas == 0
    assert one.decide(quiet._replace(now=26.0, ready=2)).replicas == 0  # these are leaving
    woken = quiet._replace(now=27.0, ready=0, arrived=1901, offered=190.1, waiting=1, backlog=0.1)
    assert one.decide(woken).replicas == 1
    assert one.decide(woken._replace(now=27.5, starting=1)).replicas == 1


def test_at_the_beginning_nobody_asks_and_nothing_is_started():
    one = scaling(min_replicas=0, idle_seconds=300.0)
    found = decide(one, 0.0, 0, 0)
    assert found.replicas == 0
    assert found.reason.endswith("; no request yet")
    assert decide(one, 1.0, 0, 0, waiting=1, arrived=1).replicas == 1


def test_what_was_there_before_has_the_idle_time_too():
    one = scaling(min_replicas=0, idle_seconds=300.0)
    assert decide(one, 1000.0, 0, 2).replicas == 1
    assert decide(one, 1299.0, 0, 1).replicas == 1
    assert decide(one, 1300.0, 0, 1).replicas == 0


def test_a_schedule_wakes_it():
    one = scaling(min_replicas=0, idle_seconds=10.0)
    assert decide(one, 0.0, 0, 0, planned=2).replicas == 2
    assert decide(one, 500.0, 0, 2, planned=2).replicas == 2
    assert decide(one, 501.0, 0, 2).replicas == 0


# ---------------------------------------------------------------------- other options


def test_other_bounds_leave_the_scaler_as_it_is():
    one = scaling(max_replicas=9)
    decide(one, 0.0, 5, 1)
    before = one.scaler
    one.reconfigure(ScalingOptions(f"{__name__}:Obedient", max_replicas=4, scaler_options={}))
    assert one.scaler is before
    assert decide(one, 1.0, 5, 1).replicas == 4


def test_another_scaler_begins_anew():
    one = scaling()
    before = one.scaler
    one.reconfigure(ScalingOptions(f"{__name__}:Obedient", scaler_options={"factor": 0.2}))
    assert one.scaler is not before
    assert one.scaler.factor == 0.2
    one.reconfigure(ScalingOptions("kpa"))
    assert type(one.scaler).__name__ == "KnativeScaler"


def test_what_cannot_be_used_changes_nothing():
    one = scaling(max_replicas=3)
    with pytest.raises(OptionError):
        one.reconfigure(ScalingOptions("nobody", max_replicas=9))
    assert decide(one, 0.0, 9, 1).replicas == 3


# ---------------------------------------------------------------------- in any case

steps = st.lists(st.tuples(st.floats(0, 100), st.integers(0, 20), st.integers(0, 2)), min_size=1, max_size=40)


@settings(max_examples=100, deadline=None)
@given(steps, st.integers(0, 4), st.integers(4, 12), st.integers(1, 5), st.integers(1, 5))
def test_steps_and_bounds_hold_whatever_is_wanted(history, least, most, up, down):
    one, now, there, decided = (
        scaling(
            min_replicas=least,
            max_replicas=most,
            max_added_per_minute=up,
            max_removed_per_minute=down,
            idle_seconds=30.0,
        ),
        0.0,
        least,
        [],
    )
    for seconds, wanted, running in history:
        now += seconds
        count = decide(one, now, wanted, there, running=running).replicas
        assert least <= count <= most
        decided = [(t, n) for t, n in [*decided, (now, there)] if t >= now - 60.0]
        assert count <= max(least, min(n for _, n in decided) + up)
        assert count >= min(most, max(n for _, n in decided) - down)
        decided.append((now, count))
        there = count
