"""Why a replica was ejected: the rule, its figures, and the sentence for people."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from ..outcome import Outcome


class EjectionRule(Enum):
    """Which rule ejected a replica; the values are stable codes."""

    CONSECUTIVE_FAILURES = "consecutive_failures"  # failures in a row
    PROBATION_FAILED = "probation_failed"  # its trial request failed too
    NO_RESPONSE = "no_response"  # no answer for long, while other replicas answer
    SUCCESS_RATE = "success_rate"  # fewer successes than other replicas have
    SLOWED = "slowed"  # slower than its own usual speed
    EXTREME_SLOWNESS = "extreme_slowness"  # too slow to be of use
    UNKNOWN = "unknown"  # an earlier balancer ejected it

    @property
    def is_speed(self) -> bool:
        """Is it about speed? Then good answers alone do not refute it."""
        return self in (EjectionRule.SLOWED, EjectionRule.EXTREME_SLOWNESS)


@dataclass(frozen=True, slots=True)
class EjectionReason:
    rule: EjectionRule
    value: float = 0.0  # failures in a row; seconds of silence; share of successes; times slower
    baseline: float = 0.0  # seconds of a usual answer; the others' share of successes
    seconds: float = 0.0  # for how long it was observed
    last_failure: str = ""  # `describe_failure` of the last one
    all_same: bool = False  # all failures in a row ended like that

    def __str__(self) -> str:
        value, failure = self.value, self.last_failure
        match self.rule:
            case EjectionRule.CONSECUTIVE_FAILURES:
                if not failure or self.all_same:
                    return f"{value:.0f} in a row {failure or 'failed'}"
                return f"{value:.0f} in a row failed; the last ones {failure}"
            case EjectionRule.PROBATION_FAILED:
                row = f"{value:.0f} in a row" if value > 1 else "the trial request"
                return f"{row} {failure or 'failed'} while other replicas answer"
            case EjectionRule.NO_RESPONSE:
                return f"no answer for {value:.1f} s ({self.baseline:.3g} s is usual) while other replicas answer"
            case EjectionRule.SUCCESS_RATE:
                last = f"; the last failures {failure}" if failure else ""
                return f"{value:.0%} of its requests succeed, of all {self.baseline:.0%}{last}"
            case EjectionRule.SLOWED:
                return f"{value:.1f} × slower than its own usual for {self.seconds:.0f} s"
            case EjectionRule.EXTREME_SLOWNESS:
                return f"{value:.0f} × slower than the others for {self.seconds:.0f} s"
            case EjectionRule.UNKNOWN:
                return "ejected earlier, for a reason that was not kept"


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
