"""Retries within a budget: may a failed attempt be tried again on another replica?

Idea: a token bucket. Each request deposits `budget` tokens, each retry takes 1, at most `saved` are kept, and `reserve`
are there at the start. So attempts ≤ (1 + budget) × requests + reserve, whatever the replicas do. A share of active
requests would bound nothing where failures are instant: every retry has ended before the next is counted.

Source: Finagle's RetryBudget; Envoy's retry budget is the share of active requests.
"""

from __future__ import annotations

from ..options import RetryOptions
from ..outcome import Outcome, Retryable
from ..request import Request


class RetryBudget:
    def __init__(self, options: RetryOptions) -> None:
        self.options = options
        self.tokens = options.initial_tokens

    def deposit(self) -> None:
        """A new request came in."""
        tokens = self.tokens + self.options.budget
        self.tokens = tokens if tokens < self.options.max_tokens else self.options.max_tokens

    def try_spend(self, request: Request, outcome: Outcome, now: float) -> bool:
        """May this request go to another replica? Takes a token if so."""
        if outcome.retryable is Retryable.NEVER or (
            outcome.retryable is Retryable.IF_IDEMPOTENT and not request.idempotent
        ):
            return False
        if not self.can_retry(request, now):
            return False
        self.tokens -= 1.0
        return True

    def can_retry(self, request: Request, now: float) -> bool:
        """Are there attempts, time and budget left?"""
        if request.attempt_count >= self.options.max_attempts:
            return False
        return self.tokens >= 1.0 and now < request.deadline and now < request.first_byte_by

    def can_fail_over(self, request: Request, now: float) -> bool:
        """Its replica was lost: could it be tried elsewhere? Nothing is paid yet.

        If so, this attempt does not count against the number it has: left there, it would wait for ever.
        """
        if not request.idempotent or self.options.max_attempts < 2:
            return False
        counted = request.attempt_count
        request.attempt_count = min(counted, self.options.max_attempts - 1)
        if self.can_retry(request, now):
            return True
        request.attempt_count = counted
        return False
