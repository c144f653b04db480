"""The arena's tables: late runs do not count, and goals are judged by the seeds that both have."""

from __future__ import annotations

import pytest
from benchmarks.load.contests import CONTESTS, Contest
from benchmarks.scores.arena import MAX_LAG_SECONDS, OURS, Scores

from steelyard.simulate.engine.result import RunResult

EVEN: Contest = CONTESTS["even"][0]
UNEVEN: Contest = CONTESTS["uneven"][0]


def run(contest: Contest, name: str, seed: int, seconds: float, failed: int = 0) -> RunResult:
    result = RunResult(contest.scenario.name, name, contest.load, seed, failed=failed)
    for _ in range(100):
        result.latency.add(seconds)
    return result


def scores(contest: Contest, runs: dict[str, list[float]]) -> Scores:
    made = Scores(list(runs), ["smg"])
    for name, values in runs.items():
        for seed, seconds in enumerate(values, 1):
            made.add(run(contest, name, seed, seconds))
    return made


def test_uneven_is_judged_against_the_best_rival() -> None:
    made = scores(UNEVEN, {"nginx": [0.4, 0.4], "haproxy-queue": [0.2, 0.2], OURS: [0.1, 0.1]})
    (line,) = made.verdicts(UNEVEN)
    assert line.startswith("✓")
    assert "haproxy-queue's (2 seeds" in line
    assert "0.50" in line


def test_even_is_judged_against_the_queue() -> None:
    (line,) = scores(EVEN, {"nginx": [0.1], "haproxy-queue": [0.2], OURS: [0.22]}).verdicts(EVEN)
    assert line.startswith("✗")
    assert "haproxy-queue's (1 seed)" in line


@pytest.mark.parametrize(("lag", "counts"), [(MAX_LAG_SECONDS, True), (2 * MAX_LAG_SECONDS, False)])
def test_a_run_in_which_the_benchmark_was_late_does_not_count(lag: float, counts: bool) -> None:
    made = scores(EVEN, {"haproxy-queue": [0.2, 0.2], OURS: [0.2]})
    made.add(run(EVEN, OURS, 2, 9.0), lag)
    row = next(row for row in made.rows(EVEN) if row[0] == OURS)
    assert row[-1] == ("2" if counts else "1 of 2")
    assert len(made.of(EVEN, OURS)) == (2 if counts else 1)


def test_rows_tell_who_is_missing_and_why() -> None:
    made = scores(EVEN, {"nginx": [0.1], "envoy": []})
    made.broken["envoy"] = "it would not start"
    results = {row[0]: row[1] for row in made.rows(EVEN)}
    assert results["envoy"] == "did not run"
    assert results["smg"] == "not installed"
    assert results["nginx"] == "100"


def test_contests_without_a_goal_are_not_judged() -> None:
    contest = CONTESTS["W2"][0]
    assert scores(contest, {"haproxy-queue": [0.2], OURS: [0.1]}).verdicts(contest) == []
