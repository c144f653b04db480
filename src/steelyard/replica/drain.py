"""When a replica that leaves may end. Pure: the time is an argument."""

from __future__ import annotations

from typing import NamedTuple


class DrainProgress(NamedTuple):
    began: float
    grace: float  # seconds after which it ends, whatever still runs
    quiet: float  # seconds in which nothing came or ended
    settle: float  # seconds for those who only probe to notice

    def is_over(self, now: float, present: int, last: float, withdrawn: bool) -> bool:
        """`present`: requests here; `last`: when one came or ended; `withdrawn`: the gateways send no more."""
        if now - self.began >= self.grace:
            return True
        if present or now - max(self.began, last) < self.quiet:
            return False
        return withdrawn or now - self.began >= self.settle
