"""What is counted of each model, for reports: how requests ended, and how long the answered ones took."""

from __future__ import annotations

from math import log

from ..core.histogram import OFFSET, PER_BUCKET, SIZE, SMALLEST

OK, CLIENT_ERROR, FAILED, REFUSED, CANCELLED = VERDICTS = ("ok", "client_error", "failed", "refused", "cancelled")


class Account:
    __slots__ = ("buckets", "cancelled", "client_error", "failed", "looks", "ok", "refused")

    def __init__(self) -> None:
        self.ok = 0
        self.client_error = 0
        self.failed = 0
        self.refused = 0
        self.cancelled = 0
        self.looks = 0  # of all these, requests that only look (gateway/looks.py)
        self.buckets: dict[int, int] = {}  # of core.histogram; only those that were hit

    def answered(self, seconds: float) -> None:
        self.ok += 1
        index = int(log(seconds) * PER_BUCKET + OFFSET) if seconds > SMALLEST else 0
        if index >= SIZE:
            index = SIZE - 1
        buckets = self.buckets
        buckets[index] = buckets.get(index, 0) + 1

    def count(self, verdict: str) -> None:
        setattr(self, verdict, getattr(self, verdict) + 1)

    def verdicts(self) -> dict[str, int]:
        return {name: getattr(self, name) for name in VERDICTS}
