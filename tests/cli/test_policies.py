from __future__ import annotations

import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from steelyard.cli import main
from steelyard.core.policies import POLICIES, find_policy


def test_all_policies_are_listed_with_what_they_do() -> None:
    result = CliRunner().invoke(main, ["policies"])
    assert result.exit_code == 0
    assert len(POLICIES) >= 11
    words = " ".join(result.output.split())
    for name in POLICIES:
        assert name in result.output
        assert find_policy(name).rule.split()[0] in words
    for column in ("policy", "rule", "wins", "loses"):
        assert column in result.output.splitlines()[0]


def test_one_policy_with_its_options_and_more() -> None:
    result = CliRunner().invoke(main, ["policies", "prequal"])
    assert result.exit_code == 0
    assert "NSDI" in result.output
    assert re.search(r"^max_age +1\.0 *$", result.output, re.MULTILINE)
    assert "option" in result.output


@pytest.mark.parametrize("name", POLICIES)
def test_no_constant_of_the_code_is_named(name: str) -> None:
    assert not re.findall(r"\b[A-Z]+_[A-Z_]+", CliRunner().invoke(main, ["policies", name]).output)


def test_a_policy_without_options() -> None:
    assert "No options." in CliRunner().invoke(main, ["policies", "round_robin"]).output


def test_a_policy_of_ones_own_in_the_working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "my_routing_for_policies.py").write_text(
        "from steelyard.core.policies import Policy\n"
        "class First(Policy):\n"
        "    rule = 'the [first], always'\n"
        "    def __init__(self, rng, *, must, eager=True):\n"
        "        super().__init__(rng)\n"
        "    def choose(self, request, candidates, now):\n"
        "        return candidates[0]\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.path", [path for path in __import__("sys").path if path != str(tmp_path)])
    result = CliRunner().invoke(main, ["policies", "my_routing_for_policies:First"])
    assert result.exit_code == 0
    assert "the [first], always" in result.output
    assert "eager   True" in result.output
    assert "must    required" in result.output


@pytest.mark.parametrize("name", ["nope", "no.such:Policy", "os:path", "steelyard.core.policies:Nope"])
def test_one_that_is_none(name: str) -> None:
    result = CliRunner().invoke(main, ["policies", name])
    assert result.exit_code == 2
    assert result.stdout == ""
    assert result.stderr.startswith("error: ")
    assert name.split(":")[-1] in result.stderr
    assert result.stderr.count("\n") == 1
