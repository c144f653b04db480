"""docs/report.md shows what the command prints, and explains all there is."""

from __future__ import annotations

import re
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from steelyard.cli import main
from steelyard.cli.report.export import CSV_COLUMNS

from .test_docs import ROOT, blocks, rows, section

PAGE = ROOT / "docs/report.md"


def test_the_report_shown_is_the_one_printed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("COLUMNS", raising=False)
    code, commands, shown = (block.text for block in blocks(PAGE))
    exec(compile(code, str(PAGE), "exec"), {"__name__": "__main__"})
    arguments = commands.splitlines()[0].split()[1:]
    printed = CliRunner().invoke(main, arguments).stdout
    assert [line.rstrip() for line in printed.splitlines()] == shown.splitlines()


def test_all_options_of_report_are_explained() -> None:
    command = main.get_command(click.Context(main), "report")
    assert command is not None
    options = {flag for option in command.params for flag in option.opts if flag.startswith("--")}
    assert {row[0].strip("`") for row in rows(section("docs/report.md", "## The options"))[1:]} == options


def test_all_columns_of_the_csv_are_explained() -> None:
    documented = rows(section("docs/report.md", "## The columns of the CSV"))[1:]
    names = {name for row in documented for name in re.findall(r"`(\w+)`", row[0])}
    assert names == set(CSV_COLUMNS)
