"""The very beginning of the command line: Ctrl-C while it is being imported, and terminals that lack signs."""

from __future__ import annotations

import importlib
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner

import steelyard
from steelyard.cli import main

from .test_explain import LINE, write
from .test_top_asks import answering, view

# Ctrl-C is pressed when this is imported.
PRESSED = """
import runpy, sys

class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == {pressed_at!r}:
            raise KeyboardInterrupt

sys.meta_path.insert(0, Finder())
sys.argv = ["steelyard", "policies"]
"""
SCRIPT = "from steelyard.entry import main\nmain()"  # as the installed command does it
MODULE = "runpy.run_module('steelyard', run_name='__main__')"


@pytest.mark.parametrize("begun", [SCRIPT, MODULE])
@pytest.mark.parametrize("pressed_at", ["steelyard.cli", "click", "msgspec"])
def test_ctrl_c_while_it_is_imported_is_quiet(begun: str, pressed_at: str) -> None:
    code = PRESSED.format(pressed_at=pressed_at) + begun
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


def test_hardly_anything_is_imported_before_that() -> None:
    code = "import sys; before = set(sys.modules); import steelyard.entry; print(*set(sys.modules) - before)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert set(done.stdout.split()) == {"steelyard", "steelyard.entry"}


def test_the_command_is_that() -> None:
    project = (Path(__file__).parents[2] / "pyproject.toml").read_text()
    assert 'steelyard = "steelyard.entry:main"' in project


def test_what_the_package_offers_is_there() -> None:
    assert set(steelyard.EXPORTED_FROM) == set(steelyard.__all__)
    for name, module in steelyard.EXPORTED_FROM.items():
        assert getattr(steelyard, name) is getattr(importlib.import_module(module, "steelyard"), name)
    assert set(steelyard.__all__) <= set(dir(steelyard))
    with pytest.raises(AttributeError, match="nothing_such"):
        _ = steelyard.nothing_such


# ---------------------------------------------------------------------- terminals


def test_a_terminal_without_the_signs_gets_others(tmp_path: Path) -> None:
    log = write(tmp_path / "decisions.jsonl", msgspec.structs.replace(LINE, model="modèle→"))
    runner = CliRunner(charset="ascii")
    with answering(view().replace(b"llama-2", "modèle→".encode())) as url:
        calls = [["top", "--once", "--admin", url], ["explain", "req-1", "--log", str(log)], ["policies"]]
        calls.append(["simulate", "W1", "--requests", "50", "--seeds", "1", "--policy", "round_robin,least_work"])
        for call in calls:
            result = runner.invoke(main, call)
            assert result.exit_code == 0, (call, result.output, result.exception)
            assert result.stdout_bytes
