"""What `steelyard simulate --fit` says: coefficients, errors, whether policies rank the same, what the log lacks."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from random import Random

from ...core.balancer import Balancer
from ...core.options import PoolOptions
from ...core.replica import State
from ...units import format_seconds
from ..engine.result import RunResult, TokenRecord
from ..engine.servers import Server
from ..engine.simulation import Simulation
from ..replay.recording import read_recording
from ..report.formatting import percent
from .fit import COEFFICIENTS, EngineFit, RelativeErrors, fit_engine
from .model import EngineModel
from .recorded import BLOCK_TOKENS, RecordedAnswer, answers_of, recorded_job
from .server import EngineServer

RANKED_POLICIES = ("round_robin", "least_connections", "least_work")
TIE = 0.03  # first token p99 within this share are no difference


def fit_lines(log: Path, model: str) -> list[str]:
    recording = read_recording(log, model)
    found = answers_of(recording)
    fit = fit_engine(found.answers)
    replicas = len({answer.replica for answer in found.answers})
    lines = [
        f"{recording.model}: {len(found.answers):,} answers of {replicas} replicas in {recording.seconds:,.0f} s",
        "",
        "engine:",
        *(f"  {name}: {_duration(getattr(fit.model, name))}" for name in COEFFICIENTS),
        "",
        "Error, each half of the log replayed with the coefficients of the other half:",
        f"- first byte: {_shown(fit.first_byte)}",
        f"- end to end: {_shown(fit.end_to_end)}",
        _ranks(found.answers, fit),
        f"Assumed: {_sizes(fit.model)}. Prefixes are not in a log: policies that go by them cannot be ranked.",
    ]
    return [*lines, *(f"note: {note}" for note in found.notes)]


def _duration(seconds: float) -> str:
    """As a scenario takes it."""
    return f"{seconds * 1e3:.3g}ms" if seconds >= 1e-3 else f"{seconds * 1e6:.3g}us"


def _shown(errors: RelativeErrors) -> str:
    return f"mean {percent(errors.mean)}, p99 {percent(errors.p99)}"


def _sizes(model: EngineModel) -> str:
    return (
        f"kv_tokens {model.kv_tokens:,}, prefill_budget {model.prefill_budget:,}, max_sequences {model.max_sequences}"
    )


def _ranks(answers: Sequence[RecordedAnswer], fit: EngineFit) -> str:
    one, other = (rank_policies(answers, model) for model in fit.halves)
    shown = " < ".join(f"{policy} {format_seconds(seconds)}" for policy, seconds in one)
    if same_order(one, other):
        return f"- policies rank the same with the coefficients of either half, by first token p99: {shown}"
    others = " < ".join(f"{policy} {format_seconds(seconds)}" for policy, seconds in other)
    return f"- policies rank differently with the coefficients of either half, by first token p99: {shown}; {others}"


def rank_policies(answers: Sequence[RecordedAnswer], model: EngineModel) -> list[tuple[str, float]]:
    """By first token p99, the least first, on the replicas of the log with its arrivals and hits."""
    found = [(policy, _first_token_p99(answers, model, policy)) for policy in RANKED_POLICIES]
    return sorted(found, key=lambda one: one[1])


def same_order(one: Sequence[tuple[str, float]], other: Sequence[tuple[str, float]]) -> bool:
    """No two policies that differ clearly in one are the other way round in the other."""
    places = dict(other)
    return not any(
        high > low * (1.0 + TIE) and places[worse] * (1.0 + TIE) < places[better]
        for at, (better, low) in enumerate(one)
        for worse, high in one[at + 1 :]
    )


def _first_token_p99(answers: Sequence[RecordedAnswer], model: EngineModel, policy: str) -> float:
    ids = sorted({answer.replica for answer in answers})
    servers: list[Server] = [EngineServer(id, model, BLOCK_TOKENS) for id in ids]
    balancer = Balancer(Random(1))
    balancer.add_model("", policy, PoolOptions(slow_start=0.0))
    for id in ids:
        balancer.add_replica(id, state=State.READY, now=0.0)
    result = RunResult("", policy, 0.0, 1, tokens=TokenRecord(0.0, 0.0))
    Simulation(servers, [balancer], [recorded_job(answer) for answer in answers], result, Random(1)).run()
    assert result.tokens is not None
    return result.tokens.first_token.quantile(0.99)
