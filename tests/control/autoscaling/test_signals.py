"""What workers report of a model, as a scaler is told it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from steelyard.config import ModelConfig, SloConfig
from steelyard.control.autoscaling.signals import (
    WAITING_SIGNAL_TTL_SECONDS,
    ScalingSignals,
    SignalTerms,
    by_model,
    signal_terms,
)
from steelyard.core.request import INFINITY
from steelyard.core.slo.verdicts import SLO_VERDICTS, VERDICT_COUNT, VERDICT_INDEX
from steelyard.documents import Seconds
from tests.control.autoscaling.reporting import of_worker, report

TERMS = SignalTerms(latency_target=0.2, late_ratio=0.01, failures_count=True, lateness_counts=True)


def look(signals, now, **more):
    return signals.snapshot(now, **{"ready": 1, "coming": 0, "cold_start": 5.0} | more)


def test_workers_are_added_up():
    signals = ScalingSignals(SignalTerms(slots=4.0))
    signals.update([report(learned=True), report(learned=True)], 0.0)
    first = report(
        offered_work=1.5, arrived=10, queued_work=2.0, waiting=3, in_flight=4, replica_rate=2.0, learned=True
    )
    second = report(
        offered_work=0.5, arrived=5, queued_work=1.0, waiting=1, in_flight=2, replica_rate=4.0, learned=True
    )
    signals.update([first, second], 1.0)
    seen = look(signals, 1.0, ready=2, coming=1)
    assert (seen.now, seen.ready, seen.starting, seen.cold_start) == (1.0, 2, 1, 5.0)
    assert (seen.offered, seen.arrived, seen.backlog) == (2.0, 15, 3.0)
    assert (seen.waiting, seen.running, seen.rate, seen.slots, seen.estimates_learned) == (4, 6, 3.0, 4.0, True)


def test_how_fast_work_is_done():
    signals = ScalingSignals(SignalTerms())
    assert look(signals, 0.0).rate == 1.0  # a guess, where there is no limit
    signals.update([report(completed_work=50.0, busy_seconds=70.0), report()], 0.0)
    signals.update([report(completed_work=52.0, busy_seconds=73.0), report(completed_work=1.0, busy_seconds=1.5)], 1.0)
    seen = look(signals, 1.0)
    assert (seen.completed_work, seen.busy_seconds) == (3.0, 4.5)
    signals.update([report(completed_work=1.0, busy_seconds=1.5)], 2.0)  # the other ended
    assert (look(signals, 2.0).completed_work, look(signals, 2.0).busy_seconds) == (3.0, 4.5)


def knows(arrived, **more):
    """A worker that knows that its requests take 20 ms."""
    return report(
        arrived=arrived,
        offered_work=0.02 * arrived,
        completed_work=0.02 * arrived,
        busy_seconds=0.04 * arrived,
        learned=True,
        **more,
    )


def guesses(arrived, **more):
    """One that takes them for a second each."""
    return report(
        arrived=arrived, offered_work=1.0 * arrived, completed_work=1.0 * arrived, busy_seconds=0.04 * arrived, **more
    )


def test_requests_of_a_worker_that_has_not_learned_are_worth_what_others_know():
    signals = ScalingSignals(SignalTerms())
    signals.update([knows(1000), guesses(0)], 0.0)
    signals.update([knows(1010), guesses(5, waiting=2, queued_work=2.0)], 1.0)
    seen = look(signals, 1.0)
    assert (seen.arrived, seen.estimates_learned) == (15, True)
    assert seen.offered == pytest.approx(15 * 0.02)
    assert seen.backlog == pytest.approx(2 * 0.02)
    assert (seen.completed_work, seen.busy_seconds) == pytest.approx((0.2, 0.4))  # how fast is known of the other only
    learned = report(arrived=8, offered_work=5.06, completed_work=5.06, busy_seconds=0.3, learned=True)
    signals.update([knows(1020), learned], 2.0)  # it has learned, and its guesses of before count no more
    assert look(signals, 2.0).offered == pytest.approx(28 * 0.02)
    signals.update(
        [knows(1030), report(arrived=9, offered_work=5.08, completed_work=5.06, busy_seconds=0.3, learned=True)], 3.0
    )
    assert look(signals, 3.0).offered == pytest.approx(39 * 0.02)


def test_who_waits_since_before_anything_was_learned_is_not_worth_the_guess():
    signals = ScalingSignals(SignalTerms())
    signals.update([report()], 0.0)
    signals.update([guesses(200, waiting=190, queued_work=190.0)], 1.0)
    assert look(signals, 1.0).backlog == 190.0  # nobody knows better
    line = {"learned": True, "typical_seconds": 0.005, "completed_work": 200.0, "busy_seconds": 8.0}
    signals.update([report(arrived=200, offered_work=200.0, waiting=180, queued_work=180.0, **line)], 2.0)
    assert look(signals, 2.0).backlog == pytest.approx(0.9)
    signals.update([report(arrived=210, offered_work=200.05, waiting=4, queued_work=7.0, **line)], 3.0)
    assert look(signals, 3.0).backlog == 7.0  # of these it is known: they are long


def test_who_was_refused_while_there_was_no_replica_was_not_late():
    signals = ScalingSignals(TERMS)
    signals.update([report()], 0.0, ready=0)
    signals.update([report(refused=5)], 1.0, ready=0)
    signals.update([report(refused=7)], 2.0, ready=1)  # just now
    assert look(signals, 2.0).late == 0
    signals.update([report(refused=9)], 3.0, ready=1)
    assert look(signals, 3.0).late == 2


def test_slots_that_workers_have_learned():
    signals = ScalingSignals(SignalTerms())
    signals.update([report(limit=64.0), report(limit=6.0)], 0.0)
    assert (look(signals, 0.0).slots, look(signals, 0.0).slots_configured) == (6.0, False)  # one has seen little
    signals.update([report(), report()], 1.0)
    assert look(signals, 1.0).slots == INFINITY
    signals.terms = SignalTerms(slots=4.0)
    assert (look(signals, 1.0).slots, look(signals, 1.0).slots_configured) == (4.0, True)


def test_what_was_counted_before_the_first_look_is_not_news():
    signals = ScalingSignals(TERMS)
    signals.update([report(offered_work=500.0, arrived=5000, took={1.0: 5000})], 0.0)
    seen = look(signals, 0.0)
    assert (seen.offered, seen.arrived, seen.answered, seen.late, seen.p99) == (0.0, 0, 0, 0, 0.0)
    signals.update([report(offered_work=501.0, arrived=5001, took={1.0: 5001})], 1.0)
    seen = look(signals, 1.0)
    assert (seen.offered, seen.arrived, seen.answered, seen.late) == (1.0, 1, 1, 1)


def test_a_worker_that_died_takes_its_counts_with_it_and_nothing_drops():
    signals = ScalingSignals(TERMS)
    signals.update([report(), report()], 0.0)
    signals.update([report(offered_work=10.0, arrived=10, took={0.1: 10}), report(offered_work=5.0, arrived=5)], 1.0)
    before = look(signals, 1.0)
    signals.update([report(offered_work=6.0, arrived=6)], 2.0)
    assert look(signals, 2.0)[3:5] == before[3:5]
    signals.update(
        [report(offered_work=1.0, arrived=1, took={0.1: 1}), report(offered_work=7.0, arrived=7)], 3.0
    )  # its heir
    seen = look(signals, 3.0)
    assert (seen.offered, seen.arrived, seen.answered) == (17.0, 17, 11)


def test_late_are_the_answers_after_the_slo_and_who_got_none():
    signals = ScalingSignals(TERMS)
    signals.update([report()], 0.0)
    counts = report(took={0.1: 10, 0.2: 5, 0.21: 3, 4.0: 1}, failed=2, refused=4, client_error=50, cancelled=60)
    signals.update([counts], 1.0)
    seen = look(signals, 1.0)
    assert (seen.answered, seen.late) == (25, 10)
    assert (seen.slo_seconds, seen.slo_late_share) == (0.2, 0.01)
    assert seen.p99 == pytest.approx(4.0, rel=0.005)


def test_without_an_slo_only_who_was_refused_is_late():
    signals = ScalingSignals(SignalTerms())
    signals.update([report()], 0.0)
    signals.update([report(took={100.0: 10}, failed=7, refused=4)], 1.0)
    seen = look(signals, 1.0)
    assert (seen.answered, seen.late, seen.slo_seconds) == (14, 4, INFINITY)


def test_what_a_configuration_slos():
    assert signal_terms(ModelConfig()) == SignalTerms(INFINITY, 0.01, False, False, INFINITY)
    assert signal_terms(ModelConfig(concurrency=8)).slots == 8.0
    assert signal_terms(ModelConfig(concurrency="auto")).slots == INFINITY
    latency = signal_terms(ModelConfig(slo=SloConfig(latency=Seconds(0.2), percentile=95.0)))
    assert (latency.latency_target, latency.failures_count, latency.lateness_counts) == (0.2, True, True)
    assert latency.late_ratio == pytest.approx(0.05)
    available = signal_terms(ModelConfig(slo=SloConfig(availability=99.9)))
    assert (available.latency_target, available.failures_count, available.lateness_counts) == (INFINITY, True, False)
    assert available.late_ratio == pytest.approx(0.001)
    first_byte = signal_terms(ModelConfig(slo=SloConfig(first_byte=Seconds(0.2), percentile=99.0)))
    assert first_byte == SignalTerms(INFINITY, first_byte.late_ratio, True, True)


def test_what_workers_found_late_counts_whatever_it_took():
    signals = ScalingSignals(signal_terms(ModelConfig(slo=SloConfig(first_byte=Seconds(0.2)))))
    signals.update([report()], 0.0)
    signals.update([report(took={90.0: 7}, target=100.0)], 1.0)  # long streams that began in time
    assert (look(signals, 1.0).answered, look(signals, 1.0).late) == (7, 0)
    signals.update([report(took={90.0: 7, 0.3: 2}, target=0.2, slo_verdicts=of(met=7, late=2))], 2.0)
    assert (look(signals, 2.0).answered, look(signals, 2.0).late) == (9, 2)


def test_who_is_at_fault_themselves_counts_for_nothing():
    signals = ScalingSignals(TERMS)
    signals.update([report()], 0.0)
    verdicts = {"": [int(fault == "client") for _, fault in SLO_VERDICTS]}
    signals.update([report(refused=1, client_error=2, cancelled=1, slo_verdicts=verdicts)], 1.0)
    assert (look(signals, 1.0).answered, look(signals, 1.0).late) == (0, 0)


def test_tenants_count_together():
    signals = ScalingSignals(TERMS)
    signals.update([report()], 0.0)
    signals.update(
        [report(took={0.1: 5}, slo_verdicts={**of(met=2, late=1, tenant="a"), **of(met=2, tenant="b")})], 1.0
    )
    assert (look(signals, 1.0).answered, look(signals, 1.0).late) == (5, 1)


def of(met=0, late=0, tenant=""):
    counts = [0] * VERDICT_COUNT
    counts[VERDICT_INDEX["met", ""]], counts[VERDICT_INDEX["late", "replica"]] = met, late
    return {tenant: counts}


def test_the_rate_is_remembered_while_none_is_ready():
    signals = ScalingSignals(SignalTerms(slots=4.0))
    assert look(signals, 0.0).rate == 4.0  # a guess: all its slots
    signals.update([report(replica_rate=3.0), report(replica_rate=0.0)], 1.0)
    assert look(signals, 1.0).rate == 3.0
    signals.update([report(replica_rate=0.0), report(replica_rate=0.0)], 2.0)
    assert look(signals, 2.0, ready=0).rate == 3.0


def test_what_a_worker_says_ahead_of_its_report_holds_until_that_comes():
    signals = ScalingSignals(SignalTerms())
    signals.update([report()], 0.0)
    signals.model_requested(3, 1.5, 1.0)
    seen = look(signals, 1.5, ready=0)
    assert (seen.waiting, seen.backlog) == (3, 1.5)
    assert look(signals, 1.5, ready=1).waiting == 0  # it has moved on
    signals.update([report(waiting=7, queued_work=9.0)], 1.6)
    assert look(signals, 1.6, ready=0).waiting == 7
    signals.update([report()], 1.0 + WAITING_SIGNAL_TTL_SECONDS)
    assert look(signals, 1.0 + WAITING_SIGNAL_TTL_SECONDS, ready=0).waiting == 0


def test_reports_by_model():
    one, two, other = report(arrived=1), report(arrived=2), report("n")
    assert by_model([of_worker(one, other), of_worker(two)]) == {"m": [one, two], "n": [other]}


@given(st.permutations([0.1, 0.2, 0.3, 1e9, 1e-9, 0.7]), st.permutations([0.1, 0.2, 0.3, 1e9, 1e-9, 0.7]))
def test_the_order_of_workers_does_not_matter(first, second):
    signals = ScalingSignals(SignalTerms())
    signals.update([report(arrived=0) for _ in first], 0.0)
    signals.update([report(offered_work=each) for each in first], 1.0)
    signals.update([report(offered_work=each) for each in second], 2.0)
    signals.update([report(offered_work=each + 1.0) for each in first], 3.0)
    assert look(signals, 3.0).offered == pytest.approx(sum(first) + 6.0)


class Workers(RuleBasedStateMachine):
    """Workers that count, die and are replaced: what is told only grows, and never by more than what came."""

    def __init__(self):
        super().__init__()
        self.signals = ScalingSignals(TERMS)
        self.workers = [[0.0, {}, 0] for _ in range(3)]
        self.came = 0
        self.now = 0.0
        self.seen = look(self.signals, 0.0)

    @rule(worker=st.integers(0, 2), took=st.dictionaries(st.sampled_from([0.1, 0.2, 0.5]), st.integers(1, 5)))
    def answer(self, worker, took):
        if worker < len(self.workers):
            counts = self.workers[worker]
            for seconds, count in took.items():
                counts[1][seconds] = counts[1].get(seconds, 0) + count
                counts[0] += count * seconds
                self.came += count

    @rule(worker=st.integers(0, 2), count=st.integers(1, 5))
    def refuse(self, worker, count):
        if worker < len(self.workers):
            self.workers[worker][2] += count
            self.came += count

    @rule(worker=st.integers(0, 2))
    def die(self, worker):
        if worker < len(self.workers):
            del self.workers[worker]

    @rule()
    def replace(self):
        if len(self.workers) < 3:
            self.workers.insert(0, [0.0, {}, 0])

    @rule(passed=st.floats(0.0, 20.0))
    def hear(self, passed):
        self.now += passed
        reports = [
            report(offered_work=offered, arrived=sum(took.values()) + refused, took=took, refused=refused)
            for offered, took, refused in self.workers
        ]
        self.signals.update(reports, self.now)

    @invariant()
    def only_grows(self):
        seen = look(self.signals, self.now)
        for name in ("offered", "arrived", "answered", "late"):
            assert getattr(seen, name) >= getattr(self.seen, name)
        assert seen.late <= seen.answered <= self.came
        assert seen.arrived <= self.came
        self.seen = seen


TestWorkers = Workers.TestCase
