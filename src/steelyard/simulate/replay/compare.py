"""`steelyard simulate --replay`: other policies on recorded requests, and how far to trust the prediction.

The policy that ran is replayed first: its p99 against the observed one is the replay's own error. Others are compared
with that replay, so most of the error cancels. A range holds the own error, the spread of the runs, and the chance in a
p99, by a bootstrap over blocks of time (docs/decisions/0021).
"""

from __future__ import annotations

from collections.abc import Sequence
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

DEFAULT_SEEDS = 9
MIN_RELATIVE_ERROR = 0.05
ERROR_SIGMAS = 2.0  # half-width of a range
BOOTSTRAP_BLOCKS = 40  # of time: requests of one block depend on each other
BOOTSTRAP_DRAWS = 200
INTERVAL_QUANTILES = (0.05, 0.95)
P99_QUANTILE = 0.99


@dataclass(frozen=True)
class LatencyFigures:
    """Seconds of answered requests."""

    p50: float
    p90: float
    p99: float
    mean: float
    loss_share: float  # failed or refused


def latency_figures(seconds: FloatArray, lost: int) -> LatencyFigures:
    if not len(seconds):
        return LatencyFigures(nan, nan, nan, nan, 1.0 if lost else 0.0)
    p50, p90, p99 = (float(value) for value in np.quantile(seconds, (0.5, 0.9, P99_QUANTILE)))
    return LatencyFigures(p50, p90, p99, float(seconds.mean()), lost / (len(seconds) + lost))


class BlockBootstrap:
    """The p99 of a run with its blocks of time resampled, alike for every run."""

    def __init__(self, begin: float, seconds: float) -> None:
        self._edges = np.linspace(begin, begin + seconds, BOOTSTRAP_BLOCKS + 1)[1:-1]
        self._draws = np.random.default_rng(1).multinomial(
            BOOTSTRAP_BLOCKS, np.full(BOOTSTRAP_BLOCKS, 1.0 / BOOTSTRAP_BLOCKS), BOOTSTRAP_DRAWS
        )

    def p99s(self, arrived: FloatArray, seconds: FloatArray) -> FloatArray:
        order = np.argsort(seconds)
        ranked = seconds[order]
        block = np.searchsorted(self._edges, arrived[order], side="right")
        found = np.empty(BOOTSTRAP_DRAWS)
        for n, times in enumerate(self._draws):
            upto = np.cumsum(times[block])
            found[n] = ranked[np.searchsorted(upto, P99_QUANTILE * upto[-1])] if upto[-1] else np.nan
        return found[~np.isnan(found)]

    def interval(self, arrived: FloatArray, seconds: FloatArray) -> tuple[float, float]:
        """90 % of the resampled p99s."""
        low, high = np.quantile(self.p99s(arrived, seconds), INTERVAL_QUANTILES)
        return float(low), float(high)


@dataclass(frozen=True)
class PolicyPrediction:
    policy: str
    figures: LatencyFigures
    spread: float  # of ln p99 between the runs: sd
    sampling_error: float  # of ln p99 against the policy that ran: sd
    runs: tuple[ReplayRun, ...]


@dataclass(frozen=True)
class Comparison:
    recording: Recording
    calibration: Calibration
    observed: LatencyFigures
    observed_p99_interval: tuple[float, float]  # 90 %
    baseline: PolicyPrediction  # the policy that ran, replayed
    alternatives: tuple[PolicyPrediction, ...]

    @property
    def replay_error(self) -> float:
        """Of p99, as a share of the observed."""
        return self.baseline.figures.p99 / self.observed.p99 - 1.0

    @property
    def error_margin(self) -> float:
        """Smaller differences of p99 mean nothing."""
        if isnan(self.replay_error):
            return inf
        low, high = self.observed_p99_interval
        return exp(hypot(self._own_error(), ERROR_SIGMAS * self.baseline.spread, log(high / low) / 2)) - 1.0

    def error_margin_of(self, other: PolicyPrediction) -> float:
        """The same for the difference between this policy and the one that ran."""
        if isnan(self.replay_error):
            return inf
        chance = (ERROR_SIGMAS * sd for sd in (self.baseline.spread, other.spread, other.sampling_error))
        return max(self.error_margin, exp(hypot(self._own_error(), *chance)) - 1.0)

    def _own_error(self) -> float:
        """At least 5 %: a policy that repeats its choices predicts itself too well."""
        return max(abs(log(1.0 + self.replay_error)), log(1.0 + MIN_RELATIVE_ERROR))

    def difference(self, other: PolicyPrediction) -> float:
        return other.figures.p99 / self.baseline.figures.p99 - 1.0


