"""May a failed attempt be tried again elsewhere? May a slow one be hedged? Within budgets, always.

The budget is a purse, not a share of what is active: each request puts in `budget`, each retry takes out 1. A share of
active requests bounds nothing when failures are instant (every retry has ended before the next is counted); a purse
keeps attempts ≤ (1 + budget) × requests + reserve whatever the replicas do.
"""

from __future__ import annotations

from .options import HedgeOptions, RetryOptions
from .outcome import Outcome, Resend
from .request import Flight, Request


class RetryBudget:
    def __init__(self, options: RetryOptions) -> None:
        self.options = options
        self.purse = options.reserve

    def deposit(self) -> None:
        """A new request came in."""
        purse = self.purse + self.options.budget
        self.purse = purse if purse < self.options.saved else self.options.saved

    def allows(self, request: Request, outcome: Outcome, now: float) -> bool:
        """May this request go to another replica? Takes from the purse if so."""
        if outcome.resend is Resend.NEVER or (outcome.resend is Resend.IF_IDEMPOTENT and not request.idempotent):
            return False
        if not self.could(request, now):
            return False
        self.purse -= 1.0
        return True

    def could(self, request: Request, now: float) -> bool:
        """Are there attempts, time and budget left?"""
        if request.attempts >= self.options.attempts:
            return False
        return self.purse >= 1.0 and now < request.deadline and now < request.first_byte_by


class HedgeBudget:
    """Seconds of work that may be spent on second attempts: a share of the work sent so far."""

    SAVED = 100.0  # most that may be saved up, in typical requests

    def __init__(self, options: HedgeOptions) -> None:
        self.options = options
        self.purse = 0.0

    def deposit(self, seconds: float, typical: float) -> None:
        self.purse = min(self.purse + self.options.budget * seconds, self.SAVED * typical)

    def allows(self, flight: Flight, seconds: float) -> bool:
        """May this running attempt be doubled at a cost of `seconds`? Takes from the purse if so."""
        request = flight.request
        if not request.idempotent or request.hedge is not None or request.flight is not flight:
            return False
        if seconds > self.purse:
            return False
        self.purse -= seconds
        return True
