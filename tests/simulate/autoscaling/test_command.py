"""`steelyard simulate --scaler`, from the words of the command to the files."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from steelyard.cli import main
from steelyard.simulate.scenario.catalog import find_scenarios
from steelyard.simulate.scenario.file import load_scenarios

MINE = """
name: mine
requests: 300
seeds: 1
loads: [2]
slo: 1s
fleet: [{}]
workload:
  sizes: {mean: 100ms}
  shape: {kind: steps, steps: [{at: 5s, factor: 3}]}
autoscale: {scalers: [work, hpa], start: 3, cold_start: 2s}
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("mine.yaml").write_text(MINE)


def simulate(*words: str) -> Result:
    return CliRunner().invoke(main, ["simulate", *words])


def test_a_table_with_a_line_for_each_scaler() -> None:
    result = simulate("mine.yaml")
    assert result.exit_code == 0
    for text in ("2 replicas", "work", "hpa", "within SLO", "replica-hours"):
        assert text in result.stdout


def test_scalers_named_on_the_command_line_are_compared_instead() -> None:
    result = simulate("mine.yaml", "--scaler", "fixed@4,kpa@target=0.5", "--out", "out")
    assert result.exit_code == 0
    assert "fixed@4" in result.stdout
    assert "hpa" not in result.stdout
    assert "kpa@target=0.5" in Path("out/results.csv").read_text()
    assert "Requests within SLO, and what they cost" in Path("out/report.html").read_text()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["mine.yaml", "--scaler", "nobody"], "nobody"),
        (["mine.yaml", "--scaler", "fixed@many"], "scaler 'fixed@many': after fixed@ comes the number of replicas"),
        (["W1", "--scaler", "work"], "--scaler needs a scenario with `autoscale`"),
    ],
)
def test_a_mistake_is_told_in_one_line(words: list[str], message: str) -> None:
    result = simulate(*words)
    assert result.exit_code == 2
    assert message in result.stderr
    assert len(result.stderr.splitlines()) == 1


@pytest.mark.parametrize("name", ["A1", "A6"])
def test_built_in_workloads_can_be_shown_and_read_back(name: str) -> None:
    Path("shown.yaml").write_text(simulate(name, "--show").stdout)
    assert load_scenarios("shown.yaml") == find_scenarios(name)
