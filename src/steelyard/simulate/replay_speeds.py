"""How fast replicas are, and when that changed: a fit of ln(demand) on what is known of requests and on who ran it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from math import log

import numpy as np
from numpy.typing import NDArray

from .replay_log import RecordedRequest
from .replay_servers import FloatArray

MAX_REQUEST_KINDS = 20  # kinds of requests told apart; the rest is one
MIN_SEGMENT_REQUESTS = 8  # requests between two changes of a replica's speed
MIN_LOG_CHANGE = log(1.15)  # smaller changes are left to chance
CHANGE_PENALTY = 6.0  # × ln n: a change must explain so much more than chance would
RIDGE_PENALTY = 1e-3
MAX_LOG_SLOWNESS = log(
    100.0
)  # no replica is so much faster or slower than most, whatever the fit makes of a few requests


def design_matrix(asked: Sequence[RecordedRequest]) -> FloatArray:
    """What tells how much a request asks for: a row each, of a constant, features (logarithms) and kinds.

    A feature beyond those of all that were answered counts as the outermost of these: nothing tells how work grows
    out there.
    """
    answered = np.array([one.answered for one in asked], dtype=np.bool_)
    width = max((len(one.features) for one in asked), default=0)
    columns: list[FloatArray] = [np.ones(len(asked))]
    for place in range(width):
        values = np.array([one.features[place] if place < len(one.features) else 0.0 for one in asked])
        column = np.log1p(np.maximum(values, 0.0))
        if answered.any():
            column = np.clip(column, column[answered].min(), column[answered].max())
        if np.ptp(column) > 1e-9:
            columns.append(column - column.mean())
    common = [kind for kind, _ in Counter(one.kind for one in asked).most_common(MAX_REQUEST_KINDS)]
    for kind in common[1:]:
        columns.append(np.array([one.kind == kind for one in asked], dtype=np.float64))
    return np.stack(columns, axis=1)


@dataclass(frozen=True)
class Regression:
    """ln(demand) = known @ base + slowness[replica] + residual"""

    base: FloatArray
    slowness: FloatArray  # ln, by replica; 0 on average over requests
    residual: FloatArray
    sigma: float


def fit_regression(ln_demand: FloatArray, known: FloatArray, replica: NDArray[np.int64], replicas: int) -> Regression:
    ran = np.zeros((len(replica), replicas))
    ran[np.arange(len(replica)), replica] = 1.0
    design = np.concatenate([known, ran], axis=1)
    gram = design.T @ design + RIDGE_PENALTY * np.eye(
        design.shape[1]
    )  # the ridge decides between what nothing tells apart
    solution = np.linalg.solve(gram, design.T @ ln_demand)
    slowness = solution[known.shape[1] :]
    shift = float(slowness[replica].mean())
    base = solution[: known.shape[1]].copy()
    base[0] += shift
    residual = ln_demand - design @ solution
    return Regression(
        base, np.clip(slowness - shift, -MAX_LOG_SLOWNESS, MAX_LOG_SLOWNESS), residual, max(float(residual.std()), 1e-3)
    )


def change_points(residual: FloatArray, sigma: float) -> list[int]:
    """Where in this order of time the mean changed: the first place of each stretch but the first."""
    found: list[int] = []
    todo = [(0, len(residual))]
    needed = CHANGE_PENALTY * log(max(len(residual), 2)) * sigma * sigma
    while todo:
        begin, end = todo.pop()
        place = _best_split(residual[begin:end], needed)
        if place:
            found.append(begin + place)
            todo += [(begin, begin + place), (begin + place, end)]
    return sorted(found)


def _best_split(values: FloatArray, needed: float) -> int:
    """Where to cut in two, 0: nowhere. What a cut explains is the squared error it saves."""
    size = len(values)
    if size < 2 * MIN_SEGMENT_REQUESTS:
        return 0
    left = np.arange(MIN_SEGMENT_REQUESTS, size - MIN_SEGMENT_REQUESTS + 1)
    sums = np.cumsum(values)
    difference = sums[left - 1] / left - (sums[-1] - sums[left - 1]) / (size - left)
    saved = left * (size - left) / size * difference**2
    best = int(np.argmax(saved))
    if saved[best] > needed and abs(difference[best]) > MIN_LOG_CHANGE:
        return int(left[best])
    # A stretch in the middle shows in no single cut: look for the two that part it from the rest.
    return _best_middle_segment(values, sums, needed)


def _best_middle_segment(values: FloatArray, sums: FloatArray, needed: float) -> int:
    size = len(values)
    step = max(1, size // 200)
    marks = np.arange(0, size + 1, step)
    before = np.concatenate([[0.0], sums])
    inside = before[marks][None, :] - before[marks][:, None]
    count = marks[None, :] - marks[:, None]
    ok = (count >= MIN_SEGMENT_REQUESTS) & (count <= size - MIN_SEGMENT_REQUESTS)
    with np.errstate(divide="ignore", invalid="ignore"):
        difference = inside / count - (sums[-1] - inside) / (size - count)
        saved = np.where(ok & (np.abs(difference) > MIN_LOG_CHANGE), count * (size - count) / size * difference**2, 0.0)
    begin, end = np.unravel_index(int(np.argmax(saved)), saved.shape)
    if saved[begin, end] <= needed:
        return 0
    first, last = int(marks[begin]), int(marks[end])
    return first if first >= MIN_SEGMENT_REQUESTS else last if size - last >= MIN_SEGMENT_REQUESTS else 0
