"""`/metrics` is what Prometheus reads: every line of the text form, every label value escaped."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from steelyard.control.admin.metrics import CONTENT_TYPE, MetricsCache, render_page
from steelyard.control.observability.alarm_codes import SEVERITIES
from steelyard.control.observability.fleet_view import MetricsSnapshot
from steelyard.control.observability.totals import ModelTotals, ReplicaTotals
from steelyard.control.observability.views import (
    Alarm,
    FleetView,
    ModelView,
    ObjectiveView,
    ReplicaView,
    ScalingView,
    SloView,
    StartFailureView,
    WindowView,
    WorkerView,
)
from steelyard.control.process_resources import ProcessUsage, process_usage
from steelyard.core.slo.verdicts import VERDICT_COUNT, VERDICT_INDEX
from steelyard.core.statistics.histogram import DURATION_BOUNDS_SECONDS
from steelyard.link.messages import Durations
from steelyard.protocols import read_metrics
from tests.harness.telemetry.metrics_page import MetricsPage, lint

from ..fake_operations import FakeOperations, model, shown
from ..serving import TOKEN, Served, served

_SAMPLE = re.compile(r'([a-z_:]+)(?:\{((?:[a-z_]+="(?:[^"\\\n]|\\[\\"n])*",?)+)\})? (\S+)')
_LABEL = re.compile(r'([a-z_]+)="((?:[^"\\\n]|\\[\\"n])*)"')
_MEANT = {r"\\": "\\", r"\"": '"', r"\n": "\n"}

Labels = dict[str, str]


def samples(text: str) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    """By name and labels. Each name is declared once, before its first sample, and all its samples are together."""
    found: dict[tuple[str, frozenset[tuple[str, str]]], float] = {}
    declared: list[str] = []
    assert text.endswith("\n")
    for line in text.removesuffix("\n").split("\n"):
        if line.startswith("# TYPE "):
            _, _, name, kind = line.split(" ")
            assert kind in ("gauge", "counter", "histogram", "summary")
            assert (kind == "counter") == name.endswith("_total")
            assert name not in declared
            declared.append(name)
        elif not line.startswith("# HELP "):
            match = _SAMPLE.fullmatch(line)
            assert match is not None, line
            assert match[1].removesuffix("_bucket").removesuffix("_sum").removesuffix("_count") == declared[-1]
            labels = frozenset((name, plain(value)) for name, value in _LABEL.findall(match[2] or ""))
            assert (match[1], labels) not in found, f"twice: {line}"
            found[match[1], labels] = float(match[3])
    return found


def plain(value: str) -> str:
    return re.sub(r'\\[\\"n]', lambda found: _MEANT[found[0]], value)


def value(text: str, name: str, **labels: str) -> float | None:
    return samples(text).get((name, frozenset(labels.items())))


def test_the_fleet_in_numbers(admin: Served) -> None:
    answer = admin.http.get("/metrics")
    assert answer.status_code == 200
    assert answer.headers["content-type"] == CONTENT_TYPE
    assert answer.headers["cache-control"] == "no-store"
    text = answer.text
    assert value(text, "steelyard_model_requests_total", model="llama", outcome="ok") == 14
    assert value(text, "steelyard_model_replicas_ready", model="org/mœdel:7b.1") == 1
    assert value(text, "steelyard_model_latency_seconds", model="llama", quantile="0.5") == 0.1
    assert value(text, "steelyard_model_latency_seconds", model="llama", quantile="0.99") is None
    assert value(text, "steelyard_replica_state", model="llama", replica="a", state="ready") == 1
    assert value(text, "steelyard_alarms", code="discovery_failed") == 1


def test_the_ledger_in_numbers(admin: Served) -> None:
    text = admin.http.get("/metrics").text
    name, gpu = "steelyard_device_memory_bytes", "node1/gpu0"
    assert value(text, name, device=gpu, kind="capacity") == 8 << 30
    assert value(text, name, device=gpu, kind="measured") == 4 << 30
    assert value(text, name, device=gpu, kind="budget") == 1  # whatever the fake says
    assert value(text, "steelyard_device_quarantines", device=gpu) == 1
    assert value(text, "steelyard_device_out_of_memory_errors_total", device=gpu) == 1
    assert value(text, "steelyard_model_memory_bytes", model="llama", kind="footprint") == 3 << 30
    for kind, amount in (("base", 3 << 30), ("running", 1 << 20), ("measured", 3 << 30)):
        found = value(text, "steelyard_replica_memory_bytes", model="llama", replica="a", kind=kind)
        assert found == amount


def test_a_device_of_unknown_size_has_no_capacity_and_no_budget(admin: Served) -> None:
    text = admin.http.get("/metrics").text
    for kind in ("capacity", "budget", "measured"):
        assert value(text, "steelyard_device_memory_bytes", device="dark", kind=kind) is None
    assert value(text, "steelyard_device_memory_bytes", device="dark", kind="reserved") is not None


def test_how_many_replicas_in_numbers(admin: Served) -> None:
    text = admin.http.get("/metrics").text
    for name, expected in (
        ("desired_replicas", 3),
        ("min_replicas", 0),
        ("max_replicas", 8),
        ("panic_mode", 1),
        ("replica_seconds_total", 720.5),
        ("starts_total", 1),
        ("crash_looping", 0),
    ):
        assert value(text, f"steelyard_scaling_{name}", model="llama") == expected
    assert value(text, "steelyard_scaling_offered_load", model="llama", window="long") == 1.9
    assert value(text, "steelyard_scaling_offered_load", model="llama", window="short") == 2.5


def test_replicas_that_fail_again_and_again_are_told_in_numbers() -> None:
    failure = shown(StartFailureView, crash_looping=True)
    text = render_page(shown(FleetView, scaling=(shown(ScalingView, model="m", start_failure=failure),)))
    assert value(text, "steelyard_scaling_crash_looping", model="m") == 1


def test_a_model_with_a_fixed_number_of_replicas_has_nothing_that_a_scaler_says() -> None:
    text = render_page(shown(FleetView, scaling=(shown(ScalingView, model="m", mode="fixed", scaler="", desired=2),)))
    assert value(text, "steelyard_scaling_desired_replicas", model="m") == 2
    for name in ("offered_load", "forecast_load", "burn_rate", "panic_mode", "max_replicas"):
        assert f"steelyard_scaling_{name}" not in text


@given(st.text(min_size=1))
def test_whatever_a_name_is_it_comes_out_as_it_went_in(name: str) -> None:
    text = render_page(shown(FleetView, models=(shown(ModelView, model=name, outcomes={name: 3}),)))
    assert value(text, "steelyard_model_requests_total", model=name, outcome=name) == 3


def test_names_with_quotes_and_ends_of_lines() -> None:
    text = render_page(shown(FleetView, models=(model('a"b\\c\nd'),)))
    assert r'steelyard_model_requests_waiting{model="a\"b\\c\nd"} 1' in text


def test_nothing_is_said_of_what_there_is_not() -> None:
    text = render_page(shown(FleetView, version="1"))
    there = {"steelyard_build_info", "steelyard_uptime_seconds", "steelyard_alarms"}
    assert {name for name, _ in samples(text)} == there
    assert not any(value(text, "steelyard_alarms", code=code) for code in SEVERITIES)  # present, at 0
    assert read_metrics(render_page(FakeOperations().fleet()).encode()) is None  # it is no replica


def test_it_needs_a_token_where_the_rest_does(tmp_path: Path) -> None:
    (tmp_path / "tokens").write_text(TOKEN)
    with served(token_file=str(tmp_path / "tokens")) as admin:
        assert admin.http.get("/metrics").status_code == 401
        assert admin.http.get("/metrics", headers={"authorization": f"Bearer {TOKEN}"}).status_code == 200


@pytest.mark.parametrize("query", ["?a=b", "?name[]=x"])
def test_a_query_is_refused_as_elsewhere(admin: Served, query: str) -> None:
    assert admin.http.get(f"/metrics{query}").status_code == 422


# ---------------------------------------------------------------------- what is not in the views


def numbers(**more: Any) -> MetricsSnapshot:
    judged = [0] * VERDICT_COUNT
    judged[VERDICT_INDEX["met", ""]], judged[VERDICT_INDEX["late", "replica"]] = 7, 2
    times = {"total": Durations([3, 0, 1, *[0] * (len(DURATION_BOUNDS_SECONDS) - 3), 2], 700.5)}
    tokens = {"prompt": 100, "cached": 60, "output": 30, "answers": 2, "further": 28}
    status = ModelTotals(
        "m",
        1,
        2,
        {},
        {},
        slo_verdicts={"t": judged},
        times=times,
        tokens=tokens,
        queued_work=1.5,
        oldest_wait=4.0,
        predicted_seconds=10.0,
        prediction_error_seconds=2.5,
    )
    seconds = {"first_token": 0.5, "further": 1.4}
    replicas = {("m", id): ReplicaTotals("m", id, "ready", 0, 0, 0, 0.75, 1.0, ejections_total=3) for id in "ab"}
    replicas["m", "a"] = msgspec.structs.replace(replicas["m", "a"], tokens=tokens, token_seconds=seconds)
    return MetricsSnapshot({"m": status}, replicas)._replace(**more)


def of_m(**more: Any) -> MetricsPage:
    views = {"models": (model("m"),), "replicas": (shown(ReplicaView, model="m", id="a"),)}
    page_ = MetricsPage(render_page(shown(FleetView, **(views | more)), numbers()))
    assert lint(page_) == []
    return page_


def test_requests_are_told_by_slo_verdict() -> None:
    found = of_m()
    name = "steelyard_slo_requests_total"
    assert found.value(name, model="m", tenant="t", verdict="met", fault="none") == 7
    assert found.value(name, model="m", tenant="t", verdict="late", fault="replica") == 2
    assert found.value(name, model="m", tenant="t", verdict="failed", fault="gateway") == 0
    assert found.sum(name) == 9


def test_times_are_histograms() -> None:
    found = of_m()
    name = "steelyard_request_duration_seconds"
    expected = {"0.001": 3, "0.0025": 3, "0.005": 4, "300.0": 4, "+Inf": 6}
    assert {le: found.value(f"{name}_bucket", model="m", le=le) for le in expected} == expected
    assert found.value(f"{name}_count", model="m") == 6
    assert found.value(f"{name}_sum", model="m") == 700.5
    assert "steelyard_request_queue_seconds" not in found.families  # of which nothing is known


def test_tokens_of_models_and_replicas() -> None:
    found = of_m()
    for name, where in (("steelyard_model_tokens_total", {}), ("steelyard_replica_tokens_total", {"replica": "a"})):
        assert found.value(name, model="m", kind="prompt", **where) == 100
        assert found.value(name, model="m", kind="cached", **where) == 60
        assert found.sum(name) == 190, "of these kinds, and where there are any"
    assert found.value("steelyard_replica_first_token_seconds_total", model="m", replica="a") == 0.5
    assert found.value("steelyard_replica_streams_total", model="m", replica="a") == 2
    assert found.value("steelyard_replica_further_tokens_total", model="m", replica="a") == 28
    assert found.value("steelyard_replica_further_token_seconds_total", model="m", replica="a") == 1.4


def test_work_and_estimates() -> None:
    found = of_m()
    assert found.value("steelyard_model_work_seconds", model="m", stage="replica") == 1.5
    assert found.value("steelyard_model_work_seconds", model="m", stage="queue") == 1.5
    assert found.value("steelyard_model_oldest_wait_seconds", model="m") == 4.0
    assert found.value("steelyard_model_estimated_seconds_total", model="m") == 10.0
    assert found.value("steelyard_model_estimate_error_seconds_total", model="m") == 2.5
    assert found.value("steelyard_replica_ejections_total", model="m", replica="a") == 3


def test_slos_with_their_windows() -> None:
    window = shown(WindowView, seconds=1800.0, attainment=98.0, burn_rate=2.0)
    quiet = shown(WindowView, seconds=21600.0, attainment=None, burn_rate=0.0)
    budget = shown(WindowView, seconds=99.0, attainment=99.5)
    objective = ObjectiveView(
        kind="latency",
        target=99.0,
        latency=0.2,
        first_byte=None,
        per_token=None,
        windows=(window, quiet),
        budget=budget,
        error_budget_remaining=-0.5,
        alert="",
    )
    found = of_m(slo=(shown(SloView, model="m", tenant="", objectives=(objective,)),))
    of = {"model": "m", "tenant": "", "objective": "latency"}
    assert found.value("steelyard_slo_target_ratio", **of) == 0.99
    assert found.value("steelyard_slo_threshold_seconds", **of, threshold="latency") == 0.2
    assert found.value("steelyard_slo_threshold_seconds", **of, threshold="first_byte") is None
    assert found.value("steelyard_slo_burn_rate", **of, window="30m") == 2.0
    assert found.value("steelyard_slo_attainment_ratio", **of, window="30m") == 0.98
    assert found.value("steelyard_slo_attainment_ratio", **of, window="6h") is None
    assert found.value("steelyard_slo_attainment_ratio", **of, window="period") == 0.995
    assert found.value("steelyard_slo_error_budget_remaining_ratio", **of) == -0.5


def test_while_workers_are_renewed_two_have_the_same_number() -> None:
    new = shown(WorkerView, index=0, pid=2, serving=False, connections=0)
    old = shown(WorkerView, index=0, pid=1, serving=True, connections=5)
    used = {1: ProcessUsage(100.0, 30), 2: ProcessUsage(0.5, 20)}
    text = render_page(shown(FleetView, workers=(new, old)), numbers(processes=used, unexpected_exits=3))
    assert value(text, "steelyard_worker_serving", worker="0") == 1
    assert value(text, "steelyard_worker_connections", worker="0") == 5
    assert value(text, "steelyard_worker_cpu_seconds_total", worker="0") == 0.5
    assert value(text, "steelyard_worker_memory_bytes", worker="0") == 50
    assert value(text, "steelyard_worker_unexpected_exits_total") == 3


@given(st.lists(st.text(), min_size=1, max_size=5, unique=True))
def test_whatever_tenants_call_themselves_prometheus_reads_it(tenants: list[str]) -> None:
    status = ModelTotals("m", 0, 0, {}, {}, slo_verdicts={tenant: [1] * VERDICT_COUNT for tenant in tenants})
    found = MetricsPage(render_page(shown(FleetView), MetricsSnapshot({"m": status})))
    assert found.values["steelyard_slo_requests_total", "tenant"] == set(tenants)


def test_the_order_does_not_depend_on_who_came_first() -> None:
    def said(*tenants: str) -> str:
        models = {"m": ModelTotals("m", 0, 0, {}, {}, slo_verdicts={tenant: [1] * VERDICT_COUNT for tenant in tenants})}
        alarms = tuple(shown(Alarm, code=code) for code in tenants)
        return render_page(shown(FleetView, alarms=alarms), MetricsSnapshot(models, unrouted=dict.fromkeys(tenants, 1)))

    assert said("b", "a", "c") == said("c", "b", "a")


def test_who_asks_again_within_a_second_is_given_the_same_page() -> None:
    class Counting(FakeOperations):
        asked = 0

        def metrics(self) -> tuple[FleetView, MetricsSnapshot]:
            self.asked += 1
            return super().metrics()

    now = 10.0
    operations = Counting()
    scrapes = MetricsCache(operations, lambda: now)
    first = scrapes.page()
    now = 10.99
    assert scrapes.page() is first
    assert operations.asked == 1
    now = 11.0
    scrapes.page()
    assert operations.asked == 2


def test_what_a_process_uses() -> None:
    mine = process_usage(os.getpid())
    assert mine is not None
    assert mine.memory > 1 << 20
    assert mine.cpu > 0.0
    assert process_usage(2**22 + 1) is None  # beyond all that Linux gives
