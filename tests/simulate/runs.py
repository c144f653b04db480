"""Runs made up for tests of what comes after them: no simulation needed."""

from __future__ import annotations

from collections.abc import Iterable

from steelyard.simulate.engine.result import RunResult, Timeline


def made_up(
    policy: str,
    seed: int,
    seconds: Iterable[float],
    *,
    scenario: str = "s",
    load: float = 0.5,
    failed: int = 0,
    refused: int = 0,
    met: int = 0,
    timeline: bool = False,
) -> RunResult:
    run = RunResult(scenario, policy, load, seed, failed=failed, within_slo=met)
    for value in seconds:
        run.latency.add(value)
    if refused:
        run.refused = {"queue_full": refused}
    run.requests = run.measured_requests
    run.seconds = 10.0
    if timeline:
        run.timeline = Timeline([1.0, 2.0, 3.0], {"r0": [0, 1, 2], "r1": [1, 1, 9]}, [0, 0, 4])
        run.served = {"r0": 30, "r1": 70}
    return run
