"""A scenario and its result in a sentence."""

from __future__ import annotations

from collections.abc import Sequence
from math import isnan
from pathlib import Path

from ...units import format_seconds
from ..engine.result import RunResult
from ..run import base_policy, is_reference
from ..scenario.conversations import Conversations
from ..scenario.dynamics import TrafficShape
from ..scenario.schema import Fault, ReplicaGroup, Scenario
from . import formatting
from .formatting import policy_label, round_seconds
from .summary import SUCCESS_TOLERANCE, SummaryRow, best_p99, best_within_slo, paired_p99_ratio


def describe(scenario: Scenario) -> str:
    parts = [_fleet(scenario.fleet) if scenario.autoscale is None else _autoscaled_fleet(scenario), _traffic(scenario)]
    if scenario.balancers.count > 1:
        delay = round_seconds(scenario.balancers.signal_delay)
        parts.append(f"{scenario.balancers.count} balancers that hear of each other's load {delay} late")
    for fault in scenario.faults:
        parts.append(f"replica r{fault.replica} {_fault(fault)}")
    if scenario.has_engines:
        slo = scenario.stream_slo
        parts.append(
            f"SLO {round_seconds(slo.first_byte)} to the first token, {round_seconds(slo.per_token)} per further one"
        )
    if scenario.slo is not None:
        parts.append(f"SLO {round_seconds(scenario.slo)}")
    if scenario.workload.deadline is not None:
        parts.append(f"deadline {round_seconds(scenario.workload.deadline)}")
    parts.append(f"{scenario.requests:,} requests a run" if scenario.workload.trace is None else "the trace, in order")
    text = "; ".join(part for part in parts if part)
    return f"{text[0].upper()}{text[1:]}."


def _fault(fault: Fault) -> str:
    if fault.kind == "join":
        return f"joins at {round_seconds(fault.at)} and is ready {round_seconds(fault.cold_start)} later"
    what = {"slow": f"is {fault.factor:g}× slower", "errors": "answers only errors", "crash": "is down"}[fault.kind]
    return f"{what} from {round_seconds(fault.at)} for {round_seconds(fault.duration)}"


def _fleet(fleet: Sequence[ReplicaGroup]) -> str:
    def group(g: ReplicaGroup) -> str:
        text = f"{g.count:,} {'replica' if g.count == 1 else 'replicas'}"
        text += f" with an engine {g.engine_name}" if g.engine is not None else ""
        text += f" of speed {g.speed:.3g}" if len({g.speed for g in fleet}) > 1 else ""
        text += f" with {g.slots} slots" if g.slots > 1 else ""
        return text + (f" that hold {g.models} models" if g.models else "")

    return ", ".join(group(g) for g in fleet)


def _autoscaled_fleet(scenario: Scenario) -> str:
    scale = scenario.autoscale
    assert scale is not None
    slots = scenario.fleet[0].slots
    each = f" with {slots} slots" if slots > 1 else ""
    cold = round_seconds(scale.cold_start)
    return f"{scale.min} to {scale.max:,} replicas{each}, {scale.start} at first, cold start {cold}"


def _shape(shape: TrafficShape) -> str:
    again = f", every {round_seconds(shape.period)}" if shape.period else ""
    if shape.kind == "diurnal":
        return f"rising and falling between {shape.low:g}× and {shape.high:g}×{again}"
    if shape.kind == "spike":
        when = f"at {round_seconds(shape.at)}, within {round_seconds(shape.rise)}, for {round_seconds(shape.duration)}"
        return f"with a spike of {shape.factor:g}× {when}{again}"
    return f"in {len(shape.steps)} steps{again}"


