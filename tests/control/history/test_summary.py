"""Slices, periods and what a report says of them: plain values, no disk."""

from __future__ import annotations

from math import inf, isnan

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steelyard.control.history.periods import format_span, format_time, gaps, parse_time, step_width
from steelyard.control.history.slices import (
    DAY_SECONDS,
    HOUR_SECONDS,
    MINUTE_SECONDS,
    VERDICT_KEYS,
    Slice,
    StoredSloTarget,
    availability_good_bad,
    coarsen_buckets,
    counts_by_verdict,
    latency_good_bad,
    quantile,
    roll_up,
)
from steelyard.control.history.summary import ObjectiveSummary, describe_targets, summarize
from steelyard.core.errors import OptionError
from steelyard.core.slo.verdicts import LATE, REPLICA, VERDICT_COUNT, VERDICT_INDEX, SloTarget
from steelyard.core.statistics.histogram import Histogram

BEGIN_UNIX_SECONDS = 1793491200  # 2026-11-01 00:00 UTC
TARGET = StoredSloTarget(latency=0.2, availability=99.9)


def test_counts_have_the_names_of_their_verdicts() -> None:
    counts = [0] * VERDICT_COUNT
    counts[0], counts[VERDICT_INDEX[LATE, REPLICA]] = 5, 2
    assert counts_by_verdict(counts) == {"met": 5, "late/replica": 2}
    assert len(set(VERDICT_KEYS)) == VERDICT_COUNT


def test_what_the_client_did_counts_against_nothing() -> None:
    counts = {name: 10**number for number, name in enumerate(VERDICT_KEYS)}
    against = [n for n, name in enumerate(VERDICT_KEYS) if name != "met" and not name.endswith("client")]
    late = [n for n in against if VERDICT_KEYS[n].startswith("late")]
    assert latency_good_bad(counts) == (1, sum(10**n for n in against))
    assert availability_good_bad(counts) == (1 + sum(10**n for n in late), sum(10**n for n in against if n not in late))


@given(st.lists(st.floats(1e-5, 1e4), min_size=1), st.sampled_from([0.01, 0.5, 0.9, 0.99, 1.0]))
def test_a_quantile_is_at_most_one_percent_off(seconds: list[float], q: float) -> None:
    fine = Histogram()
    for one in seconds:
        fine.add(one)
    estimate = quantile(coarsen_buckets(dict(enumerate(fine.counts))), q)
    ordered = sorted(seconds)
    exact = next(one for n, one in enumerate(ordered, 1) if n >= q * len(ordered) - 1e-9)
    assert estimate == pytest.approx(exact, rel=0.0101)


def test_a_quantile_of_nothing_is_nothing() -> None:
    assert isnan(quantile({}, 0.5))


def test_no_target_is_none() -> None:
    assert StoredSloTarget.of(SloTarget()) == StoredSloTarget(None, SloTarget().percentile, None, None)
    assert StoredSloTarget.of(SloTarget(0.2, 95.0, 99.9, 0.1)) == StoredSloTarget(0.2, 95.0, 99.9, 0.1)


# ---------------------------------------------------------------------- periods


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("24h", BEGIN_UNIX_SECONDS - DAY_SECONDS),
        ("7d", BEGIN_UNIX_SECONDS - 7 * DAY_SECONDS),
        ("90", BEGIN_UNIX_SECONDS - 90),
        ("2026-10-31", BEGIN_UNIX_SECONDS - DAY_SECONDS),
        ("2026-10-31T12:00", BEGIN_UNIX_SECONDS - DAY_SECONDS // 2),
        ("2026-10-31T12:00+02:00", BEGIN_UNIX_SECONDS - DAY_SECONDS // 2 - 2 * HOUR_SECONDS),
    ],
)
def test_moments(text: str, seconds: float) -> None:
    assert parse_time("--since", text, BEGIN_UNIX_SECONDS) == seconds


@pytest.mark.parametrize("text", ["yesterday", "2026-13-01", "-5h", "", "1w"])
def test_what_is_no_moment_is_told_with_an_example(text: str) -> None:
    with pytest.raises(OptionError, match=r"--since .* is no time: write for example 24h"):
        parse_time("--since", text, BEGIN_UNIX_SECONDS)


