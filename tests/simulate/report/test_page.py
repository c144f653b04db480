from __future__ import annotations

import re
from collections import Counter
from html.parser import HTMLParser
from itertools import pairwise

import msgspec
import pytest

from steelyard.documents import Seconds
from steelyard.simulate.engine.result import RunResult
from steelyard.simulate.report.charts import spread_labels, survival
from steelyard.simulate.report.page import render
from steelyard.simulate.run import run_all, tasks
from steelyard.simulate.scenario.schema import Fault, ReplicaGroup, Scenario, Workload

from ..runs import made_up

SCENARIO = Scenario(
    name="two <b>speeds</b> & more",
    requests=400,
    seeds=2,
    loads=(0.6, 0.9),
    fleet=(ReplicaGroup(count=2), ReplicaGroup(count=2, speed=2.0)),
    faults=(Fault(kind="slow", at=Seconds(0.1), duration=Seconds(0.2)),),
    policies=("ideal", "round_robin", "least_connections", "least_work@1", "least_work@auto"),
)
VOID = {"meta", "br", "link", "img", "hr", "path", "use", "rect", "image"}


class Page(HTMLParser):
    """Checks that elements close in order, and keeps what tests ask about."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: Counter[str] = Counter()
        self.ids: Counter[str] = Counter()
        self.attributes: list[tuple[str, str, str]] = []
        self.text: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags[tag] += 1
        self.attributes += [(tag, name, value or "") for name, value in attrs]
        self.ids.update(value or "" for name, value in attrs if name == "id")
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        assert tag in VOID or self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text.append(data)


@pytest.fixture(scope="module")
def results() -> list[RunResult]:
    return run_all(tasks(SCENARIO))


@pytest.fixture(scope="module")
def html(results: list[RunResult]) -> str:
    return render([SCENARIO], results)


@pytest.fixture(scope="module")
def page(html: str) -> Page:
    return Page(html)


def test_it_is_well_formed(page: Page) -> None:
    assert page.open == []
    assert page.tags["html"] == page.tags["body"] == page.tags["main"] == page.tags["h1"] == 1


def test_it_needs_nothing_from_outside(html: str, page: Page) -> None:
    assert not re.search(r"https?://|//[a-z]|@import", re.sub(r"data:image/png;base64,[^\"]*", "", html))
    assert page.tags["script"] == page.tags["link"] == page.tags["iframe"] == 0
    for _, name, value in page.attributes:
        if name in ("src", "href", "xlink:href"):
            assert value.startswith(("#", "data:image/png;base64,"))
        for target in re.findall(r"url\(([^)]*)\)", value):
            assert target.startswith("#")


def test_ids_are_unique_and_references_lead_somewhere(page: Page) -> None:
    assert [id for id, count in page.ids.items() if count > 1] == []
    for _, name, value in page.attributes:
        if name == "href" and value.startswith("#"):
            assert value[1:] in page.ids
        for target in re.findall(r"url\(#([^)]*)\)", value):
            assert target in page.ids


def test_same_results_same_bytes(html: str, results: list[RunResult]) -> None:
    assert render([SCENARIO], results) == html
    assert render([SCENARIO], run_all(tasks(SCENARIO))) == html


def test_names_are_escaped(html: str) -> None:
    assert "<b>speeds" not in html
    assert "two &lt;b&gt;speeds&lt;/b&gt; &amp; more" in html


def test_every_chart_is_named_for_those_who_cannot_see_it(page: Page) -> None:
    labels = [value for tag, name, value in page.attributes if tag == "svg" and name == "aria-label"]
    assert len(labels) == page.tags["svg"] == page.tags["figure"] == 5  # two tails, load, timelines, shares
    assert all(labels)
    assert page.tags["figcaption"] == page.tags["figure"]


def test_the_table_has_a_row_per_policy_and_load(page: Page) -> None:
    headers = [value for tag, name, value in page.attributes if tag == "th" and name == "scope"]
    assert headers.count("row") == len(SCENARIO.loads) * len(SCENARIO.policies)
    assert headers.count("rowgroup") == len(SCENARIO.loads)
    text = " ".join(page.text)
    for column in ("p50", "p90", "p99", "p99.9", "mean", "p99 ÷ ideal", "slowdown ≤ 3", "requests/s"):
        assert column in text


def test_it_says_what_was_run(html: str) -> None:
    assert "kind: slow" in html
    assert "policies: [ideal, round_robin" in html


def test_colours_follow_the_page(html: str) -> None:
    assert "prefers-color-scheme: dark" in html
    used = set(re.findall(r"var\((--[a-z0-9-]+)\)", html))
    assert used <= set(re.findall(r"(--[a-z0-9-]+):", html))
    assert not re.search(r"#0[1-5]0[1-5]0[0-9]\b", html)


def test_several_scenarios_have_an_overview() -> None:
    pair = [msgspec.structs.replace(SCENARIO, name=name, requests=50, loads=(0.5,), seeds=1) for name in ("one", "two")]
    page = Page(render(pair, [run for one in pair for run in run_all(tasks(one))]))
    assert page.tags["nav"] == 1
    assert {value for tag, name, value in page.attributes if tag == "a" and name == "href"} == {"#s1", "#s2"}
    assert all(count == 1 for count in page.ids.values())


def test_refusals_and_slos_have_columns() -> None:
    scenario = Scenario(
        name="s", fleet=(ReplicaGroup(count=2),), workload=Workload(deadline=Seconds(1)), policies=("a", "b")
    )
    runs = [made_up("a", 1, [0.1] * 90, refused=10, met=90, timeline=True), made_up("b", 1, [0.1] * 99, failed=1)]
    html = render([scenario], runs)
    assert "within SLO" in html
    assert ">refused<" in html
    assert ">failed<" in html
    assert "No request failed" not in html


def test_nothing_answered_is_a_page_too() -> None:
    runs = [made_up("a", 1, [], refused=10, load=load) for load in (0.5, 0.9)]
    html = render([Scenario(name="s")], runs)
    assert "no request was answered" in html
    assert Page(html).tags["svg"] == 0


def test_a_large_fleet_is_shown_by_group() -> None:
    scenario = Scenario(name="s", fleet=(ReplicaGroup(count=20), ReplicaGroup(count=20, speed=2.0)))
    run = made_up("a", 1, [0.1] * 10, timeline=True)
    run.served = {f"r{n}": 1 if n < 20 else 3 for n in range(40)}
    html = render([scenario], [run])
    assert "20 of speed 2" in html
    assert ">75.0<" in html


def test_many_policies_have_looks_of_their_own() -> None:
    policies = [f"package.module:Policy{n}" for n in range(14)]
    html = render([Scenario(name="s")], [made_up(policy, 1, [0.1] * 10) for policy in policies])
    assert "…" in html or "package.module:Policy13" in html


def test_labels_are_spread_apart_and_stay_inside() -> None:
    placed = spread_labels([0.1, 0.11, 0.95, 0.96, 0.97], 0.05)
    assert all(b - a >= 0.05 - 1e-9 for a, b in pairwise(placed))
    assert placed[-1] <= 1.0
    assert placed[0] == 0.1


def test_the_tail_line_falls_and_ends_at_the_slowest() -> None:
    run = made_up("a", 1, [0.001 * n for n in range(1, 2001)])
    points = survival(run.latency, 1e-5)
    assert points[0][1] == 1.0
    assert all(a[0] <= b[0] and a[1] >= b[1] for a, b in pairwise(points))
    assert points[-1] == (pytest.approx(2.0, rel=0.004), 1e-5)
    assert len(points) < 500
