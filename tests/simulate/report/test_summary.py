from __future__ import annotations

import csv
from io import StringIO
from math import isnan

import pytest

from steelyard.simulate.report.formatting import estimate, student_t
from steelyard.simulate.report.summary import (
    best_p99,
    best_within_slo,
    paired_p99_ratio,
    rows_csv,
    runs_csv,
    scenarios_with_slo,
    summarise,
)
from steelyard.simulate.scenario.schema import Scenario, Workload

from ..runs import made_up


def test_confidence_is_students() -> None:
    found = estimate([1.0, 2.0, 3.0])
    assert found.mean == 2.0
    assert found.half_width == pytest.approx(4.303 / 3**0.5)  # s = 1, n = 3, two degrees of freedom


def test_one_seed_has_no_confidence_and_none_has_nothing() -> None:
    assert estimate([5.0]).mean == 5.0
    assert isnan(estimate([5.0]).half_width)
    assert isnan(estimate([]).mean)


@pytest.mark.parametrize(
    ("freedom", "t"), [(1, 12.706), (4, 2.776), (30, 2.042), (39, 2.042), (40, 2.021), (100, 2.0), (10_000, 1.98)]
)
def test_students_t_is_never_too_small(freedom: int, t: float) -> None:
    assert student_t(freedom) == t


def test_a_row_per_scenario_load_and_policy_in_order() -> None:
    runs = [made_up(p, seed, [0.1], load=load) for load in (0.5, 0.9) for p in ("b", "a") for seed in (1, 2)]
    rows = summarise(runs)
    assert [(row.load, row.policy, row.seeds) for row in rows] == [
        (0.5, "b", 2),
        (0.5, "a", 2),
        (0.9, "b", 2),
        (0.9, "a", 2),
    ]


def test_quantiles_are_means_over_seeds() -> None:
    (row,) = summarise([made_up("a", 1, [0.1] * 100), made_up("a", 2, [0.3] * 100)])
    assert row.p50.mean == pytest.approx(0.2, rel=0.004)
    assert row.p999.mean == pytest.approx(0.2, rel=0.004)
    assert row.mean.mean == pytest.approx(0.2)
    assert row.requests == 200


def test_the_ratio_to_the_ideal_is_paired_by_seed() -> None:
    # The ideal's p99 differs threefold between seeds, and so does the policy's: seed by seed it is twice, exactly.
    runs = [made_up("ideal", 1, [0.1]), made_up("ideal", 2, [0.3]), made_up("a", 2, [0.6]), made_up("a", 1, [0.2])]
    row = summarise(runs)[1]
    assert row.p99_to_ideal is not None
    assert row.p99_to_ideal.mean == pytest.approx(2.0, rel=0.01)
    assert row.p99_to_ideal.half_width < 0.1
    assert row.p99.half_width > 1


def test_no_ideal_no_ratio() -> None:
    (row,) = summarise([made_up("a", 1, [0.2])])
    assert row.p99_to_ideal is None
    assert paired_p99_ratio([made_up("a", 1, [0.2])], [made_up("b", 7, [0.2])]) is None


def test_shares_are_of_all_requests_after_the_warm_up() -> None:
    (row,) = summarise([made_up("a", 1, [0.2] * 80, failed=5, refused=15, met=60)], {"s"})
    assert (row.failed.mean, row.refused.mean) == (0.05, 0.15)
    assert row.loss_share == pytest.approx(0.2)
    assert row.within_slo is not None
    assert row.within_slo.mean == 0.6
    assert row.throughput.mean == 10.0


def test_met_only_where_there_is_an_slo() -> None:
    (row,) = summarise([made_up("a", 1, [0.2])])
    assert row.within_slo is None
    kept = Scenario(name="kept", workload=Workload(deadline=1.0))  # type: ignore[arg-type]
    assert scenarios_with_slo([kept, Scenario(name="plain")]) == {"kept"}


def test_the_best_is_not_the_one_that_sends_the_work_away() -> None:
    rows = summarise(
        [
            made_up("ideal", 1, [0.01] * 100),
            made_up("honest", 1, [0.2] * 100),
            made_up("slow", 1, [0.9] * 100),
            made_up("refuser", 1, [0.1] * 50, refused=50),
        ]
    )
    winner = best_p99(rows)
    assert winner is not None
    assert winner.policy == "honest"


def test_the_best_keeps_the_slo() -> None:
    late, best_slo = made_up("late", 1, [0.2] * 100, met=10), made_up("best_slo", 1, [0.3] * 95, refused=5, met=95)
    rows = summarise([late, best_slo], {"s"})
    assert best_p99(rows) is best_within_slo(rows) is rows[1]


def test_nothing_answered() -> None:
    rows = summarise([made_up("a", 1, [], refused=3)])
    assert best_p99(rows) is None
    assert best_within_slo(rows) is None
    line = next(csv.DictReader(StringIO(rows_csv(rows))))
    assert line["p99_s"] == ""
    assert line["refused"] == "1"


def test_rows_as_csv() -> None:
    rows = summarise([made_up("ideal", seed, [0.1], scenario='a, "b"') for seed in (1, 2)])
    text = rows_csv(rows)
    assert text.splitlines()[0].startswith(
        "scenario,load,policy,seeds,requests,p50_s,p50_s_ci95,p90_s,p90_s_ci95,p99_s,"
    )
    (line,) = csv.DictReader(StringIO(text))
    assert line["scenario"] == 'a, "b"'
    assert line["p99_to_ideal"] == "1"
    assert line["within_slo"] == ""
    assert rows_csv(rows) == text


def test_runs_as_csv() -> None:
    lines = list(csv.DictReader(StringIO(runs_csv([made_up("a", 1, [0.1]), made_up("a", 2, [0.2], refused=3)]))))
    assert [line["seed"] for line in lines] == ["1", "2"]
    assert lines[1]["refused"] == "3"
    assert lines[1]["refused_reasons"] == "queue_full=3"
    assert lines[1]["requests"] == "4"
    assert lines[1]["answered"] == "1"
