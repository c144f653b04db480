"""`concurrency: auto` moves on proof, and not on what one second looked like."""

from __future__ import annotations

from math import log

import numpy as np
import pytest

from steelyard.core.estimator.batching_curve import BatchingCurve
from steelyard.core.estimator.concurrency_limit import INITIAL_LIMIT, next_limit, probe_below
from steelyard.core.estimator.slowness import SlownessFilter
from steelyard.core.load import PoolLoad
from steelyard.core.options import PoolOptions
from steelyard.core.request import INFINITY


def curve_of(elasticity: float, certainty: float) -> BatchingCurve:
    curve = BatchingCurve()
    curve.elasticity, curve.certainty = elasticity, certainty
    return curve


def test_a_limit_that_rose_stays_up() -> None:
    batch = curve_of(0.1, 100.0)
    assert next_limit(batch, INFINITY, 0) == INITIAL_LIMIT
    assert next_limit(batch, 256, 256) == 320
    assert next_limit(batch, 320, 320) == 400
    assert next_limit(batch, 400, 10) == 400


@pytest.mark.parametrize(("elasticity", "certainty"), [(0.87, 41.0), (1.0, 10.0), (0.5, 20.0)])
def test_what_may_be_luck_moves_nothing(elasticity: float, certainty: float) -> None:
    assert next_limit(curve_of(elasticity, certainty), 32, 32) == 32


def test_no_replica_takes_fewer_to_learn_what_is_known() -> None:
    assert probe_below(curve_of(0.9, 30.0), 256, 20) == 15
    assert probe_below(curve_of(0.3, 30.0), 256, 20) == 256
    assert probe_below(curve_of(0.7, 4.0), 256, 20) == 15


def test_it_goes_down_from_the_busiest_of_late_and_not_of_this_moment() -> None:
    pool = PoolLoad("", PoolOptions(concurrency="auto"))
    pool.decide_limit("auto", False, 20)
    pool.estimator.curve.elasticity, pool.estimator.curve.certainty = 1.0, 100.0
    pool.decide_limit("auto", False, 1)
    assert pool.limit == 10  # 0.6 × 18, not 0.6 × 1


def test_evidence_is_kept_where_a_new_limit_changes_nothing() -> None:
    pool = PoolLoad("", PoolOptions(concurrency="auto"))
    pool.decide_limit("auto", False, 3)
    pool.estimator.curve.certainty = 100.0
    pool.set_limit(32, False)
    assert pool.estimator.curve.certainty == 100.0
    pool.set_limit(2, False)
    assert pool.estimator.curve.certainty == pytest.approx(10.0)


def test_a_choice_counts_a_crowd_even_where_it_seems_to_be_free() -> None:
    """80 requests are in the way, whatever was learned: else one replica that looks a little faster gets everything."""
    curve, usual = BatchingCurve(), SlownessFilter(1.0, 0.0)
    n = np.random.default_rng(1).integers(1, 9, 64)
    for _ in range(50):
        curve.observe([(usual, float(each), 2.0) for each in n])
    assert curve.elasticity < 0.15
    assert 80 * curve.interference[81] < 2.0
    assert 80 * curve.choice_interference[81] == pytest.approx(8.0)


def test_a_run_of_short_answers_is_no_reason_to_believe_a_replica_fast() -> None:
    speed = SlownessFilter(1.0, 0.0)
    for i in range(200):
        speed.observe(0.0, 1.0, i * 0.1)
    for i in range(6):
        speed.observe(log(0.1), 1.0, 20.0 + i * 0.1)
    assert speed.value() == 1.0
    for i in range(6):
        speed.observe(log(10.0), 1.0, 21.0 + i * 0.1)
    assert speed.value() > 1.5


def test_what_luck_made_of_the_first_answers_is_not_a_replicas_usual_speed() -> None:
    """It was ejected as 5 × slower than its own usual, with 20 short answers as its usual."""
    speed = SlownessFilter(1.0, 0.0)
    for i in range(20):
        speed.observe(log(0.2), 0.5, i * 0.1)
    speed.recenter(0.0)
    for i in range(100):
        speed.observe(0.0, 0.5, 2.0 + i * 0.1)
    assert speed.excess < log(3.0) / 2
