"""The pulse of models: rates are what totals grew by, latency is of late, and the past has a bound."""

from __future__ import annotations

from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steelyard.control.observability.samples import MAX_LOOKBACK_SECONDS, MAX_SAMPLES, SampleHistory, quantiles
from steelyard.control.observability.totals import ModelTotals, ReplicaTotals
from steelyard.core.slo.verdicts import ABANDONED, FAILED, LATE, MET, REPLICA, VERDICT_COUNT, VERDICT_INDEX
from steelyard.core.statistics.histogram import Histogram


def status(ended: int = 0, latency: dict[int, int] | None = None, **judged: int) -> ModelTotals:
    counts = [0] * VERDICT_COUNT
    counts[VERDICT_INDEX[FAILED, REPLICA]] = judged.get("failed", 0)
    counts[VERDICT_INDEX[LATE, "client"]] = judged.get("late_client", 0)
    counts[VERDICT_INDEX[MET, ""]] = judged.get("met", 0)
    counts[VERDICT_INDEX[ABANDONED, "client"]] = judged.get("left", 0)
    return ModelTotals(
        "m", 1, 2, {"ok": ended}, latency or {}, slo_verdicts={"": counts}, queued_work=0.5, oldest_wait=3.0
    )


def replica(picks: int = 0, seconds: float = 0.0) -> ReplicaTotals:
    return ReplicaTotals("m", "a", "ready", 0, picks, 0, seconds, 1.0)


@given(
    st.lists(st.tuples(st.integers(1, 40), st.integers(0, 500), st.integers(0, 500)), min_size=1, max_size=MAX_SAMPLES)
)
def test_rates_add_up_to_totals(beats: list[tuple[int, int, int]]) -> None:
    pulses, at, ended, bad, sent = SampleHistory(), 0.0, 0, 0, 0.0
    for step, good, failed in beats:
        at, ended, bad = at + step / 16, ended + good + failed, bad + failed
        pulses.record(at, {"m": status(ended, failed=bad)}, {("m", "a"): replica(ended)})
        sent += pulses.rates["m", "a"] * step / 16
    ring = pulses.history()["m"]
    steps = [step / 16 for step, _, _ in beats]
    assert sum(p.rate * s for p, s in zip(ring, steps, strict=True)) == pytest.approx(ended)
    assert sum(p.bad_rate * s for p, s in zip(ring, steps, strict=True)) == pytest.approx(bad)
    assert sent == pytest.approx(ended)


@given(st.dictionaries(st.integers(0, 7199), st.integers(1, 50), min_size=1), st.floats(0.01, 1.0))
def test_quantiles_are_those_of_the_histogram(counts: dict[int, int], q: float) -> None:
    whole = Histogram()
    for bucket, count in counts.items():
        whole.counts[bucket] += count
        whole.count += count
    whole.maximum = inf  # not known: the buckets are all there is
    assert quantiles(counts, q) == [pytest.approx(whole.quantile(q))]


def test_what_is_the_fault_of_clients_is_not_bad() -> None:
    pulses = SampleHistory()
    pulses.record(1.0, {"m": status(9, failed=2, late_client=3, met=3, left=1)}, {("m", "a"): replica(seconds=1.5)})
    pulse = pulses.latest("m")
    assert (pulse.rate, pulse.bad_rate, pulse.waiting, pulse.in_flight, pulse.work) == (9.0, 2.0, 1, 2, 2.0)
    assert pulses.oldest_wait("m") == 3.0


def test_latency_is_of_the_last_second_or_of_the_last_few_if_there_were_few() -> None:
    pulses = SampleHistory()
    pulses.record(1.0, {"m": status(latency={1000: 100})}, {})
    slow, fast = quantiles({3000: 1}, 0.5), quantiles({1000: 1}, 0.5)
    pulses.record(2.0, {"m": status(latency={1000: 100, 3000: 100})}, {})
    assert [pulses.latest("m").p50] == slow
    pulses.record(3.0, {"m": status(latency={1000: 101, 3000: 100})}, {})
    assert [pulses.latest("m").p50] == slow  # one alone says little
    pulses.record(4.0, {"m": status(latency={1000: 201, 3000: 100})}, {})
    assert [pulses.latest("m").p99] == fast
    for second in range(MAX_LOOKBACK_SECONDS):
        pulses.record(5.0 + second, {"m": status(latency={1000: 201, 3000: 100})}, {})
    assert pulses.latest("m").p99 is None


def test_the_past_has_a_bound_and_goes_with_its_model() -> None:
    pulses = SampleHistory()
    for second in range(MAX_SAMPLES + 7):
        pulses.record(second + 1.0, {"m": status(second)}, {})
    ring = pulses.history()["m"]
    assert (len(ring), ring[0].uptime, ring[-1].uptime) == (MAX_SAMPLES, 8.0, MAX_SAMPLES + 7.0)
    pulses.record(MAX_SAMPLES + 8.0, {}, {})
    assert pulses.history() == {}
    assert pulses.latest("m").rate == 0.0


def test_a_model_that_came_back_counts_from_nothing() -> None:
    pulses = SampleHistory()
    pulses.record(1.0, {"m": status(50)}, {})
    pulses.record(2.0, {"m": status(3)}, {})
    assert pulses.latest("m").rate == 3.0


def test_no_time_is_no_beat() -> None:
    pulses = SampleHistory()
    pulses.record(0.0, {"m": status(50)}, {})
    assert pulses.history() == {}
