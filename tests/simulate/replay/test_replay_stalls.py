"""A gateway that stood still for a while: found, and no policy's fault."""

from __future__ import annotations

from pathlib import Path

import msgspec
import numpy as np
import pytest

from steelyard.link.decision_log.lines import DecisionLine
from steelyard.simulate.engine.job import Job
from steelyard.simulate.engine.servers import BatchServer, SlotServer
from steelyard.simulate.replay.calibration import calibrate
from steelyard.simulate.replay.compare import compare
from steelyard.simulate.replay.findings import sentences
from steelyard.simulate.replay.recording import Recording, read_recording

from ..recorder import CLOCK_START_SECONDS, LogLine, jobs, record, write

STALL_BEGIN_SECONDS, STALL_END_SECONDS = 12.0, 13.0
SPEEDS = (1.0, 1.0, 1.5, 2.0)
RATE_PER_SECOND = 70.0


def held_back(todo: list[Job]) -> list[Job]:
    """What comes while the gateway stands still is taken up just after it."""
    for n, job in enumerate(job for job in todo if STALL_BEGIN_SECONDS <= job.intended_at < STALL_END_SECONDS):
        job.intended_at = STALL_END_SECONDS + 1e-4 * (n + 1)
    return sorted(todo, key=lambda job: job.intended_at)


def seen_late(line: LogLine) -> LogLine:
    """Round robin decides without knowing what ended: only the times that are written down differ."""
    if (
        not isinstance(line, DecisionLine)
        or not STALL_BEGIN_SECONDS < line.at - CLOCK_START_SECONDS + line.seconds < STALL_END_SECONDS
    ):
        return line
    seconds = STALL_END_SECONDS - (line.at - CLOCK_START_SECONDS)
    attempt = msgspec.structs.replace(line.attempts[-1], seconds=seconds - line.attempts[-1].after)
    return msgspec.structs.replace(line, seconds=seconds, attempts=(*line.attempts[:-1], attempt))


def stalled(folder: Path, seconds: float = 30.0) -> tuple[Recording, list[Job]]:
    todo = held_back(jobs(int(RATE_PER_SECOND * seconds), RATE_PER_SECOND, 0.04, 3))
    servers = [SlotServer(f"r{place}", speed) for place, speed in enumerate(SPEEDS)]
    lines = record([*servers], todo, "round_robin")
    return read_recording(write(folder / "log", [seen_late(line) for line in lines])), todo


def test_it_is_found_and_nothing_else(tmp_path: Path) -> None:
    recording, _ = stalled(tmp_path)
    (stall,) = calibrate(recording).stalls
    assert stall.begin == pytest.approx(STALL_BEGIN_SECONDS, abs=0.05)
    assert stall.end == pytest.approx(STALL_END_SECONDS)


def test_it_is_in_every_replay(tmp_path: Path) -> None:
    recording, _ = stalled(tmp_path)
    comparison = compare(recording, ["least_work"], seeds=3)
    assert abs(comparison.replay_error) <= 0.1
    (other,) = comparison.alternatives
    assert max(other.runs[0].seconds) > STALL_END_SECONDS - STALL_BEGIN_SECONDS, "no policy would have been spared"
    assert any("in all the gateway or its machine stood still" in text for text in sentences(comparison))


def test_it_makes_no_replica_slow_and_no_request_large(tmp_path: Path) -> None:
    recording, todo = stalled(tmp_path)
    explanation = calibrate(recording)
    assert all(len(stretches) == 1 for stretches in explanation.speeds.values())
    asked = sum(job.work for job in todo)
    scale = explanation.speeds["r0"][0].speed
    assert explanation.work.sum() / scale == pytest.approx(asked, rel=0.1)
    assert explanation.work.max() / scale < 2.0 * max(job.work for job in todo)


@pytest.mark.parametrize("slots", [1, 4])
def test_an_ordinary_run_has_none(tmp_path: Path, slots: int) -> None:
    servers = [SlotServer(f"r{place}", speed, slots) for place, speed in enumerate(SPEEDS)]
    lines = record([*servers], jobs(2000, RATE_PER_SECOND * slots**0.8, 0.04, 5), "least_work")
    assert calibrate(read_recording(write(tmp_path / "log", lines))).stalls == []


def test_few_long_requests_are_no_standstill(tmp_path: Path) -> None:
    """Nothing happens for long, though replicas are busy; but what then ends does not end together."""
    servers = [BatchServer(f"r{place}", 1.0, 1_000_000, lambda running: 1.0) for place in range(4)]
    todo = [job for n, job in enumerate(jobs(400, 40.0, 2.0, 5)) if n % 100 < 8]
    recording = read_recording(write(tmp_path / "log", record([*servers], todo, "round_robin")))
    assert calibrate(recording).stalls == []
    assert np.isfinite(compare(recording, [], seeds=1).replay_error)


def test_silence_before_many_come_at_once_is_no_standstill(tmp_path: Path) -> None:
    servers = [SlotServer(f"r{place}", speed) for place, speed in enumerate(SPEEDS)]
    todo = jobs(1200, 400.0, 0.004, 5)
    for n, job in enumerate(todo):
        job.intended_at += 5.0 * (n // 100)
    recording = read_recording(write(tmp_path / "log", record([*servers], todo, "least_work")))
    assert calibrate(recording).stalls == []
