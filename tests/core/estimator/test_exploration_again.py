"""A replica that was slow for a while, or cold at first, is used again when it is not slow any more."""

import heapq
from random import Random

import pytest

from steelyard.core.balancer import Balancer
from steelyard.core.decision import Send, Wait
from steelyard.core.options import PoolOptions
from steelyard.core.outcome import Outcome
from steelyard.core.replica import Event, State
from steelyard.core.request import Request


class Closed:
    """A few clients, each with one request at a time, in virtual time. `seconds(id, sent, now)`: how long it takes."""

    def __init__(self, ids, seconds, seed, clients=3):
        self.rng = Random(seed)
        self.balancer = Balancer(Random(seed))
        self.balancer.add_model("", "least_work", PoolOptions(slow_start=0.0))
        for id in ids:
            self.balancer.add_replica(id, now=0.0)
        self.seconds = seconds
        self.sent = dict.fromkeys(ids, 0)
        self.running = []
        self.number = 0
        for _ in range(clients):
            self.go(0.0)

    def go(self, now):
        request = Request()
        replica = self.balancer.submit(request, now).replica
        self.sent[replica.id] += 1
        self.number += 1
        took = self.seconds(replica.id, self.sent[replica.id], now) * self.rng.uniform(0.9, 1.2)
        heapq.heappush(self.running, (now + took * replica.in_flight**0.5, self.number, request))

    def run(self, until):
        """What each got meanwhile, as a share."""
        before = dict(self.sent)
        while self.running[0][0] <= until:
            now, _, request = heapq.heappop(self.running)
            while (wake := self.balancer.next_wake()) is not None and wake <= now:
                self.balancer.expire(wake)
            self.balancer.finish(request, Outcome.OK, now)
            self.go(now)
        got = {id: self.sent[id] - before[id] for id in self.sent}
        return {id: count / sum(got.values()) for id, count in got.items()}


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("ids", ["ab", "abc", "abcd"])
def test_slow_first_answers_do_not_decide_for_ever(ids, seed):
    world = Closed(ids, lambda id, sent, now: 0.06 if sent <= 6 else 0.01, seed, clients=len(ids) + 1)
    world.run(10.0)
    shares = world.run(20.0)
    assert min(shares.values()) > 0.5 / len(ids), shares


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("ids", ["ab", "abc", "abcd"])
def test_who_was_slow_for_a_while_is_used_again(ids, seed):
    def seconds(id, sent, now):
        return 0.08 if id == "a" and 10.0 <= now < 20.0 else 0.01

    world = Closed(ids, seconds, seed, clients=len(ids) + 1)
    world.run(10.0)
    assert world.run(20.0)["a"] < 0.1
    world.run(80.0)  # it may be ejected for a while
    assert world.run(90.0)["a"] > 0.5 / len(ids)


# ---------------------------------------------------------------------- a replica whose readiness is unknown


def on_trial(concurrency="unlimited"):
    balancer = Balancer(Random(1))
    balancer.add_model("", "least_connections", PoolOptions(slow_start=0.0, concurrency=concurrency))
    balancer.add_replica("a", state=State.UNREACHABLE, now=0.0)
    assert not balancer.admit_unverified("a", now=1.0)
    return balancer, balancer.pool().find("a")


@pytest.mark.parametrize("outcome", [Outcome.OK, Outcome.CLIENT_ERROR])
def test_a_replica_nobody_vouches_for_takes_one_request_until_one_succeeds(outcome):
    balancer, replica = on_trial()
    first, *others = [Request() for _ in range(4)]
    assert isinstance(balancer.submit(first, 1.0), Send)
    assert all(isinstance(balancer.submit(other, 1.0), Wait) for other in others)
    sent = balancer.finish(first, outcome, 1.1)
    assert [type(decision) for decision in sent] == [Send] * 3
    assert not replica.unverified


def test_a_trial_that_fails_ends_with_the_report_of_the_driver():
    balancer, replica = on_trial()
    balancer.submit(Request(), 1.0)
    waits = Request()
    balancer.submit(waits, 1.0)
    balancer.report("a", Event.LOST, now=1.1)
    assert not replica.unverified
    assert replica.state is State.UNREACHABLE
    (sent,) = balancer.report("a", Event.LOADED, now=2.0)  # a probe after all: no trial
    assert sent.request is waits
    assert isinstance(balancer.submit(Request(), 2.0), Send)


def test_a_trial_survives_ticks_and_another_concurrency():
    balancer, replica = on_trial("auto")
    for now in (2.0, 3.0, 4.0):
        balancer.expire(now)
    balancer.set_options("", PoolOptions(slow_start=0.0, concurrency=8), now=5.0)
    assert replica.limit == 1.0
    balancer.report("a", Event.LOADED, now=6.0)
    assert replica.limit == 8.0
