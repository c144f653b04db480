"""docs/metrics.md has a place for what is measured, and the bounds of the histograms are those of the code."""

from __future__ import annotations

import re

import msgspec

from steelyard.control.admin.metrics.exposition import render
from steelyard.control.admin.metrics.slo import slo_families
from steelyard.control.observability.views import ObjectiveView, SloView, WindowView
from steelyard.core.slo.burn_rate import ALERT_WINDOWS_SECONDS
from steelyard.core.slo.verdicts import AVAILABILITY, LATENCY, SLO_VERDICTS
from steelyard.core.statistics.histogram import DURATION_BOUNDS_SECONDS

from .test_docs import ROOT, rows, section, text_of

PAGE = "docs/metrics.md"


def test_the_measurement_finds_its_place() -> None:
    text = text_of(PAGE)
    begin, end = "<!-- begin: benchmarks/scrape.py -->", "<!-- end: benchmarks/scrape.py -->"
    assert (text.count(begin), text.count(end)) == (1, 1)
    assert text.index(begin) < text.index(end)


def test_the_bounds_of_the_histograms_are_told() -> None:
    match = re.search(r"have the bounds (.+?) ms, (.+?) s\.", section(PAGE, "## Labels"), re.DOTALL)
    assert match is not None
    short, long = ([float(number) for number in re.findall(r"[\d.]+", part)] for part in match.groups())
    assert (*(bound / 1000 for bound in short), *long) == DURATION_BOUNDS_SECONDS


def test_the_samples_of_a_tenant_are_counted() -> None:
    match = re.search(r"each tenant of a model adds (\d+), and up to (\d+) more with an SLO", text_of(PAGE))
    assert match is not None
    window = WindowView(seconds=300.0, good=1, bad=0, attainment=100.0, burn_rate=0.0)
    timed = ObjectiveView(
        kind=LATENCY,
        target=99.0,
        latency=1.0,
        first_byte=0.5,
        per_token=0.1,
        windows=(window,) * len(ALERT_WINDOWS_SECONDS),
        budget=window,
        error_budget_remaining=1.0,
        alert="",
    )
    both = (timed, msgspec.structs.replace(timed, kind=AVAILABILITY, latency=None, first_byte=None, per_token=None))
    view = SloView(model="m", tenant="t", counts={}, objectives=both)
    samples = [line for line in render(slo_families((view,), {})).splitlines() if not line.startswith("#")]
    assert (int(match[1]), int(match[2])) == (len(set(SLO_VERDICTS)), len(samples))


def test_every_metric_name_is_found_by_a_search_of_the_source() -> None:
    source = "".join(path.read_text() for path in (ROOT / "src/steelyard/control/admin/metrics").glob("*.py"))
    names = [row[0].strip("`") for row in rows(section(PAGE, "## Every metric")) if row[0].startswith("`")]
    assert names
    assert [name for name in names if f'"{name}"' not in source] == []
