"""Short words for what the tests of the core do again and again. Times are always given, never read."""

from random import Random

from steelyard.core.balancer import Balancer
from steelyard.core.decision import Decision, Reject, Send, Wait
from steelyard.core.options import OutlierDetectionOptions, PoolOptions, RetryOptions
from steelyard.core.outcome import Outcome
from steelyard.core.replica import Replica
from steelyard.core.request import Request, RequestPhase

NO_EJECTION = OutlierDetectionOptions(enabled=False)
NO_RETRY = RetryOptions(max_attempts=1)


def fleet(*ids: str, policy: str = "round_robin", seed: int = 1, **options) -> Balancer:
    """A balancer of one model, its replicas ready since time 0."""
    balancer = Balancer(Random(seed))
    balancer.add_model("", policy, PoolOptions(**options))
    for id in ids:
        balancer.add_replica(id, now=0.0)
    return balancer


def replica(balancer: Balancer, id: str) -> Replica:
    return balancer.pool().find(id)


def sent(decision: Decision) -> str:
    """The replica of a `Send`; anything else is a failure."""
    assert isinstance(decision, Send), decision
    return decision.replica.id


def waits(decision: Decision) -> bool:
    return isinstance(decision, Wait)


def refused(decision: Decision) -> str:
    """The reason of a `Reject`; anything else is a failure."""
    assert isinstance(decision, Reject), decision
    return decision.reason.code


def start(balancer: Balancer, now: float = 0.0, **fields) -> Request:
    """A request that is on its way to a replica."""
    request = Request(**fields)
    sent(balancer.submit(request, now))
    return request


def runs_on(request: Request) -> str:
    assert request.phase is RequestPhase.RUNNING
    assert request.attempt is not None
    return request.attempt.replica.id


def serve(balancer: Balancer, seconds: float, now: float, outcome: Outcome = Outcome.OK, **fields) -> Request:
    """A request that runs alone from `now` on and ends after `seconds`."""
    request = start(balancer, now, **fields)
    balancer.finish(request, outcome, now + seconds)
    return request


def serve_on(balancer: Balancer, id: str, seconds: float, now: float, outcome: Outcome = Outcome.OK) -> Request:
    """The same on a replica of the test's choice, past the policy: the others are avoided."""
    request = Request()
    request.avoid = tuple(r for r in balancer.pool().members if r.id != id)
    assert sent(balancer.submit(request, now)) == id
    balancer.finish(request, outcome, now + seconds)
    return request


def pass_time(balancer: Balancer, start: float, end: float) -> list[Decision]:
    """Let a driver's clock run from one time to another; returns what the balancer decided on the way."""
    decisions: list[Decision] = []
    now = start
    while (wake := balancer.next_wake()) is not None and wake <= end:
        now = max(now, wake)
        decisions.extend(balancer.expire(now))
        assert balancer.wake > now, "what was due is done, yet the balancer asks to be woken for it again"
    return decisions
