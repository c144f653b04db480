"""What a policy says it compares is what it compares, and saying so changes nothing."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any

import pytest

from steelyard.core.balancer import Balancer
from steelyard.core.decision import Send
from steelyard.core.outcome import Outcome
from steelyard.core.policies import POLICIES, find_policy
from steelyard.core.policies.base import Policy
from steelyard.core.pool import Pool
from steelyard.core.replica import Replica
from steelyard.core.request import Request

# They look at all candidates; options that make near ones count as equal are turned off where they can be.
LOOK_AT_ALL: dict[str, dict[str, float]] = {
    "least_work": {"tie": 0.0},
    "least_connections": {},
    "least_response_time": {},
    "consistent_hash": {},
}
TIE_RATIO = 1.001  # least_response_time: means that differ in their last digits count as equal

Choice = tuple[str, dict[str, float | None]]


def choices(policy: str, seed: int = 3, ask: bool = True, key: str | None = None, **options: float) -> list[Choice]:
    """Four unequal replicas under a load that comes and goes: each choice, with the scores of who could be chosen."""
    rng = Random(seed)
    balancer = Balancer(Random(seed))
    pool = balancer.add_model("", policy, None, options, 0.0)
    for number, speed in enumerate((1.0, 1.5, 2.0, 4.0)):
        balancer.add_replica(f"r{number}", weight=speed, now=0.0)
    made: list[Choice] = []

    def witness(
        pool: Pool, request: Request, candidates: Sequence[Replica], chosen: Replica | None, now: float
    ) -> None:
        scores = {r.id: pool.policy.score(request, r, now) for r in candidates} if ask else {}
        made.append((chosen.id if chosen is not None else "", scores))

    balancer.on_choice = witness
    running: list[Request] = []
    now = 0.0
    for _ in range(300):
        now += rng.expovariate(4.0)
        size = rng.choice((1.0, 10.0))
        request = Request(features=(size,), key=key)
        request.choice_trace = True
        if isinstance(balancer.submit(request, now), Send):
            running.append(request)
        while running and rng.random() < 0.5:
            ended = running.pop(int(rng.random() * len(running)))
            outcome = Outcome.ERROR if rng.random() < 0.02 else Outcome.OK
            for decision in balancer.finish(ended, outcome, now + 0.01):
                if isinstance(decision, Send):
                    running.append(decision.request)
        balancer.expire(now + 0.01)
    assert len(made) >= 300
    assert len(pool.members) >= 3
    return made


@pytest.mark.parametrize("policy", LOOK_AT_ALL)
def test_the_chosen_has_the_least_score(policy: str) -> None:
    for chosen, scores in choices(policy, **LOOK_AT_ALL[policy]):
        known: dict[str, Any] = scores
        assert known[chosen] <= min(known.values()) * TIE_RATIO + 1e-9, (chosen, scores)


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("key", [None, "session"])
def test_asking_for_scores_changes_nothing(policy: str, key: str | None) -> None:
    """No random number is drawn, and nothing is noted: asked or not, the same choices follow."""
    asked = [chosen for chosen, _ in choices(policy, key=key)]
    unasked = [chosen for chosen, _ in choices(policy, ask=False, key=key)]
    assert asked == unasked


@pytest.mark.parametrize("policy", POLICIES)
def test_who_compares_says_what_and_who_does_not_says_nothing(policy: str) -> None:
    scores = [score for _, scores in choices(policy) for score in scores.values()]
    assert {score is None for score in scores} == {find_policy(policy).score is Policy.score}


@pytest.mark.parametrize("policy", [*LOOK_AT_ALL, "power_of_two", "peak_ewma"])
def test_these_compare(policy: str) -> None:
    assert find_policy(policy).score is not Policy.score


def test_a_key_has_its_own_order_of_replicas() -> None:
    made = choices("consistent_hash", key="session")
    orders = {tuple(sorted(scores, key=lambda id: scores[id] or 0.0)) for _, scores in made if len(scores) == 4}
    assert len(orders) == 1
    (order,) = orders
    assert made[0][0] == order[0], "while nothing runs nobody is over the bound"
