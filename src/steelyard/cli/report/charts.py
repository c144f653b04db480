"""The charts of a report."""

from __future__ import annotations

from collections.abc import Sequence
from math import isnan, log10

from ...control.history.periods import format_time
from ...control.history.slices import count_verdict, quantile
from ...control.history.summary import QUANTILES, ModelSummary, Summary, good_and_bad
from ...core.slo.verdicts import ABANDONED, FAILED, LATE, MET, REFUSED
from ...simulate.report.svg import LINE_HEIGHT, SERIES, Axes, Drawing, Scale, linear, logarithmic
from ...units import format_seconds
from .text import percent

PLOT_BOX = (60, 10, 690, 115)  # left, top, width, height
SERIES_BY_VERDICT = {MET: 2, LATE: 4, FAILED: 9, REFUSED: 6, ABANDONED: 8}  # --series-N of the style sheet
STACK_ORDER = (FAILED, REFUSED, LATE, ABANDONED, MET)  # from the ground up: what went wrong stands on it


class PeriodChart(Axes):
    def __init__(self, summary: Summary, y: Scale, levels: Sequence[tuple[float, str]]) -> None:
        since = summary.chart_start // summary.step * summary.step
        until = max(summary.until, since + summary.step)
        super().__init__(Drawing(150), *PLOT_BOX, linear(since, until), y)
        self.step = summary.step
        self.grid_y(levels)
        precise = until - since < 4 * 86400
        for anchor, at in (("start", since), ("end", until)):
            self.drawing.text(self.x(at), self.bottom + LINE_HEIGHT, format_time(at, precise), anchor=anchor)

    def bar(self, start: float, low: float, high: float, series: int, tip: str) -> None:
        width = self.x(start + self.step) - self.x(start)
        height = max(self.y(low) - self.y(high), 0.8)  # one failure in a million is still seen
        place = (self.x(start), self.y(low) - height, max(width - 0.6, 0.6), height)
        self.drawing.rect(*place, SERIES[series], tip=tip)


def attainment(model: ModelSummary, summary: Summary) -> str:
    levels = [(share, f"{share * 100:g} %") for share in (0.0, 0.9, 0.99, 0.999, 1.0)]
    chart = PeriodChart(summary, _nines_scale, levels)
    for step in model.steps:
        good, bad = good_and_bad(step.counts, model.timed)
        if good + bad:
            share = good / (good + bad)
            tip = f"{format_time(step.start)}: {percent(100 * share)} of {good + bad:,} requests"
            chart.bar(step.start, 0.0, share, 9 if share < 0.99 else 2, tip)
    what = "answered in time" if model.timed else "answered"
    return chart.drawing.svg(f"{model.name}: share of requests {what}")


def latency(model: ModelSummary, summary: Summary) -> str:
    values = [quantile(step.latency, q) for step in model.steps if step.latency for q in QUANTILES]
    if not values:
        return ""
    low, high = _decades(min(values), max(values))
    levels = [(10.0**power, format_seconds(10.0**power)) for power in range(low, high + 1)]
    chart = PeriodChart(summary, logarithmic(10.0**low, 10.0**high), levels)
    for number, q in enumerate(QUANTILES):
        for piece in _pieces(model, summary.step, q):
            chart.drawing.line(chart.places(piece if len(piece) > 1 else piece * 2), SERIES[number], width=2)
    return chart.drawing.svg(f"{model.name}: latency of answered requests, p50, p90 and p99")


def _pieces(model: ModelSummary, step: float, q: float) -> list[list[tuple[float, float]]]:
    """Interrupted where nothing was answered."""
    pieces: list[list[tuple[float, float]]] = []
    last = -1.0
    for one in model.steps:
        seconds = quantile(one.latency, q)
        if isnan(seconds):
            continue
        if not pieces or one.start != last + step:
            pieces.append([])
        last = one.start
        pieces[-1].append((one.start + step / 2, seconds))
    return pieces


def verdicts(model: ModelSummary, summary: Summary) -> str:
    most = max((sum(step.counts.values()) for step in model.steps), default=0)
    if not most:
        return ""
    chart = PeriodChart(summary, linear(0, most), [(0, "0"), (most, f"{most:,}")])
    for step in model.steps:
        below = 0
        for verdict in STACK_ORDER:
            count = count_verdict(step.counts, verdict)
            if count:
                tip = f"{format_time(step.start)}: {count:,} {verdict}"
                chart.bar(step.start, below, below + count, SERIES_BY_VERDICT[verdict], tip)
            below += count
    return chart.drawing.svg(f"{model.name}: requests by verdict")


def _nines_scale(share: float) -> float:
    """90 % is at a quarter, 99 % at a half, 99.9 % at three quarters, all at the top."""
    return 1.0 if share >= 1.0 else min(-log10(1.0 - share) / 4.0, 0.97)


def _decades(low: float, high: float) -> tuple[int, int]:
    bottom, top = int(log10(low) // 1), int(-(-log10(high) // 1))
    return bottom, max(top, bottom + 1)
