"""A replay in words: assumptions, own error, findings, caveats."""

from __future__ import annotations

from math import isnan

from ...core.policies import find_policy
from ...units import format_seconds
from ..report.formatting import percent
from ..run import split_policy
from .compare import Comparison, PolicyPrediction

UNLOGGED_WARNING_RATIO = 0.05  # requests that the log omits, for each that it has
STALL_WARNING_SHARE = 0.01  # of the recording
GUESSED_WARNING_SHARE = 0.02
MAX_NAMES_SHOWN = 3
MAX_TRUSTED_ERROR = 0.1


def signed(share: float) -> str:
    return "–" if isnan(share) else f"{100 * share:+.1f} %"


def sentences(comparison: Comparison) -> list[str]:
    lines = [_assumed(comparison), _own_error(comparison)]
    lines += [_alternative(comparison, other) for other in comparison.alternatives]
    return [*lines, *_caveats(comparison)]


def _assumed(comparison: Comparison) -> str:
    explanation = comparison.calibration
    slowed = sum(len(speeds) > 1 for speeds in explanation.speeds.values())
    changed = f"; {slowed} of them changed speed meanwhile" if slowed else ""
    return f"the replicas behave as if they served {explanation.server_model}{changed}"


def _own_error(comparison: Comparison) -> str:
    predicted, observed = comparison.baseline.figures.p99, comparison.observed.p99
    low, high = comparison.observed_p99_interval
    if isnan(predicted):
        return (
            f"own error: the replay of {comparison.baseline.policy} answered nothing, while p99 observed was "
            f"{format_seconds(observed)}: nothing follows from it"
        )
    believed = f"differences under {percent(comparison.error_margin)} are within the error"
    if abs(comparison.replay_error) > MAX_TRUSTED_ERROR:
        believed = f"that is much: trust only differences well above {percent(comparison.error_margin)}"
    return (
        f"own error: p99 of {comparison.baseline.policy} predicted {format_seconds(predicted)}, observed "
        f"{format_seconds(observed)} (by chance alone {format_seconds(low)} to {format_seconds(high)}): "
        f"{signed(comparison.replay_error)}; {believed}"
    )


def _alternative(comparison: Comparison, other: PolicyPrediction) -> str:
    difference = comparison.difference(other)
    if isnan(comparison.baseline.figures.p99):
        return f"how {other.policy} would have done cannot be said"
    if isnan(difference):
        return f"{other.policy} would have answered nothing"
    doubt = comparison.error_margin_of(other)
    low, high = (1.0 + difference) / (1.0 + doubt) - 1.0, (1.0 + difference) * (1.0 + doubt) - 1.0
    if low <= 0.0 <= high:
        return (
            f"{other.policy} would have done about as well as {comparison.baseline.policy}, as far as can be told: p99 "
            f"{signed(difference)}, give or take {percent(doubt)}"
        )
    word = "lower" if difference < 0 else "higher"
    least, most = sorted((abs(low), abs(high)))
    return (
        f"with {other.policy} p99 would have been {percent(abs(difference))} {word} "
        f"(between {percent(least)} and {percent(most)})"
    )


def _failures(comparison: Comparison) -> list[str]:
    explanation = comparison.calibration
    caveats = []
    if explanation.failed:
        caveats.append(
            f"{explanation.failed} requests failed by themselves: they do so in every replay, after as much work, "
            "wherever they go"
        )
    if failing := sorted(id for id, stretches in explanation.failure_windows.items() if stretches):
        names = ", ".join(failing[:MAX_NAMES_SHOWN]) + (" …" if len(failing) > MAX_NAMES_SHOWN else "")
        caveats.append(f"{names}: failed whatever came for a while, and so in every replay")
    if left := sum(one.abandoned for one in comparison.recording.requests):
        caveats.append(f"{left} clients left before they were answered: they come and leave again, and are not counted")
    return caveats


def _caveats(comparison: Comparison) -> list[str]:
    recording, explanation = comparison.recording, comparison.calibration
    caveats = []
    compared = (comparison.baseline.policy, *(other.policy for other in comparison.alternatives))
    if blind := [policy for policy in compared if find_policy(split_policy(policy)[0]).needs_prompt]:
        caveats.append(f"the log holds no prompts: {', '.join(blind)} chose without them")
    if not explanation.saw_concurrency and any("@" in other.policy for other in comparison.alternatives):
        caveats.append("no replica ever had two requests at once: how it would take more is not in the log")
    if explanation.unlogged_per_request > UNLOGGED_WARNING_RATIO:
        caveats.append(
            f"replicas had {explanation.unlogged_per_request:.2g} requests beside each that the log does not tell of: "
            "lines were dropped, or others use the replicas"
        )
    if explanation.guessed > GUESSED_WARNING_SHARE * len(recording.requests):
        caveats.append(f"{explanation.guessed} requests were not seen to end: their work is a guess")
    caveats += _failures(comparison)
    stood_still = sum(stall.seconds for stall in explanation.stalls)
    if stood_still > STALL_WARNING_SHARE * recording.seconds:
        caveats.append(
            f"for {format_seconds(stood_still)} in all the gateway or its machine stood still: "
            "it does so in every replay"
        )
    if recording.dropped_lines:
        caveats.append(f"{recording.dropped_lines} lines were lost when it was recorded: the disk did not keep up")
    if recording.client_errors:
        caveats.append(f"{recording.client_errors} requests with an error of the client's are left out")
    if recording.unreadable_lines:
        caveats.append(f"{recording.unreadable_lines} lines could not be read")
    if recording.earlier_recordings:
        word = "recording" if recording.earlier_recordings == 1 else "recordings"
        caveats.append(f"the log has {recording.earlier_recordings} earlier {word}: only the last is replayed")
    return caveats