def check_policies(policies: Sequence[str]) -> None:
    for policy in policies:
        name, _ = split_policy(policy)
        if name == IDEAL or split_placement(policy)[1]:
            what = "--replay runs policies of the balancer only; see `steelyard policies`"
            raise OptionError(f"policy {policy!r}: {what}")
        make_policy(name, Random(0), {})


def compare(recording: Recording, policies: Sequence[str], *, seeds: int = DEFAULT_SEEDS) -> Comparison:
    check_policies(policies)
    observed = observed_figures(recording)
    if isnan(observed.p99):
        what = f"nothing was answered after the first {WARMUP_SHARE:.0%} of the log"
        raise OptionError(f"{what}: there is nothing to compare")
    calibration = calibrate(recording)
    # the most likely one first
    allowed = [calibration, *(calibration.resampled(Random(f"allowed/{seed}")) for seed in range(2, seeds + 1))]
    ran = recording.policy
    bootstrap = BlockBootstrap(WARMUP_SHARE * recording.seconds, (1.0 - WARMUP_SHARE) * recording.seconds)
    predictions: list[PolicyPrediction] = []
    baseline: FloatArray | None = None
    for policy in (ran, *(p for p in policies if p != ran)):
        runs = tuple(replay(recording, each, policy, seed) for seed, each in enumerate(allowed, start=1))
        prediction, p99s = _prediction(policy, runs, bootstrap, baseline)
        baseline = p99s if baseline is None else baseline
        predictions.append(prediction)
    interval = bootstrap.interval(*answered_latencies(recording))
    return Comparison(recording, calibration, observed, interval, predictions[0], tuple(predictions[1:]))


def answered_latencies(recording: Recording) -> tuple[FloatArray, FloatArray]:
    """Arrivals since the recording began, and latencies; without the warm-up."""
    after = WARMUP_SHARE * recording.seconds
    rows = [(one.at - recording.begin, one.seconds) for one in recording.requests if one.answered]
    arrived, seconds = np.array(rows).reshape(-1, 2).T
    counted = arrived >= after
    return arrived[counted], np.maximum(seconds[counted], CLOCK_RESOLUTION_SECONDS)


def observed_figures(recording: Recording) -> LatencyFigures:
    after = recording.begin + WARMUP_SHARE * recording.seconds
    counted = sum(one.at >= after and not one.abandoned for one in recording.requests)
    _, seconds = answered_latencies(recording)
    return latency_figures(seconds, counted - len(seconds))


def _prediction(
    policy: str, runs: tuple[ReplayRun, ...], bootstrap: BlockBootstrap, baseline: FloatArray | None
) -> tuple[PolicyPrediction, FloatArray]:
    """`baseline`: resampled p99s of the policy that ran. Also returns those of this policy."""
    each = [latency_figures(run.seconds, run.lost) for run in runs]
    some = [one for one in each if not isnan(one.p99)]  # a run may have answered nothing

    def middle(name: str, among: list[LatencyFigures] = some) -> float:
        return float(median(getattr(one, name) for one in among)) if among else nan

    p99 = middle("p99")
    found = LatencyFigures(middle("p50"), middle("p90"), p99, middle("mean"), middle("loss_share", each))
    if not some:
        return PolicyPrediction(policy, found, 0.0, 0.0, runs), np.empty(0)
    spread = stdev(log(one.p99) for one in some) if len(some) > 1 else 0.0
    typical = min(
        (run for run in runs if len(run.seconds)),
        key=lambda run: abs(float(np.quantile(run.seconds, P99_QUANTILE)) - p99),
    )
    resampled = bootstrap.p99s(typical.intended_at, typical.seconds)
    chance = 0.0
    if baseline is not None and len(baseline) == len(resampled) > 1:
        chance = float(np.std(np.log(resampled / baseline)))
    return PolicyPrediction(policy, found, spread, chance, runs), resampled
