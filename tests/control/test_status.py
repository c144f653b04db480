from __future__ import annotations

from math import isnan

import pytest

from steelyard.control.status import OTHERS, TENANTS, Past, histogram, lost, merge, unrouted
from steelyard.core.histogram import Histogram
from steelyard.core.slo import INDEX, KINDS, MET_INDEX
from steelyard.link.messages import ModelReport, ReplicaReport, Report


def model(name: str = "m", waiting: int = 1, in_flight: int = 2, ok: int = 10, bucket: int = 3000) -> ModelReport:
    return ModelReport(name, waiting, in_flight, {"ok": ok, "failed": 1}, {bucket: ok})


def replica(id: str = "a", state: str = "ready", picks: int = 10, slowness: float = 1.0) -> ReplicaReport:
    return ReplicaReport("m", id, state, 2, picks, 1, 0.5, slowness)


def report(*models: ModelReport, replicas: tuple[ReplicaReport, ...] = (), connections: int = 3) -> Report:
    return Report(connections, models, replicas)


def test_who_is_configured_is_there_from_the_start() -> None:
    models, replicas = merge([], Past(), {"m": ["a"]})
    assert (models["m"].requests, replicas["m", "a"].picks, replicas["m", "a"].state) == (0, 0, "unknown")


def test_nobody_has_said_anything() -> None:
    assert merge([], Past()) == ({}, {})


def test_the_living_are_added_up() -> None:
    reports = [
        report(model(bucket=3000), replicas=(replica("a"), replica("b"))),
        report(model(bucket=3001), model("n"), replicas=(replica("a", slowness=3.0),)),
    ]
    models, replicas = merge(reports, Past())
    assert set(models) == {"m", "n"}
    both = models["m"]
    assert (both.waiting, both.in_flight, both.requests) == (2, 4, 22)
    assert both.verdicts == {"ok": 20, "failed": 2}
    assert both.latency == {3000: 10, 3001: 10}
    a = replicas["m", "a"]
    assert (a.in_flight, a.picks, a.failures, a.seconds, a.slowness) == (4, 20, 2, 1.0, 2.0)
    assert replicas["m", "b"].picks == 10


def test_the_dead_keep_what_they_counted_and_nothing_else() -> None:
    past = Past()
    past.bury(report(model(), replicas=(replica(),)))
    past.bury(report(model(), replicas=(replica(),)))
    models, replicas = merge([report(model(), replicas=(replica(state="ejected"),))], past)
    assert models["m"].verdicts == {"ok": 30, "failed": 3}
    assert models["m"].latency == {3000: 30}
    assert (models["m"].waiting, models["m"].in_flight) == (1, 2)
    a = replicas["m", "a"]
    assert (a.state, a.in_flight, a.picks, a.failures, a.seconds) == ("ejected", 2, 30, 3, 0.5)


def test_requests_for_no_model_are_added_up_with_those_of_the_dead() -> None:
    past = Past()
    past.bury(Report(0, (), (), unrouted={"refused": 3}))
    past.bury(Report(0, (), (), unrouted={"refused": 1, "ok": 2}))
    assert unrouted([Report(0, (), (), unrouted={"refused": 5}), report()], past) == {"refused": 9, "ok": 2}
    past.keep({})
    assert unrouted([], past) == {"refused": 4, "ok": 2}


def test_all_are_dead() -> None:
    past = Past()
    past.bury(report(model(), replicas=(replica(),)))
    models, replicas = merge([], past)
    assert (models["m"].requests, models["m"].in_flight) == (11, 0)
    assert (replicas["m", "a"].picks, replicas["m", "a"].in_flight) == (10, 0)


def test_who_is_not_configured_any_more_is_forgotten() -> None:
    past = Past()
    past.bury(report(model("m"), model("n"), replicas=(replica("a"), replica("b"))))
    past.keep({"m": {"b": 0}})
    models, replicas = merge([], past)
    assert set(models) == {"m"}
    assert set(replicas) == {("m", "b")}


def test_the_state_is_what_most_think() -> None:
    reports = [report(replicas=(replica(state=state),)) for state in ("ejected", "ready", "ready")]
    assert merge(reports, Past())[1]["m", "a"].state == "ready"


def test_quantiles_are_those_of_all_requests_together() -> None:
    seconds = [0.001 * n for n in range(1, 1001)]
    whole, halves = Histogram(), (Histogram(), Histogram())
    for place, value in enumerate(seconds):
        whole.add(value)
        halves[place % 2].add(value)
    reports = [
        report(ModelReport("m", 0, 0, {"ok": 500}, {b: n for b, n in enumerate(half.counts) if n})) for half in halves
    ]
    merged = merge(reports, Past())[0]["m"]
    for q in (0.01, 0.5, 0.9, 0.99):
        assert merged.quantile(q) == whole.quantile(q)
    assert merged.quantile(0.99) == pytest.approx(0.99, rel=0.005)


def test_no_answer_yet() -> None:
    assert isnan(histogram({}).quantile(0.5))


def test_lines_that_were_lost_are_not_forgotten_with_their_worker() -> None:
    past = Past()
    past.bury(Report(0, (), (), lost={"access_log": 3}))
    assert lost([Report(0, (), (), lost={"access_log": 2, "spans": 1})], past) == {"access_log": 5, "spans": 1}


def test_what_a_dead_worker_had_in_hand_failed_and_that_is_our_fault() -> None:
    past = Past()
    met, failed = [0] * KINDS, [0] * KINDS
    met[MET_INDEX], failed[INDEX["failed", "gateway"]] = 10, 3
    past.bury(report(ModelReport("m", 1, 2, {"ok": 10}, {}, judged={"acme": met})), {"m": 3})
    assert past.models["m"].verdicts == {"ok": 10, "failed": 3}
    assert past.models["m"].judged == {"acme": [a + b for a, b in zip(met, failed, strict=True)]}
    assert (past.models["m"].waiting, past.models["m"].in_flight) == (0, 0)


def test_whose_it_was_is_only_known_where_there_is_one_tenant() -> None:
    past = Past()
    past.bury(report(ModelReport("m", 0, 2, {}, {}, judged={"a": [0] * KINDS, "b": [0] * KINDS})), {"m": 2})
    assert past.models["m"].judged[OTHERS][INDEX["failed", "gateway"]] == 2
    past.bury(Report(0, (), ()), {"n": 1})  # it died before it ever said anything
    assert past.models["n"].judged[""][INDEX["failed", "gateway"]] == 1
    assert past.models["n"].verdicts == {"failed": 1}
    others = [report(ModelReport("o", 0, 0, {}, {}, judged={"a": [0] * KINDS}))]
    past.bury(Report(0, (), ()), {"o": 1}, others)
    assert list(past.models["o"].judged) == ["a"]


def test_tenants_of_the_dead_are_bounded() -> None:
    past = Past()
    for worker in range(5):
        judged = {"": [1], **{f"w{worker}-{number}": [1] for number in range(99)}}
        past.bury(Report(0, (ModelReport("m", 0, 0, {}, {}, judged=judged),), ()))
    kept = past.models["m"].judged
    assert len(kept) == TENANTS + 1
    assert (kept[""], kept[OTHERS]) == ([5], [4 * 99])
