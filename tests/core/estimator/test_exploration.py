"""Who is believed slow and gets nothing is tried again: seldom, with small requests, and then believed."""

from __future__ import annotations

from math import log

import pytest

from steelyard.core.balancer import Balancer
from steelyard.core.decision import Send
from steelyard.core.estimator.exploration import REQUESTS_PER_EXPLORATION
from steelyard.core.estimator.slowness import MAX_EXPLORATION_BACKOFF, SlownessFilter
from steelyard.core.outcome import Outcome
from steelyard.core.replica import Event, State
from steelyard.core.request import Request

from ..driving import NO_EJECTION, fleet, replica, serve_on

STEP_SECONDS = 0.05  # between requests


class OneByOne:
    """Requests that come one after the other; `slow`: replicas that take ten times as long just now."""

    def __init__(self, count: int = 3, **options: object) -> None:
        self.ids = [f"r{n}" for n in range(count)]
        self.balancer: Balancer = fleet(
            *self.ids, policy="least_work", outlier_detection=NO_EJECTION, slow_start=0.0, **options
        )
        self.slow: set[str] = set()
        self.now = 0.0
        for n in range(40 * count):
            self._serve_on(self.ids[n % count])

    def _seconds(self, id: str) -> float:
        return 0.1 if id in self.slow else 0.01

    def _serve_on(self, id: str) -> None:
        self.now += STEP_SECONDS
        self.balancer.expire(self.now)
        serve_on(self.balancer, id, self._seconds(id), self.now)

    def learn_that_it_is_slow(self, id: str) -> None:
        self.slow.add(id)
        for _ in range(40):
            self._serve_on(id)
        assert replica(self.balancer, id).slowness > 4.0

    def serve(self, count: int, **fields: object) -> list[str]:
        """Who got so many requests."""
        got = []
        for _ in range(count):
            self.now += STEP_SECONDS
            self.balancer.expire(self.now)
            request = Request(**fields)  # type: ignore[arg-type]
            decision = self.balancer.submit(request, self.now)
            assert isinstance(decision, Send), decision
            got.append(decision.replica.id)
            self.balancer.finish(request, Outcome.OK, self.now + self._seconds(got[-1]))
        return got


@pytest.mark.parametrize("concurrency", [1, "auto", "unlimited"])
def test_who_is_well_again_is_used_again_soon(concurrency: object) -> None:
    world = OneByOne(concurrency=concurrency)
    world.learn_that_it_is_slow("r0")
    world.slow.clear()
    world.serve(3 * REQUESTS_PER_EXPLORATION)
    assert world.serve(300).count("r0") > 50


def test_of_more_than_a_sample_one_that_is_well_again_is_found() -> None:
    world = OneByOne(80)
    world.learn_that_it_is_slow("r7")
    world.slow.clear()
    world.serve(3 * REQUESTS_PER_EXPLORATION)
    assert replica(world.balancer, "r7").slowness < 1.5


def test_who_stays_slow_is_tried_ever_more_seldom() -> None:
    world = OneByOne()
    world.learn_that_it_is_slow("r0")
    first, second = (world.serve(8 * REQUESTS_PER_EXPLORATION).count("r0") for _ in range(2))
    assert 1 <= first <= 4
    assert second <= 1 + 8 // MAX_EXPLORATION_BACKOFF
    assert replica(world.balancer, "r0").slowness > 4.0


def test_several_that_are_slow_share_the_trials() -> None:
    world = OneByOne(8)
    for id in ("r0", "r1", "r2"):
        world.learn_that_it_is_slow(id)
    got = world.serve(12 * REQUESTS_PER_EXPLORATION)
    tried = [got.count(id) for id in ("r0", "r1", "r2")]
    assert min(tried) >= 1
    assert sum(tried) <= 12


def test_a_request_that_would_be_late_is_not_spared_for_a_trial_unless_all_would_be() -> None:
    world = OneByOne()
    world.learn_that_it_is_slow("r0")
    got = [
        id
        for _ in range(6 * REQUESTS_PER_EXPLORATION)
        for id in world.serve(1, deadline=world.now + STEP_SECONDS + 0.03)
    ]
    assert "r0" not in got[: 2 * REQUESTS_PER_EXPLORATION - 50]
    assert 1 <= got.count("r0") <= 3


def test_a_large_request_is_not_spared_for_a_trial() -> None:
    world = OneByOne()
    world.learn_that_it_is_slow("r0")
    world.serve(2 * REQUESTS_PER_EXPLORATION)
    pool = world.balancer.pool()
    world.now += 10.0
    trial = replica(world.balancer, "r0")
    pool.exploration.due[:] = [trial]
    large, small = Request(), Request()
    large.base, small.base = 2 * pool.estimator.typical_seconds, pool.estimator.typical_seconds
    assert pool.exploration.take(large, pool.open, pool.estimator.typical_seconds, world.now) is None
    assert pool.exploration.take(small, pool.open, pool.estimator.typical_seconds, world.now) is trial


@pytest.mark.parametrize("way", ["draining", "slow start", "failed of late", "busy", "ejected in a panic"])
def test_who_has_another_way_back_is_not_tried(way: str) -> None:
    world = OneByOne()
    world.learn_that_it_is_slow("r0")
    world.serve(REQUESTS_PER_EXPLORATION)
    pool, slow = world.balancer.pool(), replica(world.balancer, "r0")
    pool.exploration.plan(pool.members, 10**6, world.now + 10.0)
    assert pool.exploration.due == [slow]
    if way == "draining":
        pool.apply_event(slow, Event.DRAIN, world.now)
    elif way == "slow start":
        slow.slow_start_factor = 5.0
    elif way == "failed of late":
        slow.slow_start_factor = 2.0
    elif way == "busy":
        slow.in_flight = 1
    else:
        slow.state = State.EJECTED
    pool.exploration.plan(pool.members, 2 * 10**6, world.now + 20.0)
    assert pool.exploration.due == []


def test_one_answer_is_believed_where_sizes_are_known() -> None:
    speed = SlownessFilter(1.0, 0.0)
    for n in range(40):
        speed.observe(log(10.0), 0.02, float(n))
    assert speed.value() > 8.0
    speed.observe(0.0, 0.02, 100.0)
    assert speed.value() > 5.0  # one odd answer is no reason
    speed.exploring = True
    speed.observe(0.0, 0.02, 200.0)
    assert speed.value() < 1.5


def test_two_answers_are_believed_where_nothing_is_known_of_sizes() -> None:
    speed = SlownessFilter(1.0, 0.0)
    for n in range(60):
        speed.observe(log(10.0), 1.5, float(n))
    assert speed.value() > 4.0
    for n in (100.0, 200.0):
        speed.exploring = True
        speed.observe(0.0, 1.5, n)
    assert speed.value() < 1.5


def test_a_trial_that_shows_nothing_new_changes_nothing() -> None:
    speed = SlownessFilter(1.0, 0.0)
    for n in range(40):
        speed.observe(log(10.0), 0.02, float(n))
    speed.exploring = True
    speed.observe(log(10.0), 0.02, 100.0)
    assert speed.value() == pytest.approx(10.0, rel=0.1)
    assert speed.exploration_backoff == 2


def test_what_a_crowd_may_explain_is_no_news() -> None:
    speed = SlownessFilter(1.0, 0.0)
    for n in range(40):
        speed.observe(log(4.0), 0.02, float(n), log(4.0))
    assert speed.value() == 1.0
    for n in range(40, 80):
        speed.observe(log(8.0), 0.02, float(n), log(4.0))
    assert speed.value() == pytest.approx(2.0, rel=0.1)
