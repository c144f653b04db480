"""`steelyard simulate --replay`: another policy on what really happened, and how far the answer can be believed.

The policy that really ran is always replayed first. What that gets wrong, against what was observed, is the replay's
own error; the others are compared with that replay, so that most of the error is on both sides and cancels.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import exp, hypot, inf, isnan, log, nan
from random import Random
from statistics import median, stdev

import numpy as np

from ...core.errors import OptionError
from ...core.policies import make_policy
from ..run import IDEAL, split_placement, split_policy
from .calibration import Calibration, calibrate
from .recording import Recording
from .run import CLOCK_RESOLUTION_SECONDS, WARMUP_SHARE, ReplayRun, replay
from .server_models import FloatArray
from .statistics import BlockBootstrap, LatencyFigures, latency_figures, p99_of

DEFAULT_SEEDS = 9
MIN_RELATIVE_ERROR = 0.05  # that requests take elsewhere what they are thought to is never surer than that
ERROR_SIGMAS = 2.0  # that is how far chance is allowed to go


@dataclass(frozen=True)
class PolicyPrediction:
    """What a policy would have done."""

    policy: str
    figures: LatencyFigures
    spread: float  # of ln p99 between runs that differ by chance, and by what the log leaves open: sd
    sampling_error: (
        float  # of ln p99 against that of the policy that ran, had other stretches of time come more often: sd
    )
    runs: tuple[ReplayRun, ...]


@dataclass(frozen=True)
class Comparison:
    recording: Recording
    calibration: Calibration
    slo_seconds: float | None  # seconds
    observed: LatencyFigures
    observed_p99_interval: tuple[float, float]  # where the observed p99 would be nine times out of ten
    baseline: PolicyPrediction  # the policy that ran, replayed
    alternatives: tuple[PolicyPrediction, ...]

    @property
    def replay_error(self) -> float:
        """Of the replay's p99, as a share of the observed."""
        return self.baseline.figures.p99 / self.observed.p99 - 1.0

    @property
    def error_margin(self) -> float:
        """Smaller differences of p99 say nothing."""
        if isnan(self.replay_error):
            return inf
        low, high = self.observed_p99_interval
        return exp(hypot(self._own_error(), ERROR_SIGMAS * self.baseline.spread, log(high / low) / 2)) - 1.0

    def error_margin_of(self, other: PolicyPrediction) -> float:
        """The same for the difference between this policy and the one that ran."""
        if isnan(self.replay_error):
            return inf
        parts = (
            self._own_error(),
            ERROR_SIGMAS * self.baseline.spread,
            ERROR_SIGMAS * other.spread,
            ERROR_SIGMAS * other.sampling_error,
        )
        return max(self.error_margin, exp(hypot(*parts)) - 1.0)

    def _own_error(self) -> float:
        """A policy that sends requests where they went anyway predicts itself too well: there is a least."""
        return max(abs(log(1.0 + self.replay_error)), log(1.0 + MIN_RELATIVE_ERROR))

    def difference(self, other: PolicyPrediction) -> float:
        return other.figures.p99 / self.baseline.figures.p99 - 1.0


def check_policies(policies: Sequence[str]) -> None:
    for policy in policies:
        name, _ = split_policy(policy)
        if name == IDEAL or split_placement(policy)[1]:
            raise OptionError(
                f"policy {policy!r}: --replay runs policies of the balancer only; see `steelyard policies`"
            )
        make_policy(name, Random(0), {})


