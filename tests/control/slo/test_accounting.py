"""What is counted of SLOs: totals in, windows, minutes and counts out; nothing lost, nothing twice."""

from typing import Any

from steelyard.config import parse_config
from steelyard.control.history.slices import Slice, counts_by_verdict
from steelyard.control.slo.accounting import SloAccounting, condense_history, sum_reports
from steelyard.core.slo.burn_rate import LONGEST_WINDOW_SECONDS, SloCounts
from steelyard.core.slo.verdicts import MAX_TENANTS, OTHER_TENANTS, VERDICT_COUNT, VERDICT_INDEX
from steelyard.link.messages import ModelReport

HOUR = 3600.0
PLAIN = "m: {slo: {latency: 1s}, replicas: []}"
TENANT = "m: {slo: {latency: 1s, tenants: {acme: {latency: 5s}}}, replicas: []}"


def models(text: str = PLAIN) -> Any:
    return parse_config(f"tenant_header: x-tenant\nmodels: {{{text}}}").models


def ledger(text: str = PLAIN) -> SloAccounting:
    made = SloAccounting()
    made.follow(models(text), 0)
    return made


def counts(met: int = 0, late: int = 0, failed: int = 0, left: int = 0) -> list[int]:
    made = [0] * VERDICT_COUNT
    for verdict, count in {
        ("met", ""): met,
        ("late", "replica"): late,
        ("failed", "replica"): failed,
        ("abandoned", "client"): left,
    }.items():
        made[VERDICT_INDEX[verdict]] = count
    return made


def hear(made: SloAccounting, now: float, model: str = "m", **tenants: list[int]) -> None:
    made.update({model: {tenant.strip("_"): each for tenant, each in tenants.items()}}, {}, now)


def test_what_came_is_the_difference_of_totals() -> None:
    made = ledger()
    hear(made, 1.0, _=counts(met=5))
    hear(made, 2.0, _=counts(met=5))
    hear(made, 500.0, _=counts(met=7, late=1, failed=2, left=9))
    kept = made.tenants["m", ""]
    assert kept.counts == counts(met=7, late=1, failed=2, left=9)
    assert kept.recent.sums(300, 500.0) == SloCounts(2, 1, 2)
    assert kept.period.sums(30 * 24 * HOUR, 500.0) == SloCounts(7, 1, 2)


def test_what_shrinks_is_the_new_beginning() -> None:
    made = ledger()
    hear(made, 1.0, _=counts(met=50))
    hear(made, 2.0, _=counts(met=3))
    hear(made, 3.0, _=counts(met=4))
    assert made.tenants["m", ""].counts == counts(met=51)


def test_a_model_that_was_gone_begins_at_nothing() -> None:
    made = ledger()
    hear(made, 1.0, _=counts(met=5))
    made.follow(models("n: {replicas: []}"), 60)
    assert [key for key in made.tenants if key[0] == "m"] == []
    given = made.take_slices(60)
    assert [(part.model, part.counts) for part in given] == [("m", {"met": 5}), ("n", {})]
    made.follow(models(), 120)
    hear(made, 100.0, _=counts(met=2))
    assert made.tenants["m", ""].counts == counts(met=2)


def test_minutes_are_given_once() -> None:
    made = ledger()
    made.update({"m": {"": counts(met=5), "t": counts(late=1)}}, {"m": {10: 5, 1000: 1}}, 1.0)
    given = made.take_slices(60)
    assert {part.tenant: part.counts for part in given} == {"": {"met": 5}, "t": {"late/replica": 1}}
    assert sum(given[0].latency.values()) == 6
    assert given[1].latency == {}
    (again,) = made.take_slices(120)
    assert (again.start, again.tenant, again.counts, again.latency) == (120, "", {}, {})  # it ran, and nothing came


def test_tenants_are_bounded() -> None:
    made = ledger(TENANT)
    for number in range(MAX_TENANTS + 20):
        hear(made, float(number), **{f"t{number}": counts(met=1)})
    hear(made, 500.0, acme=counts(met=1))
    assert len(made.tenants) == MAX_TENANTS + 2
    assert made.tenants["m", OTHER_TENANTS].counts == counts(met=21)  # one place is that of those who name none
    assert made.target_of(("m", "acme")).latency == 5.0
    assert made.target_of(("m", OTHER_TENANTS)).latency == 1.0


