"""Seconds are learned from requests: by features, by kind, by replica, by what runs beside."""

from math import exp, isfinite, log
from random import Random
from statistics import median

import pytest

from steelyard.core.outcome import Outcome
from steelyard.core.replica import Event
from steelyard.core.request import Request

from ..driving import NO_EJECTION, fleet, replica, start

NAN, INF = float("nan"), float("inf")


class World:
    """A fleet in virtual time; each request runs alone and takes what `seconds` says, give or take `noise`."""

    def __init__(self, *ids, seed=1, noise=0.1):
        self.balancer = fleet(*(ids or "ab"), outlier_detection=NO_EJECTION, slow_start=0.0)
        self.rng = Random(seed)
        self.noise = noise
        self.slow = {}
        self.now = 0.0

    @property
    def estimator(self):
        return self.balancer.pool().estimator

    def serve(self, features, seconds, kind="", on=None):
        request = Request(features=features, kind=kind)
        if on is not None:
            request.avoid = tuple(r for r in self.balancer.pool().members if r.id != on)
        decision = self.balancer.submit(request, self.now)
        took = seconds * self.slow.get(decision.replica.id, 1.0) * exp(self.rng.gauss(0.0, self.noise))
        self.now += took
        self.balancer.finish(request, Outcome.OK, self.now)
        if self.now >= self.balancer.wake:
            self.balancer.expire(self.now)

    def train(self, cost, count, draw=None):
        for _ in range(count):
            features = (draw or self.draw)()
            self.serve(features, cost(*features))

    def draw(self):
        return (self.rng.uniform(100.0, 4000.0), self.rng.uniform(10.0, 500.0))

    def base(self, features, kind=""):
        request = Request(features=features, kind=kind)
        self.estimator.prepare(request)
        return request.base

    def uses_features(self):
        return self.base((100.0, 10.0)) != self.base((4000.0, 500.0))

    def error(self, cost, draw=None):
        """The median of how far predictions are off, as a share."""
        tests = [(draw or self.draw)() for _ in range(200)]
        return median(abs(log(self.base(x) / cost(*x))) for x in tests)


def adding(prompt, output):
    return 0.02 + 0.0001 * prompt + 0.005 * output


def multiplying(steps, images):
    return 1e-5 * steps * images**1.5


def steps_and_images(rng):
    return lambda: (float(rng.choice([10, 20, 30, 50])), float(rng.choice([1, 2, 4, 8])))


# ---------------------------------------------------------------------- features


def test_costs_that_add_up_are_learned():
    world = World()
    world.train(adding, 600)
    assert world.uses_features()
    assert world.error(adding) < 0.10


def test_costs_that_multiply_are_learned():
    world = World()
    draw = steps_and_images(world.rng)
    world.train(multiplying, 600, draw)
    assert world.uses_features()
    assert world.error(multiplying, draw) < 0.10


def test_a_hundred_requests_are_enough_to_be_of_use():
    world = World()
    world.train(adding, 100)
    assert world.uses_features()
    assert world.error(adding) < 0.25


def test_with_few_requests_all_are_taken_as_alike():
    world = World()
    world.train(adding, 25)
    assert not world.uses_features()
    assert world.base((100.0, 10.0)) == world.base((4000.0, 500.0))


def test_features_that_say_nothing_are_ignored():
    world = World()
    for _ in range(600):
        world.serve(world.draw(), world.rng.expovariate(1.0) + 0.01)
    small, large = world.base((100.0, 10.0)), world.base((4000.0, 500.0))
    assert max(small, large) / min(small, large) < 1.5


def test_a_feature_that_says_nothing_does_not_spoil_one_that_does():
    world = World()

    def draw():
        return (*world.draw(), world.rng.lognormvariate(0.0, 3.0))

    def cost(prompt, output, _):
        return adding(prompt, output)

    world.train(cost, 800, draw)
    assert world.error(cost, draw) < 0.15


def test_a_constant_feature_does_no_harm():
    world = World()

    def draw():
        return (7.0, *world.draw(), 0.0)

    def cost(_, prompt, output, __):
        return adding(prompt, output)

    world.train(cost, 600, draw)
    assert world.error(cost, draw) < 0.12


def test_without_features_the_typical_time_is_learned():
    world = World()
    world.train(lambda: 0.3, 200, draw=lambda: ())
    assert world.base(()) == pytest.approx(0.3, rel=0.1)


def test_before_anything_is_seen_every_request_is_taken_as_alike():
    world = World()
    assert world.base(()) == world.base((1.0, 2.0)) == world.base((NAN,), kind="x") == world.estimator.typical_seconds


