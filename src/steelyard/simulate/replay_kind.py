"""What replicas are like: the kind of server that explains the observed times best, and the time on the way there."""

from __future__ import annotations

from dataclasses import dataclass
from math import log

import numpy as np

from .replay_attempts import FLOOR, Attempts
from .replay_servers import KINDS, Batched, Numbers, ServerKind, Slots
from .replay_speeds import fit

ENOUGH = 20_000  # attempts to choose a kind of server by
UNLIKELY = 1e-4  # how likely it is held, as a share, that a request took less than nothing
LONGEST_WAY = 0.01  # seconds
OFTEN_BESIDE = 0.1  # share of attempts that found another there, or none: fewer say nothing of the way


def best_kind(attempts: Attempts, known: Numbers, replicas: int) -> ServerKind:
    """The kind under which the times at which requests ended were the most likely.

    Any slope explains a little more than none by chance: it must explain more than that.
    """
    part = attempts.first(ENOUGH)
    by_chance = {Slots: 0.0, Batched: 0.5 * log(max(len(part.start), 1))}
    likely = [_likelihood(kind, part, known, replicas) - by_chance[type(kind)] for kind in KINDS]
    best = max(likely)
    return next(kind for kind, value in zip(KINDS, likely, strict=True) if value >= best - 1e-6 * abs(best) - 1e-9)


def _likelihood(kind: ServerKind, attempts: Attempts, known: Numbers, replicas: int) -> float:
    """ln of the density of the observed ends, if demands are lognormal around what is known of a request."""
    demand, density = attempts.demands(kind)
    possible = attempts.whole & (demand > -FLOOR)
    impossible = int((attempts.whole & ~possible).sum())
    if not possible.any():
        return -np.inf
    ln = np.log(np.maximum(demand[possible], FLOOR))
    fitted = fit(ln, known[attempts.request[possible]], attempts.replica[possible], replicas)
    chance = -ln - 0.5 * (fitted.residual / fitted.sigma) ** 2 - np.log(fitted.sigma) + density[possible]
    typical = float(np.median(attempts.end - attempts.start))
    return float(chance.sum()) + impossible * float(np.log(UNLIKELY / max(typical, FLOOR)))


@dataclass(frozen=True)
class Way:
    """Seconds of an attempt that are spent on the way to the replica and back, and keep nobody else waiting."""

    seconds: float = 0.0
    error: float = 0.0  # sd


def find_way(kind: ServerKind, attempts: Attempts, known: Numbers, replicas: int, speed: Numbers) -> Way:
    """It shows in that those that found the replica idle seem to ask for more than those that waited there.

    `speed`: of the replica as each attempt ended.
    """
    demand, _ = attempts.demands(kind)
    idle = attempts.found_there() == 0
    told = attempts.whole & (demand > FLOOR)
    alone = idle[told].astype(np.float64)
    if not isinstance(kind, Slots) or not len(alone) or not OFTEN_BESIDE <= alone.mean() <= 1.0 - OFTEN_BESIDE:
        return Way()
    columns = np.column_stack([known[attempts.request[told]], alone])
    fitted = fit(np.log(demand[told] * speed[told]), columns, attempts.replica[told], replicas)
    more = float(fitted.base[-1])
    error = fitted.sigma / float(np.sqrt(len(alone) * alone.mean() * (1.0 - alone.mean())))
    typical, least = np.quantile(demand[told & idle], (0.5, 0.02))
    longest = min(float(least), LONGEST_WAY)
    seconds = min(max(float(typical) * (1.0 - float(np.exp(-more))), 0.0), longest)
    return Way(seconds, min(float(typical) * error, longest))
