"""The comparison of scalers says plainly where ours is as good for as little, and where not."""

from __future__ import annotations

import re

import pytest
from benchmarks.autoscaling import SCALERS, SWEPT_SCALERS, plan, scenarios
from benchmarks.scores.autoscaling import compare, markdown
from benchmarks.scores.autoscaling_chart import chart

from steelyard.documents import Seconds
from steelyard.simulate.engine.result import FleetRecord, RunResult
from steelyard.simulate.report.summary import SummaryRow, summarise
from steelyard.simulate.run import check_scaler
from steelyard.simulate.scenario.dynamics import Autoscale
from steelyard.simulate.scenario.schema import ReplicaGroup, Scenario

SCENARIO = Scenario(
    name="A9 made up, cold", slo=Seconds(1), loads=(2.0,), fleet=(ReplicaGroup(),), autoscale=Autoscale()
)


def run(scaler: str, met: int, hours: float) -> RunResult:
    result = RunResult(SCENARIO.name, "least_work@1", 2.0, 1, scaler=scaler, within_slo=met)
    for _ in range(10_000):
        result.latency.add(0.5)
    result.fleet = FleetRecord(hours * 3600, 3600.0, 5, 9)
    return result


def rows(*figures: tuple[str, int, float]) -> list[SummaryRow]:
    return summarise([run(*one) for one in figures], {SCENARIO.name})


@pytest.mark.parametrize(
    ("other", "verdict"),
    [
        ((9_900, 10.0), "yes"),
        ((9_800, 12.0), "yes"),
        ((9_904, 10.0), "level: meets 0.04 points less"),
        ((9_904, 12.5), "level: meets 0.04 points less; 20.0 % fewer replica-hours"),
        ((9_900, 9.96), "level: 0.4 % more replica-hours"),
        ((9_950, 12.5), "no: meets 0.50 points less; 20.0 % fewer replica-hours"),
        ((9_000, 8.0), "no: 25.0 % more replica-hours; meets 9.00 points more"),
        ((9_950, 8.0), "no: meets 0.50 points less and 25.0 % more replica-hours"),
    ],
)
def test_as_much_for_as_little_or_what_is_missing(other: tuple[int, float], verdict: str) -> None:
    ours, theirs = rows(("work", 9_900, 10.0), ("kpa", *other))
    assert compare(ours, theirs) == verdict


def test_the_text_has_every_scaler_and_names_every_miss() -> None:
    text = markdown(
        [SCENARIO],
        rows(("work", 9_900, 10.0), ("kpa", 9_950, 8.0), ("hpa", 9_000, 11.0), ("kpa@target=0.5", 9_990, 20.0)),
        "today, here, `command`",
    )
    assert "Simulated today, here, `command`." in text
    assert re.search(r"\| \*\*work\*\* \| 99.00 % \| 10.0 \| 10.0 \| 5.00 \| \d+ ms \|  \|", text)
    assert "It holds in 1 of 2 comparisons, is level in 0, and not in 1. Where it does not hold:" in text
    assert "- A9 made up, cold, against kpa: no: meets 0.50 points less and 25.0 % more replica-hours" in text
    assert "| `kpa@target=0.5` | 99.90 %, 20.0 h |" in text


def test_the_chart_is_readable_without_seeing_it_and_in_the_dark() -> None:
    svg = chart([SCENARIO], rows(("work", 9_900, 10.0), ("kpa", 9_950, 8.0), ("kpa@target=0.5", 9_990, 20.0)))
    assert svg.startswith('<svg xmlns="http://www.w3.org/2000/svg"')
    assert "<title>" in svg
    assert "prefers-color-scheme: dark" in svg
    assert not re.search(r"#0[1-5]0[1-5]0[0-9]\b", svg)  # the stand-ins of simulate/report/svg.py


def test_the_defaults_run_over_all_seeds_and_the_knobs_over_one() -> None:
    (spike, _) = scenarios(["A1"], seeds=3)
    assert spike.autoscale is not None
    todo = plan(spike, sweep=True)
    assert [sum(task.scaler == name for task in todo) for name in SCALERS] == [3, 3, 3]
    assert {task.scaler for task in todo if task.scaler not in SCALERS} == set(SWEPT_SCALERS)
    assert len(plan(spike, sweep=False)) == 9
    for scaler in (*SCALERS, *SWEPT_SCALERS):
        check_scaler(spike, scaler)
