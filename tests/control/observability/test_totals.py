from __future__ import annotations

import pytest

from steelyard.control.observability.retired_workers import MAX_RETIRED_TENANTS, RetiredTotals
from steelyard.control.observability.samples import quantiles
from steelyard.control.observability.totals import (
    lost_telemetry,
    merge_reports,
    unrouted_requests,
)
from steelyard.core.slo.verdicts import MET_INDEX, OTHER_TENANTS, VERDICT_COUNT, VERDICT_INDEX
from steelyard.core.statistics.histogram import Histogram
from steelyard.link.messages import ModelReport, ReplicaReport, WorkerReport


def model(name: str = "m", waiting: int = 1, in_flight: int = 2, ok: int = 10, bucket: int = 3000) -> ModelReport:
    return ModelReport(name, waiting, in_flight, {"ok": ok, "failed": 1}, {bucket: ok})


def replica(id: str = "a", state: str = "ready", picks: int = 10, slowness: float = 1.0) -> ReplicaReport:
    return ReplicaReport("m", id, state, 2, picks, 1, 0.5, slowness)


def report(*models: ModelReport, replicas: tuple[ReplicaReport, ...] = (), connections: int = 3) -> WorkerReport:
    return WorkerReport(connections, models, replicas)


def test_who_is_configured_is_there_from_the_start() -> None:
    models, replicas = merge_reports([], RetiredTotals(), {"m": ["a"]})
    assert (models["m"].requests, replicas["m", "a"].dispatched, replicas["m", "a"].state) == (0, 0, "unknown")


def test_nobody_has_said_anything() -> None:
    assert merge_reports([], RetiredTotals()) == ({}, {})


def test_the_living_are_added_up() -> None:
    reports = [
        report(model(bucket=3000), replicas=(replica("a"), replica("b"))),
        report(model(bucket=3001), model("n"), replicas=(replica("a", slowness=3.0),)),
    ]
    models, replicas = merge_reports(reports, RetiredTotals())
    assert set(models) == {"m", "n"}
    both = models["m"]
    assert (both.waiting, both.in_flight, both.requests) == (2, 4, 22)
    assert both.outcomes == {"ok": 20, "failed": 2}
    assert both.latency == {3000: 10, 3001: 10}
    a = replicas["m", "a"]
    assert (a.in_flight, a.dispatched, a.failures, a.work, a.slowness) == (4, 20, 2, 1.0, 2.0)
    assert replicas["m", "b"].dispatched == 10


def test_the_dead_keep_what_they_counted_and_nothing_else() -> None:
    past = RetiredTotals()
    past.retire(report(model(), replicas=(replica(),)))
    past.retire(report(model(), replicas=(replica(),)))
    models, replicas = merge_reports([report(model(), replicas=(replica(state="ejected"),))], past)
    assert models["m"].outcomes == {"ok": 30, "failed": 3}
    assert models["m"].latency == {3000: 30}
    assert (models["m"].waiting, models["m"].in_flight) == (1, 2)
    a = replicas["m", "a"]
    assert (a.state, a.in_flight, a.dispatched, a.failures, a.work) == ("ejected", 2, 30, 3, 0.5)


def test_requests_for_no_model_are_added_up_with_those_of_the_dead() -> None:
    past = RetiredTotals()
    past.retire(WorkerReport(0, (), (), unrouted={"refused": 3}))
    past.retire(WorkerReport(0, (), (), unrouted={"refused": 1, "ok": 2}))
    assert unrouted_requests([WorkerReport(0, (), (), unrouted={"refused": 5}), report()], past) == {
        "refused": 9,
        "ok": 2,
    }
    past.prune({})
    assert unrouted_requests([], past) == {"refused": 4, "ok": 2}


def test_all_are_dead() -> None:
    past = RetiredTotals()
    past.retire(report(model(), replicas=(replica(),)))
    models, replicas = merge_reports([], past)
    assert (models["m"].requests, models["m"].in_flight) == (11, 0)
    assert (replicas["m", "a"].dispatched, replicas["m", "a"].in_flight) == (10, 0)


