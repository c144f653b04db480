"""The tables of `benchmarks.lifecycle`: over rounds, shares are put together and times are the worst."""

from __future__ import annotations

from benchmarks.mocks.faults import SCENARIOS
from benchmarks.scores.arena import MAX_LAG_SECONDS
from benchmarks.scores.detection import FaultObservation, FaultRun
from benchmarks.scores.lifecycle import HEADER, report
from benchmarks.testbed.rounds import Rounds


def a_bout(failed: int = 0, *observations: FaultObservation, slowest: float = 0.3, lag: float = 0.0) -> FaultRun:
    return FaultRun(1000, failed, 0.02, 0.2, slowest, observations, lag=lag)


def test_rounds_are_put_together() -> None:
    rounds: Rounds[FaultRun] = Rounds({})
    rounds.add("steelyard", a_bout(1, FaultObservation("cold", 0.5, 0, 100, 1.0)))
    rounds.add("steelyard", a_bout(2, FaultObservation("cold", 2.5, 4, 300, 3.0), slowest=2.0))
    made = report(SCENARIOS["cold"], rounds)
    assert made.rows == [["steelyard", "0.15 %", "1.00 %", "2.5", "20", "200", "2,000", "3.0"]]
    assert [line[0] for line in made.verdicts] == ["✗", "✓", "✗"]
    assert len(made.header) == len(HEADER)


def test_of_several_bad_replicas_the_one_that_got_most_counts() -> None:
    rounds: Rounds[FaultRun] = Rounds({})
    rounds.add(
        "steelyard",
        a_bout(0, FaultObservation("cold", 0.0, 0, 1000, 1.0), FaultObservation("flapping", None, 20, 1000, None)),
    )
    made = report(SCENARIOS["all"], rounds)
    assert made.rows[0][2] == "2.00 %"
    assert made.rows[0][-1] == "not yet"
    assert [line[0] for line in made.verdicts] == ["✓", "✗", "✓"]


def test_only_ours_is_judged_and_who_did_not_run_is_told() -> None:
    rounds: Rounds[FaultRun] = Rounds({})
    rounds.add("haproxy", a_bout(500))
    rounds.give_up("steelyard", "it would not start")
    made = report(SCENARIOS["healthy"], rounds)
    assert made.verdicts == []
    assert made.rows[-1][:2] == ["steelyard", "did not run"]
    assert made.broken == {"steelyard": "it would not start"}


def test_a_late_benchmark_is_told() -> None:
    rounds: Rounds[FaultRun] = Rounds({})
    rounds.add("haproxy", a_bout(lag=2 * MAX_LAG_SECONDS))
    (line,) = report(SCENARIOS["healthy"], rounds).verdicts
    assert line.endswith("haproxy")
