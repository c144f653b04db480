"""`/metrics` is what Prometheus reads: every line of the text form, every label value escaped."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steelyard.control.admin.metrics import TEXT, page
from steelyard.control.views import FleetView, ModelView, ScalingView, StartSetbackView
from steelyard.protocols import read_metrics

from .fake_operations import FakeOperations, model, shown
from .serving import TOKEN, Served, served

ROOT = Path(__file__).parents[3]
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
            assert kind in ("gauge", "counter")
            assert (kind == "counter") == name.endswith("_total")
            assert name not in declared
            declared.append(name)
        elif not line.startswith("# HELP "):
            match = _SAMPLE.fullmatch(line)
            assert match is not None, line
            assert match[1] == declared[-1]
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
    assert answer.headers["content-type"] == TEXT
    assert answer.headers["cache-control"] == "no-store"
    text = answer.text
    assert value(text, "steelyard_model_requests_total", model="llama", verdict="ok") == 14
    assert value(text, "steelyard_model_replicas_ready", model="org/mœdel:7b.1") == 1
    assert value(text, "steelyard_model_latency_seconds", model="llama", quantile="0.5") == 0.1
    assert value(text, "steelyard_model_latency_seconds", model="llama", quantile="0.99") is None
    assert value(text, "steelyard_replica_state", model="llama", replica="a", state="ready") == 1
    assert value(text, "steelyard_alarms", code="discovery") == 1


def test_the_ledger_in_numbers(admin: Served) -> None:
    text = admin.http.get("/metrics").text
    name, gpu = "steelyard_device_memory_bytes", "node1/gpu0"
    assert value(text, name, device=gpu, kind="capacity") == 8 << 30
    assert value(text, name, device=gpu, kind="measured") == 4 << 30
    assert value(text, name, device=gpu, kind="budget") == 1  # whatever the fake says
    assert value(text, "steelyard_device_quarantines", device=gpu) == 1
    assert value(text, "steelyard_device_out_of_memory_total", device=gpu) == 1
    assert value(text, "steelyard_model_memory_bytes", model="llama", kind="footprint") == 3 << 30
    for kind, amount in (("base", 3 << 30), ("running", 1 << 20), ("held", 3 << 30)):
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
        ("wanted_replicas", 3),
        ("least", 0),
        ("most", 8),
        ("panicking", 1),
        ("replica_seconds_total", 720.5),
        ("starts_total", 1),
        ("crash_looping", 0),
    ):
        assert value(text, f"steelyard_scaling_{name}", model="llama") == expected
    assert value(text, "steelyard_scaling_offered_work", model="llama", window="long") == 1.9
    assert value(text, "steelyard_scaling_offered_work", model="llama", window="short") == 2.5


def test_replicas_that_fail_again_and_again_are_told_in_numbers() -> None:
    setback = shown(StartSetbackView, looping=True)
    text = page(shown(FleetView, scaling=(shown(ScalingView, model="m", setback=setback),)))
    assert value(text, "steelyard_scaling_crash_looping", model="m") == 1


def test_a_model_with_a_fixed_number_of_replicas_has_nothing_that_a_scaler_says() -> None:
    text = page(shown(FleetView, scaling=(shown(ScalingView, model="m", mode="fixed", scaler="", wanted=2),)))
    assert value(text, "steelyard_scaling_wanted_replicas", model="m") == 2
    for name in ("offered_work", "forecast_work", "burn_rate", "panicking", "most"):
        assert f"steelyard_scaling_{name}" not in text


@given(st.text(min_size=1))
def test_whatever_a_name_is_it_comes_out_as_it_went_in(name: str) -> None:
    text = page(shown(FleetView, models=(shown(ModelView, model=name, verdicts={name: 3}),)))
    assert value(text, "steelyard_model_requests_total", model=name, verdict=name) == 3


def test_names_with_quotes_and_ends_of_lines() -> None:
    text = page(shown(FleetView, models=(model('a"b\\c\nd'),)))
    assert r'steelyard_model_requests_waiting{model="a\"b\\c\nd"} 1' in text


def test_nothing_is_said_of_what_there_is_not() -> None:
    text = page(shown(FleetView, version="1"))
    assert {name for name, _ in samples(text)} == {"steelyard_info", "steelyard_uptime_seconds"}
    assert read_metrics(page(FakeOperations().fleet()).encode()) is None  # it is no replica


def test_it_needs_a_token_where_the_rest_does(tmp_path: Path) -> None:
    (tmp_path / "tokens").write_text(TOKEN)
    with served(token_file=str(tmp_path / "tokens")) as admin:
        assert admin.http.get("/metrics").status_code == 401
        assert admin.http.get("/metrics", headers={"authorization": f"Bearer {TOKEN}"}).status_code == 200


@pytest.mark.parametrize("query", ["?a=b", "?name[]=x"])
def test_a_query_is_refused_as_elsewhere(admin: Served, query: str) -> None:
    assert admin.http.get(f"/metrics{query}").status_code == 422


def test_every_metric_is_explained() -> None:
    told = set(re.findall(r"^\| `(steelyard_\w+)", (ROOT / "docs/admin.md").read_text("utf-8"), re.MULTILINE))
    assert told == {name for name, _ in samples(page(FakeOperations().fleet()))}