def test_costs_that_change_for_all_are_followed():
    world = World()
    world.train(adding, 500)
    world.train(lambda *x: 3.0 * adding(*x), 1500)
    assert world.error(lambda *x: 3.0 * adding(*x)) < 0.25


# ---------------------------------------------------------------------- kinds


def test_kinds_that_differ_by_a_factor_are_told_apart():
    world = World()
    factors = {"small": 1.0, "large": 8.0, "huge": 30.0}
    for _ in range(900):
        kind = world.rng.choice(list(factors))
        world.serve((), 0.1 * factors[kind], kind)
    for kind, factor in factors.items():
        assert world.base((), kind) == pytest.approx(0.1 * factor, rel=0.25)


def test_kinds_and_features_are_learned_together():
    world = World()
    factors = {"small": 1.0, "large": 6.0}
    for _ in range(1500):
        kind = world.rng.choice(list(factors))
        features = world.draw()
        world.serve(features, adding(*features) * factors[kind], kind)
    for kind, factor in factors.items():
        off = [abs(log(world.base(x, kind) / (adding(*x) * factor))) for x in (world.draw() for _ in range(100))]
        assert median(off) < 0.25


def test_a_kind_never_seen_is_like_the_others():
    world = World()
    for _ in range(300):
        world.serve((), 0.2, world.rng.choice("ab"))
    assert world.base((), "new") == pytest.approx(0.2, rel=0.3)


# ---------------------------------------------------------------------- odd requests

ODD = [
    (NAN, NAN),
    (INF, 1.0),
    (-INF, INF),
    (-1.0, -5.0),
    (0.0, 0.0),
    (1e308, 1e308),
    (5e-324, 5e-324),
    (1e18, 1.0),
    (),
    (1.0,),
    (1.0,) * 40,
]


@pytest.mark.parametrize("features", ODD)
def test_an_odd_request_gets_a_sane_estimate(features):
    world = World()
    world.train(adding, 300)
    longest = adding(4000.0, 500.0)
    assert 0.0 < world.base(features) < 10 * longest


@pytest.mark.parametrize("features", ODD)
def test_one_odd_request_spoils_nothing_that_was_learned(features):
    world = World()
    world.train(adding, 600)
    before = world.error(adding)
    world.serve(features, 1.0)
    world.train(adding, 400)
    assert world.error(adding) < before + 0.05


@pytest.mark.parametrize("features", ODD)
def test_an_odd_request_among_the_very_first_spoils_nothing(features):
    world = World()
    world.serve(features, 1.0)
    world.train(adding, 700)
    assert world.error(adding) < 0.12


@pytest.mark.parametrize("share", [0.05, 0.3])
def test_a_stream_with_odd_requests_in_it_is_still_learned_from(share):
    """Some have no features at all, as requests of another endpoint may."""
    world = World()
    right = []
    for i in range(2000):
        if world.rng.random() < share:
            world.serve((), 0.3)
        else:
            features = world.draw()
            world.serve(features, adding(*features))
        if i > 400 and i % 7 == 0:
            right.append(world.uses_features())
    assert sum(right) > 0.9 * len(right)


@pytest.mark.parametrize("seed", range(8))
def test_whatever_features_come_estimates_stay_positive_and_finite(seed):
    rng = Random(seed)
    sizes = [0.0, 1.0, -1.0, 1e144, 1e200, -1e300, 1e-300, INF, -INF, NAN]
    world = World()
    for _ in range(400):
        features = tuple(rng.choice(sizes) for _ in range(rng.choice([0, 2, 2, 2, 3])))
        world.serve(features, 0.1)
        base = world.base(features)
        assert isfinite(base)
        assert 0.001 < base < 10.0


def test_requests_that_take_no_time_at_all_do_no_harm():
    world = World()
    for _ in range(100):
        request = start(world.balancer, world.now)
        world.balancer.finish(request, Outcome.OK, world.now)
    assert world.base(()) > 0.0
    world.train(lambda: 0.1, 3000, draw=lambda: ())
    assert world.base(()) == pytest.approx(0.1, rel=0.3)


# ---------------------------------------------------------------------- replicas


def ratio(world, one, other):
    return replica(world.balancer, one).slowness / replica(world.balancer, other).slowness


def test_a_replica_four_times_as_slow_is_found_out():
    world = World(*"abcd")
    world.slow["c"] = 4.0
    world.train(adding, 400)
    for other in "abd":
        assert ratio(world, "c", other) == pytest.approx(4.0, rel=0.2)


