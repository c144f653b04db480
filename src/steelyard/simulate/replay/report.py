"""A replay as rows of a table, as CSV, and as one HTML page that needs nothing else."""

from __future__ import annotations

import csv
from html import escape
from importlib.metadata import version
from io import StringIO

from ...core.statistics.histogram import Histogram
from ...units import format_seconds
from ..engine.result import RunResult
from ..report.charts import latency_tail, series_styles
from ..report.formatting import percent
from ..report.heatmaps import timelines
from ..report.style import PAGE_STYLE
from ..report.summary import summarise
from ..report.svg import chart_style, inline_svg
from ..scenario.schema import Scenario
from .compare import Comparison, LatencyFigures, PolicyPrediction
from .findings import sentences, signed
from .recording import RecordedRequest
from .run import WARMUP_SHARE

OUTPUT_FILES = ["replay.csv", "replay.html"]
OBSERVED_LABEL = "observed"
TAIL_CAPTION = (
    "Follow a line down: where it meets the row p99, one request in a hundred took longer than the time below. The "
    "closer the replay of the policy that ran is to the observed line, the more the others can be believed."
)
TIMELINE_CAPTION = (
    "One panel a policy, one row a replica: the stronger the colour, the more requests are on it. The strip below has "
    "those that wait in the gateway. First run of each."
)


def rows(comparison: Comparison) -> list[list[str]]:
    """A header; what was observed; the policy that ran, replayed; the others."""
    ran = comparison.baseline
    return [
        ["policy", "p50", "p90", "p99", "mean", "lost", "p99 against"],
        [f"{ran.policy}, {OBSERVED_LABEL}", *_cells(comparison.observed), ""],
        [f"{ran.policy}, replayed", *_cells(ran.figures), f"{signed(comparison.replay_error)} of the observed"],
        *([one.policy, *_cells(one.figures), _difference(comparison, one)] for one in comparison.alternatives),
    ]


def _cells(figures: LatencyFigures) -> list[str]:
    times = [format_seconds(value) for value in (figures.p50, figures.p90, figures.p99, figures.mean)]
    return [*times, percent(figures.loss_share)]


def _difference(comparison: Comparison, other: PolicyPrediction) -> str:
    return f"{signed(comparison.difference(other))} of the replayed"


def files(comparison: Comparison) -> dict[str, str]:
    return {"replay.csv": _csv(comparison), "replay.html": _page(comparison)}


def _csv(comparison: Comparison) -> str:
    text = StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["policy", "what", "p50", "p90", "p99", "mean", "lost", "spread", "doubt"])
    ran = comparison.baseline
    told = [
        (ran, comparison.error_margin),
        *((other, comparison.error_margin_of(other)) for other in comparison.alternatives),
    ]
    for what, policy, one, *doubts in (
        (OBSERVED_LABEL, ran.policy, comparison.observed, "", ""),
        *(("replayed", one.policy, one.figures, f"{one.spread:.6g}", f"{doubt:.6g}") for one, doubt in told),
    ):
        numbers = [f"{value:.6g}" for value in (one.p50, one.p90, one.p99, one.mean, one.loss_share)]
        writer.writerow([policy, what, *numbers, *doubts])
    return text.getvalue()


def _page(comparison: Comparison) -> str:
    title = f"Replay of {comparison.recording.model}"
    header, *lines = rows(comparison)
    head = "".join(f'<th scope="col">{escape(name)}</th>' for name in header)
    body = "".join(
        f'<tr><th scope="row">{escape(name)}</th>{"".join(f"<td>{escape(cell)}</td>" for cell in cells)}</tr>'
        for name, *cells in lines
    )
    told = "".join(f"<li>{escape(sentence)}</li>" for sentence in sentences(comparison))
    with chart_style():
        charts = _charts(comparison)
    recording = comparison.recording
    return "\n".join(
        [
            '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<title>{escape(title)} · Steelyard</title>\n<style>{PAGE_STYLE}</style>\n</head>\n<body>",
            f'<header><p class="brand">Steelyard replay</p><h1>{escape(title)}</h1><p class="soft">'
            f"{len(recording.requests):,} requests in {recording.seconds:,.0f} s, as the decision log has them; "
            "the first "
            f"{WARMUP_SHARE:.0%} of the time is not counted.</p></header>\n"
            "<main><section><h2>What would have been</h2>",
            f"<ul>{told}</ul>",
            f'<div class="card"><div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>'
            "</div></div>",
            *charts,
            "</section></main>",
            f"<footer>Made by Steelyard {escape(version('steelyard'))}.</footer>\n</body>\n</html>\n",
        ]
    )


def _charts(comparison: Comparison) -> list[str]:
    answers = (comparison.baseline, *comparison.alternatives)
    runs = [_result(answer) for answer in answers]
    seen = _observed(comparison)
    series = [seen, *runs]
    latency = {run.policy: run.latency for run in series if run.latency.count}
    found = {row.policy: row for row in summarise(series, set())}
    drawn = latency_tail(latency, found, series_styles(list(found)))
    lines = inline_svg(drawn, "tail", "Share of requests slower than a given latency")
    shown = [run for run in runs if run.timeline.times]
    over_time = inline_svg(timelines(shown, Scenario()), "time", "Requests on each replica over time")
    return [_card("Latency", lines, TAIL_CAPTION), _card("Replicas over time", over_time, TIMELINE_CAPTION)]


def _card(title: str, svg: str, reading: str) -> str:
    figure = f'<figure><div class="scroll">{svg}</div><figcaption>{escape(reading)}</figcaption></figure>'
    return f'<div class="card"><h3>{escape(title)}</h3>{figure}</div>'


def _result(answer: PolicyPrediction) -> RunResult:
    """All its runs as one, with the overhead that a simulated run does not have."""
    first = answer.runs[0].result
    result = RunResult(first.scenario, answer.policy, 0.0, 1, timeline=first.timeline, requests=first.requests)
    for run in answer.runs:
        _add(result.latency, run.seconds.tolist())
    return result


def _observed(comparison: Comparison) -> RunResult:
    recording = comparison.recording
    after = recording.begin + WARMUP_SHARE * recording.seconds
    counted: list[RecordedRequest] = [one for one in recording.requests if one.answered and one.at >= after]
    result = RunResult(recording.model, OBSERVED_LABEL, 0.0, 1, requests=len(recording.requests))
    _add(result.latency, [one.seconds for one in counted])
    return result


def _add(histogram: Histogram, seconds: list[float]) -> None:
    for each in seconds:
        histogram.add(each)
