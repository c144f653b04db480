"""Medians and ratios over rounds, and the verdicts on goals."""

from __future__ import annotations

from math import isnan

import pytest
from benchmarks.testbed.rounds import Rounds, verdict


def same(value: float) -> float:
    return value


def test_ratios_are_taken_within_a_round() -> None:
    # The second round was slow for both: the ratio of medians would be 12 / 11, the median of ratios is 2.
    seen = Rounds({"a": [10.0, 40.0, 12.0], "b": [5.0, 20.0, 11.0]})
    assert seen.against("a", "b", same) == 2.0
    assert seen.above("a", "b", same) == 5.0
    assert seen.median("a", same) == 12.0
    assert seen.spread("a", same) == pytest.approx(15 / 12)


def test_a_peer_that_failed_once_is_left_out() -> None:
    seen: Rounds[float] = Rounds({})
    seen.add("a", 1.0)
    seen.give_up("a", "it died")
    assert "a" not in seen.seen
    assert seen.broken == {"a": "it died"}
    assert isnan(seen.median("a", same))
    assert isnan(seen.against("a", "b", same))


@pytest.mark.parametrize(
    ("value", "least", "met"),
    [(1.5, False, True), (1.51, False, False), (1.5, True, True), (1.49, True, False)],
)
def test_a_goal_is_met_or_missed(value: float, least: bool, met: bool) -> None:
    line = verdict("cost", value, 1.5, least=least)
    assert line.startswith("✓" if met else "✗")
    assert ("≥" if least else "≤") in line


def test_a_goal_without_a_measurement_is_neither_met_nor_missed() -> None:
    assert verdict("cost", float("nan"), 1.5) == "– cost: not measured (goal ≤ 1.5)"
