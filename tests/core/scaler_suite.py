"""What every scaler must do, whatever its formula. A new one is run through it by its line in the table."""

from __future__ import annotations

import gc
from random import Random
from types import FunctionType, ModuleType

from hypothesis import given, settings
from hypothesis import strategies as st

from steelyard.core.scalers import Recommendation, ScalingMetrics, make_scaler
from steelyard.core.scaling.decider import ScalingDecider, ScalingOptions

loads = st.lists(
    st.tuples(
        st.sampled_from([0.0, 0.1, 1.0, 1.0, 2.0, 15.0, 400.0]),  # seconds until then
        st.integers(0, 40),  # requests that came
        st.floats(0.001, 30.0),  # seconds of work of each
        st.integers(0, 50),  # running
        st.integers(0, 50),  # waiting
        st.integers(0, 3),  # late
    ),
    min_size=1,
    max_size=40,
)


def scaling_metrics(load, *, ready=2, coming=0, **more):
    """What is seen, step by step."""
    now, offered, arrived, late = 100.0, 0.0, 0, 0
    for seconds, came, work, running, waiting, too_late in load:
        now, offered, arrived, late = now + seconds, offered + came * work, arrived + came, late + min(came, too_late)
        yield ScalingMetrics(
            now=now,
            ready=ready,
            starting=coming,
            offered=offered,
            arrived=arrived,
            running=running,
            waiting=waiting,
            backlog=waiting * work,
            answered=arrived,
            late=late,
            slo_seconds=0.2,
            **more,
        )


def size(thing) -> int:
    """How many objects it holds, classes and modules left out."""
    seen, todo = set(), [thing]
    while todo:
        one = todo.pop()
        if id(one) not in seen and not isinstance(one, type | FunctionType | ModuleType):
            seen.add(id(one))
            todo.extend(gc.get_referents(one))
    return len(seen)


class ScalerSuite:
    scaler: str

    def make(self):
        return make_scaler(self.scaler, {})

    def test_it_says_a_number_and_why(self):
        want = self.make().recommend(ScalingMetrics(now=5.0, ready=1))
        assert isinstance(want, Recommendation)
        assert isinstance(want.replicas, int)
        assert want.replicas >= 0
        assert want.reason
        assert self.make().rule

    def test_requests_that_wait_at_zero_get_a_replica_at_once(self):
        scaler = self.make()
        for now in range(100):
            assert scaler.recommend(ScalingMetrics(now=float(now))).replicas == 0
        assert scaler.recommend(ScalingMetrics(now=99.1, waiting=1, arrived=1, offered=0.1, backlog=0.1)).replicas == 1

    def test_nothing_asked_for_is_nothing_wanted_in_the_end(self):
        scaler, ready = self.make(), 7
        for now in range(3000):
            ready = scaler.recommend(ScalingMetrics(now=float(now), ready=ready)).replicas
        assert ready == 0

    def test_a_load_beyond_all_replicas_wants_more(self):
        scaler, offered = self.make(), 0.0
        for now in range(60):
            want = scaler.recommend(
                ScalingMetrics(
                    now=float(now), ready=1, offered=4.0 * now, arrived=40 * now, running=1, waiting=30, backlog=3.0
                )
            )
        assert want.replicas >= 2, offered

    @settings(max_examples=40, deadline=None)
    @given(loads)
    def test_the_same_again_is_the_same_answer(self, load):
        one, other = self.make(), self.make()
        for seen in scaling_metrics(load):
            assert one.recommend(seen) == other.recommend(seen)

    @settings(max_examples=40, deadline=None)
    @given(loads, st.integers(0, 9), st.integers(0, 9), st.booleans(), st.sampled_from([0.0, 0.3, 1.0, 16.0]))
    def test_nothing_that_may_be_seen_upsets_it(self, load, ready, coming, learned, rate):
        scaler = self.make()
        for seen in scaling_metrics(load, ready=ready, coming=coming, estimates_learned=learned, rate=rate):
            want = scaler.recommend(seen)
            assert 0 <= want.replicas < 10_000_000
            assert want.replicas or not seen.waiting or ready + coming

    @settings(max_examples=40, deadline=None)
    @given(loads, st.integers(0, 3), st.integers(3, 12), st.integers(0, 15))
    def test_never_outside_the_bounds(self, load, least, most, planned):
        scaling = ScalingDecider(ScalingOptions(self.scaler, min_replicas=least, max_replicas=most))
        for seen in scaling_metrics(load):
            decision = scaling.decide(seen, planned=planned)
            assert min(most, max(least, planned)) <= decision.replicas <= most

    @settings(max_examples=40, deadline=None)
    @given(loads, st.integers(1, 9))
    def test_never_fewer_in_panic(self, load, ready):
        scaler, before = self.make(), None
        for seen in scaling_metrics(load, ready=ready):
            want = scaler.recommend(seen)
            if before is not None and before.panicking and want.panicking:
                assert want.replicas >= before.replicas
            before = want

    @settings(max_examples=30, deadline=None)
    @given(loads, st.floats(1.0, 600.0))
    def test_to_zero_only_after_the_idle_time(self, load, idle):
        scaling, asked, arrived = (
            ScalingDecider(ScalingOptions(self.scaler, min_replicas=0, idle_seconds=idle)),
            100.0,
            None,
        )
        for seen in scaling_metrics(load):
            decision = scaling.decide(seen)
            if seen.running or seen.waiting or arrived is None or seen.arrived != arrived:
                asked = seen.now
            arrived = seen.arrived
            assert (decision.replicas == 0) == (seen.now - asked >= idle)

    def test_what_it_remembers_is_bounded(self):
        rng, scaler, sizes, offered, now = Random(5), self.make(), [], 0.0, 0.0
        for step in range(6000):
            now += rng.choice([0.01, 0.2, 1.0, 2.0])
            work = rng.expovariate(0.2)
            offered += work
            scaler.recommend(
                ScalingMetrics(
                    now, rng.randrange(9), 0, offered, step, rng.randrange(50), rng.randrange(500), work, rate=0.5
                )
            )
            if step in (3000, 5999):
                sizes.append(size(scaler))
        assert sizes[1] < 6000
        assert sizes[1] < 1.2 * sizes[0]
