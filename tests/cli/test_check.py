from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from rich.console import Console

from steelyard.cli import main, output
from steelyard.config import schema

EXAMPLE = Path(__file__).parents[2] / "examples/gateway.yaml"
UNWISE = "models:\n  a:\n    dialect: oip\n    replicas: [{url: 'http://a:1'}, {url: 'http://b:1', zone: z}]\n"
WRONG = "worker: 1\nmodels:\n  gpt-4.1:\n    max_queue: long\n"


def check(*arguments: str | Path) -> Result:
    return CliRunner().invoke(main, ["check", *map(str, arguments)])


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "wise.yaml").write_text(UNWISE + "    slo: {latency: 1s}\n")
    (tmp_path / "unwise.yaml").write_text(UNWISE)
    (tmp_path / "wrong.yaml").write_text(WRONG)
    return tmp_path


def test_the_example_is_valid_and_wise() -> None:
    result = check(EXAMPLE, "--strict")
    assert result.exit_code == 0
    assert "valid: 2 models, 5 replicas; 0 warnings, 1 note" in result.stdout
    assert "warning:" not in result.stdout


def test_a_warning_is_one_line_with_its_place(folder: Path) -> None:
    result = check("unwise.yaml")
    assert result.exit_code == 0
    assert result.stdout.splitlines() == [
        "unwise.yaml:2: warning: models.a: No `slo` is set, so reports and alerts have no "
        "target. Add slo, for example {latency: 2s, percentile: 99, availability: 99.9}. [no-slo]",
        "unwise.yaml:4: note: models.a.replicas[1].zone: is read, but replicas are not chosen by zone yet in "
        "this version",
        "unwise.yaml: valid: 1 model, 2 replicas; 1 warning, 1 note",
    ]


@pytest.mark.parametrize(("file", "code"), [("wise.yaml", 0), ("unwise.yaml", 1), ("wrong.yaml", 2), ("no.yaml", 2)])
@pytest.mark.parametrize("form", ["text", "json"])
def test_exit_codes_with_strict(folder: Path, file: str, code: int, form: str) -> None:
    assert check(file, "--strict", "--format", form).exit_code == code
    assert check(file, "--format", form).exit_code == (2 if code == 2 else 0)


def test_all_errors_are_told_a_line_each(folder: Path) -> None:
    result = check("wrong.yaml")
    assert result.stdout == ""
    assert result.stderr.splitlines() == [
        "error: wrong.yaml:1: top level: unknown key `worker` (did you mean `workers`?)",
        'error: wrong.yaml:4: models."gpt-4.1".max_queue: expected a whole number, got text',
    ]


def test_of_a_file_that_is_no_configuration_little_is_told(folder: Path) -> None:
    (folder / "other.yaml").write_text("".join(f"name {n} {'x' * 200}: 1\n" for n in range(3000)))
    lines = check("other.yaml").stderr.splitlines()
    assert lines[-1].startswith("error: other.yaml: 2,951 more errors are not shown")  # `models` is missing, too
    assert len(lines) == 51
    report = json.loads(check("other.yaml", "--format", "json").stdout)
    assert [f"error: other.yaml: {report['errors'][-1]['what']}", len(report["errors"])] == [lines[-1], 51]


def test_with_errors_there_is_advice_on_the_rest(folder: Path) -> None:
    slo = "{latency: 500, percentile: 0.99}"
    (folder / "both.yaml").write_text(
        f"worker: 1\n{UNWISE}    timeout: 10s\n    slo: {slo}\n    retry: {{max_attempts: x}}\n"
    )
    result = check("both.yaml")
    assert result.exit_code == 2
    assert [line.split(":")[2] for line in result.stderr.splitlines()] == ["1", "8"]
    codes = {line.rpartition("[")[2] for line in result.stdout.splitlines() if "warning" in line}
    assert codes == {"no-unit]", "slo-above-timeout]", "fraction-as-percent]"}
    report = json.loads(check("both.yaml", "--format", "json").stdout)
    assert (report["valid"], len(report["errors"]), len(report["warnings"])) == (False, 2, 3)


