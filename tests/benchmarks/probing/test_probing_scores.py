"""The table of `benchmarks.probing`: what is the same within the noise is the same."""

from __future__ import annotations

from pathlib import Path

import pytest
from benchmarks.scores.probe_spread import Spread
from benchmarks.scores.probing import MAX_LAG_MS, PROBED, UNPROBED, ProbingRound, report
from benchmarks.testbed.rounds import Rounds

from benchmarks import lifecycle

EVEN = Spread(rate=200.0, replicas=1000, shortest=4.5, usual=5.0, longest=5.5, busiest=25)
NONE = Spread(0.0, 0, 0.0, 0.0, 0.0, 0)


def turn(p99: float, spread: Spread, supervisor: float = 5.0, lag: float = 0.1) -> ProbingRound:
    return ProbingRound(supervisor, 7.0, 50.0, 0.5, p99, 0, lag, spread)


def rounds(probed: list[float], bare: list[float], supervisor: float = 5.0) -> Rounds[ProbingRound]:
    made: Rounds[ProbingRound] = Rounds({})
    for value in probed:
        made.add(PROBED, turn(value, EVEN, supervisor))
    for value in bare:
        made.add(UNPROBED, turn(value, NONE))
    return made


def test_the_table_has_a_row_for_each() -> None:
    made = report("1,000 replicas", rounds([1.0, 1.2, 1.1], [1.0, 1.1, 1.2]))
    assert [row[0] for row in made.rows] == [PROBED, UNPROBED]
    assert all(len(row) == len(made.header) for row in made.rows)
    assert made.rows[0][-3:] == ["200", "4.5–5.5", "25"]
    assert made.rows[1][-3:] == ["", "", ""]
    assert made.verdicts[-1].endswith("1000, 1000, 1000")


@pytest.mark.parametrize(
    ("probed", "bare", "met"),
    [
        ([1.05] * 3, [1.0] * 3, True),
        ([1.5] * 3, [1.0] * 3, False),
        ([1.5] * 3, [0.5, 1.0, 2.0], True),  # without probing it differs by more
    ],
)
def test_latency_may_differ_by_the_noise(probed: list[float], bare: list[float], met: bool) -> None:
    line = report("", rounds(probed, bare)).verdicts[1]
    assert line.startswith("✓" if met else "✗")


def test_the_supervisor_has_a_limit() -> None:
    assert report("", rounds([1.0], [1.0], supervisor=31.0)).verdicts[0].startswith("✗")


def test_a_late_benchmark_is_told() -> None:
    made = rounds([1.0], [1.0])
    made.add(PROBED, turn(1.0, EVEN, lag=2 * MAX_LAG_MS))
    assert report("", made).verdicts[-1].endswith("not to be trusted")


def test_a_page_without_a_place_is_found_before_measuring(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lifecycle, "DOCS", tmp_path)
    with pytest.raises(SystemExit, match="no section"):
        lifecycle.check_page("benchmarks/x.py")
    (tmp_path / lifecycle.PAGE).write_text("<!-- begin: benchmarks/x.py -->\n<!-- end: benchmarks/x.py -->\n")
    lifecycle.check_page("benchmarks/x.py")
