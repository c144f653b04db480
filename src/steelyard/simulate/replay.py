"""`steelyard simulate --replay`: another policy on what really happened, and how far the answer can be believed.

The policy that really ran is always replayed first. What that gets wrong, against what was observed, is the replay's
own error; the others are compared with that replay, so that most of the error is on both sides and cancels.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import isnan
from random import Random
from statistics import median

import numpy as np

from ..core.errors import OptionError
from ..core.policies import make_policy
from ..units import show_seconds
from .replay_fit import Explanation, explain
from .replay_log import Recording
from .replay_run import WARMUP, Replayed, replay
from .replay_servers import Numbers
from .run import IDEAL, split_placement, split_policy
from .wording import percent

SEEDS = 5
MANY_UNSEEN = 0.05  # requests the log does not tell of, for each that it does: more is worth a word
LONG_STANDSTILL = 0.5  # seconds
MANY_GUESSED = 0.02
GOAL = 0.1  # an error above this is said to be too large to conclude from


@dataclass(frozen=True)
class Figures:
    """Latency of the answered requests, in seconds, and how many of all were not."""

    p50: float
    p90: float
    p99: float
    mean: float
    lost: float  # share failed or refused
    kept: float | None = None  # share of all within the promised latency, where that is known


@dataclass(frozen=True)
class Answer:
    """What a policy would have done."""

    policy: str
    figures: Figures
    spread: float  # of p99 between runs that differ by chance only: (most - least) / 2, as a share
    runs: tuple[Replayed, ...]


@dataclass(frozen=True)
class Comparison:
    recording: Recording
    explanation: Explanation
    promise: float | None  # seconds
    observed: Figures
    actual: Answer  # the policy that ran, replayed
    others: tuple[Answer, ...]

    @property
    def error(self) -> float:
        """Of the replay's p99, as a share of the observed."""
        return self.actual.figures.p99 / self.observed.p99 - 1.0

    @property
    def doubt(self) -> float:
        """Smaller differences of p99 say nothing."""
        return max(abs(self.error), self.actual.spread, 0.01)


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
    seeds: int = SEEDS,
    done: Callable[[str], None] | None = None,
) -> Comparison:
    check_policies(policies)
    explanation = explain(recording)
    promise = promised(recording)
    ran = recording.policy
    answers = []
    for policy in (ran, *(p for p in policies if p != ran)):
        runs = tuple(
            replay(recording, explanation, policy, seed, recorded=policy == ran) for seed in range(1, seeds + 1)
        )
        answers.append(_answer(policy, runs, promise))
        if done is not None:
            done(policy)
    return Comparison(recording, explanation, promise, observe(recording, promise), answers[0], tuple(answers[1:]))


def observe(recording: Recording, promise: float | None) -> Figures:
    """What the log says, without the warm-up, as it is left out of the replays."""
    after = recording.begin + WARMUP * recording.seconds
    counted = [one for one in recording.asked if one.at >= after and one.verdict != "left"]
    seconds = np.sort(np.array([one.seconds for one in counted if one.answered]))
    return figures(seconds, len(counted) - len(seconds), promise)


def promised(recording: Recording) -> float | None:
    """The latency promised, if the verdicts show it: all that were met took less than any that was late."""
    met = max((one.seconds for one in recording.asked if one.verdict == "met" and one.answered), default=None)
    late = min((one.seconds for one in recording.asked if one.verdict == "late" and one.answered), default=None)
    return (met + late) / 2 if met is not None and late is not None and met <= late else None


def figures(seconds: Numbers, lost: int, promise: float | None) -> Figures:
    total = len(seconds) + lost
    if not len(seconds):
        nothing = float("nan")
        return Figures(nothing, nothing, nothing, nothing, 1.0 if lost else 0.0, 0.0 if promise else None)
    p50, p90, p99 = (float(value) for value in np.quantile(seconds, (0.5, 0.9, 0.99)))
    kept = None if promise is None else float((seconds <= promise).sum()) / total
    return Figures(p50, p90, p99, float(seconds.mean()), lost / total, kept)


