"""Which kind of server explains the observed times best."""

from __future__ import annotations

from math import log

import numpy as np

from .attempts import MIN_DEMAND_SECONDS, Attempts
from .server_models import SERVER_MODELS, BatchModel, FloatArray, ServerModel, SlotModel
from .speeds import fit_regression

MAX_SELECTION_ATTEMPTS = 20_000  # attempts to choose a kind of server by
IMPOSSIBLE_LIKELIHOOD = 1e-4  # how likely it is held, as a share, that a request took less than nothing


def select_server_model(attempts: Attempts, known: FloatArray, replicas: int) -> ServerModel:
    """The kind under which the times at which requests ended were the most likely.

    Any slope explains a little more than none by chance: it must explain more than that.
    """
    part = attempts.earliest(MAX_SELECTION_ATTEMPTS)
    by_chance = {SlotModel: 0.0, BatchModel: 0.5 * log(max(len(part.start), 1))}
    likely = [_likelihood(kind, part, known, replicas) - by_chance[type(kind)] for kind in SERVER_MODELS]
    best = max(likely)
    return next(
        kind for kind, value in zip(SERVER_MODELS, likely, strict=True) if value >= best - 1e-6 * abs(best) - 1e-9
    )


def _likelihood(kind: ServerModel, attempts: Attempts, known: FloatArray, replicas: int) -> float:
    """ln of the density of the observed ends, if demands are lognormal around what is known of a request."""
    demand, density = attempts.demands(kind)
    possible = attempts.completed & (demand > -MIN_DEMAND_SECONDS)
    impossible = int((attempts.completed & ~possible).sum())
    if not possible.any():
        return -np.inf
    ln = np.log(np.maximum(demand[possible], MIN_DEMAND_SECONDS))
    fitted = fit_regression(ln, known[attempts.request[possible]], attempts.replica[possible], replicas)
    chance = -ln - 0.5 * (fitted.residual / fitted.sigma) ** 2 - np.log(fitted.sigma) + density[possible]
    typical = float(np.median(attempts.end - attempts.start))
    return float(chance.sum()) + impossible * float(np.log(IMPOSSIBLE_LIKELIHOOD / max(typical, MIN_DEMAND_SECONDS)))
