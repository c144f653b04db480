"""Whatever is in a log, what is said of it is finite, and no more than its work could make."""

from __future__ import annotations

import tempfile
from math import isfinite
from pathlib import Path

import msgspec
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from steelyard.core.errors import OptionError
from steelyard.link.decision_log.lines import DecisionLine, LoggedAttempt
from steelyard.simulate.replay.compare import Comparison, compare
from steelyard.simulate.replay.findings import sentences
from steelyard.simulate.replay.recording import read_recording
from steelyard.simulate.replay.report import files, rows

from ..recorder import LogLine, fleet_line, write
from .test_replay_log import line

REPLICAS = ("a", "b", "c")
FAILURES = ("error", "out_of_memory", "connection_lost", "timeout", "truncated", "unreachable", "overloaded")
SECONDS = st.one_of(st.sampled_from([0.0, 1e-6, 0.05, 0.05, 0.2, 30.0]), st.floats(1e-4, 3.0))
SIZES = st.one_of(st.just(10.0), st.sampled_from([0.0, 9.0, 11.0, 22.0, 1e6, 1e300]), st.floats(1.0, 1e4))
QUEUE_TIMEOUT_SECONDS = 30.0


@st.composite
def requests(draw: st.DrawFn, at: float) -> DecisionLine:
    """One, with any end that a gateway writes down."""
    how = draw(
        st.sampled_from(["met", "met", "met", "met", "retried", "hedged", "failed", "refused", "abandoned", "late"])
    )
    tries: list[LoggedAttempt] = []
    after = draw(st.sampled_from([0.0, 0.0, 0.0, 0.3]))  # in line
    failures = draw(st.integers(1, 3)) if how in ("failed", "retried") else 0
    for _ in range(failures):
        seconds = draw(SECONDS)
        outcome = draw(st.sampled_from(FAILURES))
        tries.append(LoggedAttempt(draw(st.sampled_from(REPLICAS)), after, 0.1, seconds=seconds, outcome=outcome))
        after += seconds
    seconds = draw(SECONDS)
    replica = draw(st.sampled_from(REPLICAS))
    if how in ("abandoned", "late"):
        tries.append(
            LoggedAttempt(replica, after, 0.1, outcome="cancelled" if how == "abandoned" else "deadline_exceeded")
        )
    elif how == "hedged":
        tries += [
            LoggedAttempt("a", after, 0.1, outcome="lost"),
            LoggedAttempt("b", after, 0.1, seconds=seconds, hedged=True),
        ]
    elif how in ("met", "retried"):
        tries.append(LoggedAttempt(replica, after, 0.1, seconds=seconds, concurrent=draw(st.integers(0, 3))))
    answered = how in ("met", "retried", "hedged")
    return line(
        at,
        id=f"{at}",
        verdict="met" if answered else "failed" if how == "late" else how,
        fault="" if answered else "client" if how == "abandoned" else "replica",
        status=200 if answered else 0 if how == "abandoned" else 500,
        seconds=after + (0.0 if how in ("failed", "refused") else seconds),
        deadline=after + seconds if how == "late" else draw(st.sampled_from([None, None, None, 5.0])),
        call=draw(st.sampled_from(["chat", "chat", "embed"])),
        features=(draw(SIZES),),
        idempotent=draw(st.booleans()),
        attempts=tuple(tries),
    )


@st.composite
def logs(draw: st.DrawFn) -> list[LogLine]:
    policy = draw(st.sampled_from(["least_work", "round_robin", "least_connections"]))
    more: dict[str, object] = draw(st.sampled_from([{}, {"concurrency": 1}, {"concurrency": 2, "max_queue": 2}]))
    lines: list[LogLine] = [fleet_line([*REPLICAS], policy, queue_timeout=QUEUE_TIMEOUT_SECONDS, **more)]
    gap = draw(st.sampled_from([0.0, 0.01, 0.1, 3.0]))
    lines += [draw(requests(gap * n)) for n in range(draw(st.integers(20, 50)))]
    lines += [line(gap * n, seconds=0.05, features=(10.0,)) for n in range(draw(st.sampled_from([0, 25])))]
    return [lines[0], *(_of(one, policy) for one in lines[1:])]


def _of(one: LogLine, policy: str) -> LogLine:
    changed: LogLine = msgspec.structs.replace(one, policy=policy)
    return changed


def most(comparison: Comparison) -> float:
    """Seconds that the last request may take if all work of the log comes first, on the slowest replica."""
    asked, explanation = comparison.recording.requests, comparison.calibration
    speeds = [stretch.speed for stretches in explanation.speeds.values() for stretch in stretches]
    longest = max([1e-3, *(one.seconds for one in asked), *(a.seconds or 0.0 for one in asked for a in one.attempts)])
    tries = 3 * len(asked)
    stood_still = sum(stall.seconds for stall in explanation.stalls)
    return tries * longest * max(speeds) / min(speeds) + explanation.overhead + QUEUE_TIMEOUT_SECONDS + stood_still


@given(lines=logs())
@settings(max_examples=40, deadline=None)
def test_figures_are_finite_and_no_more_than_the_work_could_make(lines: list[LogLine]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = write(Path(folder) / "log", lines)
        try:
            comparison = compare(read_recording(path), ["least_work", "least_connections"], seeds=1)
        except OptionError:
            return  # too little was answered
    work = comparison.calibration.work
    assert np.isfinite(work).all()
    assert (work > 0.0).all()
    bound = most(comparison)
    for answer in (comparison.baseline, *comparison.alternatives):
        for run in answer.runs:
            assert np.isfinite(run.seconds).all()
            assert run.seconds.max(initial=0.0) <= bound
            assert run.lost + len(run.seconds) <= len(comparison.recording.requests)
        assert isfinite(answer.figures.loss_share)
    assert all("nan" not in text for text in sentences(comparison))
    assert len(rows(comparison)) == 3 + len(comparison.alternatives)


@given(lines=logs())
@settings(max_examples=8, deadline=None)
def test_other_explanations_are_no_worse(lines: list[LogLine]) -> None:
    """What a log leaves open is drawn again for each run: speeds within a factor, guesses within what was seen."""
    with tempfile.TemporaryDirectory() as folder:
        try:
            comparison = compare(read_recording(write(Path(folder) / "log", lines)), ["round_robin"], seeds=3)
        except OptionError:
            return
    bound = 16.0 * most(comparison)
    for answer in (comparison.baseline, *comparison.alternatives):
        assert all(run.seconds.max(initial=0.0) <= bound for run in answer.runs)
        assert comparison.error_margin_of(answer) >= 0.0
    assert files(comparison)