def test_what_variables_hold_is_not_shown(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STEELYARD_TEST_KEY", "t0p-s3cr3t")
    start = "runtime: {command: 'no-such-${STEELYARD_TEST_KEY} {port}'}"
    (folder / "secret.yaml").write_text(f"models:\n  m:\n    dialect: ${{STEELYARD_TEST_KEY}}\n    {start}\n")
    for form in ("text", "json"):
        result = check("secret.yaml", "--format", form)
        assert "t0p" not in result.stdout + result.stderr
        assert "${STEELYARD_TEST_KEY}" in result.stdout + result.stderr


def test_warnings_do_not_show_what_variables_hold(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STEELYARD_TEST_NAME", "t0p-s3cr3t")
    two = (
        "${STEELYARD_TEST_NAME}: {dialect: http, replicas: [http://a:1]}\n  b: {dialect: http, replicas: [http://b:1]}"
    )
    (folder / "named.yaml").write_text(f"models:\n  {two}\n")
    for form in ("text", "json"):
        result = check("named.yaml", "--format", form)
        assert "unroutable-model" in result.stdout
        assert "t0p" not in result.stdout
        assert "[/${STEELYARD_TEST_NAME}]" in result.stdout


def test_for_programs(folder: Path) -> None:
    report = json.loads(check("unwise.yaml", "--format", "json").stdout)
    assert (report["file"], report["valid"], report["errors"]) == ("unwise.yaml", True, [])
    (warning,) = report["warnings"]
    assert (warning["code"], warning["line"], warning["key"]) == ("no-slo", 2, "models.a")
    assert warning["what"]
    assert warning["do"]
    assert [(note["line"], note["key"]) for note in report["notes"]] == [(4, "models.a.replicas[1].zone")]


def test_errors_for_programs(folder: Path) -> None:
    result = check("wrong.yaml", "--format", "json")
    report = json.loads(result.stdout)
    assert result.stderr == ""
    assert not report["valid"]
    assert [(error["line"], error["key"]) for error in report["errors"]] == [
        (1, "top level"),
        (4, 'models."gpt-4.1".max_queue'),
    ]
    (missing,) = json.loads(check("no.yaml", "--format", "json").stdout)["errors"]
    assert missing["line"] is None
    assert "No such file" in missing["what"]


def test_in_a_terminal(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(output, "stdout", lambda: Console(force_terminal=True, width=80, color_system=None))
    lines = [line.rstrip() for line in check("unwise.yaml").stdout.splitlines()]
    assert lines[0] == "warning  models.a  unwise.yaml:2  no-slo"
    assert lines[1].startswith("         No `slo` is set")
    assert any(line.startswith("         → Add slo") for line in lines)
    assert "note     models.a.replicas[1].zone  unwise.yaml:4" in lines
    assert lines[-1] == "✓ unwise.yaml: valid: 1 model, 2 replicas; 1 warning, 1 note"
    assert max(map(len, lines)) <= 80


def test_files_that_it_names_are_looked_at(folder: Path) -> None:
    (folder / "found.yaml").write_text(
        UNWISE + "    discovery: [{kind: file, path: no.yaml}]\nadmin: {token_file: no.txt}\n"
    )
    assert check("found.yaml").stderr.splitlines() == [
        f"error: found.yaml:5: models.a.discovery[0].path: {folder}/no.yaml: cannot be read: No such file or directory",
        f"error: found.yaml:6: admin.token_file: {folder}/no.txt: cannot be read: No such file or directory",
    ]


def test_replicas_that_would_be_started_are_counted_and_their_programs_looked_for(folder: Path) -> None:
    started = "models: {a: {dialect: oip, slo: {latency: 1s}, concurrency: 1, runtime: {command: './serve {port}'}"
    (folder / "one.yaml").write_text(started + "}}")
    (folder / "some.yaml").write_text(started + ", autoscale: {max: 4}}}")
    (folder / "any.yaml").write_text(started + ", autoscale: {}}}")
    assert "valid: 1 model, 0 replicas and up to 1 to start; 2 warnings, 0 notes" in check("one.yaml").stdout
    found = check("some.yaml")
    assert found.exit_code == 0
    assert f"Nothing can be started: there is no program {folder}/serve." in found.stdout
    assert "valid: 1 model, 0 replicas and up to 4 to start; 1 warning, 0 notes" in found.stdout
    assert "and any number to start" in check("any.yaml").stdout


def test_the_example_of_scaling_is_valid_and_wise(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(Path(sys.executable).parent))
    result = check(EXAMPLE.with_name("autoscale.yaml"), "--strict")
    assert result.exit_code == 0
    assert "valid: 1 model, 0 replicas and up to 4 to start; 0 warnings, 0 notes" in result.stdout


def test_the_schema(folder: Path) -> None:
    result = check("--schema")
    assert result.exit_code == 0
    assert json.loads(result.stdout) == schema()


@pytest.mark.parametrize(
    "arguments", [[], ["a.yaml", "b.yaml"], ["wise.yaml", "--schema"], ["wise.yaml", "--format", "x"]]
)
def test_a_wrong_call(folder: Path, arguments: list[str]) -> None:
    result = check(*arguments)
    assert result.exit_code == 2
    assert result.stderr.startswith("error: ")
    assert result.stderr.count("\n") == 1


def test_a_policy_of_ones_own_in_the_working_directory(folder: Path) -> None:
    (folder / "own_for_check.py").write_text(
        "from steelyard import Policy\n"
        "class Mine(Policy):\n"
        "    def choose(self, request, candidates, now):\n"
        "        return candidates[0]\n"
    )
    (folder / "own.yaml").write_text(UNWISE + "    policy: own_for_check:Mine\n")
    done = subprocess.run(
        [sys.executable, "-m", "steelyard", "check", "own.yaml"],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "valid: 1 model" in done.stdout


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ("policy: unfinished_for_check:Mine", "policy 'unfinished_for_check:Mine': Mine does not define choose"),
        (
            "autoscale: {scaler: unfinished_for_check:Ours}",
            "scaler 'unfinished_for_check:Ours': Ours does not define recommend",
        ),
    ],
)
def test_a_policy_and_a_scaler_without_their_method(
    folder: Path, monkeypatch: pytest.MonkeyPatch, keys: str, message: str
) -> None:
    (folder / "unfinished_for_check.py").write_text(
        "from steelyard import Policy\n"
        "from steelyard.core.scalers import Scaler\n"
        "class Mine(Policy): pass\n"
        "class Ours(Scaler): pass\n"
    )
    monkeypatch.syspath_prepend(folder)
    (folder / "own.yaml").write_text(UNWISE + f"    {keys}\n")
    done = CliRunner().invoke(main, ["check", str(folder / "own.yaml")])
    assert done.exit_code == 2
    assert message in done.stderr
