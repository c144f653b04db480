from __future__ import annotations

import csv
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from steelyard.cli import main
from steelyard.simulate.scenario.catalog import CATALOG, TITLES, find_scenarios
from steelyard.simulate.scenario.file import load_scenarios

SMALL = """\
name: small
requests: 300
seeds: 2
loads: [0.6, 0.9]
fleet:
- {count: 2}
- {count: 1, speed: 2.0}
policies: [round_robin, least_work@1]
"""
AZURE = "TIMESTAMP,ContextTokens,GeneratedTokens\n"


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.path", list(sys.path))
    monkeypatch.delenv("COLUMNS", raising=False)
    (tmp_path / "small.yaml").write_text(SMALL)
    return tmp_path


def simulate(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["simulate", *arguments])


# ---------------------------------------------------------------------- what it shows


def test_the_table() -> None:
    result = simulate("small.yaml")
    assert result.exit_code == 0
    title, header, *lines = result.stdout.splitlines()
    assert title.strip() == "small"
    columns = "load policy p50 p90 p99 p99.9 mean p99 ÷ ideal slowdown ≤ 3 requests/s"
    assert header.split() == columns.split()
    assert [line.split()[0] for line in lines[:3]] == ["60", "round_robin", "least_work@1"]
    assert "ideal (reference)" in lines[0]
    assert sum("*" in line for line in lines[:7]) == 2  # the best of each load
    assert "±" in lines[1]
    assert "no request failed or was refused" in result.stdout


def test_stderr_has_no_progress_bar_when_it_is_no_terminal() -> None:
    result = simulate("small.yaml")
    (line,) = result.stderr.splitlines()
    assert line.startswith("note: small: A run has only ")


def test_narrow_terminals_get_fewer_columns_not_broken_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "72")
    result = simulate("small.yaml", "--seeds", "3")
    assert max(len(line) for line in result.stdout.splitlines() if "·" not in line) <= 72
    header = result.stdout.splitlines()[1].split()
    assert "p99" in header
    assert "mean" not in header
    assert "…" not in result.stdout


def test_slos_and_refusals_have_columns() -> None:
    text = SMALL + "slo: 100ms\nworkload: {deadline: 300ms}\n"
    Path("slo.yaml").write_text(text.replace("0.9", "1.5"))
    result = simulate("slo.yaml")
    assert "within SLO" in result.stdout.splitlines()[1]
    assert "refused" in result.stdout.splitlines()[1]
    assert "+ most within SLO and deadline" in result.stdout


def test_options_change_the_scenario() -> None:
    changed = ("--load", "0.5", "--seeds", "1", "--requests", "100", "--policy", "random, least_connections@2,random")
    result = simulate("small.yaml", *changed, "--concurrency", "auto", "--show")
    Path("changed.yaml").write_text(result.stdout)
    (scenario,) = load_scenarios("changed.yaml")
    assert scenario.loads == (0.5,)
    assert (scenario.seeds, scenario.requests) == (1, 100)
    assert scenario.policies == ("random", "least_connections@2")
    assert scenario.balancing.concurrency == "auto"
    assert scenario.fleet == load_scenarios("small.yaml")[0].fleet


def test_no_ideal() -> None:
    result = simulate("small.yaml", "--no-ideal", "--seeds", "1")
    assert result.exit_code == 0
    assert "ideal" not in result.stdout


def test_no_ideal_where_there_can_be_none() -> None:
    Path("batch.yaml").write_text("name: b\nrequests: 50\nseeds: 1\nfleet: [{slots: 4, batching: {slope: 0.1}}]\n")
    result = simulate("batch.yaml")
    assert result.exit_code == 0
    assert "ideal" not in result.stdout


@pytest.mark.parametrize("name", ["w2", "W9"])
def test_built_in_workloads_can_be_shown_edited_and_run(name: str) -> None:
    result = simulate(name, "--show")
    Path("shown.yaml").write_text(result.stdout)
    assert load_scenarios("shown.yaml") == find_scenarios(name)
    result = simulate("shown.yaml", "--requests", "60", "--seeds", "1", "--load", "0.5", "--policy", "random")
    assert result.exit_code == 0
    assert result.stdout.count("random") == len(find_scenarios(name))


def test_help_lists_the_built_in_workloads() -> None:
    result = simulate("--help")
    for name in CATALOG:
        assert name in result.output
        assert TITLES[name] in result.output


def test_a_trace() -> None:
    rows = "".join(f"2023-11-16 18:17:{n % 60:02}.0000000,{100 + n},{10 + n}\n" for n in range(50))
    Path("t.csv").write_text(AZURE + rows)
    result = simulate("--trace", "t.csv", "--load", "0.5", "--policy", "round_robin")
    assert result.exit_code == 0
    assert result.stdout.startswith("t.csv")


def test_a_policy_of_ones_own() -> None:
    Path("my_routing_for_simulate.py").write_text(
        "from steelyard.core.policies import Policy\n"
        "class First(Policy):\n"
        "    def choose(self, request, candidates, now):\n"
        "        return candidates[0]\n"
    )
    result = simulate("small.yaml", "--policy", "my_routing_for_simulate:First@1", "--seeds", "1")
    assert result.exit_code == 0
    assert "my_routing_for_simulate:First@1 *" in result.stdout


# ---------------------------------------------------------------------- what it writes