def test_what_history_knows_counts_in_windows_and_not_as_news() -> None:
    made = ledger()
    wall, now = 1_000_000_000.0, 50.0
    start = int(wall) // 60 * 60
    hear(made, now, _=counts(met=1))
    known = [
        Slice(start - 600, "m", "", counts_by_verdict(counts(met=10, failed=1))),
        Slice(start - 20 * 24 * 3600, "m", "", counts_by_verdict(counts(late=3)), step=3600),
        Slice(start - 600, "gone", "", counts_by_verdict(counts(met=10))),
    ]
    made.restore(condense_history(known, wall - LONGEST_WINDOW_SECONDS), now, wall)
    kept = made.tenants["m", ""]
    assert kept.recent.sums(300, now) == SloCounts(met=1)
    assert kept.recent.sums(HOUR, now) == SloCounts(11, 0, 1)
    assert kept.period.sums(30 * 24 * HOUR, now) == SloCounts(11, 3, 1)
    assert kept.counts == counts(met=1)
    assert made.take_slices(start)[0].counts == {"met": 1}


def test_another_period_keeps_what_is_known() -> None:
    made = ledger()
    hear(made, 10.0, _=counts(met=5))
    made.follow(models("m: {slo: {latency: 1s, period: 7d}, replicas: []}"), 60)
    assert made.tenants["m", ""].period.longest == 7 * 24 * HOUR
    assert made.tenants["m", ""].period.sums(7 * 24 * HOUR, 20.0) == SloCounts(met=5)


def test_totals_of_workers() -> None:
    one = ModelReport("m", 0, 0, {}, {1: 2}, slo_verdicts={"": counts(met=1), "a": counts(late=1)})
    two = ModelReport("m", 0, 0, {}, {1: 3, 2: 1}, slo_verdicts={"": counts(met=2)})
    judged, latency = sum_reports([[one], [two]])
    assert judged == {"m": {"": counts(met=3), "a": counts(late=1)}}
    assert latency == {"m": {1: 5, 2: 1}}


def test_tenants_of_the_dead_that_join_the_others_are_not_new() -> None:
    made = ledger()
    hear(made, 1.0, a=counts(met=5), b=counts(late=2))
    joined = {"a": counts(met=1), OTHER_TENANTS: counts(met=5, late=2, failed=1)}  # a worker with 5 of a's and b's died
    made.update({"m": joined}, {}, 2.0)
    assert made.tenants["m", "a"].counts == counts(met=5)
    assert made.tenants["m", "b"].counts == counts(late=2)
    assert made.tenants["m", OTHER_TENANTS].counts == counts(
        met=1, failed=1
    )  # whose they are is not told, but they are there
    made.update({"m": joined | {"a": counts(met=4)}}, {}, 3.0)
    assert made.tenants["m", "a"].counts == counts(met=8)


def test_what_workers_that_leave_tell_of_a_model_that_came_back_is_not_new() -> None:
    made = ledger()
    reported: Any = ({"m": {"": counts(met=5)}}, {"m": {5: 5}})
    made.update(*reported, 1.0)
    made.follow({}, 60)
    made.take_slices(60)
    made.update(*reported, 2.0)
    made.take_slices(60)
    made.follow(models(), 120)
    made.update({"m": {"": counts(met=6)}}, {"m": {5: 6}}, 3.0)
    assert made.tenants["m", ""].counts == counts(met=1)
    (part,) = made.take_slices(120)
    assert (part.counts, sum(part.latency.values())) == ({"met": 1}, 1)


def test_what_history_has_of_times_to_come_is_of_no_time_of_late() -> None:
    """The clock was an hour fast, and is right again."""
    made = ledger()
    wall, now = 1_000_000_000.0, 50.0
    made.restore(
        condense_history([Slice(int(wall) + 3600, "m", "", {"failed/replica": 9})], wall - LONGEST_WINDOW_SECONDS),
        now,
        wall,
    )
    kept = made.tenants["m", ""]
    assert kept.recent.sums(LONGEST_WINDOW_SECONDS, now) == SloCounts()
    assert kept.period.sums(30 * 24 * HOUR, now) == SloCounts(lost=9)


def test_of_minutes_long_ago_only_hours_are_remembered() -> None:
    start = 1_000_000_800 // 3600 * 3600
    minutes = [Slice(start + 60 * n, "m", "", counts_by_verdict(counts(met=1, late=n % 2))) for n in range(120)]
    first, *rest = condense_history(minutes, start + HOUR)
    assert (first.key, first.weighed, first.when) == (("m", ""), SloCounts(60, 30), start + 1800)
    assert len(rest) == 60


def test_what_workers_tell_of_a_model_before_all_have_it_counts_when_they_do() -> None:
    made = ledger()
    reported: Any = ({"m": {}, "n": {"": counts(met=5)}}, {"n": {5: 5}})
    made.update(*reported, 1.0)
    made.take_slices(60)
    made.follow(models(f"{PLAIN}, n: {{replicas: []}}"), 60)
    made.update(*reported, 2.0)
    assert made.tenants["n", ""].counts == counts(met=5)
    assert [sum(part.latency.values()) for part in made.take_slices(60)] == [0, 5]
