"""How well the bytes of a request are learned: relations a server might have, learned from 200 measured peaks, and 20.

    python -m benchmarks.request_bytes [--seeds 20] [--powers 0.5,2]

Prints the table of docs/decisions/0014-bytes-of-a-request.md, in some seconds.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from math import exp, log
from random import Random
from statistics import mean, median

from steelyard.core.memory import upper_bound
from steelyard.core.memory.request_size import RequestSizeModel

from .testbed.docs_pages import markdown_table
from .testbed.machine import describe

MIB = float(1 << 20)
TRAINING_REQUESTS, FEW_REQUESTS, TEST_REQUESTS = 200, 20, 1000
NOISE_SIGMA = 0.02

Features = tuple[float, ...]
Draw = Callable[[Random], Features]
Relation = Callable[[Features, Random], float]

HEADER = [
    "bytes",
    "median",
    "all bytes",
    "within 15 %",
    "below",
    "worst seed",
    f"within, of {FEW_REQUESTS}",
    f"below, of {FEW_REQUESTS}",
]


def spread(rng: Random, low: float, high: float) -> float:
    return low * exp(log(high / low) * rng.random())


def sizes(rng: Random) -> Features:
    return (spread(rng, 1.0, 1000.0), 1.0, 0.0)


def tensors(rng: Random) -> Features:
    return (spread(rng, 1e3, 1e6), float(int(spread(rng, 1.0, 33.0))), 0.0)


def texts(rng: Random) -> Features:
    """Elements and batch of [batch, length]."""
    batch = float(rng.choice((1, 1, 2, 4, 8)))
    return (batch * float(int(spread(rng, 500.0, 16_000.0))), batch, 0.0)


def tokens(rng: Random) -> Features:
    return (spread(rng, 10.0, 10_000.0), spread(rng, 16.0, 2000.0), 1.0)


def skewed(rng: Random) -> Features:
    return (rng.lognormvariate(5.0, 1.5), 1.0, 0.0)


def rounded(amount: float) -> float:
    """As torch's allocator takes it from the device: pieces of 2 MiB."""
    return -(-amount // (2 * MIB)) * 2 * MIB


def noisy(relation: Callable[..., float]) -> Relation:
    return lambda x, rng: relation(*x) * max(0.5, 1.0 + rng.gauss(0.0, NOISE_SIGMA))


CASES: dict[str, tuple[Draw, Relation]] = {
    "a·x": (sizes, noisy(lambda x, *_: 3 * MIB * x)),
    "c + a·x": (sizes, noisy(lambda x, *_: 40 * MIB + 3 * MIB * x)),
    "c + a·x, few are large": (skewed, noisy(lambda x, *_: 40 * MIB + MIB * x)),
    "a·x in pieces of 2 MiB": (sizes, lambda x, rng: rounded(noisy(lambda x, *_: 3 * MIB * x)(x, rng))),
    "a·x^1.2": (sizes, noisy(lambda x, *_: MIB * x**1.2)),
    "a·x^0.8": (sizes, noisy(lambda x, *_: 4 * MIB * x**0.8)),
    "c + a·x + b·x²": (sizes, noisy(lambda x, *_: 20 * MIB + MIB * x + 0.03 * MIB * x * x)),
    "c + a·elements + b·elements·batch": (tensors, noisy(lambda n, b, _: 5 * MIB + 1e3 * n + 200.0 * n * b)),
    "a·elements·batch": (tensors, noisy(lambda n, b, _: 400.0 * n * b)),
    "a·elements + b·elements²/batch": (texts, noisy(lambda n, b, _: 29e3 * n + 63.8 * n * n / b)),
    "c + a·input + b·output + d·input²": (
        tokens,
        noisy(lambda i, o, _: 10 * MIB + 1e5 * i + 2e5 * o + 30.0 * i * i),
    ),
    "a·x, one in 100 measured 10 times": (
        sizes,
        lambda x, rng: noisy(lambda x, *_: 3 * MIB * x)(x, rng) * (10.0 if rng.random() < 0.01 else 1.0),
    ),
    "features say nothing, σ 30 %": (tokens, lambda x, rng: 100 * MIB * rng.lognormvariate(0.0, 0.3)),
}


def trial(case: str, seed: int, learned: int = TRAINING_REQUESTS) -> tuple[float, float, float, float]:
    """What is said over what is then measured: the median, of all bytes together, the share within 15 %, and below."""
    draw, relation = CASES[case]
    rng = Random(seed)
    model = RequestSizeModel()
    for _ in range(learned):
        features = draw(rng)
        model.observe(features, "infer", int(relation(features, rng)))
    ratios, needed, predicted = [], 0.0, 0.0
    for _ in range(TEST_REQUESTS):
        features = draw(rng)
        measured = relation(features, rng)
        needs = model.upper_bound(features, "infer")
        ratios.append(needs / measured)
        needed += measured
        predicted += needs
    within = mean(abs(ratio - 1.0) <= 0.15 for ratio in ratios)
    return median(ratios), predicted / needed, within, mean(ratio < 1.0 for ratio in ratios)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--powers", help="of each feature, instead of those in use: 2, or nothing")
    options = parser.parse_args()
    if options.powers is not None:
        upper_bound.TERM_POWERS = tuple(float(power) for power in options.powers.split(",") if power)
    lines = []
    for case in CASES:
        trials = [trial(case, seed) for seed in range(options.seeds)]
        ratio, total, within, below = (mean(column) for column in zip(*trials, strict=True))
        worst = max(each[3] for each in trials)
        early = [trial(case, seed, FEW_REQUESTS) for seed in range(options.seeds)]
        soon, soon_below = (mean(each[n] for each in early) for n in (2, 3))
        later = [f"{ratio:.2f}", f"{total:.2f}", f"{within:.0%}", f"{below:.1%}", f"{worst:.1%}"]
        lines.append([case, *later, f"{soon:.0%}", f"{soon_below:.1%}"])
    print(markdown_table(HEADER, lines))
    print("\n" + describe("python -m benchmarks.request_bytes " + " ".join(sys.argv[1:])))


if __name__ == "__main__":
    main()
