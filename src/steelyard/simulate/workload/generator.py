"""Streams of jobs: random ones in blocks of numpy, recorded ones row by row. Open loop: arrival times are fixed.

A stream whose rate follows a shape is a steady one with its times bent (`TimeWarp`).
"""

from __future__ import annotations

from collections.abc import Iterator
from math import log, pi

import numpy as np
from numpy.typing import NDArray

from ...core.request import INFINITY
from ..engine.job import Job, TokenJob
from ..llm.model import ENGINES, TokenMix, token_mix
from ..scenario.dynamics import TrafficShape
from ..scenario.schema import ModelMix, Scenario, Sizes, Trace, Workload
from .traces import TraceError, TraceRow, read_trace, spread_stamps

JOBS_PER_BLOCK = 8192
TYPICAL_FEATURE = 1000.0  # say, bytes
SINE_SEGMENTS = 512


def random_jobs(scenario: Scenario, rate: float, seed: int) -> Iterator[Job]:
    """Jobs at `rate` per second, bent to the workload's shape. Same seed, same jobs."""
    workload = scenario.workload
    rng = np.random.default_rng(seed)
    tenants = list(workload.tenants) or [""]
    shares = np.array([workload.tenants[t] for t in tenants] if workload.tenants else [1.0])
    shares = shares / shares.sum()
    models = workload.models.count
    shares_of_models = model_shares(workload.models)
    load_time = max(float(group.load_time) for group in scenario.fleet)
    allowance = float(workload.deadline) if workload.deadline is not None else INFINITY
    plain = allowance == INFINITY and not workload.tenants and models == 1
    bending = TimeWarp(workload.shape) if workload.shape.kind != "constant" else None
    clock = 0.0
    left = scenario.requests
    while left:
        size = min(left, JOBS_PER_BLOCK)
        left -= size
        born = clock + np.cumsum(_gaps(rng, workload, size, rate))
        clock = float(born[-1])
        if bending is not None:
            born = bending.warp(born)
        work = _sizes(rng, workload.sizes, size)
        feature = _feature(rng, workload, work)
        rows = zip(born.tolist(), work.tolist(), feature.tolist(), strict=True)
        if plain:
            for when, seconds, value in rows:
                yield Job(when, seconds, (value,))
            continue
        who = rng.choice(len(tenants), size=size, p=shares).tolist()
        what = rng.choice(models, size=size, p=shares_of_models).tolist()
        for (when, seconds, value), tenant, model in zip(rows, who, what, strict=True):
            kind = f"model-{model}" if models > 1 else ""
            yield Job(
                when,
                seconds,
                (value,),
                deadline=when + allowance,
                tenant=tenants[tenant],
                kind=kind,
                key=kind or None,
                cold_seconds=load_time if kind else 0.0,
            )


def arrival_seconds(scenario: Scenario, rate: float) -> float:
    steady = scenario.requests / rate
    shape = scenario.workload.shape
    return float(TimeWarp(shape).warp(np.array([steady]))[0]) if shape.kind != "constant" else steady


def model_shares(models: ModelMix) -> NDArray[np.float64]:
    ranks = np.arange(1, models.count + 1, dtype=np.float64) ** -models.zipf
    return np.asarray(ranks / ranks.sum())


def _gaps(rng: np.random.Generator, workload: Workload, size: int, rate: float) -> NDArray[np.float64]:
    arrivals = workload.arrivals
    if arrivals.kind == "regular":
        return np.full(size, 1.0 / rate)
    if arrivals.kind == "poisson" or arrivals.cv == 1.0:
        return rng.exponential(1.0 / rate, size)
    shape = 1.0 / arrivals.cv**2
    return rng.gamma(shape, 1.0 / (rate * shape), size)


def _sizes(rng: np.random.Generator, sizes: Sizes, size: int) -> NDArray[np.float64]:
    if sizes.kind == "constant":
        return np.full(size, float(sizes.mean))
    if sizes.kind == "exponential":
        return rng.exponential(sizes.mean, size)
    if sizes.kind == "lognormal":
        variance = log(1.0 + sizes.cv**2)
        return np.asarray(sizes.mean * np.exp(variance**0.5 * rng.standard_normal(size) - variance / 2))
    return sizes.mean * _bounded_pareto(rng.random(size), sizes)


def _bounded_pareto(u: NDArray[np.float64], sizes: Sizes) -> NDArray[np.float64]:
    """Bounded Pareto on [1, spread], scaled to mean 1, by inversion."""
    a, top = sizes.alpha, sizes.spread
    cut = top**-a
    x = (1.0 - u * (1.0 - cut)) ** (-1.0 / a)
    mean = a / (a - 1.0) * (1.0 - top ** (1.0 - a)) / (1.0 - cut)
    return np.asarray(x / mean)


def log_size_variance(sizes: Sizes) -> float:
    if sizes.kind == "constant":
        return 0.0
    if sizes.kind == "exponential":
        return float(np.pi**2 / 6)
    if sizes.kind == "lognormal":
        return log(1.0 + sizes.cv**2)
    u = (np.arange(100_000) + 0.5) / 100_000
    return float(np.log(_bounded_pareto(u, sizes)).var())


