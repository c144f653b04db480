"""The metrics of a gateway with everything on: what Prometheus reads, and that dashboards, alerts and docs name it."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

from tests.docs.test_docs import ROOT, anchors, rows, section
from tests.harness import scripts, wait_until
from tests.harness.replicas.probed import ProbedReplica
from tests.harness.scaling import scaled as gateway_with
from tests.harness.scaling import started
from tests.harness.telemetry.metrics_page import MetricsPage, lint
from tests.harness.telemetry.promql import named

DASHBOARD = json.loads((ROOT / "deploy/grafana/steelyard.json").read_text("utf-8"))
ALERTS = yaml.safe_load((ROOT / "deploy/prometheus/alerts.yml").read_text("utf-8"))
RULES = [rule for group in ALERTS["groups"] for rule in group["rules"]]
PROMTOOL = shutil.which("promtool")
OF_PROMETHEUS = {"instance", "job"}  # labels that a scrape adds
FIXED = (
    "window",
    "kind",
    "verdict",
    "outcome",
    "result",
    "fault",
    "stage",
    "objective",
)  # of known values
ANSWERED_REQUESTS, LOST_REQUESTS = 80, 2  # so many that it is known how slow a replica is
CHAT = "/v1/chat/completions"
USAGE = '{"prompt_tokens":9,"completion_tokens":2,"prompt_tokens_details":{"cached_tokens":8}}'
STREAM = scripts.chunked(
    'data: {"choices":[{"delta":{"content":"a"}}]}\n\n',
    'data: {"choices":[{"delta":{"content":"b"}}]}\n\n',
    f'data: {{"choices":[],"usage":{USAGE}}}\n\n',
    "data: [DONE]\n\n",
)


class Query(NamedTuple):
    where: str
    expression: str
    shown: str  # what names labels by {{name}}


def panels() -> list[dict[str, Any]]:
    return [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]


def queries() -> list[Query]:
    of_panels = [
        Query(panel["title"], target["expr"], target["legendFormat"])
        for panel in panels()
        for target in panel["targets"]
    ]
    of_rules = [
        Query(rule.get("alert") or rule["record"], rule["expr"], " ".join(rule.get("annotations", {}).values()))
        for rule in RULES
    ]
    definitions = [one["definition"] for one in DASHBOARD["templating"]["list"] if one["type"] == "query"]
    variables = [re.fullmatch(r"label_values\((.+), (\w+)\)", text) for text in definitions]
    return of_panels + of_rules + [Query("variables", found[1], f"{{{{{found[2]}}}}}") for found in variables if found]


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MetricsPage]:
    slo = {"latency": "50s", "first_byte": "40s", "availability": 99.0, "tenants": {"gold": {"latency": "20s"}}}
    memory = {"weights": "1MiB", "per_unit": 1}
    folder = tmp_path_factory.mktemp("scaled")
    with ProbedReplica("a", paths={CHAT: STREAM}) as stub:
        models = {
            "m": {
                "replicas": [{**stub.config, "device": "box"}],
                "health": {"interval": "200ms", "path": "/health"},
                "slo": slo,
                "memory": memory,
            },
            "grown": started(folder, autoscale={"min": 1, "max": 2}),
            "empty": {"replicas": []},
        }
        logs = {"access_log": {"path": str(folder / "access.log")}, "decision_log": {"path": str(folder / "decisions")}}
        more = {"devices": {"box": {"memory": "1GiB"}}, "tenant_header": "x-tenant", **logs}
        with gateway_with(models, workers=2, **more) as it:
            it.admin.wait_ready("a", model="m")
            it.wait_ready(1, "grown")
            body = b'{"model": "m", "messages": [], "stream": true}'
            assert it.gateway.ask("POST", CHAT, headers={"x-tenant": "gold"}, body=body).status == 200
            for n in range(ANSWERED_REQUESTS - 1):
                assert it.ask("m", **{"x-tenant": "gold" if n else "iron"}).status == 200
            for _ in range(LOST_REQUESTS):
                assert it.ask("nobody").status == 404
            found = wait_until(lambda: counted(it.admin.http.get("/metrics").text), "the page does not count them all")
            assert found is not None
            yield found


def counted(text: str) -> MetricsPage | None:
    """Workers report once a second, and a page is shared for one."""
    page = MetricsPage(text)
    all_counted = page.sum("steelyard_slo_requests_total", model="m") == ANSWERED_REQUESTS
    all_there = page.sum("steelyard_worker_serving") == 2
    return (
        page if all_counted and all_there and page.sum("steelyard_unrouted_requests_total") >= LOST_REQUESTS else None
    )


def test_it_is_as_prometheus_wants_it(page: MetricsPage) -> None:
    assert lint(page) == []


def test_it_says_what_happened(page: MetricsPage) -> None:
    asked = {"model": "m", "verdict": "met", "fault": "none"}
    assert page.value("steelyard_slo_requests_total", tenant="gold", **asked) == ANSWERED_REQUESTS - 1
    assert page.value("steelyard_slo_requests_total", tenant="iron", **asked) == 1
    for name in ("duration", "queue", "replica", "first_byte"):
        assert page.value(f"steelyard_request_{name}_seconds_count", model="m") == ANSWERED_REQUESTS
    longest = page.value("steelyard_request_duration_seconds_sum", model="m")
    shorter = page.value("steelyard_request_replica_seconds_sum", model="m")
    assert longest is not None
    assert shorter is not None
    assert longest >= shorter > 0.0
    assert page.value("steelyard_model_tokens_total", model="m", kind="cached") == 8
    assert page.value("steelyard_replica_tokens_total", model="m", replica="a", kind="output") == 2
    assert page.value("steelyard_request_first_token_seconds_count", model="m") == 1
    assert page.value("steelyard_model_arrivals_total", model="m") == ANSWERED_REQUESTS
    for kind in ("access_log", "decision_log"):
        assert page.value("steelyard_telemetry_dropped_total", kind=kind) == 0
    assert page.value("steelyard_replica_requests_total", model="m", replica="a") == ANSWERED_REQUESTS
    assert page.value("steelyard_worker_serving", worker="1") == 1
    assert page.value("steelyard_worker_unexpected_exits_total") == 0
    assert page.sum("steelyard_worker_memory_bytes") > 1 << 20
    assert page.sum("steelyard_probes_total", model="m", result="ready") > 0
    assert page.value("steelyard_alarms", code="no_ready_replica") == 1


def test_slos_are_shown_with_how_they_are_kept(page: MetricsPage) -> None:
    of = {"model": "m", "tenant": "gold", "objective": "latency"}
    assert page.value("steelyard_slo_target_ratio", **of) == 0.99
    assert page.value("steelyard_slo_threshold_seconds", **of, threshold="latency") == 20.0
    assert page.value("steelyard_slo_threshold_seconds", **of, threshold="first_byte") == 40.0
    for window in ("5m", "30m", "1h", "6h"):
        assert page.value("steelyard_slo_attainment_ratio", **of, window=window) == 1.0
        assert page.value("steelyard_slo_burn_rate", **of, window=window) == 0.0
    assert page.value("steelyard_slo_attainment_ratio", **of, window="period") == 1.0
    assert page.value("steelyard_slo_error_budget_remaining_ratio", **of) == 1.0


# ---------------------------------------------------------------------- what names it


@pytest.mark.parametrize("query", queries(), ids=lambda query: query.where)
def test_dashboard_and_alerts_name_what_there_is(query: Query, page: MetricsPage) -> None:
    found = named(query.expression)
    assert found.selectors, query.expression
    there = set(OF_PROMETHEUS)
    for metric, matchers in found.selectors:
        labels = known_labels(metric, page)
        assert set(matchers) <= labels | OF_PROMETHEUS, query.expression
        for label, wanted in matchers.items():
            if label in FIXED:
                known = page.values[metric, label] | values_told(metric)
                assert set(wanted.split("|")) <= known, query.expression
        there |= labels
    assert found.labels <= there, query.expression
    assert set(re.findall(r"\{\{\s*(?:\$labels\.)?(\w+)\s*(?:\||\}\})", query.shown)) <= there, query.shown


def known_labels(metric: str, page: MetricsPage) -> set[str]:
    """Of a metric on the page, of one that Prometheus itself has, or of a recorded one."""
    if metric == "up":
        return set()
    recorded = [rule["expr"] for rule in RULES if rule.get("record") == metric]
    if recorded:
        return named(recorded[0]).labels
    assert metric in page.labels, f"no metric {metric}"
    return page.labels[metric]


def values_told(metric: str) -> set[str]:
    """Values of its labels that the docs name: not all of them are on every page."""
    cells = [row[2] for row in rows(section("docs/metrics.md", "## Every metric")) if row[0] == f"`{metric}`"]
    return set(re.findall(r"`(\w+)`", " ".join(re.findall(r"\(([^)]*)\)", " ".join(cells)))))


def test_the_dashboard_can_be_imported_as_it_is() -> None:
    assert "__inputs" not in DASHBOARD
    kinds = {variable["name"]: variable["type"] for variable in DASHBOARD["templating"]["list"]}
    assert kinds == {"datasource": "datasource", "instance": "query", "model": "query"}
    ids = [panel["id"] for panel in DASHBOARD["panels"]]
    assert len(ids) == len(set(ids))
    for panel in panels():
        assert panel["datasource"] == {"type": "prometheus", "uid": "${datasource}"}
        assert panel["targets"]
    cells = [
        (panel["gridPos"]["y"] + down, panel["gridPos"]["x"] + across)
        for panel in DASHBOARD["panels"]
        for down in range(panel["gridPos"]["h"])
        for across in range(panel["gridPos"]["w"])
    ]
    assert len(cells) == len(set(cells)), "two panels overlap"
    assert max(across for _, across in cells) < 24


def test_every_alert_says_what_is_wrong_and_what_to_do() -> None:
    headings = anchors(ROOT / "docs/metrics.md")
    alerts = [rule for rule in RULES if "alert" in rule]
    for rule in alerts:
        assert rule["labels"]["severity"] in ("page", "ticket")
        annotations = rule["annotations"]
        assert annotations["summary"]
        assert annotations["description"]
        assert annotations["runbook_url"] == f"docs/metrics.md#{rule['alert'].lower()}"
        assert rule["alert"].lower() in headings, f"docs/metrics.md does not say what to do about {rule['alert']}"
    explained = re.findall(r"^### (Steelyard\w+)$", section("docs/metrics.md", "## Alerts"), re.MULTILINE)
    assert explained == [rule["alert"] for rule in alerts]


@pytest.mark.skipif(PROMTOOL is None, reason="promtool is not installed")
def test_promtool_agrees(page: MetricsPage, tmp_path: Path) -> None:
    assert PROMTOOL is not None
    file = tmp_path / "alerts.yml"
    file.write_text(yaml.safe_dump(ALERTS))
    for command, said in ((["check", "rules", str(file)], ""), (["check", "metrics"], page.text)):
        done = subprocess.run([PROMTOOL, *command], input=said, capture_output=True, encoding="utf-8", check=False)
        assert done.returncode == 0, done.stdout + done.stderr


# ---------------------------------------------------------------------- the docs


def test_every_metric_is_explained_as_it_is(page: MetricsPage) -> None:
    documented = {}
    for row in rows(section("docs/metrics.md", "## Every metric")):
        if row[0] != "metric":
            name, kind, labels, meaning = row
            assert meaning, name
            documented[name.strip("`")] = (kind, set(re.findall(r"`(\w+)`", re.sub(r"\([^)]*\)", "", labels))))
    shown = {
        name: (family.type, {label for sample in family.samples for label in sample.labels} - {"le"})
        for name, family in page.families.items()
    }
    assert documented == shown
