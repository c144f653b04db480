"""Why a replica was ejected: which rule applied, with its figures. The sentence for people is made here only."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

from ..outcome import Outcome


class EjectionRule(Enum):
    """Which rule ejected a replica; the values are stable codes."""

    CONSECUTIVE_FAILURES = "consecutive_failures"  # failures in a row
    PROBATION_FAILED = "probation_failed"  # the request that was to show whether it is well again failed too
    SILENT = "no_response"  # no answer for long, while other replicas answer
    SUCCESS_RATE = "success_rate"  # fewer successes than other replicas have
    SLOWED = "slowed"  # slower than its own usual speed
    EXTREME_SLOWNESS = "extreme_slowness"  # so much slower than the others that it is of no use
    REPORTED_BY_PEER = "reported_by_peer"  # another worker ejected it and gave no reason

    @property
    def is_speed(self) -> bool:
        """Is it about speed? Then good answers alone do not refute it."""
        return self in (EjectionRule.SLOWED, EjectionRule.EXTREME_SLOWNESS)


@dataclass(frozen=True, slots=True)
class EjectionReason:
    rule: EjectionRule
    value: float = 0.0  # failures in a row; seconds of silence; share of successes; times slower
    baseline: float = 0.0  # what that is compared with: seconds of a usual answer, the others' share of successes
    seconds: float = 0.0  # for how long it was observed
    last_failure: str = ""  # how the last failed attempt ended, as `failure_words` says it
    all_same: bool = False  # all the failures in a row ended like that

    def __str__(self) -> str:
        say: Callable[[EjectionReason], str] = _SENTENCES[self.rule]
        return say(self)


_FAILURE_WORDS = {
    Outcome.UNREACHABLE: "could not connect",
    Outcome.OVERLOADED: "were declined",
    Outcome.ERROR: "answered with an error",
    Outcome.OUT_OF_MEMORY: "ran out of memory",
    Outcome.CONNECTION_LOST: "lost the connection",
    Outcome.TIMEOUT: "timed out",
    Outcome.TRUNCATED: "broke off in mid-answer",
}


def describe_failure(outcome: Outcome, status: int) -> str:
    """How a failed attempt ended: `answered 500`, `timed out`."""
    return f"answered {status}" if status else _FAILURE_WORDS.get(outcome, "failed")


def _in_a_row(reason: EjectionReason) -> str:
    if not reason.last_failure or reason.all_same:
        return f"{reason.value:.0f} in a row {reason.last_failure or 'failed'}"
    return f"{reason.value:.0f} in a row failed; the last ones {reason.last_failure}"


def _trial(reason: EjectionReason) -> str:
    row = f"{reason.value:.0f} in a row" if reason.value > 1 else "the trial request"
    return f"{row} {reason.last_failure or 'failed'} while other replicas answer"


def _silent(reason: EjectionReason) -> str:
    return f"no answer for {reason.value:.1f} s ({reason.baseline:.3g} s is usual) while other replicas answer"


def _rate(reason: EjectionReason) -> str:
    last = f"; the last failures {reason.last_failure}" if reason.last_failure else ""
    return f"{reason.value:.0%} of its requests succeed, of all {reason.baseline:.0%}{last}"


def _slowed(reason: EjectionReason) -> str:
    return f"{reason.value:.1f} × slower than its own usual for {reason.seconds:.0f} s"


def _useless(reason: EjectionReason) -> str:
    return f"{reason.value:.0f} × slower than the others for {reason.seconds:.0f} s"


def _told(reason: EjectionReason) -> str:
    return "another worker ejected it"


_SENTENCES = {
    EjectionRule.CONSECUTIVE_FAILURES: _in_a_row,
    EjectionRule.PROBATION_FAILED: _trial,
    EjectionRule.SILENT: _silent,
    EjectionRule.SUCCESS_RATE: _rate,
    EjectionRule.SLOWED: _slowed,
    EjectionRule.EXTREME_SLOWNESS: _useless,
    EjectionRule.REPORTED_BY_PEER: _told,
}
