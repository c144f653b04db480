"""`steelyard simulate --replay` as people use it."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from steelyard.cli import main
from steelyard.simulate.engine.servers import SlotServer

from ..recorder import fleet_line, jobs, record, write


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("COLUMNS", raising=False)
    servers = [SlotServer(f"r{place}", speed) for place, speed in enumerate((1.0, 1.5, 2.0))]
    write(tmp_path / "decisions.log", record([*servers], jobs(900, 60.0, 0.04, 3), "round_robin"))
    return "decisions.log"


def simulate(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["simulate", *arguments])


def test_the_table_and_what_follows(log: str) -> None:
    result = simulate("--replay", log, "--policy", "least_work,least_work@1", "--seeds", "2")
    assert result.exit_code == 0, result.output
    title, header, observed, replayed, *rest = result.stdout.splitlines()
    assert title.startswith("m: 900 requests in 1")
    assert header.split() == ["policy", "p50", "p90", "p99", "mean", "lost", "p99", "against"]
    assert observed.startswith("round_robin, observed")
    assert replayed.startswith("round_robin, predicted")
    assert "of the observed" in replayed
    assert [line.split()[0] for line in rest[:2]] == ["least_work", "least_work@1"]
    assert any(line.startswith("- own error: p99 of round_robin predicted") for line in rest)


def test_without_a_policy_it_states_its_error(log: str) -> None:
    result = simulate("--replay", log, "--seeds", "1")
    assert result.exit_code == 0
    assert "own error" in result.stdout


def test_files(log: str, tmp_path: Path) -> None:
    result = simulate("--replay", log, "--policy", "least_work", "--seeds", "1", "--out", "results")
    assert result.exit_code == 0, result.output
    assert "wrote results/replay.csv, results/replay.html" in result.stdout
    with (tmp_path / "results/replay.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [(row["policy"], row["what"]) for row in rows] == [
        ("round_robin", "observed"),
        ("round_robin", "predicted"),
        ("least_work", "predicted"),
    ]
    assert all(float(row["p99"]) > float(row["p50"]) > 0.0 for row in rows)
    page = (tmp_path / "results/replay.html").read_text(encoding="utf-8")
    assert page.count("<svg") == 2
    assert "own error: p99 of round_robin" in page
    assert "http://" not in page.replace("http://www.w3.org", "")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--replay", "missing.log"], "missing.log: cannot read it"),
        (["W1", "--replay", "decisions.log"], "not with SCENARIO"),
        (["--replay", "decisions.log", "--load", "0.5"], "not with --load"),
        (["--replay", "decisions.log", "--model", "x"], "no requests of model 'x' in it; there are m"),
        (["--replay", "decisions.log", "--policy", "nonsense"], "nonsense"),
        (["--replay", "decisions.log", "--policy", "ideal"], "policies of the balancer only"),
        (["W1", "--model", "m"], "--model goes with --replay and --fit only"),
    ],
)
def test_what_is_wrong_is_one_line(log: str, arguments: list[str], message: str) -> None:
    result = simulate(*arguments)
    assert result.exit_code != 0
    (line,) = [line for line in result.stderr.splitlines() if line.lower().startswith("error")]
    assert message in line
    assert not result.stdout


def test_a_sampled_log(log: str, tmp_path: Path) -> None:
    write(tmp_path / "some.log", [fleet_line(["r0"], "least_work", sample_rate=0.01)])
    result = simulate("--replay", "some.log")
    assert result.exit_code != 0
    assert len(result.stderr.splitlines()) == 1


def test_the_help_teaches() -> None:
    result = simulate("--help")
    assert "steelyard simulate --replay decisions.jsonl --policy least_work,round_robin" in result.stdout
    assert "sample_rate: 1" in result.stdout