def test_a_slow_replica_does_not_make_requests_look_large():
    world = World(*"abcd")
    world.slow["c"] = 4.0
    world.train(adding, 600)
    fast = replica(world.balancer, "a").slowness
    off = [abs(log(world.base(x) * fast / adding(*x))) for x in (world.draw() for _ in range(100))]
    assert median(off) < 0.15


def test_equal_replicas_are_taken_as_equal():
    world = World(*"abcd", noise=0.3)
    world.train(adding, 1000)
    for other in "bcd":
        assert ratio(world, "a", other) == pytest.approx(1.0, abs=0.15)


def test_a_replica_that_turns_slow_is_found_out_after_a_few_requests():
    world = World(*"abcd")
    world.train(adding, 400)
    world.slow["b"] = 4.0
    for _ in range(10):
        for id in "abcd":
            features = world.draw()
            world.serve(features, adding(*features), on=id)
    assert ratio(world, "b", "a") > 2.5


def test_a_replica_that_recovers_is_forgiven():
    world = World(*"abcd")
    world.slow["b"] = 4.0
    world.train(adding, 400)
    world.slow["b"] = 1.0
    world.train(adding, 400)
    assert ratio(world, "b", "a") < 1.3


def test_one_large_request_does_not_make_a_slow_replica():
    """The mistake of peak-EWMA: where sizes vary and nothing tells them, one slow answer is no news."""
    world = World(*"abcd", noise=1.0)
    world.train(lambda: 0.1, 400, draw=lambda: ())
    before = ratio(world, "b", "a")
    world.noise = 0.0
    world.serve((), 0.8, on="b")
    assert ratio(world, "b", "a") < 1.5 * before


def test_a_new_replica_is_as_fast_as_its_weight_says():
    world = World(*"ab")
    world.balancer.add_replica("c", weight=0.25, now=world.now)
    assert replica(world.balancer, "c").slowness == pytest.approx(4.0)


def test_a_replica_that_restarts_is_not_known_any_more():
    world = World(*"abc")
    world.slow["b"] = 6.0
    world.train(adding, 300)
    assert replica(world.balancer, "b").slowness > 3.0
    world.balancer.report("b", Event.LOST, now=world.now)
    world.balancer.report("b", Event.LOADED, now=world.now)
    assert replica(world.balancer, "b").slowness == pytest.approx(1.0)


@pytest.mark.parametrize("outcome", [o for o in Outcome if o.failed])
def test_a_failure_never_makes_a_replica_look_faster(outcome):
    world = World(*"abc")
    world.train(adding, 300)
    before = replica(world.balancer, "b").slowness
    for _ in range(5):
        request = Request(features=world.draw(), idempotent=False)
        request.avoid = tuple(r for r in world.balancer.pool().members if r.id != "b")
        world.balancer.submit(request, world.now)
        decisions = world.balancer.finish(request, outcome, world.now)
        if decisions:
            world.balancer.cancel(request, world.now)
        assert replica(world.balancer, "b").slowness >= before
        before = replica(world.balancer, "b").slowness


@pytest.mark.parametrize("outcome", [Outcome.CLIENT_ERROR, Outcome.CANCELLED])
def test_what_the_client_did_teaches_nothing(outcome):
    world = World(*"abc")
    world.train(adding, 300)
    before = [r.slowness for r in world.balancer.pool().members], world.base((1000.0, 100.0))
    for _ in range(200):
        request = start(world.balancer, world.now, features=world.draw())
        world.balancer.finish(request, outcome, world.now + 1e-3)
    assert ([r.slowness for r in world.balancer.pool().members], world.base((1000.0, 100.0))) == before


# ---------------------------------------------------------------------- what runs beside


def test_a_server_that_does_one_at_a_time_shows_as_slower_the_more_it_has():
    world = World("a")
    balancer = world.balancer
    for _ in range(300):
        batch = [start(balancer, world.now) for _ in range(world.rng.choice([1, 2, 4]))]
        for request in batch:
            world.now += 0.1
            balancer.finish(request, Outcome.OK, world.now)
        balancer.expire(world.now)
    curve = world.estimator.curve
    assert curve.slowdown(1) == pytest.approx(1.0, rel=0.1)
    assert 1.3 < curve.slowdown(2) < 2.5
    assert 2.5 < curve.slowdown(4) < 4.5


def test_an_engine_that_batches_shows_as_flat():
    world = World("a")
    balancer = world.balancer
    for _ in range(300):
        batch = [start(balancer, world.now) for _ in range(world.rng.choice([1, 2, 4]))]
        world.now += 0.1
        for request in batch:
            balancer.finish(request, Outcome.OK, world.now)
        balancer.expire(world.now)
    assert world.estimator.curve.slowdown(4) < 1.2
