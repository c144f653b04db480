"""Why a replica was ejected: which rule applied, with its figures. The sentence for people is made here only."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

from .outcome import Outcome


class Rule(Enum):
    """Which rule ejected a replica; the values are stable codes."""

    IN_A_ROW = "in_a_row"  # so many failures in a row
    TRIAL = "trial"  # the request that was to show whether it is well again failed too
    SILENT = "silent"  # no answer for long, while other replicas answer
    RATE = "success_rate"  # fewer successes than other replicas have
    SLOWED = "slowed"  # slower than its own usual speed
    USELESS = "useless"  # so much slower than the others that it is of no use
    TOLD = "told"  # another worker ejected it and gave no reason

    @property
    def is_speed(self) -> bool:
        """Is it about speed? Then good answers alone do not refute it."""
        return self in (Rule.SLOWED, Rule.USELESS)


@dataclass(frozen=True, slots=True)
class EjectionReason:
    rule: Rule
    figure: float = 0.0  # failures in a row; seconds of silence; share of successes; times slower
    usual: float = 0.0  # what that is compared with: seconds of a usual answer, the others' share of successes
    seconds: float = 0.0  # for how long it was observed
    last_failure: str = ""  # how the last failed attempt ended, as `failure_words` says it
    all_alike: bool = False  # all the failures in a row ended like that

    def __str__(self) -> str:
        say: Callable[[EjectionReason], str] = _SENTENCES[self.rule]
        return say(self)


_ENDS = {
    Outcome.UNREACHABLE: "could not connect",
    Outcome.OVERLOADED: "were declined",
    Outcome.ERROR: "answered with an error",
    Outcome.OUT_OF_MEMORY: "ran out of memory",
    Outcome.BROKEN: "lost the connection",
    Outcome.TIMEOUT: "timed out",
    Outcome.TRUNCATED: "broke off in mid-answer",
}


def failure_words(outcome: Outcome, status: int) -> str:
    """How a failed attempt ended: `answered 500`, `timed out`."""
    return f"answered {status}" if status else _ENDS.get(outcome, "failed")


def _in_a_row(reason: EjectionReason) -> str:
    if not reason.last_failure or reason.all_alike:
        return f"{reason.figure:.0f} in a row {reason.last_failure or 'failed'}"
    return f"{reason.figure:.0f} in a row failed; the last ones {reason.last_failure}"


def _trial(reason: EjectionReason) -> str:
    row = f"{reason.figure:.0f} in a row" if reason.figure > 1 else "the trial request"
    return f"{row} {reason.last_failure or 'failed'} while other replicas answer"


def _silent(reason: EjectionReason) -> str:
    return f"no answer for {reason.figure:.1f} s ({reason.usual:.3g} s is usual) while other replicas answer"


def _rate(reason: EjectionReason) -> str:
    last = f"; the last failures {reason.last_failure}" if reason.last_failure else ""
    return f"{reason.figure:.0%} of its requests succeed, of all {reason.usual:.0%}{last}"


def _slowed(reason: EjectionReason) -> str:
    return f"{reason.figure:.1f} × slower than its own usual for {reason.seconds:.0f} s"


def _useless(reason: EjectionReason) -> str:
    return f"{reason.figure:.0f} × slower than the others for {reason.seconds:.0f} s"


def _told(reason: EjectionReason) -> str:
    return "another worker ejected it"


_SENTENCES = {
    Rule.IN_A_ROW: _in_a_row,
    Rule.TRIAL: _trial,
    Rule.SILENT: _silent,
    Rule.RATE: _rate,
    Rule.SLOWED: _slowed,
    Rule.USELESS: _useless,
    Rule.TOLD: _told,
}