def compare(
    recording: Recording,
    policies: Sequence[str],
    *,
    seeds: int = DEFAULT_SEEDS,
    done: Callable[[str], None] | None = None,
) -> Comparison:
    check_policies(policies)
    promise = infer_slo(recording)
    observed = observed_figures(recording, promise)
    if isnan(observed.p99):
        raise OptionError(
            f"nothing was answered after the first {WARMUP_SHARE:.0%} of the log: there is nothing to compare"
        )
    explanation = calibrate(recording)
    ran = recording.policy
    redrawn = BlockBootstrap(WARMUP_SHARE * recording.seconds, (1.0 - WARMUP_SHARE) * recording.seconds)
    answers: list[PolicyPrediction] = []
    usual: FloatArray | None = None
    for policy in (ran, *(p for p in policies if p != ran)):
        runs = tuple(_run(recording, explanation, policy, seed) for seed in range(1, seeds + 1))
        answer, p99s = _prediction(policy, runs, promise, redrawn, usual)
        usual = p99s if usual is None else usual
        answers.append(answer)
        if done is not None:
            done(policy)
    by_chance = redrawn.interval(*answered_latencies(recording))
    return Comparison(recording, explanation, promise, observed, by_chance, answers[0], tuple(answers[1:]))


def _run(recording: Recording, explanation: Calibration, policy: str, seed: int) -> ReplayRun:
    """The first run takes the log's most likely explanation; each further one another that it allows as well."""
    allowed = explanation if seed == 1 else explanation.resampled(Random(f"allowed/{seed}"))
    return replay(recording, allowed, policy, seed, recorded=policy == recording.policy)


def answered_latencies(recording: Recording) -> tuple[FloatArray, FloatArray]:
    """When requests came, since the recording began, and how long they took; without the warm-up, as in the replays."""
    after = WARMUP_SHARE * recording.seconds
    rows = [(one.arrived_at - recording.begin, one.seconds) for one in recording.requests if one.answered]
    born, seconds = np.array(rows).reshape(-1, 2).T
    counted = born >= after
    return born[counted], np.maximum(seconds[counted], CLOCK_RESOLUTION_SECONDS)


def observed_figures(recording: Recording, promise: float | None) -> LatencyFigures:
    """What the log says."""
    after = recording.begin + WARMUP_SHARE * recording.seconds
    counted = sum(one.arrived_at >= after and one.outcome != "left" for one in recording.requests)
    _, seconds = answered_latencies(recording)
    return latency_figures(seconds, counted - len(seconds), promise)


def infer_slo(recording: Recording) -> float | None:
    """The latency promised, if the verdicts show it: all that were met took less than any that was late."""
    met = max((one.seconds for one in recording.requests if one.outcome == "met" and one.answered), default=None)
    late = min((one.seconds for one in recording.requests if one.outcome == "late" and one.answered), default=None)
    return (met + late) / 2 if met is not None and late is not None and met <= late else None


def _prediction(
    policy: str, runs: tuple[ReplayRun, ...], promise: float | None, redrawn: BlockBootstrap, usual: FloatArray | None
) -> tuple[PolicyPrediction, FloatArray]:
    """`usual`: the redrawn p99s of the policy that ran. Also the redrawn p99s of this one."""
    each = [latency_figures(run.seconds, run.lost, promise) for run in runs]

    some = [one for one in each if not isnan(one.p99)]  # a run may have answered nothing

    def middle(name: str, among: list[LatencyFigures] = some) -> float:
        return float(median(getattr(one, name) for one in among)) if among else nan

    kept = None if promise is None else middle("within_slo", each)
    lost = middle("loss_share", each)
    found = LatencyFigures(middle("p50"), middle("p90"), middle("p99"), middle("mean"), lost, kept)
    if not some:
        return PolicyPrediction(policy, found, 0.0, 0.0, runs), np.empty(0)
    p99s = [one.p99 for one in some]
    typical = min((run for run in runs if len(run.seconds)), key=lambda run: abs(p99_of(run.seconds) - found.p99))
    again = redrawn.p99s(typical.intended_at, typical.seconds)
    paired = usual is not None and len(usual) == len(again) > 1
    chance = float(np.std(np.log(again / usual))) if paired else 0.0  # type: ignore[operator]
    return PolicyPrediction(policy, found, stdev(map(log, p99s)) if len(p99s) > 1 else 0.0, chance, runs), again
