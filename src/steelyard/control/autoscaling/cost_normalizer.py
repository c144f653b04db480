"""Work of requests in seconds, also where a worker that has not learned yet only guesses it."""

from __future__ import annotations

from collections.abc import Sequence
from math import fsum
from typing import NamedTuple

from ...link.messages import ModelReport

DECAY_PER_DECISION = 0.8


class LearnedTotals(NamedTuple):
    workers: int = 0
    offered: float = 0.0
    done: float = 0.0
    busy: float = 0.0
    arrived: int = 0
    typical: float = 0.0  # seconds of a request, on average over the workers


def learned_totals(reports: Sequence[ModelReport]) -> LearnedTotals:
    those = [report for report in reports if report.learned]
    typical = fsum(report.typical_seconds for report in those) / max(1, len(those))
    return LearnedTotals(len(those), *work_totals(those), typical)


def work_totals(reports: Sequence[ModelReport]) -> tuple[float, float, float, int]:
    """Offered, done, busy and arrived. With fsum: in another order of the reports, a sum must not seem to drop."""
    return (
        fsum(report.offered_work for report in reports),
        fsum(report.completed_work for report in reports),
        fsum(report.busy_seconds for report in reports),
        sum(report.arrived for report in reports),
    )


class CostNormalizer:
    """A request at a worker that only guesses counts like the recent ones at workers that have learned."""

    def __init__(self) -> None:
        self._offered = self._arrived = 0.0  # recent, at workers that have learned
        self._typical = 0.0
        self._guessed = 0  # requests before any worker had learned: still guesses while they wait
        self._all = 0

    def growth(self, now: LearnedTotals, last: LearnedTotals, arrived: int, total: int) -> tuple[float, float, float]:
        """Work that came, work done and its busy seconds. `arrived`: requests since the last look; `total`: ever."""
        self._typical, self._all = now.typical, total
        if not last.workers:
            self._guessed = total
        if now.workers != last.workers:  # what one that has just learned counted before were guesses
            return self.seconds_per_request * arrived, 0.0, 0.0
        offered, came = max(0.0, now.offered - last.offered), max(0, now.arrived - last.arrived)
        if came:
            self._offered = DECAY_PER_DECISION * self._offered + offered
            self._arrived = DECAY_PER_DECISION * self._arrived + came
        more = self.seconds_per_request * max(0, arrived - came)
        return offered + more, max(0.0, now.done - last.done), max(0.0, now.busy - last.busy)

    @property
    def seconds_per_request(self) -> float:
        return self._offered / self._arrived if self._arrived else self._typical

    def backlog(self, reports: Sequence[ModelReport]) -> float:
        """Seconds of work in all queues."""
        if not any(report.learned for report in reports):
            return sum(report.queued_work for report in reports)
        waiting = sum(report.waiting for report in reports)
        early = self._all - waiting < self._guessed  # the oldest came before any worker had learned
        return sum(self._queued(report, early) for report in reports)

    def _queued(self, report: ModelReport, early: bool) -> float:
        worth = report.waiting * self.seconds_per_request
        if not worth or (report.learned and not early):
            return report.queued_work
        return min(report.queued_work, worth) if report.learned else worth
