"""The review of a large pool in chunks finds what a look at once finds, and no call does much of it."""

from array import array
from itertools import pairwise
from random import Random

import pytest

from steelyard import Balancer, Outcome, PoolOptions, Request, Send
from steelyard.core.errors import OptionError
from steelyard.core.estimator import estimator
from steelyard.core.estimator.estimator import weighted_median
from steelyard.core.policies.base import Policy
from steelyard.core.replica import Event, State
from steelyard.core.statistics import medians
from steelyard.core.statistics.medians import lower_median, mean_and_stdev


class Fleet:
    """Random traffic, with a review each second: at once, or by chunks of the same time."""

    def __init__(self, chunked, concurrency, seed):
        self.chunked = chunked
        self.rng = Random(seed)
        self.balancer = Balancer(Random(1))
        self.balancer.add_model("", "least_work", PoolOptions(concurrency=concurrency, slow_start=5.0))
        self.pool = self.balancer.pool()
        self.running = []
        self.silent = []
        for n in range(300):
            weight = self.rng.choice((1.0, 1.0, 2.0))
            self.balancer.add_replica(f"r{n}", weight=weight, now=0.0)

    def second(self, now):
        rng = self.rng
        for _ in range(300):
            now += 1 / 400
            request = Request("", (rng.lognormvariate(3.0, 1.0),))
            if isinstance(decision := self.balancer.submit(request, now), Send):
                self.running.append((request, decision.replica, now))
            if len(self.running) > 250:
                request, replica, _ = self.running.pop(rng.randrange(len(self.running)))
                bad = int(replica.id[1:]) % 10 == 0 and rng.random() < 0.5
                outcome = Outcome.TIMEOUT if bad else Outcome.OK
                for decision in self.balancer.finish(request, outcome, now):
                    if isinstance(decision, Send):
                        self.running.append((decision.request, decision.replica, now))
        for n in range(3):
            replica = self.pool.replicas[f"r{rng.randrange(300)}"]
            if replica.state is not State.EJECTED:
                self.balancer.report(replica.id, Event.LOST if n == 0 else Event.LOADED, now=now)
        for _ in range(5):
            peers = rng.randrange(3)
            self.balancer.report_peer_load(f"r{rng.randrange(300)}", peers, now=now)
        self.review(now + 0.1)

    def review(self, now):
        review = self.pool.review
        if not self.chunked:
            review.at_once(now, self.silent.append)
            return
        review.go_on(now, self.silent.append)
        chunks = 1
        while review.under_way:  # no time passes, so each call does one chunk
            review.go_on(now, self.silent.append)
            chunks += 1
        assert chunks > 14

    def state(self):
        return [
            (
                r.id, r.state, r.slowness, r.effective_weight, r.limit, r.load, r.suspended, r.slow_since, r.unanswered,
                r.failure_penalty, r.ejection_backoff, r.slowness_filter.ln, r.slowness_filter.baseline, r.ejection,
            )
            for r in self.pool.replicas.values()
        ]  # fmt: skip


@pytest.mark.parametrize("concurrency", ["unlimited", "auto", 2])
def test_in_chunks_it_finds_the_same(concurrency):
    once, chunked = Fleet(False, concurrency, 5), Fleet(True, concurrency, 5)
    for second in range(30):
        once.second(float(second))
        chunked.second(float(second))
        assert chunked.state() == once.state()
        assert chunked.pool.fastest == once.pool.fastest
        assert chunked.pool.service_rate == pytest.approx(once.pool.service_rate, rel=1e-12)
        assert [r.id for r in chunked.pool.exploration.due] == [r.id for r in once.pool.exploration.due]
    assert [r.id for r in chunked.silent] == [r.id for r in once.silent]
    assert once.balancer.ejections
    assert chunked.balancer.ejections == once.balancer.ejections


def large_fleet(count=1000, policy="least_work"):
    balancer = Balancer(Random(1))
    balancer.add_model("", policy, PoolOptions())
    for n in range(count):
        balancer.add_replica(f"r{n}", now=0.0)
    return balancer


def wakes(balancer, until):
    """The times at which the balancer wants to be called."""
    times = []
    while (now := balancer.next_wake()) < until:
        balancer.expire(now)
        times.append(now)
    return times


def test_a_review_is_spread_over_the_interval_and_then_rests():
    balancer = large_fleet()
    wakes(balancer, 3.0)
    times = wakes(balancer, 4.0)
    assert 40 < len(times) < 200
    assert times[-1] == pytest.approx(3.8, abs=0.05)
    assert max(after - before for before, after in pairwise(times)) < 0.05
    assert balancer.pool().review.under_way is False


def test_who_is_called_late_does_all_that_is_due():
    balancer = large_fleet()
    assert balancer.expire(1.0) == ()
    assert balancer.pool().review.under_way
    balancer.expire(1.5)
    assert balancer.pool().review.under_way
    balancer.expire(2.5)
    assert not balancer.pool().review.under_way
    assert balancer.next_wake() == 2.5


def test_replicas_that_come_and_go_during_a_review_disturb_nothing():
    rng = Random(3)
    balancer = large_fleet(300)
    made = 300
    for now in wakes_with_changes(balancer):
        ids = list(balancer.pool().replicas)
        if rng.random() < 0.5 and len(ids) > 100:
            balancer.remove_replica(rng.choice(ids), now=now)
        elif rng.random() < 0.5:
            made += 1
            balancer.add_replica(f"r{made}", now=now)
        else:
            replica = balancer.pool().replicas[rng.choice(ids)]
            balancer.report(replica.id, rng.choice((Event.LOST, Event.LOADED, Event.DRAIN)), now=now)
    pool = balancer.pool()
    out = [r for r in pool.replicas.values() if not pool.in_rotation(r)]
    assert set(pool.out_of_rotation) == set(out)


def wakes_with_changes(balancer):
    while (now := balancer.next_wake()) < 10.0:
        balancer.expire(now)
        yield now


class Broken(Policy):
    def choose(self, request, candidates, now):
        return candidates[0]

    def tick(self, members, now):
        raise OptionError("not today")


def test_a_policy_that_raises_does_not_end_the_reviews():
    balancer = large_fleet(200, f"{__name__}:Broken")
    failures = 0
    while (now := balancer.next_wake()) < 5.95:
        try:
            balancer.expire(now)
        except OptionError:
            failures += 1
    assert failures == 5


@pytest.mark.parametrize("seed", range(20))
def test_vectors_find_the_same_medians(seed, monkeypatch):
    rng = Random(seed)
    values = array("d", (rng.choice((0.0, 0.1, rng.gauss(0.0, 1.0))) for _ in range(rng.randrange(1, 100))))
    for weights in ((30,), (0,), (0, 3, 30), range(31)):
        shares = array("d", (rng.choice(weights) for _ in values))
        found = [weighted_median(values, shares), lower_median(values), *mean_and_stdev(values)]
        with monkeypatch.context() as patch:
            patch.setattr(estimator, "MANY", 0 if len(values) <= 64 else 10**9)
            patch.setattr(medians, "MANY", 0 if len(values) <= 64 else 10**9)
            again = [weighted_median(values, shares), lower_median(values), *mean_and_stdev(values)]
        assert again[:2] == found[:2]
        assert again == pytest.approx(found)
