"""What the runs of scalers add up to: a table a scenario, and where the goal is met and where not."""

from __future__ import annotations

from collections.abc import Sequence

from steelyard.simulate.report.formatting import number, seconds
from steelyard.simulate.report.summary import SummaryRow, mean_replica_hours
from steelyard.simulate.scenario.schema import Scenario

from ..testbed.docs_pages import markdown_table

OUR_SCALER = "work"
LEVEL_REQUEST_SHARE = 0.0005
LEVEL_HOURS_SHARE = 0.005  # smaller misses are called level


def markdown(scenarios: Sequence[Scenario], rows: Sequence[SummaryRow], machine: str) -> str:
    parts = [f"Simulated {machine}.", ""]
    parts += [
        "*Met* is the share of all requests answered within the SLO; replica-hours count every replica from the start",
        "request until it has drained. Means over the seeds, ± half the 95 % confidence interval. The last column says",
        f"whether `{OUR_SCALER}` meets at least as much as that scaler for no more replica-hours; *level*: it misses",
        f"by at most {100 * LEVEL_REQUEST_SHARE:g} points or {100 * LEVEL_HOURS_SHARE:g} % of the hours.",
        "",
    ]
    verdicts = []
    for scenario in scenarios:
        mine = [row for row in rows if row.scenario == scenario.name and "@" not in row.scaler]
        parts += [f"**{scenario.name}**, SLO {scenario.slo:g} s", "", _table(mine), ""]
        verdicts += [compare(_own(mine), row) for row in mine if row.scaler != OUR_SCALER]
    parts.append(_count(verdicts))
    parts += ["", *(f"- {line}" for line in misses(scenarios, rows))]
    swept = [row for row in rows if "@" in row.scaler]
    if swept:
        parts += [
            "",
            "Each scaler's own knob, over the first seed (met, replica-hours):",
            "",
            _sweep(scenarios, swept),
        ]
    return "\n".join(parts).rstrip()


def _own(rows: Sequence[SummaryRow]) -> SummaryRow:
    return next(row for row in rows if row.scaler == OUR_SCALER)


def met(row: SummaryRow) -> str:
    return f"{100 * row.success_share:.2f} %"


def _table(rows: Sequence[SummaryRow]) -> str:
    ours = _own(rows)
    lines = []
    for row in rows:
        name = f"**{row.scaler}**" if row is ours else row.scaler
        verdict = "" if row is ours else compare(ours, row)
        figures = [
            " ".join(number(row.replica_hours)).strip(),
            number(row.mean_replicas)[0],
            number(row.starts)[0],
            seconds(row.p99)[0],
        ]
        lines.append([name, met(row), *figures, verdict])
    header = [
        "scaler",
        "met",
        "replica-hours",
        "mean replicas",
        "starts",
        "p99",
        f"does `{OUR_SCALER}` do as well for as little?",
    ]
    return markdown_table(header, lines)


def compare(ours: SummaryRow, other: SummaryRow) -> str:
    """`yes`; else `level` or `no`, and what is missing."""
    less = other.success_share - ours.success_share
    more = mean_replica_hours(ours) / mean_replica_hours(other) - 1.0 if mean_replica_hours(other) else 0.0
    if less <= 0 and more <= 0:
        return "yes"
    missing = [f"meets {100 * less:.2f} points less"] if less > 0 else []
    missing += [f"{100 * more:.1f} % more replica-hours"] if more > 0 else []
    gained = [f"meets {-100 * less:.2f} points more"] if less < 0 else []
    gained += [f"{-100 * more:.1f} % fewer replica-hours"] if more < 0 else []
    word = "level" if less <= LEVEL_REQUEST_SHARE and more <= LEVEL_HOURS_SHARE else "no"
    return f"{word}: {' and '.join(missing)}" + (f"; {' and '.join(gained)}" if gained else "")


def _count(verdicts: Sequence[str]) -> str:
    found = {word: sum(verdict.startswith(word) for verdict in verdicts) for word in ("yes", "level", "no")}
    others = f"is level in {found['level']}, and not in {found['no']}"
    text = f"It holds in {found['yes']} of {len(verdicts)} comparisons, {others}."
    return text if found["yes"] == len(verdicts) else f"{text} Where it does not hold:"


def misses(scenarios: Sequence[Scenario], rows: Sequence[SummaryRow]) -> list[str]:
    found = []
    for scenario in scenarios:
        mine = [row for row in rows if row.scenario == scenario.name and "@" not in row.scaler]
        for row in mine:
            verdict = compare(_own(mine), row) if row.scaler != OUR_SCALER else "yes"
            if verdict != "yes":
                found.append(f"{scenario.name}, against {row.scaler}: {verdict}")
    return found


def _sweep(scenarios: Sequence[Scenario], rows: Sequence[SummaryRow]) -> str:
    names = list(dict.fromkeys(row.scaler for row in rows))
    short = [scenario.name.partition(",")[0] + _cold(scenario) for scenario in scenarios]
    lines = []
    for name in names:
        cells = []
        for scenario in scenarios:
            row = next((r for r in rows if r.scenario == scenario.name and r.scaler == name), None)
            cells.append(f"{met(row)}, {number(row.replica_hours)[0]} h" if row is not None else "–")
        lines.append([f"`{name}`", *cells])
    return markdown_table(["scaler", *short], lines)


def _cold(scenario: Scenario) -> str:
    return f", {scenario.autoscale.cold_start:g} s" if scenario.autoscale is not None else ""