def _traffic(scenario: Scenario) -> str:
    workload = scenario.workload
    if workload.conversations is not None:
        return _conversations(workload.conversations)
    if workload.trace is not None:
        return f"requests as recorded in {Path(workload.trace.file).name}"
    sizes = workload.sizes
    shape = f" (CV {sizes.cv:g})" if sizes.kind == "lognormal" else ""
    text = f"{sizes.kind} work of {round_seconds(sizes.mean)}{shape}"
    share = {0.0: "nothing"}.get(workload.features, f"{100 * workload.features:g} %")
    text += f", of whose spread the balancer is told {share}" if sizes.kind != "constant" else ""
    if workload.arrivals.kind == "gamma" and workload.arrivals.cv != 1:
        text += f", arriving in bursts (CV {workload.arrivals.cv:g})"
    if workload.shape.kind != "constant":
        text += f", {_shape(workload.shape)}"
    return text + (f", for {workload.models.count} models" if workload.models.count > 1 else "")


def _conversations(talk: Conversations) -> str:
    prompt = f"prompts of {talk.prompt.mean:,.0f} tokens and answers of {talk.output.mean:,.0f}"
    if talk.shared is not None:
        which = "a shared prompt" if talk.shared.count == 1 else f"one of {talk.shared.count} shared prompts"
        prompt += f" behind {which} of {talk.shared.tokens:,}"
    if talk.turns == 1.0:
        return prompt
    return f"conversations of {talk.turns:g} turns with {round_seconds(talk.think)} between them, {prompt}"


def policy_finding(rows: Sequence[SummaryRow], runs: Sequence[RunResult]) -> str:
    """The best policy at the highest load, and whether that is significant."""
    load = max(row.load for row in rows)
    group = [row for row in rows if row.load == load]
    at = f"At {formatting.load(load)} load" if load else "At the recorded load"
    best_slo = best_within_slo(group)
    if best_slo is not None and best_slo.within_slo is not None:
        within = formatting.percent(best_slo.within_slo)
        text = f"{at}, {policy_label(best_slo.policy)} meets its SLO most often: {within} of all requests"
        other = best_within_slo(_others(group, best_slo))
        if other is None:
            return f"{text}."
        return f"{text}; the best other policy, {policy_label(other.policy)}, {formatting.percent(other.within_slo)}."
    winner = best_p99(group)
    if winner is None:
        return f"{at}, no request was answered."
    text = f"{at}, {policy_label(winner.policy)} has the lowest p99: {format_seconds(winner.p99.mean)}"
    if winner.p99_to_ideal is not None:
        text += f", {formatting.ratio(winner.p99_to_ideal)[0]} the ideal's"
    least = winner.success_share - SUCCESS_TOLERANCE
    next_best = best_p99([row for row in _others(group, winner) if row.success_share >= least])
    if next_best is None:
        return f"{text}."
    return f"{text}. {_compare(winner, next_best, [run for run in runs if run.load == load])}"


def _compare(winner: SummaryRow, runner_up: SummaryRow, runs: Sequence[RunResult]) -> str:
    other = policy_label(runner_up.policy)
    ratio = paired_p99_ratio(
        [run for run in runs if run.policy == winner.policy], [run for run in runs if run.policy == runner_up.policy]
    )
    if ratio is None or isnan(ratio.mean):
        return f"The best other policy is {other}."
    less, half = 100 * (1 - ratio.mean), 100 * ratio.half_width
    if isnan(half):
        return f"That is {less:.0f} % below the best other policy, {other}; one seed cannot say how surely."
    if less <= half:
        return f"The best other policy, {other}, is level with it as far as {winner.seeds} seeds can tell."
    return f"Seed by seed that is {less:.0f} % (± {half:.0f}) below the best other policy, {other}."


def _others(group: Sequence[SummaryRow], winner: SummaryRow) -> list[SummaryRow]:
    """Without the same policy at another concurrency."""
    name = base_policy(winner.policy)
    return [row for row in group if not is_reference(row.policy) and base_policy(row.policy) != name]


def warnings(scenario: Scenario, runs: Sequence[RunResult]) -> list[str]:
    end = min((run.seconds for run in runs), default=0.0)
    found = [
        f"The fault at {round_seconds(fault.at)} comes after the end of a run ({format_seconds(end)}): "
        "more requests are needed to see it."
        for fault in scenario.faults
        if fault.at >= end
    ]
    fewest = min((run.latency.count for run in runs), default=0)
    if fewest < 1000:
        found.append(f"A run has only {fewest:,} answered requests: a p99 needs 1,000 or more to mean much.")
    return found
