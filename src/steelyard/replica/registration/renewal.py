"""A lease at one gateway: what to do after each answer. No I/O."""

from __future__ import annotations

from random import Random
from typing import NamedTuple

MIN_RETRY_SECONDS, MAX_RETRY_SECONDS = 0.2, 5.0  # while the gateway is away
REFUSED_RETRY_SECONDS = 30.0  # until an operator fixes it
RETRYABLE_STATUSES = (401, 404, 408, 429)  # a token that changes, a model not configured yet, a busy gateway
MIN_RENEWAL_SECONDS = 0.2


class RenewalStep(NamedTuple):
    wait: float  # seconds until the next try
    message: str = ""  # one sentence for the log; empty: it was said already
    succeeded: bool = False


class Renewal:
    """Renews at a third of the lease, so that two renewals may be lost; reports each problem once."""

    def __init__(self, gateway: str, seconds: float, rng: Random) -> None:
        self.gateway = gateway
        self.seconds = seconds
        self.held = False  # the gateway knows us, as far as we know
        self._rng = rng
        self._failures = 0
        self._said: str | None = None

    def granted(self, seconds: float | None) -> RenewalStep:
        """None: it did not say for how long."""
        held = self.seconds if seconds is None or not 0 < seconds <= 86_400 else seconds
        self._failures = 0
        self.held = True
        wait = max(MIN_RENEWAL_SECONDS, held / 3 * self._rng.uniform(0.8, 1.0))
        sentence = f"registered with the gateway {self.gateway} for {held:g} s at a time"
        return RenewalStep(wait, self._once(sentence), True)

    def unreachable(self, reason: str) -> RenewalStep:
        return self._later(f"the gateway {self.gateway} cannot be reached ({reason}); it keeps trying")

    def refused(self, status: int, reason: str) -> RenewalStep:
        what = f"{status}: {reason}" if reason else str(status)
        if status == 401:
            return self._later(f"the gateway {self.gateway} does not accept the token ({what}); set STEELYARD_TOKEN")
        if status == 404:
            return self._later(f"the gateway {self.gateway} has no such model ({what}); it is asked again")
        if status in RETRYABLE_STATUSES or not 400 <= status < 500:
            return self._later(f"the gateway {self.gateway} cannot register this replica now ({what})")
        self.held = False
        sentence = f"the gateway {self.gateway} refuses this replica ({what}); correct its options or the gateway's"
        return RenewalStep(REFUSED_RETRY_SECONDS * self._rng.uniform(0.8, 1.0), self._once(sentence))

    def _later(self, sentence: str) -> RenewalStep:
        wait = min(MAX_RETRY_SECONDS, MIN_RETRY_SECONDS * 2.0 ** min(self._failures, 10)) * self._rng.uniform(0.5, 1.0)
        self._failures += 1
        return RenewalStep(wait, self._once(sentence))

    def _once(self, sentence: str) -> str:
        if sentence == self._said:
            return ""
        self._said = sentence
        return sentence
