"""A replay in words: what was assumed, the replay's own error, what follows, and what to be careful about."""

from __future__ import annotations

from math import isnan

from ..units import show_seconds
from .replay import Answer, Comparison
from .wording import percent

MANY_UNSEEN = 0.05  # requests the log does not tell of, for each that it does: more is worth a word
LONG_STALLS = 0.01  # of the recording: more is worth a word
MANY_GUESSED = 0.02
MOST_NAMES = 3
GOAL = 0.1  # an error above this is said to be too large to conclude from


def signed(share: float) -> str:
    return "–" if isnan(share) else f"{100 * share:+.1f} %"


def sentences(comparison: Comparison) -> list[str]:
    """What the table does not say."""
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
    low, high = comparison.by_chance
    if isnan(predicted):
        return (
            f"own error: the replay of {comparison.actual.policy} answered nothing, while p99 observed was "
            f"{show_seconds(observed)}: nothing follows from it"
        )
    believed = f"differences under {percent(comparison.doubt)} are within the error"
    if abs(comparison.error) > GOAL:
        believed = f"that is much: trust only differences well above {percent(comparison.doubt)}"
    return (
        f"own error: p99 of {comparison.actual.policy} predicted {show_seconds(predicted)}, observed "
        f"{show_seconds(observed)} (by chance alone {show_seconds(low)} to {show_seconds(high)}): "
        f"{signed(comparison.error)}; {believed}"
    )


def _verdict(comparison: Comparison, other: Answer) -> str:
    difference = comparison.difference(other)
    if isnan(comparison.actual.figures.p99):
        return f"how {other.policy} would have done cannot be told"
    if isnan(difference):
        return f"{other.policy} would have answered nothing"
    doubt = comparison.doubt_of(other)
    low, high = (1.0 + difference) / (1.0 + doubt) - 1.0, (1.0 + difference) * (1.0 + doubt) - 1.0
    if low <= 0.0 <= high:
        return (
            f"{other.policy} would have done about as well as {comparison.actual.policy}, as far as can be told: p99 "
            f"{signed(difference)}, give or take {percent(doubt)}"
        )
    word = "lower" if difference < 0 else "higher"
    least, most = sorted((abs(low), abs(high)))
    return (
        f"with {other.policy} p99 would have been {percent(abs(difference))} {word} "
        f"(between {percent(least)} and {percent(most)})"
    )


def _failures(comparison: Comparison) -> list[str]:
    """What is assumed of requests that failed, and of who left."""
    explanation = comparison.explanation
    told = []
    if explanation.failed:
        told.append(
            f"{explanation.failed} requests failed by themselves: they do so in every replay, after as much work, "
            "wherever they go"
        )
    if failing := sorted(id for id, stretches in explanation.failing.items() if stretches):
        names = ", ".join(failing[:MOST_NAMES]) + (" …" if len(failing) > MOST_NAMES else "")
        told.append(f"{names}: failed whatever came for a while, and so in every replay")
    if left := sum(one.verdict == "left" for one in comparison.recording.asked):
        told.append(f"{left} clients left before they were answered: they come and leave again, and are not counted")
    return told


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
        told.append(f"nobody saw {explanation.guessed} requests end: what they ask for is a guess")
    told += _failures(comparison)
    stood_still = sum(stall.seconds for stall in explanation.stalls)
    if stood_still > LONG_STALLS * recording.seconds:
        told.append(
            f"for {show_seconds(stood_still)} in all the gateway or its machine stood still: it does so in every replay"
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
