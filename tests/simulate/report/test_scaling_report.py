"""Scalers compared: who is beaten, and that table, files and page say it."""

from __future__ import annotations

from io import StringIO

from rich.console import Console

from steelyard.cli.simulate.tables import print_scaled_rows
from steelyard.documents import Seconds
from steelyard.simulate.engine.result import FleetRecord, RunResult
from steelyard.simulate.report.page import render
from steelyard.simulate.report.scaling_section import scaling_finding
from steelyard.simulate.report.summary import SummaryRow, dominates, pareto_front, rows_csv, runs_csv, summarise
from steelyard.simulate.scenario.dynamics import Autoscale
from steelyard.simulate.scenario.schema import ReplicaGroup, Scenario

from ..runs import made_up

SCENARIO = Scenario(name="s", slo=Seconds(1), loads=(2.0,), seeds=2, fleet=(ReplicaGroup(),), autoscale=Autoscale())


def scaled(scaler: str, seed: int, met: int, hours: float) -> RunResult:
    """One of 100 requests is refused."""
    run = made_up("least_work@1", seed, [0.5] * 99, load=2.0, refused=1, met=met)
    run.scaler = scaler
    samples: dict[str, list[int]] = {"wanted": [1, 2, 2], "ready": [1, 1, 2], "starting": [0, 1, 0]}
    fleet = FleetRecord(hours * 3600, 1800.0, 3, 2, [1.0, 2.0, 3.0], **samples)
    fleet.offered, fleet.late = [0.5, 1.5, 1.0], [0.0, 0.2, 0.0]
    run.fleet = fleet
    return run


RUNS = [
    scaled(scaler, seed, met + seed, hours)
    for scaler, met, hours in (("work", 95, 2.0), ("kpa", 94, 3.0), ("hpa", 80, 1.0), ("kpa@target=0.5", 95, 4.0))
    for seed in (1, 2)
] + [scaled("fixed@2", seed, 98, 0.5) for seed in (1, 2)]


def rows() -> dict[str, SummaryRow]:
    return {row.scaler: row for row in summarise(RUNS, {"s"})}


def test_a_row_has_what_was_kept_and_what_it_cost() -> None:
    row = rows()["work"]
    assert row.success_share == 0.965
    assert [
        value and value.mean for value in (row.replica_hours, row.mean_replicas, row.peak_replicas, row.starts)
    ] == [2.0, 4.0, 2.0, 3.0]
    assert row.seeds == 2


def test_who_is_as_good_in_both_and_better_in_one_beats() -> None:
    found = rows()
    assert dominates(found["work"], found["kpa"])
    assert dominates(found["work"], found["kpa@target=0.5"])  # as good, for less
    assert not dominates(found["work"], found["hpa"])
    assert not dominates(found["hpa"], found["work"])
    assert not dominates(found["work"], found["work"])


def test_a_fixed_fleet_is_a_measure_and_beats_nobody() -> None:
    assert [row.scaler for row in pareto_front(list(rows().values()))] == ["hpa", "work"]


def test_the_finding_says_whom_nobody_beats() -> None:
    text = scaling_finding(list(rows().values()))
    assert text == ("No other scaler keeps more for fewer replica-hours than hpa (81.5 %, 1 h), work (96.5 %, 2 h).")
    worse = [scaled("work", 1, 90, 5.0), scaled("kpa", 1, 95, 4.0)]
    assert "work is beaten by kpa." in scaling_finding(summarise(worse, {"s"}))


def test_the_table_has_a_line_for_each_scaler() -> None:
    console = Console(width=160, record=True, file=StringIO())
    print_scaled_rows(console, "s", list(rows().values()))
    text = console.export_text()
    for cell in ("2 replicas", "work *", "kpa@target=0.5", "fixed@2", "96.5 %", "2.00", "refused"):
        assert cell in text
    assert "kpa *" not in text


def test_the_files_have_the_scaler_and_its_cost() -> None:
    header, first, *_ = rows_csv(rows().values()).splitlines()
    row = dict(zip(header.split(","), first.split(","), strict=True))
    assert row["scaler"] == "work"
    assert (row["replica_hours"], row["mean_replicas"], row["starts"]) == ("2", "4", "3")
    header, first, *_ = runs_csv(RUNS).splitlines()
    row = dict(zip(header.split(","), first.split(","), strict=True))
    assert (row["scaler"], row["replica_seconds"], row["starts"]) == ("work", "7200", "3")


def test_the_page_has_both_charts_and_is_the_same_bytes_each_time() -> None:
    page = render([SCENARIO], RUNS)
    assert page.count("<svg") == 2
    for text in (
        "Requests within SLO, and what they cost",
        "Replicas over time",
        "kpa@target=0.5",
        "Pareto-optimal",
        "5 scalers",
    ):
        assert text in page
    assert render([SCENARIO], RUNS) == page


def test_a_page_may_have_scenarios_of_both_kinds() -> None:
    plain = Scenario(name="plain", loads=(0.5,), seeds=1, fleet=(ReplicaGroup(),))
    run = made_up("round_robin", 1, [0.1, 0.2], scenario="plain", timeline=True)
    run.timeline.load.pop("r1")
    run.served = {"r0": 2}
    page = render([SCENARIO, plain], [*RUNS, run])
    assert "work (best SLO)" in page
    assert "round_robin" in page
