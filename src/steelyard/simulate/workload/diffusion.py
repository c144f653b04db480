"""Image generation: a synthetic trace with the figures of Alibaba's cluster-trace-v2026-GenAI.

The recorded rows may not be passed on (no licence is stated), so this draws rows with their character:

    seconds = 0.98 · images^0.18 · steps^0.80 · e^(0.54 · loras) · model · noise
    ln model ~ Normal(0, 0.23²), ln noise ~ Normal(0, 0.25²) + Exponential(0.31)

26,392 requests over 23 days, 87 checkpoints of Zipf popularity; arrivals follow the hour of the day and quiet days.

| figure | recorded | drawn |
|---|---|---|
| seconds: mean, p50, p99 | 28.9, 23, 106 | 28.9, 23.6, 107.5 |
| gaps: mean seconds, coefficient of variation | 75.4, 11.9 | 75.3, 11.0 |
| replicas' worth of work: mean, busiest hour | 0.38, 3.4 | 0.38, 4.1 |

The draw is always the same. Limits: what features and checkpoint do not tell is noise here; in the recording some of
it depends on neighbouring requests.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from .traces import TraceRow

TRACE_REQUESTS = 26_392
CHECKPOINT_COUNT = 87
SESSION_COUNT = 4_240
RANDOM_SEED = 7

_HOURLY_PERCENT = (  # of a day's requests, from midnight, from noon
    *(14, 4, 4.4, 4.4, 2.4, 1.4, 1.2, 1, 0.3, 0.1, 0, 0),
    *(0, 0, 0, 0.05, 1.5, 8.7, 10.4, 2.3, 4.1, 12.5, 12.3, 13),
)
_DAILY_FACTOR = (  # against a busy day: a ramp-up, then weeks with quiet days
    *(0.04, 0.04, 0.04, 0.02, 0.4, 0.7, 0.7, 0.7, 0.05, 0.7, 0.8, 0.8),
    *(0.8, 0.9, 0.15, 0.15, 0.9, 1.2, 1.1, 1.2, 1, 0.25, 0.1),
)
_HOUR_GAMMA_SHAPE = 12.0  # how much hours differ from their place in the day
_GAP_GAMMA_SHAPE = 0.7  # of the gaps within an hour: people send a few in a row

_IMAGES, _IMAGE_SHARES = (1, 2, 4, 8), (0.58, 0.08, 0.19, 0.15)
_STEPS, _STEP_SHARES = (30, 40, 20, 25, 28, 35, 50, 100), (0.91, 0.05, 0.004, 0.006, 0.01, 0.008, 0.008, 0.004)
_LORAS, _LORA_SHARES = (0, 1, 2, 3), (0.835, 0.154, 0.01, 0.001)
_NEGATIVE, _NEGATIVE_SHARES = (26, 0, 28, 45), (0.73, 0.23, 0.02, 0.02)


def synthetic_rows() -> Iterator[TraceRow]:
    """All requests by arrival; features in the order of `traces.FEATURES["alibaba"]`."""
    rng = np.random.default_rng(RANDOM_SEED)
    arrival = _arrivals(rng)
    count = len(arrival)
    prompt = np.clip(np.round(52 * np.exp(0.75 * rng.standard_normal(count))), 1, 1_288)
    images = rng.choice(_IMAGES, count, p=_IMAGE_SHARES)
    steps = rng.choice(_STEPS, count, p=_STEP_SHARES)
    loras = rng.choice(_LORAS, count, p=_LORA_SHARES)
    negative = rng.choice(_NEGATIVE, count, p=_NEGATIVE_SHARES)
    checkpoint = rng.choice(CHECKPOINT_COUNT, count, p=_zipf(CHECKPOINT_COUNT, 1.3))
    group = rng.choice(SESSION_COUNT, count, p=_zipf(SESSION_COUNT, 0.7))
    model = np.exp(0.23 * rng.standard_normal(CHECKPOINT_COUNT))[checkpoint]
    noise = np.exp(0.25 * rng.standard_normal(count) + 0.31 * rng.standard_exponential(count))
    seconds = np.clip(0.98 * images**0.18 * steps**0.8 * np.exp(0.54 * loras) * model * noise, 1.0, 600.0)
    features = zip(prompt.tolist(), negative.tolist(), images.tolist(), steps.tolist(), loras.tolist(), strict=True)
    columns = zip(arrival.tolist(), features, seconds.tolist(), group.tolist(), checkpoint.tolist(), strict=True)
    for when, values, work, who, which in columns:
        yield TraceRow(when, tuple(map(float, values)), (round(work, 1),), session=f"G{who:04d}", kind=f"M{which:04d}")


def _arrivals(rng: np.random.Generator) -> NDArray[np.float64]:
    """Requests of each hour by a doubly stochastic rate, then gaps within the hour."""
    usual = np.outer(_DAILY_FACTOR, _HOURLY_PERCENT).ravel()
    hours = usual * rng.gamma(_HOUR_GAMMA_SHAPE, 1 / _HOUR_GAMMA_SHAPE, len(usual))
    counts = rng.multinomial(TRACE_REQUESTS, hours / hours.sum())
    arrival = np.concatenate([3_600.0 * (hour + _within(rng, count)) for hour, count in enumerate(counts.tolist())])
    return np.asarray(arrival - arrival[0])


def _within(rng: np.random.Generator, count: int) -> NDArray[np.float64]:
    """`count` instants of the unit interval, in order, in small bursts."""
    gaps = rng.gamma(_GAP_GAMMA_SHAPE, 1.0, count + 1)
    return np.asarray(np.cumsum(gaps)[:-1] / gaps.sum())


def _zipf(count: int, exponent: float) -> NDArray[np.float64]:
    ranks = np.arange(1, count + 1, dtype=np.float64) ** -exponent
    return np.asarray(ranks / ranks.sum())