def test_who_is_not_configured_any_more_is_forgotten() -> None:
    past = RetiredTotals()
    past.retire(report(model("m"), model("n"), replicas=(replica("a"), replica("b"))))
    past.prune({"m": {"b": 0}})
    models, replicas = merge_reports([], past)
    assert set(models) == {"m"}
    assert set(replicas) == {("m", "b")}


def test_the_state_is_what_most_think() -> None:
    reports = [report(replicas=(replica(state=state),)) for state in ("ejected", "ready", "ready")]
    assert merge_reports(reports, RetiredTotals())[1]["m", "a"].state == "ready"


def test_quantiles_are_those_of_all_requests_together() -> None:
    seconds = [0.001 * n for n in range(1, 1001)]
    whole, halves = Histogram(), (Histogram(), Histogram())
    for place, value in enumerate(seconds):
        whole.add(value)
        halves[place % 2].add(value)
    reports = [
        report(ModelReport("m", 0, 0, {"ok": 500}, {b: n for b, n in enumerate(half.counts) if n})) for half in halves
    ]
    merged = merge_reports(reports, RetiredTotals())[0]["m"]
    for q in (0.01, 0.5, 0.9, 0.99):
        assert quantiles(merged.latency, q) == [whole.quantile(q)]
    assert quantiles(merged.latency, 0.99) == [pytest.approx(0.99, rel=0.005)]


def test_no_answer_yet() -> None:
    assert quantiles(merge_reports([], RetiredTotals(), {"m": []})[0]["m"].latency, 0.5) == [None]


def test_lines_that_were_lost_are_not_forgotten_with_their_worker() -> None:
    past = RetiredTotals()
    past.retire(WorkerReport(0, (), (), dropped={"access_log": 3}))
    assert lost_telemetry([WorkerReport(0, (), (), dropped={"access_log": 2, "spans": 1})], past) == {
        "access_log": 5,
        "spans": 1,
    }


def test_what_a_dead_worker_had_in_hand_failed_and_that_is_our_fault() -> None:
    past = RetiredTotals()
    met, failed = [0] * VERDICT_COUNT, [0] * VERDICT_COUNT
    met[MET_INDEX], failed[VERDICT_INDEX["failed", "gateway"]] = 10, 3
    past.retire(report(ModelReport("m", 1, 2, {"ok": 10}, {}, slo_verdicts={"acme": met})), {"m": 3})
    assert past.models["m"].outcomes == {"ok": 10, "failed": 3}
    assert past.models["m"].slo_verdicts == {"acme": [a + b for a, b in zip(met, failed, strict=True)]}
    assert (past.models["m"].waiting, past.models["m"].in_flight) == (0, 0)


def test_whose_it_was_is_only_known_where_there_is_one_tenant() -> None:
    past = RetiredTotals()
    past.retire(
        report(ModelReport("m", 0, 2, {}, {}, slo_verdicts={"a": [0] * VERDICT_COUNT, "b": [0] * VERDICT_COUNT})),
        {"m": 2},
    )
    assert past.models["m"].slo_verdicts[OTHER_TENANTS][VERDICT_INDEX["failed", "gateway"]] == 2
    past.retire(WorkerReport(0, (), ()), {"n": 1})  # it died before it ever said anything
    assert past.models["n"].slo_verdicts[""][VERDICT_INDEX["failed", "gateway"]] == 1
    assert past.models["n"].outcomes == {"failed": 1}
    others = [report(ModelReport("o", 0, 0, {}, {}, slo_verdicts={"a": [0] * VERDICT_COUNT}))]
    past.retire(WorkerReport(0, (), ()), {"o": 1}, others)
    assert list(past.models["o"].slo_verdicts) == ["a"]


def test_tenants_of_the_dead_are_bounded() -> None:
    past = RetiredTotals()
    for worker in range(5):
        judged = {"": [1], **{f"w{worker}-{number}": [1] for number in range(99)}}
        past.retire(WorkerReport(0, (ModelReport("m", 0, 0, {}, {}, slo_verdicts=judged),), ()))
    kept = past.models["m"].slo_verdicts
    assert len(kept) == MAX_RETIRED_TENANTS + 1
    assert (kept[""], kept[OTHER_TENANTS]) == ([5], [4 * 99])
