"""A gateway of two workers writes why, is asked why, and is told to stop writing."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from steelyard.link.decision_log.lines import DecisionLine, FleetLine
from tests.harness import Serving, StubReplica, config, model, scripts, wait_until

pytestmark = pytest.mark.smoke


@pytest.fixture(scope="module")
def stubs() -> Iterator[list[StubReplica]]:
    with StubReplica("a") as a, StubReplica("b") as b:
        yield [a, b]


def lines(path: Path) -> list[DecisionLine | FleetLine]:
    whole = path.read_bytes().split(b"\n")[:-1]
    return [msgspec.json.decode(line, type=DecisionLine | FleetLine) for line in whole]


def fleets(path: Path) -> list[FleetLine]:
    return [line for line in lines(path) if isinstance(line, FleetLine)]


def logged(path: Path, id: str) -> DecisionLine | None:
    found = [line for line in lines(path) if isinstance(line, DecisionLine) and line.id == id]
    return found[0] if found else None


def explain(*arguments: str | Path) -> str:
    command = [sys.executable, "-m", "steelyard", "explain", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, encoding="utf-8", check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_each_request_is_written_down_and_explained(stubs: list[StubReplica]) -> None:
    configuration = config({"m": model(*stubs)}, workers=2, decision_log={"path": "decisions.jsonl", "sample_rate": 1})
    with Serving(configuration) as serving:
        path = serving.folder / "decisions.jsonl"
        ids = [f"e2e-{number}" for number in range(20)]
        for id in ids:
            assert serving.ask(headers={"x-request-id": id, **scripts.header(scripts.plain())}).status == 200
        wait_until(lambda: all(logged(path, id) for id in ids), "a line for each request")
        wait_until(lambda: {line.worker for line in fleets(path)} == {0, 1}, "a line for each worker")
        fleet = fleets(path)
        assert {line.workers for line in fleet} == {2}
        assert {len(line.replicas) for line in fleet} == {2}
        line = logged(path, "e2e-7")
        assert line is not None
        assert (line.verdict, line.status, line.model) == ("met", 200, "m")
        (attempt,) = line.attempts
        assert line.choices[-1].chosen == attempt.replica
        assert attempt.seconds is not None
        assert attempt.seconds <= line.seconds
        said = explain("e2e-7", "--config", serving.file)
        assert said.startswith(f"e2e-7 went to {attempt.replica}")
        del configuration["decision_log"]
        serving.write(configuration)
        serving.process.send_signal(1)
        wait_until(lambda: not _written(serving, path), "nothing is written any more")


def _written(serving: Serving, path: Path) -> bool:
    """Does a request still reach the log? Of two workers both must have stopped."""
    before = path.stat().st_size
    for _ in range(8):
        serving.ask(headers=scripts.header(scripts.plain()))
    try:
        wait_until(lambda: path.stat().st_size > before, "more", 1.0)
    except AssertionError:
        return False
    return True
