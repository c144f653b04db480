"""The choices of sampled requests, for the decision log: what the policy chose among, and what was excluded and why."""

from __future__ import annotations

from collections.abc import Sequence
from heapq import nsmallest
from math import isfinite
from typing import Final

from ...core.policies import Policy
from ...core.pool import Pool
from ...core.replica import Replica, State
from ...core.request import INFINITY, Request, RequestPhase
from ...link.decision_log.lines import ExcludedReplica, LoggedCandidate, LoggedChoice

MAX_CHOICES: Final = 8  # kept of a request: the first, and the last ones
CHOICE_INTERVAL_SECONDS: Final = 0.1  # between snapshots of a request that waits
MAX_SCORED_REPLICAS: Final = 128  # evenly spread over all
SECONDS_DIGITS: Final = 6


class ChoiceRecord:
    """A sampled request's `choice_trace`."""

    __slots__ = ("arrived", "choice_count", "choices", "chosen_at", "estimate")

    def __init__(self, now: float) -> None:
        self.arrived = now
        self.estimate: float | None = None
        self.choice_count = 0
        self.chosen_at = -INFINITY
        self.choices: list[LoggedChoice] = []

    def add(self, choice: LoggedChoice) -> None:
        if len(self.choices) >= MAX_CHOICES:
            del self.choices[1]
        self.choices.append(choice)

    def extend(self, choices: Sequence[LoggedChoice], count: int, estimate: float) -> None:
        """What another process recorded. `count`: of its choices so far."""
        if self.estimate is None:
            self.estimate = estimate
        self.choice_count = count
        for choice in choices:
            self.add(choice)

    def take(self) -> tuple[LoggedChoice, ...]:
        """Those since the last call, for another process."""
        choices, self.choices = self.choices, []
        return tuple(choices)


class ChoiceRecorder:
    def __init__(self, max_candidates: int) -> None:
        """`max_candidates`: of one choice, and as many of the excluded."""
        self._max_candidates = max_candidates

    def on_choice(
        self, pool: Pool, request: Request, candidates: Sequence[Replica], chosen: Replica | None, now: float
    ) -> None:
        noted: ChoiceRecord = request.choice_trace
        if noted.estimate is None:
            noted.estimate = request.base
        noted.choice_count += 1
        if chosen is None and now < noted.chosen_at + CHOICE_INTERVAL_SECONDS:
            return  # a queued request is looked at again and again
        noted.chosen_at = now
        self._add_choice(noted, pool, request, candidates, chosen, now)

    def not_placed(self, request: Request, now: float) -> None:
        """Not sent when it came. If no replica could take it, `on_choice` was not called."""
        noted: ChoiceRecord = request.choice_trace
        if request.pool is not None and not noted.choices:
            self._add_choice(noted, request.pool, request, (), None, now)

    def _add_choice(
        self,
        noted: ChoiceRecord,
        pool: Pool,
        request: Request,
        candidates: Sequence[Replica],
        chosen: Replica | None,
        now: float,
    ) -> None:
        among = set(candidates)
        left_out: list[Replica] = []
        if len(among) < len(pool.replicas):
            left_out = [replica for replica in pool.replicas.values() if replica not in among]
        noted.add(
            LoggedChoice(
                after=round(now - noted.arrived, SECONDS_DIGITS),
                chosen=chosen.id if chosen is not None else "",
                candidate_count=len(candidates),
                candidates=self._snapshot(pool, request, candidates, chosen, now),
                waiting=len(pool.queue),
                excluded=tuple(_excluded(pool, request, replica, now) for replica in left_out[: self._max_candidates]),
                excluded_count=len(left_out),
            )
        )

    def _snapshot(
        self, pool: Pool, request: Request, candidates: Sequence[Replica], chosen: Replica | None, now: float
    ) -> tuple[LoggedCandidate, ...]:
        most = self._max_candidates
        some = candidates[:: 1 + len(candidates) // MAX_SCORED_REPLICAS]
        if chosen is not None and chosen not in some:
            some = [chosen, *some]
        policy = pool.policy
        scored = [(_score(policy, request, replica, now), replica) for replica in some]
        if len(scored) > most:
            scored = nsmallest(most, scored, key=lambda s: (s[1] is not chosen, INFINITY if s[0] is None else s[0]))
        return tuple(_candidate(pool, request, replica, score, now) for score, replica in scored)


def _score(policy: Policy, request: Request, replica: Replica, now: float) -> float | None:
    try:
        score = policy.score(request, replica, now)
        score = None if score is None else round(float(score), SECONDS_DIGITS)  # it may be another kind of number
    except Exception:  # a policy of the user's own; the choice is made, and stands
        return None
    return score if score is not None and isfinite(score) else None


def _candidate(pool: Pool, request: Request, replica: Replica, score: float | None, now: float) -> LoggedCandidate:
    estimator = pool.estimator
    in_the_way = estimator.queueing_cost(replica, now) if replica.load else 0.0
    return LoggedCandidate(
        id=replica.id,
        in_flight=replica.load,
        work=round(replica.outstanding_work, SECONDS_DIGITS),
        slowness=round(replica.slowness, 4),
        expected=round(request.base * replica.slowness + in_the_way, SECONDS_DIGITS),
        weight=replica.effective_weight,
        score=score,
        failures=replica.failure_penalty,
    )


def _excluded(pool: Pool, request: Request, replica: Replica, now: float) -> ExcludedReplica:
    if replica not in pool.members:
        return ExcludedReplica(replica.id, replica.state.value, _ejection_sentence(replica, now))
    if request.avoid and replica in request.avoid:
        return ExcludedReplica(replica.id, "failed_before")
    if replica.load >= replica.limit:
        return ExcludedReplica(replica.id, "full", f"{replica.load} of {replica.limit:g}")
    if replica.suspended:
        return ExcludedReplica(replica.id, "on_probation")
    if request.binding_deadline and request.phase is RequestPhase.DONE:  # refused before memory was looked at
        return ExcludedReplica(replica.id, "deadline")
    device = replica.residency.device.name if replica.residency is not None else ""
    return ExcludedReplica(replica.id, "insufficient_memory", device)


def _ejection_sentence(replica: Replica, now: float) -> str:
    left = replica.ejected_until - now if replica.state is State.EJECTED else 0.0
    if left <= 0.0:
        return ""
    return f"{replica.ejection}; {left:.0f} s more" if replica.ejection is not None else f"{left:.0f} s more"
