"""Random histories of a replica: whatever is seen of it, the promises hold."""

from __future__ import annotations

from random import Random

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from steelyard.config import HealthConfig
from steelyard.control.health.probe import ALIVE_STATUSES, CheckResult, ProbeResult, ProbeStatus
from steelyard.control.health.tracker import MAX_REQUIRED_SUCCESSES, HealthChange, HealthTracker, RequestCheck
from steelyard.core.replica import TRANSITIONS, Event, State, next_state
from steelyard.core.request import INFINITY

from .conversations import INFERENCE, WARM_UP

SIGHTS = st.builds(
    ProbeResult,
    status=st.sampled_from([*ProbeStatus, ProbeStatus.READY, ProbeStatus.READY, ProbeStatus.READY]),
    message=st.just("seen"),
    instance=st.sampled_from(["", "", "a", "b"]),
    seconds=st.sampled_from([0.0, 0.01, 2.0]),
    definitive=st.booleans(),
).map(
    lambda seen: seen._replace(definitive=seen.definitive and seen.status in (ProbeStatus.LOADING, ProbeStatus.BROKEN))
)
OUTCOMES = st.builds(
    CheckResult,
    problem=st.sampled_from(["", "", "it failed"]),
    ambiguous=st.booleans(),
    inconclusive=st.booleans(),
    instance=st.sampled_from(["", "a", "b"]),
).map(lambda tried: tried if tried.problem else tried._replace(ambiguous=False, inconclusive=False))


class Replica(RuleBasedStateMachine):
    @initialize(
        rise=st.integers(1, 3),
        fall=st.integers(1, 3),
        interval=st.sampled_from([0.01, 0.3, 5.0, 60.0]),
        loading=st.sampled_from([0.01, 0.5, 10.0]),
        warm_up=st.booleans(),
        inference=st.booleans(),
        seed=st.integers(0, 100),
    )
    def begin(self, rise, fall, interval, loading, warm_up, inference, seed):
        self.health = HealthConfig(
            rise=rise,
            fall=fall,
            interval=interval,
            loading_interval=loading,
            warm_up=WARM_UP if warm_up else (),
            inference=INFERENCE if inference else None,
        )
        self.now = 50.0
        self.tracker = HealthTracker(self.health, Random(seed), self.now)
        self.state = State.STARTING
        self.reported: Event | None = None
        self.good = 0  # looks in a row
        self.excused = 0  # bad looks in a row since the last good one
        self.passed: set[RequestCheck] = set()

    def hear(self, news: list[HealthChange]) -> None:
        for event, reason in news:
            assert reason
            assert event is not self.reported, "only changes are told"
            assert event in TRANSITIONS[self.state]
            self.state = next_state(self.state, event)
            self.reported = event
            if event is Event.LOADED:
                wanted = {RequestCheck.WARM_UP: self.health.warm_up, RequestCheck.INFERENCE: self.health.inference}
                assert self.passed >= {trial for trial, is_wanted in wanted.items() if is_wanted}
            else:
                self.passed.discard(RequestCheck.INFERENCE)

    @rule(seen=SIGHTS, busy=st.booleans(), late=st.sampled_from([0.0, 0.0, 0.2, 70.0]))
    def look(self, seen, busy, late):
        if self.tracker.next_probe_at == INFINITY:
            return
        needed, cooled, was_ready = self.tracker.required_successes, self.tracker.generation, self.tracker.ready
        self.now = max(self.now, self.tracker.next_probe_at) + late + seen.seconds
        news = self.tracker.probe_finished(seen, self.now, busy=busy)
        if self.tracker.generation != cooled:
            self.passed.clear()  # for all that is known, it is another process
            self.good = 0 if seen.status is not ProbeStatus.READY else self.good
        if seen.status is ProbeStatus.READY:
            self.good += 1
            self.excused = 0
        elif seen.status is ProbeStatus.UNKNOWN or (busy and was_ready and seen.status is ProbeStatus.NO_RESPONSE):
            assert news == []
        else:
            self.good = 0
            self.excused += 1
            if seen.definitive or seen.status is ProbeStatus.CONNECTION_REFUSED or self.excused >= self.health.fall:
                assert not self.tracker.ready
                assert self.reported is not None or news
        if any(event is Event.LOADED for event, _ in news):
            assert seen.status is ProbeStatus.READY
            assert self.good >= min(needed, self.tracker.required_successes) or was_ready
        if news and news[-1].event is Event.LIVE:
            assert seen.status in ALIVE_STATUSES
        self.hear(news)

    @precondition(lambda self: self.tracker.check_wanted is not None)
    @rule(outcome=OUTCOMES, busy=st.booleans(), seconds=st.sampled_from([0.0, 3.0, 40.0]))
    def attempt(self, outcome, busy, seconds):
        trial, cooled, was_ready = self.tracker.check_wanted, self.tracker.generation, self.tracker.ready
        self.now += seconds
        news = self.tracker.check_finished(outcome, self.now, busy=busy)
        if self.tracker.generation != cooled:
            self.passed.clear()
            self.good = 0
        elif not outcome.problem:
            self.passed.add(trial)
        elif not was_ready:
            self.good = 0
            assert not self.tracker.ready
        self.hear(news)

    @rule()
    def see_anew(self):
        self.tracker.reprobe(self.now)
        assert not self.tracker.ready
        assert self.tracker.next_probe_at == self.now
        self.reported = None
        self.good = self.excused = 0
        self.passed.discard(RequestCheck.INFERENCE)

    @rule()
    def change(self):
        self.tracker.change(self.health, self.now)
        self.reported = None

    @invariant()
    def it_is_looked_at_again(self):
        tracker = self.tracker
        if tracker.check_wanted is not None and not tracker.ready:
            assert tracker.next_probe_at == INFINITY
            return
        longest = 1.1 * max(self.health.interval, self.health.loading_interval)
        assert tracker.next_probe_at <= self.now + longest
        assert tracker.next_probe_at >= self.now or tracker.check_wanted is not None or tracker.ready

    @invariant()
    def what_is_told_is_true(self):
        tracker = self.tracker
        if self.reported is not None:
            assert tracker.ready == (self.reported is Event.LOADED)
        assert self.health.rise <= tracker.required_successes <= MAX_REQUIRED_SUCCESSES
        assert tracker.check_wanted is not RequestCheck.WARM_UP or not tracker.ready
        assert tracker.changes == []


TestReplica = Replica.TestCase
