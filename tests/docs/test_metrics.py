"""docs/metrics.md has a place for what is measured, and the bounds of the histograms are those of the code."""

from __future__ import annotations

import re

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


def test_every_metric_name_is_found_by_a_search_of_the_source() -> None:
    source = "".join(path.read_text() for path in (ROOT / "src/steelyard/control/admin/metrics").glob("*.py"))
    names = [row[0].strip("`") for row in rows(section(PAGE, "## Every metric")) if row[0].startswith("`")]
    assert names
    assert [name for name in names if f'"{name}"' not in source] == []
