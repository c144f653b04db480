"""What is asked of the three models and when: bursts of mixed sizes, the same for every run."""

from __future__ import annotations

import json
import math
import random
from typing import NamedTuple

from .models import Shape

GIB = 1 << 30
BURST_SECONDS = 0.05  # over which the requests of a burst come
ROW_WIDTH = 8192  # of the rows of `rows`
LARGE_SHARE = 0.4  # of the requests are among the largest, the rest are of any size
# What a request needs, roughly: bytes for each token² of a batch, each pixel, each row.
BYTES_PER_SQUARE_TOKEN, BYTES_PER_PIXEL, BYTES_PER_ROW = 130.0, 1600.0, 300e3
MIN_GIB, SMALL_GIB = 0.25, 2.0  # GiB: the least that is asked for, and what counts as small
MAX_GIB = {"text": 36.0, "image": 24.0, "rows": 40.0}  # GiB: a few at once are more than a card has


class Planned(NamedTuple):
    due: float  # seconds from the begin
    model: str
    shape: Shape

    def body(self) -> bytes:
        """The shape is what counts here; the numbers themselves are made up on the card."""
        tensor = {"name": "input", "datatype": "FP32", "shape": list(self.shape), "data": []}
        return json.dumps({"inputs": [tensor]}).encode()


def features_of(shape: Shape) -> tuple[float, float, float]:
    """As the gateway sees it: elements, batch, text (protocols/bodies/oip.py)."""
    return float(math.prod(shape)), float(shape[0]), 0.0


def shape_of(model: str, gib: float, random: random.Random) -> Shape:
    """An input that needs about so much."""
    size = gib * GIB
    if model == "rows":
        return max(1, round(size / BYTES_PER_ROW)), ROW_WIDTH
    if model == "text":
        batch = random.choice((1, 1, 2, 4, 8))
        return batch, max(16, round((size / BYTES_PER_SQUARE_TOKEN / batch) ** 0.5))
    batch = random.choice((1, 1, 2, 4))
    area, slim = size / BYTES_PER_PIXEL / batch, random.uniform(0.6, 1.0)
    height = max(64, round((area * slim) ** 0.5 / 16) * 16)
    return batch, 3, height, max(64, round(area / height / 16) * 16)


def need(model: str, shape: Shape) -> float:
    """Bytes, roughly."""
    if model == "text":
        return BYTES_PER_SQUARE_TOKEN * shape[0] * shape[1] ** 2
    return BYTES_PER_ROW * shape[0] if model == "rows" else BYTES_PER_PIXEL * shape[0] * shape[2] * shape[3]


def size_of(model: str, random: random.Random) -> float:
    """GiB: some large, the others anything, as many of 1 to 2 GiB as of 10 to 20."""
    largest = MAX_GIB[model]
    if random.random() < LARGE_SHARE:
        return largest * random.uniform(0.6, 1.0)
    return float(MIN_GIB * (largest / MIN_GIB) ** random.random())


def plan(requests: int, burst: int, every: float, seed: int) -> list[Planned]:
    """Bursts of `burst` requests every `every` seconds, models in turn."""
    rng = random.Random(seed)
    names = list(MAX_GIB)
    planned = []
    for number in range(requests):
        begin = number // burst * every
        model = names[number % len(names)]
        due = begin + rng.uniform(0.0, BURST_SECONDS)
        planned.append(Planned(due, model, shape_of(model, size_of(model, rng), rng)))
    return sorted(planned)
