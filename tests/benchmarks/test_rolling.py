"""The parts of `benchmarks.rolling` that need no model server."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path

import pytest
from benchmarks.rolling.__main__ import Row, report
from benchmarks.rolling.kinds import APPS, KINDS, version
from benchmarks.rolling.programs import ProgramManager, free_ports, until


def test_what_is_lost_is_told_by_its_reason() -> None:
    rows = [
        Row(
            "bentoml",
            "1.4",
            "bentoml serve",
            "answers 200 to GET /readyz",
            1234,
            2,
            {"502 failed": 3},
            0.4,
            7.2,
        ),
        Row("vllm", "0.32", "vllm serve", "answers 200 to GET /health", 99, 2, {}, 1.0, 90.0),
    ]
    text = report(rows, "python -m benchmarks.rolling", Namespace(idempotent=False))
    assert "| bentoml 1.4 | `bentoml serve` | answers 200 to GET /readyz | 1,234 | 2 | 3 × 502 failed |" in text
    assert "| 99 | 2 | 0 |" in text


@pytest.mark.parametrize("name", KINDS)
def test_every_server_has_a_command_of_its_venv(name: str, tmp_path: Path) -> None:
    command, _ = KINDS[name].start(tmp_path / "venv", tmp_path, 15_000)
    assert command[0].startswith(str(tmp_path / "venv/bin"))
    assert any("15000" in word for word in command) or list(tmp_path.glob("*/*"))
    assert version(KINDS[name], tmp_path / "venv") == ""
    assert APPS.is_dir()


def test_programs_end_with_the_bench() -> None:
    with ProgramManager() as bench:
        program = bench.program("sleeper", ["sleep", "600"], {})
        program.start()
        until(lambda: program.runs, 10.0, program.log_tail)
        assert free_ports(3) < 30_000
    assert not program.runs
    assert not bench.folder.exists()