def test_files(here: Path) -> None:
    result = simulate("small.yaml", "--out", "deep/out")
    assert result.exit_code == 0
    assert "wrote deep/out/results.csv, deep/out/runs.csv, deep/out/report.html" in result.stdout
    out = here / "deep" / "out"
    assert sorted(path.name for path in out.iterdir()) == ["report.html", "results.csv", "runs.csv"]
    with open(out / "results.csv", encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [(row["load"], row["policy"]) for row in rows] == [
        (load, policy) for load in ("0.6", "0.9") for policy in ("ideal", "round_robin", "least_work@1")
    ]
    with open(out / "runs.csv", encoding="utf-8", newline="") as file:
        assert len(list(csv.DictReader(file))) == 2 * 3 * 2
    assert "<title>small · Steelyard simulation</title>" in (out / "report.html").read_text(encoding="utf-8")


def test_same_seeds_same_bytes_with_any_number_of_processes(here: Path) -> None:
    simulate("small.yaml", "--out", "one")
    simulate("small.yaml", "--out", "two", "--jobs", "2")
    for name in ("results.csv", "runs.csv", "report.html"):
        assert (here / "one" / name).read_bytes() == (here / "two" / name).read_bytes()


# ---------------------------------------------------------------------- what can be wrong

WRONG = {
    "no YAML": ("x.yaml", "name: [\n", ["x.yaml"], "x.yaml:2: not valid YAML"),
    "unknown key": ("x.yaml", "fleet:\n- count: 1\n  sped: 2\n", ["x.yaml"], "x.yaml:3: fleet[0]"),
    "wrong type": (
        "x.yaml",
        "name: x\nrequests: many\n",
        ["x.yaml"],
        "x.yaml:2: requests: expected a whole number, got text",
    ),
    "unknown policy in a file": ("x.yaml", "policies: [a]\n", ["x.yaml"], "x.yaml:1: policies[0]: no policy 'a'"),
    "no such trace in a file": (
        "x.yaml",
        "workload: {trace: {file: no}}\n",
        ["x.yaml"],
        "x.yaml:1: workload.trace.file",
    ),
    "not text": ("x.yaml", b"\xff\xfe", ["x.yaml"], "x.yaml: not a UTF-8 text file"),
    "no such file": ("", "", ["no.yaml"], "no.yaml: cannot be read"),
    "no such trace": ("", "", ["--trace", "no.csv"], "no.csv: No such file"),
    "bad trace line": ("t.csv", AZURE + "2023-11-16 18:17:03,x,1\n", ["--trace", "t.csv"], "t.csv:2: ContextTokens"),
    "no such workload": ("", "", ["W12"], "no built-in scenario 'W12'"),
    "nothing to run": ("", "", [], "name one scenario"),
    "two things to run": ("", "", ["W1", "--trace", "t.csv"], "name one scenario"),
    "unknown policy": ("", "", ["W1", "--policy", "random,nope"], "no policy 'nope'"),
    "no such concurrency": ("", "", ["W1", "--policy", "random@none"], "policy 'random@none'"),
    "policy left out": ("", "", ["W1", "--policy", "a,,b"], "Invalid value for '--policy'"),
    "only the ideal, and not": (
        "",
        "",
        ["W1", "--policy", "ideal", "--no-ideal"],
        "W1 4 equal, exponential: no policy is left",
    ),
    "load no number": ("", "", ["W1", "--load", "0.5,high"], "Invalid value for '--load': '0.5,high'"),
    "load of nothing": ("", "", ["W1", "--load", "0"], "W1 4 equal, exponential: `loads` must be above 0"),
    "load not finite": ("", "", ["W1", "--load", "nan"], "W1 4 equal, exponential: `loads` must be"),
    "concurrency of none": ("", "", ["W1", "--concurrency", "0"], "Invalid value for '--concurrency'"),
    "no seeds": ("", "", ["W1", "--seeds", "0"], "Invalid value for '--seeds'"),
    "no requests": ("", "", ["W1", "--requests", "-1"], "Invalid value for '--requests'"),
    "no such option": ("", "", ["W1", "--frobnicate"], "No such option"),
}


@pytest.mark.parametrize("case", WRONG)
def test_one_line_exit_code_2_and_nothing_written(case: str, here: Path) -> None:
    name, content, arguments, message = WRONG[case]
    if name:
        (here / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    before = sorted(here.iterdir())
    result = simulate(*arguments, "--out", "out")
    assert result.exit_code == 2
    assert result.stdout == ""
    assert result.stderr.startswith(f"error: {message}")
    assert result.stderr.count("\n") == 1
    assert sorted(here.iterdir()) == before


def test_a_file_where_the_directory_should_be() -> None:
    result = simulate("small.yaml", "--out", "small.yaml")
    assert result.exit_code == 2
    assert result.stderr.startswith("error: --out small.yaml: there is a file of that name")
    assert Path("small.yaml").read_text() == SMALL


def test_nothing_is_written_when_the_report_fails(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> str:
        raise RuntimeError("boom")

    monkeypatch.setattr("steelyard.simulate.report.page.render", fail)
    result = simulate("small.yaml", "--out", "out")
    assert isinstance(result.exception, RuntimeError)
    assert not (here / "out").exists()


def test_interrupted(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("steelyard.cli.simulate.command.run_all", interrupt)
    result = simulate("small.yaml", "--out", "out")
    assert result.exit_code == 130
    assert "Traceback" not in result.stderr
    assert not (here / "out").exists()
