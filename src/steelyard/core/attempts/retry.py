"""Retries within a budget: may a failed attempt be tried again on another replica?

Idea: a token bucket. Each request deposits `budget` tokens, each retry takes 1, at most `max_tokens` are kept. So
attempts ≤ (1 + budget) × requests + `initial_tokens`. A share of active requests, as Envoy's, would bound nothing where
failures are instant.

Source: Finagle's RetryBudget.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ..options import RetryOptions
from ..outcome import Outcome, Retryable
from ..request import Request

if TYPE_CHECKING:
    from ..pool import Pool
    from ..replica import Replica

OUT_OF_MEMORY: Final = Outcome.OUT_OF_MEMORY


class RetryBudget:
    def __init__(self, options: RetryOptions) -> None:
        self.options = options
        self.tokens = options.initial_tokens

    def deposit(self) -> None:
        tokens = self.tokens + self.options.budget
        self.tokens = tokens if tokens < self.options.max_tokens else self.options.max_tokens

    def try_spend(self, request: Request, outcome: Outcome, now: float) -> bool:
        """Takes a token if the request may go to another replica."""
        unsafe = outcome.retryable is Retryable.IF_IDEMPOTENT and not request.idempotent
        if outcome.retryable is Retryable.NEVER or unsafe or not self.can_retry(request, now):
            return False
        self.tokens -= 1.0
        return True

    def can_retry(self, request: Request, now: float) -> bool:
        """Are there attempts, time and budget left?"""
        if request.attempt_count >= self.options.max_attempts:
            return False
        return self.tokens >= 1.0 and now < request.deadline and now < request.first_byte_by

    def can_fail_over(self, request: Request, now: float) -> bool:
        """Its replica was lost: could it be tried elsewhere? If so, this attempt does not count: left there, it would
        wait for ever."""
        if not request.idempotent or self.options.max_attempts < 2:
            return False
        counted = request.attempt_count
        request.attempt_count = min(counted, self.options.max_attempts - 1)
        if self.can_retry(request, now):
            return True
        request.attempt_count = counted
        return False


def may_retry(pool: Pool, request: Request, outcome: Outcome, failed: Replica, now: float) -> bool:
    """If so, it is paid for."""
    if not outcome.failed:
        return False
    if outcome is OUT_OF_MEMORY and not pool.memory.could_retry(request, pool.members, failed, now):
        return False
    return pool.retry_budget.try_spend(request, outcome, now)
