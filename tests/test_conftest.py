"""A run of the tests leaves nothing behind."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from steelyard.system import state_directory
from tests.real.processes import Program

ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize("workers", [pytest.param("0", marks=pytest.mark.slow), "2"])
def test_the_folder_for_state_is_removed(tmp_path: Path, workers: str) -> None:
    one = "tests/test_units.py"
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-n", workers, one]
    ours = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    done = subprocess.run(
        command, cwd=ROOT, env={**ours, "TMPDIR": str(tmp_path)}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout
    assert list(tmp_path.glob("steelyard-tests-*")) == []


def test_no_history_is_left_in_the_home_folder() -> None:
    """Neither by a gateway inside a test nor by one that a test starts."""
    command = [
        sys.executable,
        "-c",
        "from steelyard.system import state_directory; print(state_directory())",
    ]
    started = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    assert Path(started) == state_directory() == Path(os.environ["XDG_STATE_HOME"], "steelyard")
    assert "steelyard-tests-" in started


def test_nor_by_a_gateway_that_is_started_with_a_clean_environment(tmp_path: Path) -> None:
    program = Program("state", [sys.executable, "-c", "import os; print(os.environ['XDG_STATE_HOME'])"], 0, tmp_path)
    program.start()
    program.process.wait(60)
    assert program.log.read_text().strip() == os.environ["XDG_STATE_HOME"]