def _answer(policy: str, runs: tuple[Replayed, ...], promise: float | None) -> Answer:
    each = [figures(run.seconds, run.lost, promise) for run in runs]
    p99s = [one.p99 for one in each]

    def middle(name: str) -> float:
        return float(median(getattr(one, name) for one in each))

    kept = None if promise is None else middle("kept")
    found = Figures(middle("p50"), middle("p90"), middle("p99"), middle("mean"), middle("lost"), kept)
    return Answer(policy, found, (max(p99s) - min(p99s)) / 2 / found.p99, runs)


# ---------------------------------------------------------------------- in words


def signed(share: float) -> str:
    return "–" if isnan(share) else f"{100 * share:+.1f} %"


def sentences(comparison: Comparison) -> list[str]:
    """What the table does not say: what was assumed, the replay's own error, and what follows."""
    told = [_assumed(comparison), _own_error(comparison)]
    told += [_verdict(comparison, other) for other in comparison.others]
    return [*told, *_reservations(comparison)]


def _assumed(comparison: Comparison) -> str:
    explanation = comparison.explanation
    slowed = sum(len(speeds) > 1 for speeds in explanation.speeds.values())
    changed = f"; {slowed} of them changed speed meanwhile" if slowed else ""
    return f"the replicas behave as if they served {explanation.kind}{changed}"


def _own_error(comparison: Comparison) -> str:
    predicted, observed = comparison.actual.figures.p99, comparison.observed.p99
    believed = f"differences under {percent(comparison.doubt)} are within the error"
    if abs(comparison.error) > GOAL:
        believed = f"that is much: trust only differences well above {percent(comparison.doubt)}"
    return (
        f"own error: p99 of {comparison.actual.policy} predicted {show_seconds(predicted)}, observed "
        f"{show_seconds(observed)}: {signed(comparison.error)}; {believed}"
    )


def _verdict(comparison: Comparison, other: Answer) -> str:
    difference = other.figures.p99 / comparison.actual.figures.p99 - 1.0
    doubt = max(comparison.doubt, other.spread)
    if isnan(difference):
        return f"{other.policy} would have answered nothing"
    if abs(difference) <= doubt:
        return f"{other.policy} would have done about as well as {comparison.actual.policy}, as far as can be told"
    word = "lower" if difference < 0 else "higher"
    return f"with {other.policy} p99 would have been {percent(abs(difference))} {word}"


def _reservations(comparison: Comparison) -> list[str]:
    recording, explanation = comparison.recording, comparison.explanation
    told = []
    if not explanation.side_by_side and any("@" in other.policy for other in comparison.others):
        told.append("no replica ever had two requests at once: how it would take more is not in the log")
    if explanation.unseen > MANY_UNSEEN:
        told.append(
            f"replicas had {explanation.unseen:.2g} requests beside each that the log does not tell of: lines were "
            "dropped, or others use the replicas"
        )
    if explanation.guessed > MANY_GUESSED * len(recording.asked):
        told.append(f"{explanation.guessed} requests were never served to their end: what they ask for is a guess")
    if explanation.stood_still > max(LONG_STANDSTILL, comparison.observed.p50):
        told.append(
            f"for {show_seconds(explanation.stood_still)} nothing ended anywhere: the gateway or the machine stood "
            "still, which no policy explains"
        )
    if recording.dropped:
        told.append(f"{recording.dropped} lines were lost when it was recorded: the disk did not keep up")
    if recording.wrong:
        told.append(f"{recording.wrong} requests with an error of the client's are left out")
    if recording.unreadable:
        told.append(f"{recording.unreadable} lines could not be read")
    if recording.earlier:
        word = "recording" if recording.earlier == 1 else "recordings"
        told.append(f"the log has {recording.earlier} earlier {word}: only the last is replayed")
    return told