def test_times_for_people() -> None:
    assert format_time(BEGIN_UNIX_SECONDS) == "2026-11-01 00:00"
    assert [format_span(s) for s in (0, 300, HOUR_SECONDS, 85200, 47 * HOUR_SECONDS, 12 * DAY_SECONDS)] == [
        "0 min",
        "5 min",
        "1 h",
        "23 h 40 min",
        "47 h",
        "12 d",
    ]


def test_a_step_is_as_wide_as_needed() -> None:
    assert step_width(0, HOUR_SECONDS, MINUTE_SECONDS) == MINUTE_SECONDS
    assert step_width(0, DAY_SECONDS, MINUTE_SECONDS) == 15 * MINUTE_SECONDS
    assert step_width(0, DAY_SECONDS, HOUR_SECONDS) == HOUR_SECONDS
    assert step_width(0, 30 * DAY_SECONDS, MINUTE_SECONDS) == DAY_SECONDS
    assert step_width(0, 4000 * DAY_SECONDS, DAY_SECONDS) == 7 * DAY_SECONDS


def ran(*starts: int) -> list[Slice]:
    return [Slice(BEGIN_UNIX_SECONDS + start * MINUTE_SECONDS, "m", "") for start in starts]


def test_minutes_of_which_nothing_is_known_are_told() -> None:
    found = gaps(
        ran(0, 1, 2, 5, 6),
        BEGIN_UNIX_SECONDS,
        BEGIN_UNIX_SECONDS + 10 * MINUTE_SECONDS,
        BEGIN_UNIX_SECONDS + DAY_SECONDS,
    )
    assert [((a - BEGIN_UNIX_SECONDS) // 60, (b - BEGIN_UNIX_SECONDS) // 60, n) for a, b, n in found] == [
        (3, 5, 2),
        (7, 10, 3),
    ]


def test_minutes_that_may_still_be_written_are_no_gap() -> None:
    assert (
        gaps(
            ran(0, 1, 2),
            BEGIN_UNIX_SECONDS,
            BEGIN_UNIX_SECONDS + 5 * MINUTE_SECONDS,
            BEGIN_UNIX_SECONDS + 5 * MINUTE_SECONDS,
        )
        == []
    )


def test_in_an_hour_of_which_only_sums_are_left_the_minutes_are_counted() -> None:
    (hour,) = roll_up(ran(*range(45)), HOUR_SECONDS)
    assert gaps([hour], BEGIN_UNIX_SECONDS, BEGIN_UNIX_SECONDS + HOUR_SECONDS, BEGIN_UNIX_SECONDS + DAY_SECONDS) == [
        (BEGIN_UNIX_SECONDS, BEGIN_UNIX_SECONDS + HOUR_SECONDS, 15)
    ]
    before = roll_up(ran(*range(30)), HOUR_SECONDS)
    after = roll_up(
        [Slice(BEGIN_UNIX_SECONDS + n * MINUTE_SECONDS, "m", "", slo=TARGET) for n in range(29, 60)], HOUR_SECONDS
    )
    assert (
        gaps(before + after, BEGIN_UNIX_SECONDS, BEGIN_UNIX_SECONDS + HOUR_SECONDS, BEGIN_UNIX_SECONDS + DAY_SECONDS)
        == []
    )


# ---------------------------------------------------------------------- summaries


def test_an_slo_that_is_just_kept_is_kept() -> None:
    for target, total in ((99.9, 1000), (99.0, 100), (99.95, 20000), (99.99, 10000)):
        allowed = round(total * (100 - target) / 100)
        assert ObjectiveSummary("availability", "", target, total - allowed, allowed).met is True
        assert ObjectiveSummary("availability", "", target, total - allowed - 1, allowed + 1).met is False


def test_an_slo_of_all_and_one_that_nobody_asked_for() -> None:
    assert ObjectiveSummary("availability", "", 100.0, 10, 0).met is True
    strict = ObjectiveSummary("availability", "", 100.0, 10, 1)
    assert (strict.met, strict.budget_used) == (False, inf)
    nobody = ObjectiveSummary("latency", "", 99.0, 0, 0)
    assert nobody.met is None
    assert isnan(nobody.attained)


def test_slos_in_words() -> None:
    assert describe_targets(StoredSloTarget()) == []
    assert [words for _, words, _ in describe_targets(StoredSloTarget(0.2, 99.0, 99.9, 0.05))] == [
        "99 % within 200 ms, first byte within 50.0 ms",
        "99.9 % answered",
    ]


def day() -> list[Slice]:
    """An hour of a day is slow, for one of two tenants."""
    slices = []
    for n in range(24 * 60):
        start, slow = BEGIN_UNIX_SECONDS + n * MINUTE_SECONDS, n // 60 == 9
        slices += [
            Slice(start, "m", "", {}, {500: 10}, TARGET),
            Slice(start, "m", "a", {"met": 5} if not slow else {"met": 2, "late/replica": 3}, slo=TARGET),
            Slice(start, "m", "b", {"met": 5, "failed/client": 1}, slo=TARGET),
        ]
    return slices


def test_a_day_summed_up() -> None:
    summary = summarize(
        day(), BEGIN_UNIX_SECONDS, BEGIN_UNIX_SECONDS + DAY_SECONDS, BEGIN_UNIX_SECONDS + 2 * DAY_SECONDS
    )
    (model,) = summary.models
    assert model.whole.counts == {"met": 1440 * 10 - 180, "late/replica": 180, "failed/client": 1440}
    latency, answered = model.whole.objectives
    assert (latency.good, latency.bad, latency.met) == (14220, 180, False)
    assert (answered.good, answered.bad, answered.met) == (14400, 0, True)
    assert latency.budget_used == pytest.approx(180 / 144)
    assert model.whole.worst == (BEGIN_UNIX_SECONDS + 9 * HOUR_SECONDS, pytest.approx(70.0))
    a, b = model.tenants
    assert (a.tenant, a.objectives[0].met, a.worst) == (
        "a",
        False,
        (BEGIN_UNIX_SECONDS + 9 * HOUR_SECONDS, pytest.approx(40.0)),
    )
    assert (b.tenant, b.objectives[0].met, b.worst) == ("b", True, None)
    assert len(model.steps) == 96
    assert summary.gaps == []


def test_one_tenant_alone() -> None:
    summary = summarize(
        day(), BEGIN_UNIX_SECONDS, BEGIN_UNIX_SECONDS + DAY_SECONDS, BEGIN_UNIX_SECONDS + 2 * DAY_SECONDS, tenant="b"
    )
    (model,) = summary.models
    assert model.whole.counts == {"met": 7200, "failed/client": 1440}
    assert isnan(model.quantiles[0])  # latency is of the whole model: not shown as if it were a tenant's
    assert summary.gaps == []


def test_a_period_begins_with_a_whole_hour_where_only_hours_are_left() -> None:
    summary = summarize(
        roll_up(day(), HOUR_SECONDS),
        BEGIN_UNIX_SECONDS + 90 * MINUTE_SECONDS,
        BEGIN_UNIX_SECONDS + 150 * MINUTE_SECONDS,
        BEGIN_UNIX_SECONDS + 2 * DAY_SECONDS,
    )
    assert (summary.since, summary.until, summary.step) == (
        BEGIN_UNIX_SECONDS + HOUR_SECONDS,
        BEGIN_UNIX_SECONDS + 3 * HOUR_SECONDS,
        HOUR_SECONDS,
    )
    assert summary.models[0].whole.requests == 2 * 60 * 11


def test_another_slo_is_told_apart_and_the_unchanged_part_is_not() -> None:
    other = StoredSloTarget(latency=0.5, availability=99.9)
    slices = [
        Slice(BEGIN_UNIX_SECONDS, "m", "", {"met": 1}, slo=TARGET),
        Slice(BEGIN_UNIX_SECONDS + 60, "m", "", {"met": 2}, slo=other),
    ]
    (model,) = summarize(slices, BEGIN_UNIX_SECONDS, BEGIN_UNIX_SECONDS + 120, BEGIN_UNIX_SECONDS + DAY_SECONDS).models
    assert [(o.words, o.good) for o in model.whole.objectives] == [
        ("99 % within 200 ms", 1),
        ("99 % within 500 ms", 2),
        ("99.9 % answered", 3),
    ]
