"""The charts of a report, drawn as SVG by hand: no library needed, colours from the page's style sheet."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from html import escape
from math import isnan, log10

from ...control.history.periods import format_time
from ...control.history.slices import count_verdict, quantile
from ...control.history.summary import QUANTILES, ModelSummary, Summary, SummaryStep, good_and_bad
from ...core.slo.verdicts import ABANDONED, FAILED, LATE, MET, REFUSED
from ...units import format_seconds

VIEWBOX_WIDTH, VIEWBOX_HEIGHT = 760, 150
PLOT_LEFT, PLOT_RIGHT, PLOT_TOP, PLOT_BOTTOM = 60, 750, 10, 125
SERIES_BY_VERDICT = {MET: 2, LATE: 4, FAILED: 9, REFUSED: 6, ABANDONED: 8}  # --series-N of the style sheet
STACK_ORDER = (FAILED, REFUSED, LATE, ABANDONED, MET)  # from the ground up: what went wrong stands on it


class Frame:
    """Where things are in the chart of a period."""

    def __init__(self, summary: Summary) -> None:
        self.since = summary.chart_start // summary.step * summary.step
        self.until = max(summary.until, self.since + summary.step)
        self.step = summary.step

    def x(self, seconds: float) -> float:
        share = (min(seconds, self.until) - self.since) / (self.until - self.since)
        return PLOT_LEFT + share * (PLOT_RIGHT - PLOT_LEFT)

    def y(self, share: float) -> float:
        return PLOT_BOTTOM - min(max(share, 0.0), 1.0) * (PLOT_BOTTOM - PLOT_TOP)

    def wrap(self, title: str, marks: Sequence[str], levels: Sequence[tuple[float, str]]) -> str:
        lines = [
            f'<line x1="{PLOT_LEFT}" x2="{PLOT_RIGHT}" y1="{self.y(at):.1f}" y2="{self.y(at):.1f}" class="grid"/>'
            f'<text x="{PLOT_LEFT - 6}" y="{self.y(at) + 3:.1f}" text-anchor="end">{escape(text)}</text>'
            for at, text in levels
        ]
        precise = self.until - self.since < 4 * 86400
        ends = (("start", self.since, PLOT_LEFT), ("end", self.until, PLOT_RIGHT))
        times = [
            f'<text x="{x}" y="{PLOT_BOTTOM + 16}" text-anchor="{anchor}">{format_time(at, precise)}</text>'
            for anchor, at, x in ends
        ]
        return (
            f'<svg viewBox="0 0 {VIEWBOX_WIDTH} {VIEWBOX_HEIGHT}" role="img" aria-label="{escape(title, quote=True)}">'
            f"<title>{escape(title)}</title>{''.join([*lines, *marks, *times])}</svg>"
        )


def attainment(model: ModelSummary, summary: Summary) -> str:
    """The share of good requests in each step, on a scale of nines."""
    frame = Frame(summary)
    marks = []
    for step in model.steps:
        good, bad = good_and_bad(step.counts, model.timed)
        if good + bad:
            share = good / (good + bad)
            tip = f"{format_time(step.start)}: {_percent_floor(share)} of {good + bad:,} requests"
            marks.append(_bar(frame, step.start, 0.0, _nines_scale(share), 9 if share < 0.99 else 2, tip))
    what = "answered in time" if model.timed else "answered"
    levels = [(_nines_scale(share), f"{share * 100:g} %") for share in (0.0, 0.9, 0.99, 0.999)] + [(1.0, "100 %")]
    return frame.wrap(f"{model.name}: share of requests {what}", marks, levels)


def latency(model: ModelSummary, summary: Summary) -> str:
    """Quantiles over time, on a logarithmic scale."""
    frame = Frame(summary)
    values = [quantile(step.latency, q) for step in model.steps if step.latency for q in QUANTILES]
    if not values:
        return ""
    low, high = _decades(min(values), max(values))

    def height(seconds: float) -> float:
        return (log10(seconds) - low) / (high - low)

    marks = []
    for number, q in enumerate(QUANTILES):
        marks += _line(frame, model.steps, q, height, number)
    levels = [((power - low) / (high - low), format_seconds(10.0**power)) for power in range(low, high + 1)]
    return frame.wrap(f"{model.name}: latency of answered requests, p50, p90 and p99", marks, levels)


def verdicts(model: ModelSummary, summary: Summary) -> str:
    """How many requests ended how, stacked."""
    frame = Frame(summary)
    most = max((sum(step.counts.values()) for step in model.steps), default=0)
    if not most:
        return ""
    marks = []
    for step in model.steps:
        below = 0
        for verdict in STACK_ORDER:
            count = count_verdict(step.counts, verdict)
            if count:
                tip = f"{format_time(step.start)}: {count:,} {verdict}"
                marks.append(
                    _bar(frame, step.start, below / most, (below + count) / most, SERIES_BY_VERDICT[verdict], tip)
                )
            below += count
    return frame.wrap(f"{model.name}: requests by verdict", marks, [(0.0, "0"), (1.0, f"{most:,}")])


def _bar(frame: Frame, start: float, low: float, high: float, colour: int, tip: str) -> str:
    x, wide = frame.x(start), frame.x(start + frame.step) - frame.x(start)
    top, bottom = frame.y(high), frame.y(low)
    tall = max(bottom - top, 0.8)  # one failure in a million is still seen
    return (
        f'<rect x="{x:.1f}" y="{bottom - tall:.1f}" width="{max(wide - 0.6, 0.6):.1f}" height="{tall:.1f}"'
        f' fill="var(--series-{colour})"><title>{escape(tip)}</title></rect>'
    )


def _line(
    frame: Frame, steps: Sequence[SummaryStep], q: float, height: Callable[[float], float], colour: int
) -> list[str]:
    """Interrupted where nothing was answered: there is no latency of nothing."""
    pieces: list[list[str]] = []
    last = -1
    for step in steps:
        seconds = quantile(step.latency, q)
        if isnan(seconds):
            continue
        if not pieces or step.start != last + frame.step:
            pieces.append([])
        last = step.start
        pieces[-1].append(f"{frame.x(step.start + frame.step / 2):.1f},{frame.y(height(seconds)):.1f}")
    style = f'fill="none" stroke="var(--series-{colour})" stroke-width="2" stroke-linecap="round"'
    return [f'<polyline points="{" ".join(piece if len(piece) > 1 else piece * 2)}" {style}/>' for piece in pieces]


def _nines_scale(share: float) -> float:
    """0 to 1: nothing at 0, 90 % at a quarter, 99 % at a half, 99.9 % at three quarters, all at the top."""
    return 1.0 if share >= 1.0 else min(-log10(1.0 - share) / 4.0, 0.97)


def _percent_floor(share: float) -> str:
    return f"{int(share * 100_000 + 1e-6) / 1000:g} %"


def _decades(low: float, high: float) -> tuple[int, int]:
    bottom, top = int(log10(low) // 1), int(-(-log10(high) // 1))
    return bottom, max(top, bottom + 1)
