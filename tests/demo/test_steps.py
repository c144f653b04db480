"""The guided minute in words: what fits, and that nothing is claimed that the numbers do not say."""

from __future__ import annotations

import pytest

from steelyard.demo.run import slo_latency
from steelyard.demo.steps import (
    MAX_OVERRUN_RATIO,
    PAUSE_SECONDS,
    TOUR_SECONDS,
    StepResult,
    comparison_note,
    merge_rounds,
    plan,
    restart_note,
    scaling_note,
    share_note,
    slowdown_note,
    tour_steps,
)
from steelyard.demo.traffic import TrafficStats

FIRST, SECOND = tour_steps("least_work")[:2]
COMPARED = ["before", "after", "before", "after"]


def traffic_stats(*, p99: float, requests: int = 200, failed: int = 0) -> TrafficStats:
    made = TrafficStats(0.0)
    for _ in range(requests):
        made.record_answer("fast", p99, 1.0)
    for _ in range(failed):
        made.record_failure("503")
    return made


def outcome(*, p99: float, requests: int = 200, late: float = 0.0) -> StepResult:
    return StepResult(FIRST, traffic_stats(p99=p99, requests=requests), overrun_ratio=late)


def test_the_whole_guide_takes_a_minute() -> None:
    assert plan(None, "least_work") == plan(1000, "least_work") == tour_steps("least_work")
    assert sum(step.seconds for step in tour_steps("least_work")) == TOUR_SECONDS
    assert [step.key for step in tour_steps("x")] == [*COMPARED, "slow", "dead", "double"]


@pytest.mark.parametrize("seconds", [30, 45, TOUR_SECONDS + PAUSE_SECONDS - 1])
def test_less_time_shortens_every_step(seconds: int) -> None:
    steps = plan(seconds, "least_work")
    assert len(steps) == 7
    assert sum(step.seconds for step in steps) == pytest.approx(seconds - PAUSE_SECONDS)


@pytest.mark.parametrize("seconds", [1, 8, 29])
def test_with_little_time_only_the_policies_are_compared(seconds: int) -> None:
    steps = plan(seconds, "least_work")
    assert [step.key for step in steps] == COMPARED
    assert sum(step.seconds for step in steps) < seconds


@pytest.mark.parametrize(
    ("before", "after", "note"),
    [
        (outcome(p99=1.0), outcome(p99=0.25), "4.0 times shorter, on the same requests"),
        (outcome(p99=1.0), outcome(p99=0.95), "about alike this time, so nothing is shown by it"),
        (outcome(p99=1.0), outcome(p99=1.1), "about alike"),
        (outcome(p99=1.0), outcome(p99=2.0), "longer this time"),
        (outcome(p99=1.0, late=0.05), outcome(p99=0.25, late=0.1), "4.0 times shorter"),
        (outcome(p99=1.0, late=0.6), outcome(p99=0.1), "too busy to compare them: 1 s of a replica's time took 1.6 s"),
        (outcome(p99=1.0), outcome(p99=2.0, late=1.0), "too busy to compare them"),
        (outcome(p99=1.0, requests=20), outcome(p99=0.1), "so few requests say little"),
        (outcome(p99=1.0), outcome(p99=0.1, requests=0), "too short to compare the two policies"),
    ],
)
def test_the_comparison_says_what_was_measured(before: StepResult, after: StepResult, note: str) -> None:
    said = comparison_note(before, "least_work", after)
    assert note in said
    assert ("times shorter" in said) == ("times shorter" in note)


def test_policies_take_turns_on_the_same_requests() -> None:
    one, two, again, too = tour_steps("least_work")[:4]
    assert (one.seed, again.seed) == (two.seed, too.seed)
    assert one.seed != again.seed
    assert one.seconds == two.seconds == again.seconds == too.seconds


def test_two_rounds_are_one_result() -> None:
    rounds = [
        StepResult(FIRST, traffic_stats(p99=1.0, requests=100), "a", overrun_ratio=MAX_OVERRUN_RATIO),
        StepResult(SECOND, traffic_stats(p99=0.1), "b"),
        StepResult(FIRST, traffic_stats(p99=3.0, requests=50, failed=1), "c", overrun_ratio=0.0),
    ]
    both = merge_rounds(rounds)
    assert list(both) == ["before", "after"]
    assert (both["before"].step, both["before"].note, both["before"].overrun_ratio) == (FIRST, "c", MAX_OVERRUN_RATIO)
    assert (both["before"].stats.requests, both["before"].stats.failures) == (151, 1)
    assert both["before"].stats.answered == {"fast": 150}
    assert both["before"].stats.latency.quantile(0.99) == pytest.approx(3.0, rel=0.01)
    assert both["after"] is rounds[1]
    assert rounds[0].stats.requests == 100


def test_other_steps_too() -> None:
    assert slowdown_note("fast", 0.6, 0.2) == "fast had 60 % of the answers before, 20 % while it was slow"
    assert slowdown_note("fast", 0.6, 0.6).endswith("this time it did not move away")
    assert slowdown_note("fast", 0.6, None) == "fast does not answer, so it cannot be made slower"
    assert share_note(traffic_stats(p99=0.1)) == "fast 100 % of the answers"
    assert share_note(traffic_stats(p99=0.1, requests=0)) == "no answers"
    seen = traffic_stats(p99=0.1, requests=99, failed=1)
    assert restart_note("half", seen, 3, 0, 2.5) == (
        "1 of 100 failed, 3 sent again to another; half was ready again after 2.5 s, "
        "and 0 requests reached it before that"
    )
    assert restart_note("half", seen, 3, 0, None).endswith("half was not ready again in time")
    assert restart_note("half", seen, 3, None, 2.5).endswith("after 2.5 s")
    assert scaling_note(3, 0, {}, None) == "still 3 replicas: that was enough, or there was no time"
    assert scaling_note(3, 2, {}, None).endswith("none of the new ones has answered yet")
    assert scaling_note(3, 2, {"p1": 2, "p2": 5}, 4.0) == (
        "3 → 5 replicas by the autoscaler; the first answer of a new one came 4.0 s after the load doubled, 7 in all"
    )


@pytest.mark.parametrize(("capacity", "seconds"), [(60.0, 0.7), (1000.0, 0.1), (6.0, 7.3)])
def test_what_is_the_slo_fits_the_machine(capacity: float, seconds: float) -> None:
    assert slo_latency(capacity) == seconds
