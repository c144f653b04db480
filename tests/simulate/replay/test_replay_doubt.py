"""How far a replay's answer can be believed."""

from __future__ import annotations

from pathlib import Path
from random import Random

import msgspec
import numpy as np
import pytest

from steelyard.core.options import HedgeOptions, OutlierDetectionOptions, PoolOptions, RetryOptions
from steelyard.link.decision_log.lines import FleetLine, current_line
from steelyard.simulate.engine.servers import SlotServer
from steelyard.simulate.replay.calibration import calibrate
from steelyard.simulate.replay.compare import MIN_RELATIVE_ERROR, BlockBootstrap, compare, observed_figures
from steelyard.simulate.replay.findings import sentences
from steelyard.simulate.replay.fleet import pool_options
from steelyard.simulate.replay.recording import Recording, read_recording
from steelyard.simulate.replay.run import replay

from ..recorder import fleet_line, jobs, record, write


def recorded(folder: Path, policy: str = "round_robin", seconds: float = 20.0) -> Recording:
    servers = [SlotServer(f"r{place}", speed) for place, speed in enumerate((1.0, 1.0, 1.5, 2.0))]
    lines = record([*servers], jobs(int(70 * seconds), 70.0, 0.04, 3), policy)
    return read_recording(write(folder / policy, lines))


def test_a_request_that_goes_where_it_went_takes_what_it_took_however_fast_replicas_are(tmp_path: Path) -> None:
    recording = recorded(tmp_path)
    explanation = calibrate(recording)
    other = explanation.resampled(Random(5))
    assert any(other.speeds[id][0].speed != explanation.speeds[id][0].speed for id in explanation.replicas)
    first, second = (replay(recording, one, "round_robin").seconds for one in (explanation, other))
    assert second == pytest.approx(first, abs=2e-3)


def test_what_the_log_leaves_open_shows_in_the_spread(tmp_path: Path) -> None:
    """Round robin decides without chance; still nobody knows it to the last digit from a log of another policy."""
    comparison = compare(recorded(tmp_path, "least_work"), ["round_robin"], seeds=5)
    (other,) = comparison.alternatives
    assert other.spread > 0.02
    assert comparison.error_margin_of(other) > comparison.error_margin >= MIN_RELATIVE_ERROR


def test_the_truth_is_within_the_doubt(tmp_path: Path) -> None:
    logs = {policy: recorded(tmp_path, policy) for policy in ("least_work", "round_robin", "least_connections")}
    for recording in logs.values():
        comparison = compare(recording, list(logs), seeds=5)
        for other in comparison.alternatives:
            truth = observed_figures(logs[other.policy]).p99
            off = abs(np.log(other.figures.p99 / truth))
            assert off <= np.log(1.0 + comparison.error_margin_of(other)), f"{other.policy} from {recording.policy}"


def test_a_range_is_told(tmp_path: Path) -> None:
    findings = sentences(compare(recorded(tmp_path), ["least_work"], seeds=3))
    assert "(by chance alone " in findings[1]
    (verdict,) = [text for text in findings if text.startswith("with least_work")]
    assert "% lower (between " in verdict


def test_no_difference_is_claimed_where_none_can_be_told(tmp_path: Path) -> None:
    findings = sentences(compare(recorded(tmp_path, "least_work"), ["least_work@64"], seeds=3))
    assert any(text.startswith("least_work@64 would have done about as well as least_work") for text in findings)


def test_a_policy_that_reads_prompts_is_said_to_be_blind(tmp_path: Path) -> None:
    recording = recorded(tmp_path)
    findings = sentences(compare(recording, ["prefix_work@8"], seeds=1))
    assert [text for text in findings if text.startswith("the log holds no prompts: prefix_work@8 chose")]
    assert not any("no prompts" in text for text in sentences(compare(recording, ["least_work"], seeds=1)))


def test_a_p99_drawn_again() -> None:
    rng = np.random.default_rng(3)
    widths = []
    for count in (2_000, 200_000):
        born, seconds = np.sort(rng.uniform(0.0, 60.0, count)), rng.lognormal(0.0, 1.0, count)
        low, high = BlockBootstrap(0.0, 60.0).interval(born, seconds)
        assert low < np.quantile(seconds, 0.99) < high
        widths.append(high - low)
    assert widths[1] < widths[0] / 4
    same = BlockBootstrap(0.0, 60.0).interval(born, np.ones(count))
    assert same == (1.0, 1.0)


def test_the_options_of_the_log_are_those_of_the_replay() -> None:
    logged_options: dict[str, object] = {
        "slow_start": 2.0,
        "hedge": {"enabled": True, "quantile": 0.9, "budget": 0.05},
        "outlier_detection": {"enabled": False, "of a later version": 1},
        "of a later version": 1,
    }
    line = fleet_line(["a"], "least_work", concurrency=4, max_queue=10, options=logged_options)
    hedge, ejection = HedgeOptions(enabled=True, quantile=0.9, budget=0.05), OutlierDetectionOptions(enabled=False)
    assert pool_options(line, None) == PoolOptions(
        concurrency=4, max_queue=10, slow_start=2.0, hedge=hedge, outlier_detection=ejection
    )
    assert pool_options(line, 2).concurrency == 2


def test_a_log_of_an_earlier_version_is_replayed_with_its_options() -> None:
    earlier: dict[str, object] = {"ejection": {"consecutive": 2}, "retry": {"attempts": 1, "budget": 0.1}}
    options = pool_options(fleet_line(["a"], "least_work", options=earlier), None)
    assert options.outlier_detection == OutlierDetectionOptions(consecutive_failures=2)
    assert options.retry == RetryOptions(max_attempts=1, budget=0.1)


def test_fleet_lines_of_an_earlier_version_are_read() -> None:
    raw = msgspec.json.encode(fleet_line(["a"], "least_work", max_queue=7, queue_timeout=5.0))
    for new, old in ((b"sample_rate", b"sample"), (b"max_queue", b"queue"), (b"queue_timeout", b"max_wait")):
        raw = raw.replace(b'"%b":' % new, b'"%b":' % old)
    line = msgspec.json.decode(current_line(raw), type=FleetLine)
    assert (line.max_queue, line.queue_timeout, line.sample_rate) == (7, 5.0, 1.0)
