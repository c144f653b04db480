"""docs/explain.md has every field of a line, and every option."""

from __future__ import annotations

import re

import click
import msgspec
import pytest

from steelyard.cli import main
from steelyard.gateway.telemetry.choices import MAX_CHOICES
from steelyard.link.decision_log.lines import (
    DecisionLine,
    ExcludedReplica,
    FleetLine,
    LoggedAttempt,
    LoggedCandidate,
    LoggedChoice,
)

from .test_docs import rows, section

PAGE = "docs/explain.md"
TABLES = {
    "A request (": DecisionLine,
    "A choice:": LoggedChoice,
    "A replica that": ExcludedReplica,
    "A candidate,": LoggedCandidate,
    "An attempt:": LoggedAttempt,
    "How a model is served": FleetLine,
}


@pytest.mark.parametrize("begins", TABLES)
def test_every_field_is_explained_in_its_order(begins: str) -> None:
    text = section(PAGE, "## The lines")
    part = text.partition(f"\n{begins}")[2].partition("\n\n|")[2].partition("\n\n")[0]
    documented = [row[0].strip("`") for row in rows("|" + part)]
    assert documented == ["field", *(field.encode_name for field in msgspec.structs.fields(TABLES[begins]))]


def test_every_option_is_explained() -> None:
    command = main.get_command(click.Context(main), "explain")
    assert command is not None
    options = {flag for option in command.params for flag in option.opts if flag.startswith("--")}
    documented = {flag for row in rows(section(PAGE, "## Asking")) for flag in re.findall(r"--[\w-]+", row[0])}
    assert documented == options


def test_how_many_looks_are_kept_is_said() -> None:
    assert f"{MAX_CHOICES} at most" in section(PAGE, "## The lines")
