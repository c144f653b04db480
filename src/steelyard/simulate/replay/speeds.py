"""How fast replicas are, and when that changed.

A ridge regression of ln(demand) on features and replica; then binary segmentation of each replica's residuals, where a
change must explain CHANGE_PENALTY · ln n · σ² of squared error.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import log

import numpy as np
from numpy.typing import NDArray

from .attempts import Attempts
from .recording import RecordedRequest
from .server_models import FloatArray

MAX_REQUEST_KINDS = 20  # the rest is one
MIN_SEGMENT_REQUESTS = 8  # between two changes of a replica's speed
MIN_SEGMENT_SECONDS = 1.0
MIN_LOG_CHANGE = log(1.15)  # smaller changes are chance
CHANGE_PENALTY = 6.0
RIDGE_PENALTY = 1e-3  # between columns that the log cannot tell apart
MAX_LOG_SLOWNESS = log(100.0)  # of a fit to few requests
OUTLIER_SIGMAS = 3.0


def design_matrix(asked: Sequence[RecordedRequest]) -> FloatArray:
    """A row per request: a constant, ln of features, kinds.

    Features are clipped to those of answered requests: how work grows beyond is unknown.
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
    common = [kind for kind, _ in Counter(one.call for one in asked).most_common(MAX_REQUEST_KINDS)]
    for kind in common[1:]:
        columns.append(np.array([one.call == kind for one in asked], dtype=np.float64))
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
    gram = design.T @ design + RIDGE_PENALTY * np.eye(design.shape[1])
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
    """Where the mean changed: the first place of each stretch but the first."""
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
    """0: nowhere. A cut explains the squared error it saves."""
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
    # A stretch in the middle shows in no single cut.
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


@dataclass(frozen=True)
class SpeedSegment:
    """Until the next one begins."""

    begin: float
    speed: float
    error: float = 0.0  # of ln(speed), sd
    begin_error: float = 0.0  # ± seconds


SpeedSegments = dict[str, list[SpeedSegment]]


def fit_speed_segments(
    attempts: Attempts, informative: NDArray[np.bool_], fitted: Regression, replicas: list[str]
) -> SpeedSegments:
    replica, start, end = attempts.replica[informative], attempts.start[informative], attempts.end[informative]
    usual = max(1.4826 * float(np.median(np.abs(fitted.residual))), 1e-3)
    most = OUTLIER_SIGMAS * usual  # a single request is no change of speed
    residual = np.clip(fitted.residual, -most, most)
    speeds: SpeedSegments = {}
    for place, id in enumerate(replicas):
        mine = np.flatnonzero(replica == place)
        mine = mine[np.argsort(end[mine], kind="stable")]
        if not len(mine):
            speeds[id] = [SpeedSegment(0.0, float(np.exp(-np.median(fitted.slowness))), fitted.sigma)]
            continue
        cuts = _lasting_cuts(change_points(residual[mine], float(residual.std())), end[mine])
        slowness = float(fitted.slowness[place])
        speeds[id] = [
            _segment(mine[a:b], mine[a - 1] if a else None, start, end, slowness, fitted, usual, whole=not cuts)
            for a, b in pairwise([0, *cuts, len(mine)])
        ]
    return speeds


def _segment(
    mine: NDArray[np.int64], before: int | None, start: FloatArray, end: FloatArray, slowness: float,
    fitted: Regression, usual: float, *, whole: bool,
) -> SpeedSegment:  # fmt: skip
    """`whole`: the only one, whose speed is the fit's."""
    error = fitted.sigma / float(np.sqrt(len(mine)))
    speed = float(np.exp(-slowness - (0.0 if whole else _trimmed_mean(fitted.residual[mine], usual))))
    if before is None:
        return SpeedSegment(0.0, speed, error)
    earliest, latest = float(end[before]), float(max(end[before], start[mine[0]]))
    return SpeedSegment((earliest + latest) / 2, speed, error, (latest - earliest) / 2)


def _trimmed_mean(residual: FloatArray, usual: float) -> float:
    middle = float(np.median(residual))
    usual_ones = residual[np.abs(residual - middle) <= OUTLIER_SIGMAS * usual]
    return float(usual_ones.mean()) if len(usual_ones) else middle


def _lasting_cuts(cuts: list[int], end: FloatArray) -> list[int]:
    """Without cuts around a moment: after a stall much seems to end at once."""
    kept: list[int] = []
    begin = 0
    for cut, after in pairwise([*cuts, len(end)]):
        if min(end[cut - 1] - end[begin], end[after - 1] - end[cut]) >= MIN_SEGMENT_SECONDS:
            kept.append(cut)
            begin = cut
    return kept


def segment_of_attempts(attempts: Attempts, replicas: list[str], speeds: SpeedSegments) -> NDArray[np.int64]:
    """The stretch in which each attempt ended, numbered over all replicas."""
    met = np.empty(len(attempts.end), dtype=np.int64)
    before = dict(zip(replicas, np.cumsum([0, *(len(speeds[id]) for id in replicas)]).tolist(), strict=False))
    for mine in attempts.by_replica():
        id = replicas[attempts.replica[mine.start]]
        begins = [stretch.begin for stretch in speeds[id]]
        place = np.searchsorted(begins, attempts.end[mine], side="left") - 1
        met[mine] = before[id] + np.maximum(place, 0)
    return met
