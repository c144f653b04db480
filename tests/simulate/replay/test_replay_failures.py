"""Recordings in which requests failed: what went wrong goes wrong again, and nothing else does."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from random import Random

import msgspec
import numpy as np
import pytest

from steelyard.core.balancer import Balancer
from steelyard.core.errors import OptionError
from steelyard.core.options import OutlierDetectionOptions, PoolOptions
from steelyard.core.outcome import Outcome
from steelyard.core.replica import State
from steelyard.core.request import RequestPhase
from steelyard.link.decision_log.lines import DecisionLine, LoggedAttempt
from steelyard.simulate.engine.job import Job
from steelyard.simulate.engine.result import RunResult
from steelyard.simulate.engine.servers import Server, SlotServer
from steelyard.simulate.engine.simulation import Simulation
from steelyard.simulate.replay.calibration import calibrate
from steelyard.simulate.replay.compare import Comparison, compare
from steelyard.simulate.replay.findings import sentences
from steelyard.simulate.replay.recording import read_recording

from ..recorder import CLOCK_START_SECONDS, LogLine, Recorder, fleet_line, jobs, write
from .test_replay_log import line

SPEEDS = (1.0, 1.0, 1.5, 2.0)
RATE_PER_SECOND, MEAN_SECONDS, REQUEST_COUNT = 70.0, 0.04, 1400
NOT_EJECTED = OutlierDetectionOptions(enabled=False)


class Unlucky(Recorder):
    """`bad`: attempts that fail when they have had their time; `patience`: after it the client leaves."""

    bad: Callable[[Job], bool]

    def _end(self, job: Job, outcome: Outcome, now: float) -> None:
        super()._end(job, Outcome.ERROR if outcome is Outcome.OK and self.bad(job) else outcome, now)

    def stop(self, job: Job, verdict: str, outcome: str, now: float) -> None:
        """The client leaves, or its deadline has come."""
        if job.phase not in (RequestPhase.RUNNING, RequestPhase.WAITING):
            return
        attempts = self.attempts.get(job, [])
        attempts[-1:] = [msgspec.structs.replace(one, outcome=outcome) for one in attempts[-1:]]
        assert job.balancer is not None
        self.carry_out(job.balancer.cancel(job, now), now)
        self._write(job, verdict, 0, now)


def run(
    todo: list[Job],
    policy: str = "least_work",
    bad: Callable[[Job], bool] = lambda job: False,
    plan: Callable[[Unlucky], None] | None = None,
    **options: object,
) -> list[LogLine]:
    servers: list[Server] = [SlotServer(f"r{place}", speed) for place, speed in enumerate(SPEEDS)]
    balancer = Balancer(Random(99))
    balancer.add_model("", policy, PoolOptions(outlier_detection=NOT_EJECTED, **options))  # type: ignore[arg-type]
    for server in servers:
        balancer.add_replica(server.id, state=State.READY, now=0.0)
    result = RunResult("m", policy, 0.0, 1)
    simulation = Unlucky(servers, [balancer], todo, result, Random(1), policy=policy, model="m")
    simulation.bad = bad
    if plan is not None:
        plan(simulation)
    simulation.run()
    fleet_options = {"outlier_detection": {"enabled": False}}
    return [fleet_line([server.id for server in servers], policy, options=fleet_options, **options), *simulation.lines]


def unlucky(
    share: float, times: float, *, again: bool = False, rate: float = RATE_PER_SECOND, count: int = REQUEST_COUNT
) -> tuple[list[Job], set[Job]]:
    """Requests of which some fail, after so many times the usual work; `again`: they may be tried again."""
    rng = Random(8)
    todo = jobs(count, rate, MEAN_SECONDS, 3)
    bad = {job for job in todo if rng.random() < share}
    for job in todo:
        job.idempotent = again
        if job in bad:
            job.work *= times
            job.features = (job.features[0] * 40.0,)  # no other is so large
    return todo, bad


def compared(lines: list[LogLine], folder: Path, *policies: str) -> Comparison:
    """Replayed; and all figures are such as can be shown."""
    comparison = compare(read_recording(write(folder / "log", lines)), policies, seeds=3)
    for answer in (comparison.baseline, *comparison.alternatives):
        shown = answer.figures
        assert np.isfinite([shown.p50, shown.p90, shown.p99, shown.mean, shown.loss_share]).all()
        assert np.isfinite(comparison.error_margin_of(answer))
    return comparison


def changed(lines: list[LogLine], **more: object) -> list[LogLine]:
    return [msgspec.structs.replace(one, **more) if isinstance(one, DecisionLine) else one for one in lines]


# ---------------------------------------------------------------------- requests that fail


@pytest.mark.parametrize("policy", ["least_work", "round_robin"])
@pytest.mark.parametrize(("share", "times"), [(0.02, 0.1), (0.1, 0.1), (0.1, 4.0)])
def test_requests_that_failed_fail_again(tmp_path: Path, share: float, times: float, policy: str) -> None:
    """Quick or slow, they take their time of the replicas, are lost wherever they go, and are in no p99."""
    # Slow ones crowd the replicas now and then: of 1,400 requests the p99 is luck (0.15 to 0.23 s over seeds).
    todo, bad = unlucky(share, times, count=REQUEST_COUNT if times < 1.0 else 6 * REQUEST_COUNT)
    lines = changed(run(todo, policy, bad.__contains__), idempotent=False)
    comparison = compared(lines, tmp_path, "least_connections")
    assert abs(comparison.replay_error) <= 0.1
    (other,) = comparison.alternatives
    assert (
        comparison.baseline.figures.loss_share
        == other.figures.loss_share
        == comparison.observed.loss_share
        > 0.5 * share
    )
    assert comparison.calibration.guessed == 0
    assert f"{len(bad)} requests failed by themselves" in "\n".join(sentences(comparison))


def test_another_policy_is_foreseen_in_spite_of_failures(tmp_path: Path) -> None:
    logs = {}
    for policy in ("least_work", "round_robin"):
        todo, bad = unlucky(0.1, 2.0)
        logs[policy] = changed(run(todo, policy, bad.__contains__), idempotent=False)
    comparison = compared(logs["round_robin"], tmp_path, "least_work")
    truth = compared(logs["least_work"], tmp_path).observed.p99
    assert comparison.alternatives[0].figures.p99 == pytest.approx(truth, rel=0.15)


@pytest.mark.parametrize("policy", ["least_work", "round_robin"])
def test_failures_by_chance_that_were_tried_again(tmp_path: Path, policy: str) -> None:
    """So many attempts fail, and who is tried again is answered."""
    rng = Random(4)
    todo, _ = unlucky(0.0, 1.0, again=True, rate=45.0, count=2500)
    comparison = compared(run(todo, policy, bad=lambda job: rng.random() < 0.1), tmp_path)
    assert abs(comparison.replay_error) <= 0.1
    assert comparison.baseline.figures.loss_share == pytest.approx(comparison.observed.loss_share, abs=0.002)
    assert not any(comparison.calibration.failure_windows.values())
    retried = sum(len(one.attempts) > 1 for one in comparison.recording.requests)
    assert retried == pytest.approx(0.1 * len(todo), rel=0.2)


def test_a_replica_that_takes_long_to_fail_takes_as_long_again(tmp_path: Path) -> None:
    """It holds its requests for half a second, and then each is tried elsewhere."""

    def plan(simulation: Simulation) -> None:
        server = simulation.servers["r0"]
        simulation.call_at(5.0, lambda now: setattr(server, "failing", 1))
        simulation.call_at(6.0, lambda now: setattr(server, "failing", 0))

    def slow(one: LogLine) -> LogLine:
        if not isinstance(one, DecisionLine) or len(one.attempts) < 2:
            return one
        first, second, *_ = one.attempts
        later = msgspec.structs.replace(second, after=second.after + 0.5)
        held = msgspec.structs.replace(first, seconds=0.5)
        return msgspec.structs.replace(one, seconds=one.seconds + 0.5, attempts=(held, later))

    todo, _ = unlucky(0.0, 1.0, again=True)
    comparison = compared([slow(one) for one in run(todo, "round_robin", plan=plan)], tmp_path)
    (failing,) = comparison.calibration.failure_windows["r0"]
    assert 5.0 <= failing.begin <= failing.end <= 6.6
    assert failing.failure.seconds == pytest.approx(0.5)
    assert max(comparison.baseline.runs[0].seconds) > 0.5
    assert any(text.startswith("r0: failed whatever came for a while") for text in sentences(comparison))


def test_a_replica_that_refuses_connections(tmp_path: Path) -> None:
    def plan(simulation: Simulation) -> None:
        server = simulation.servers["r1"]
        simulation.call_at(5.0, lambda now: setattr(server, "down", 1))
        simulation.call_at(12.0, lambda now: setattr(server, "down", 0))

    todo, _ = unlucky(0.0, 1.0, again=True)
    comparison = compared(run(todo, "round_robin", plan=plan), tmp_path, "least_work")
    (failing,) = comparison.calibration.failure_windows["r1"]
    assert (failing.begin, failing.end) == pytest.approx((5.0, 12.0), abs=0.5)
    assert failing.failure.outcome is Outcome.UNREACHABLE
    assert abs(comparison.replay_error) <= 0.1
    assert comparison.calibration.failed == 0


def test_requests_that_die_with_their_replica_are_no_failures_of_their_own(tmp_path: Path) -> None:
    todo, _ = unlucky(0.0, 1.0)

    def plan(simulation: Simulation) -> None:
        simulation.call_at(10.0, lambda now: simulation.crash("r2", now))

    lines = changed(run(todo, "round_robin", plan=plan), idempotent=False)
    gone = msgspec.structs.replace(
        lines[0], at=CLOCK_START_SECONDS + 12.0, replicas=lines[0].replicas[:2] + lines[0].replicas[3:]
    )  # type: ignore[union-attr]
    broken = sum(a.outcome == "connection_lost" for one in lines[1:] for a in one.attempts)  # type: ignore[union-attr]
    assert broken
    comparison = compared([*lines, gone], tmp_path)
    assert comparison.calibration.failed == 0
    assert comparison.calibration.guessed >= broken


# ---------------------------------------------------------------------- requests that were cut off


def test_clients_that_leave_are_not_counted(tmp_path: Path) -> None:
    patience = 0.12
    todo = jobs(REQUEST_COUNT, RATE_PER_SECOND, MEAN_SECONDS, 3)

    def plan(simulation: Unlucky) -> None:
        for job in todo:
            simulation.call_at(
                job.intended_at + patience, lambda now, job=job: simulation.stop(job, "abandoned", "cancelled", now)
            )  # type: ignore[misc]

    comparison = compared(run(todo, "round_robin", plan=plan), tmp_path, "least_work")
    assert abs(comparison.replay_error) <= 0.1
    left = sum(one.abandoned for one in comparison.recording.requests)
    assert left > 30
    assert any(text.startswith(f"{left} clients left") for text in sentences(comparison))
    counted = sum(one.answered and one.at - CLOCK_START_SECONDS >= 2.0 for one in comparison.recording.requests)
    assert all(len(run.seconds) <= counted * 1.01 for run in comparison.baseline.runs)


def test_what_runs_when_its_deadline_comes_is_cut_off(tmp_path: Path) -> None:
    limit = 0.2
    todo = jobs(REQUEST_COUNT, RATE_PER_SECOND, MEAN_SECONDS, 3)
    for job in todo:
        job.deadline = job.intended_at + limit

    def plan(simulation: Unlucky) -> None:
        for job in todo:
            simulation.call_at(
                job.deadline, lambda now, job=job: simulation.stop(job, "failed", "deadline_exceeded", now)
            )  # type: ignore[misc]

    comparison = compared(changed(run(todo, "round_robin", plan=plan), deadline=limit), tmp_path, "least_work")
    assert abs(comparison.replay_error) <= 0.1
    assert comparison.baseline.figures.loss_share == pytest.approx(comparison.observed.loss_share, abs=0.03)
    for answer in (comparison.baseline, *comparison.alternatives):
        assert all(run.seconds.max() <= limit + comparison.calibration.overhead + 0.01 for run in answer.runs)


def test_what_was_cut_off_asked_for_more_than_it_had_got(tmp_path: Path) -> None:
    todo = jobs(300, 20.0, MEAN_SECONDS, 3)
    long = todo[150]
    long.work = 3.0

    def plan(simulation: Unlucky) -> None:
        simulation.call_at(long.intended_at + 1.0, lambda now: simulation.stop(long, "abandoned", "cancelled", now))

    recording = read_recording(write(tmp_path / "log", run(todo, "least_connections", plan=plan)))
    explanation = calibrate(recording)
    (number,) = [n for n, one in enumerate(recording.requests) if one.abandoned]
    id = recording.requests[number].attempts[0].replica
    assert explanation.work[number] >= 0.99 * explanation.speeds[id][0].speed
    assert explanation.resampled(Random(3)).work[number] >= 0.99 * explanation.speeds[id][0].speed


def test_refused_by_a_full_queue(tmp_path: Path) -> None:
    lines = run(
        jobs(REQUEST_COUNT, 1.15 * RATE_PER_SECOND, 1.1 * MEAN_SECONDS, 3), "round_robin", concurrency=1, max_queue=3
    )
    comparison = compared(lines, tmp_path, "least_work")
    assert comparison.observed.loss_share > 0.01
    assert comparison.baseline.figures.loss_share == pytest.approx(comparison.observed.loss_share, rel=0.5)
    assert abs(comparison.replay_error) <= 0.1
    assert calibrate(comparison.recording).work.max() <= 1.001 * max_known(comparison)


def max_known(comparison: Comparison) -> float:
    explanation = comparison.calibration
    return float(explanation.work[explanation.segment >= 0].max())


# ---------------------------------------------------------------------- hardly anything to go by


def test_sizes_that_nobody_answered_are_not_extrapolated(tmp_path: Path) -> None:
    """Nine bytes or ten, and then twenty-two of which nothing is known: no guess is above the largest that was seen."""
    rng = Random(5)
    lines: list[LogLine] = [fleet_line(["a", "b"], "least_work")]
    for n in range(400):
        seconds, size = rng.choice([(0.03, 9.0), (0.05, 9.0), (0.08, 9.0), (0.2, 10.0)])
        attempt = LoggedAttempt(rng.choice("ab"), 0.0, 0.1, seconds=seconds * rng.uniform(0.95, 1.05))
        lines.append(line(0.3 * n, seconds=attempt.seconds, features=(size,), attempts=(attempt,)))
    lines += [line(0.3 * n + 0.1, verdict="refused", status=503, features=(22.0,), attempts=()) for n in range(100)]
    comparison = compared(lines, tmp_path)
    assert comparison.calibration.guessed == 100
    assert comparison.baseline.figures.p99 < 0.5
    assert "100 requests were not seen to end: their work is a guess" in sentences(comparison)


def test_everything_failed(tmp_path: Path) -> None:
    todo, _ = unlucky(0.0, 1.0)
    lines = run(todo[:100], bad=lambda job: True)
    with pytest.raises(OptionError, match="0 answered requests of 'm' are too few to replay"):
        read_recording(write(tmp_path / "log", lines))


@pytest.mark.parametrize("count", [1, 2])
def test_a_request_or_two(tmp_path: Path, count: int) -> None:
    lines = run(jobs(count, RATE_PER_SECOND, MEAN_SECONDS, 3))
    with pytest.raises(OptionError, match=f"{count} answered requests of 'm' are too few to replay"):
        read_recording(write(tmp_path / "log", lines))


def test_nothing_was_answered_after_the_warm_up(tmp_path: Path) -> None:
    lines = [fleet_line(["r0"], "least_work"), *(line(0.1 * n) for n in range(30))]
    lines.append(line(300.0, verdict="failed", status=502, attempts=()))
    with pytest.raises(OptionError, match="nothing was answered after the first 10% of the log"):
        compare(read_recording(write(tmp_path / "log", lines)), [])


def test_all_at_the_same_time(tmp_path: Path) -> None:
    lines = [fleet_line(["r0"], "least_work"), *(line(0.0, id=f"{n}") for n in range(40))]
    comparison = compared(lines, tmp_path, "round_robin")
    assert comparison.baseline.figures.p99 <= 40 * 0.1


def test_hedged_requests(tmp_path: Path) -> None:
    """Of two attempts one answered; the other was slower, or failed."""
    rng = Random(6)
    lines: list[LogLine] = [fleet_line(["a", "b"], "least_work", options={"hedge": {"enabled": True}})]
    for n in range(600):
        seconds = rng.uniform(0.02, 0.1)
        tries: tuple[LoggedAttempt, ...] = (LoggedAttempt("ab"[n % 2], 0.0, 0.1, seconds=seconds),)
        if n % 20 < 2:
            outcome = {"outcome": "lost"} if n % 20 else {"outcome": "error", "seconds": 0.15}
            first = LoggedAttempt("ab"[n % 2], 0.0, 0.1, **outcome)  # type: ignore[arg-type]
            tries = (first, LoggedAttempt("ba"[n % 2], 0.1, 0.1, seconds=seconds, hedged=True))
            seconds += 0.1
        lines.append(line(0.2 * n, seconds=seconds, attempts=tries))
    comparison = compared(lines, tmp_path, "round_robin")
    assert comparison.observed.loss_share == comparison.baseline.figures.loss_share == 0.0
    assert comparison.baseline.figures.p99 < 2.0 * comparison.observed.p99
