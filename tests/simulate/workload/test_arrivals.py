"""Traffic follows its shape: as many requests come in each stretch of time as the factor there says."""

from __future__ import annotations

import numpy as np
import pytest

from steelyard.documents import Seconds
from steelyard.simulate.scenario.dynamics import LoadStep, TrafficShape
from steelyard.simulate.scenario.schema import Scenario, Workload
from steelyard.simulate.workload.generator import TimeWarp, arrival_seconds, random_jobs

RATE_PER_SECOND = 100.0


def arrivals(shape: TrafficShape, requests: int) -> np.ndarray:
    """Of a stream with equal gaps: what is left is the shape alone."""
    steady = np.arange(1, requests + 1) / RATE_PER_SECOND
    return TimeWarp(shape).warp(steady)


def between(times: np.ndarray, start: float, end: float) -> int:
    return int(((times >= start) & (times < end)).sum())


def test_a_spike_multiplies_the_rate_while_it_lasts() -> None:
    spike = TrafficShape(kind="spike", at=Seconds(10), factor=5.0, rise=Seconds(2), duration=Seconds(10))
    times = arrivals(spike, 8_000)
    assert between(times, 0, 10) == pytest.approx(1000, abs=2)
    assert between(times, 10, 12) == pytest.approx(600, abs=2)  # from 1 to 5 in a straight line: 3 on average
    assert between(times, 12, 22) == pytest.approx(5000, abs=2)
    assert between(times, 22, 24) == pytest.approx(600, abs=2)
    assert between(times, 24, 30) == pytest.approx(600, abs=2)


def test_a_spike_without_a_rise_begins_and_ends_at_once() -> None:
    times = arrivals(TrafficShape(kind="spike", at=Seconds(1), factor=3.0, rise=Seconds(0), duration=Seconds(1)), 600)
    assert [between(times, start, start + 1) for start in range(3)] == pytest.approx([100, 300, 100], abs=2)


def test_a_spike_comes_again_with_every_period() -> None:
    shape = TrafficShape(
        kind="spike", at=Seconds(2), factor=4.0, rise=Seconds(0), duration=Seconds(1), period=Seconds(5)
    )
    times = arrivals(shape, 2_400)
    assert [between(times, start, start + 1) for start in range(10)] == pytest.approx(
        [100, 100, 400, 100, 100] * 2, abs=2
    )


def test_day_and_night_are_low_at_first_and_high_in_the_middle() -> None:
    times = arrivals(TrafficShape(kind="diurnal", period=Seconds(100), low=0.2, high=1.8), 20_000)
    assert between(times, 0, 100) == pytest.approx(10_000, abs=5)  # the mean of low and high is 1
    assert between(times, 100, 200) == pytest.approx(10_000, abs=5)
    assert between(times, 0, 2) == pytest.approx(40, abs=2)
    assert between(times, 49, 51) == pytest.approx(360, abs=2)


def test_steps_hold_until_the_next_and_may_be_zero() -> None:
    steps = (LoadStep(at=Seconds(10), factor=0.0), LoadStep(at=Seconds(20), factor=2.0))
    times = arrivals(TrafficShape(kind="steps", steps=steps), 3_000)
    assert between(times, 0, 10) == pytest.approx(1000, abs=2)
    assert between(times, 10.001, 20) == 0
    assert between(times, 20, 30) == pytest.approx(2000, abs=2)


@pytest.mark.parametrize(
    "shape",
    [
        TrafficShape(kind="diurnal", period=Seconds(60)),
        TrafficShape(kind="diurnal", period=Seconds(60), low=0.0, high=1.0),
        TrafficShape(kind="spike", at=Seconds(0), rise=Seconds(0)),
        TrafficShape(kind="steps", steps=(LoadStep(at=Seconds(0), factor=0.0), LoadStep(at=Seconds(9), factor=1.0))),
    ],
    ids=lambda shape: shape.kind,
)
def test_requests_keep_their_order_and_the_span_is_where_they_end(shape: TrafficShape) -> None:
    scenario = Scenario(requests=9_000, workload=Workload(shape=shape))
    born = [job.intended_at for job in random_jobs(scenario, RATE_PER_SECOND, seed=1)]
    assert born == sorted(born)
    assert len(born) == 9_000
    assert all(np.isfinite(born))
    assert born[-1] == pytest.approx(arrival_seconds(scenario, RATE_PER_SECOND), rel=0.1)


def test_a_constant_shape_changes_nothing() -> None:
    plain = Scenario(requests=500)
    assert arrival_seconds(plain, RATE_PER_SECOND) == 5.0
    again = Scenario(requests=500, workload=Workload(shape=TrafficShape(kind="constant", factor=9.0)))
    assert [j.intended_at for j in random_jobs(plain, RATE_PER_SECOND, 3)] == [
        j.intended_at for j in random_jobs(again, RATE_PER_SECOND, 3)
    ]


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"kind": "diurnal"}, "`period` must be positive for `diurnal`"),
        ({"kind": "steps"}, "`steps` must be one or more"),
        ({"low": 2.0, "high": 1.0}, "`low` must be from 0 to `high`"),
        ({"kind": "spike", "period": Seconds(100)}, "`period` must be longer than what is to be repeated"),
        ({"kind": "steps", "steps": (LoadStep(at=Seconds(1), factor=0.0),)}, "above 0 at the end"),
        (
            {"kind": "steps", "steps": (LoadStep(at=Seconds(2), factor=1.0), LoadStep(at=Seconds(1), factor=1.0))},
            "in the order of their times",
        ),
    ],
)
def test_a_shape_that_makes_no_sense_is_told(fields: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        TrafficShape(**fields)  # type: ignore[arg-type]