def _feature(rng: np.random.Generator, workload: Workload, work: NDArray[np.float64]) -> NDArray[np.float64]:
    """Explains `features` of the log variance of sizes: ln size plus noise of the right variance."""
    share = workload.features
    variance = log_size_variance(workload.sizes)
    noise = rng.standard_normal(len(work))
    if share == 0.0 or variance == 0.0:
        return np.asarray(TYPICAL_FEATURE * np.exp(noise))
    return np.asarray(
        TYPICAL_FEATURE * np.exp(np.log(work / workload.sizes.mean) + noise * (variance * (1 - share) / share) ** 0.5)
    )


def trace_seconds(row: TraceRow, trace: Trace) -> float:
    """True seconds of a row on a replica of speed 1."""
    if len(row.work) == 1:
        return row.work[0]
    return float(trace.input * row.work[0] + trace.output * row.work[1])


def trace_load(scenario: Scenario) -> float:
    """Seconds of work the trace offers per second, as recorded."""
    trace = scenario.workload.trace
    assert trace is not None
    work = last = 0.0
    for row in read_trace(trace.file, trace.format, scenario.requests):
        work += trace_seconds(row, trace)
        last = row.arrival
    return work / last if last else float("inf")


def trace_mix(scenario: Scenario) -> tuple[TokenMix, float]:
    """The mean request of a trace of tokens, and its requests a second as recorded."""
    trace = scenario.workload.trace
    assert trace is not None
    rows = list(read_trace(trace.file, trace.format, scenario.requests))
    if len(rows[0].work) == 1:
        raise TraceError(f"{trace.file}: has no tokens, which engines need")
    last = rows[-1].arrival
    mix = token_mix((int(row.work[0]), max(1, int(row.work[1]))) for row in rows)
    return mix, len(rows) / last if last else float("inf")


def trace_jobs(scenario: Scenario, pace: float) -> Iterator[Job]:
    """The trace's jobs, `pace` times as fast as recorded."""
    trace = scenario.workload.trace
    assert trace is not None
    allowance = float(scenario.workload.deadline) if scenario.workload.deadline is not None else INFINITY
    saved = float(trace.input * trace.block_tokens)
    rows = read_trace(trace.file, trace.format, scenario.requests)
    for row in spread_stamps(rows) if scenario.has_engines else rows:
        born = row.arrival / pace
        # A router sees only the start of the context. The first block may be a template that all requests share.
        key = str(row.prefix[:2][-1]) if row.prefix else row.session or None
        if scenario.has_engines:
            yield token_job(born, row, trace, key=key, deadline=born + allowance)
            continue
        yield Job(
            born,
            trace_seconds(row, trace),
            row.features,
            deadline=born + allowance,
            kind=row.kind if trace.reveal_kind else "",
            key=key,
            prefix=row.prefix,
            saved_per_block=saved,
        )


def token_job(born: float, row: TraceRow, trace: Trace, *, key: str | None, deadline: float) -> TokenJob:
    """For an engine. The last block of a recorded prompt is not full, and its answer is in none."""
    prompt, output = max(1, int(row.work[0])), max(1, int(row.work[1]))
    blocks = row.prefix[: prompt // trace.block_tokens]
    work = ENGINES["8b-h100"].seconds_alone(prompt, output)
    return TokenJob(born, work, prompt, output, blocks, trace.block_tokens, key=key, deadline=deadline)


Array = NDArray[np.float64]


class TimeWarp:
    """`warp`: when a stream of this shape has had as much as a steady one."""

    def __init__(self, shape: TrafficShape) -> None:
        self._times, self._factors = _rate_knots(shape)
        self._period = float(shape.period)
        gaps = np.diff(self._times)
        means = (self._factors[1:] + self._factors[:-1]) / 2
        self._amounts = np.concatenate([[0.0], np.cumsum(gaps * means)])  # what has come by each knot

    def warp(self, steady: Array) -> Array:
        if not self._period:
            return self._within(steady)
        whole = self._amounts[-1]
        rounds = np.floor(steady / whole)
        return np.asarray(rounds * self._period + self._within(steady - rounds * whole))

    def _within(self, amounts: Array) -> Array:
        """In a piece the rate is f + k s, so the amount grows by f s + k s² / 2."""
        last = len(self._times) - 2
        piece = np.clip(np.searchsorted(self._amounts, amounts, side="right") - 1, 0, last)
        start, gap = self._times[piece], self._times[piece + 1] - self._times[piece]
        f = self._factors[piece]
        k = (self._factors[piece + 1] - f) / np.where(gap > 0, gap, 1.0)
        rest = np.maximum(amounts - self._amounts[piece], 0.0)
        root = f + np.sqrt(np.maximum(f * f + 2 * k * rest, 0.0))
        return np.asarray(start + 2 * rest / np.where(root > 0, root, 1.0))


def _rate_knots(shape: TrafficShape) -> tuple[Array, Array]:
    if shape.kind == "diurnal":
        turn = np.linspace(0.0, 1.0, SINE_SEGMENTS + 1)
        wave = (1 - np.cos(2 * pi * turn)) / 2
        return turn * shape.period, shape.low + (shape.high - shape.low) * wave
    knots = shape.knots()
    end = shape.period or knots[-1][0] + 1.0  # the last factor holds until the period ends, or for ever
    knots.append((float(end), knots[-1][1]))
    return np.array([when for when, _ in knots]), np.array([factor for _, factor in knots])
