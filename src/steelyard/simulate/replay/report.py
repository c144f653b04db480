"""A replay as a table, as CSV and as HTML."""

from __future__ import annotations

from collections.abc import Iterable

from ...core.statistics.histogram import Histogram
from ...units import format_seconds
from ..report.charts import latency_tail, series_styles
from ..report.formatting import percent
from ..report.heatmaps import timelines
from ..report.html import card, document, escape, figure, row, table
from ..report.summary import to_csv
from .compare import Comparison, LatencyFigures, answered_latencies
from .findings import sentences, signed
from .run import WARMUP_SHARE

REPLAY_FILES = ["replay.csv", "replay.html"]
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
    """A header; what was observed; the policy that ran, predicted; the others."""
    ran = comparison.baseline
    error = f"{signed(comparison.replay_error)} of the observed"
    return [
        ["policy", "p50", "p90", "p99", "mean", "lost", "p99 against"],
        [f"{ran.policy}, observed", *_cells(comparison.observed), ""],
        [f"{ran.policy}, predicted", *_cells(ran.figures), error],
        *(
            [one.policy, *_cells(one.figures), f"{signed(comparison.difference(one))} of the predicted"]
            for one in comparison.alternatives
        ),
    ]


def _cells(figures: LatencyFigures) -> list[str]:
    times = [format_seconds(value) for value in (figures.p50, figures.p90, figures.p99, figures.mean)]
    return [*times, percent(figures.loss_share)]


def files(comparison: Comparison) -> dict[str, str]:
    return {"replay.csv": _csv(comparison), "replay.html": _page(comparison)}


def _csv(comparison: Comparison) -> str:
    def line(what: str, policy: str, one: LatencyFigures, *more: float) -> list[str]:
        return [policy, what, *(f"{n:.6g}" for n in (one.p50, one.p90, one.p99, one.mean, one.loss_share, *more))]

    ran = comparison.baseline
    margins = [(ran, comparison.error_margin), *((o, comparison.error_margin_of(o)) for o in comparison.alternatives)]
    return to_csv(
        [
            ["policy", "what", "p50", "p90", "p99", "mean", "lost", "spread", "error_margin"],
            [*line(OBSERVED_LABEL, ran.policy, comparison.observed), "", ""],
            *(line("predicted", one.policy, one.figures, one.spread, margin) for one, margin in margins),
        ]
    )


def _page(comparison: Comparison) -> str:
    recording = comparison.recording
    header, *lines = rows(comparison)
    items = "".join(f"<li>{escape(sentence)}</li>" for sentence in sentences(comparison))
    results = table(header, (row(escape(name), map(escape, cells)) for name, *cells in lines))
    return document(
        f"Replay of {recording.model}",
        brand="Steelyard replay",
        header=f'<p class="soft">{len(recording.requests):,} requests in {recording.seconds:,.0f} s, as the decision '
        f"log has them; the first {WARMUP_SHARE:.0%} of the time is not counted.</p>",
        body=[
            f'<section><h2>What would have been</h2><ul>{items}</ul><div class="card">{results}</div>',
            *_charts(comparison),
            "</section>",
        ],
        footer="",
    )


def _charts(comparison: Comparison) -> list[str]:
    predictions = (comparison.baseline, *comparison.alternatives)
    latency = {OBSERVED_LABEL: _histogram(answered_latencies(comparison.recording)[1].tolist())}
    for one in predictions:
        latency[one.policy] = _histogram(second for run in one.runs for second in run.seconds.tolist())
    p99 = {name: histogram.quantile(0.99) for name, histogram in latency.items()}
    tail = latency_tail(latency, p99, series_styles(list(latency))).svg("Share of requests slower than a given latency")
    panels = {one.policy: one.runs[0].result.timeline for one in predictions if one.runs[0].result.timeline.times}
    over_time = timelines(panels).svg("Requests on each replica over time")
    return [
        card("Latency", figure(tail, escape(TAIL_CAPTION))),
        card("Replicas over time", figure(over_time, escape(TIMELINE_CAPTION))),
    ]


def _histogram(seconds: Iterable[float]) -> Histogram:
    histogram = Histogram()
    for each in seconds:
        histogram.add(each)
    return histogram
