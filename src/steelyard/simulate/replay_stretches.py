"""How fast each replica was from when to when, and how sure that is."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from .replay_attempts import Attempts
from .replay_servers import FloatArray
from .replay_speeds import Regression, change_points

OUTLIER_SIGMAS = 3.0  # sd
MIN_SEGMENT_SECONDS = 1.0  # seconds that a replica is faster or slower


@dataclass(frozen=True)
class SpeedSegment:
    """Until the next one begins."""

    begin: float
    speed: float
    error: float = 0.0  # of ln(speed), sd
    begin_error: float = 0.0  # seconds by which it may have begun sooner or later


SpeedSegments = dict[str, list[SpeedSegment]]


def fit_speed_segments(
    attempts: Attempts, told: NDArray[np.bool_], fitted: Regression, replicas: list[str]
) -> SpeedSegments:
    replica, start, end = attempts.replica[told], attempts.start[told], attempts.end[told]
    usual = max(1.4826 * float(np.median(np.abs(fitted.residual))), 1e-3)
    residual = np.clip(
        fitted.residual, -OUTLIER_SIGMAS * usual, OUTLIER_SIGMAS * usual
    )  # one request is no change of speed
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
    mine: NDArray[np.int64], before: int | None, start: FloatArray, end: FloatArray, slowness: float, fitted: Regression,
    usual: float, *, whole: bool,
) -> SpeedSegment:  # fmt: skip
    """`whole`: there is no other, and the fit has its speed."""
    error = fitted.sigma / float(np.sqrt(len(mine)))
    speed = float(np.exp(-slowness - (0.0 if whole else _trimmed_mean(fitted.residual[mine], usual))))
    if before is None:
        return SpeedSegment(0.0, speed, error)
    earliest, latest = float(end[before]), float(max(end[before], start[mine[0]]))
    return SpeedSegment((earliest + latest) / 2, speed, error, (latest - earliest) / 2)


def _trimmed_mean(residual: FloatArray, usual: float) -> float:
    """The mean of those that are no outliers."""
    middle = float(np.median(residual))
    usual_ones = residual[np.abs(residual - middle) <= OUTLIER_SIGMAS * usual]
    return float(usual_ones.mean()) if len(usual_ones) else middle


def _lasting_cuts(cuts: list[int], end: FloatArray) -> list[int]:
    """Without those that part off a moment: a gateway that stood still sees much end at once, but nobody was fast."""
    kept: list[int] = []
    begin = 0
    for cut, after in pairwise([*cuts, len(end)]):
        if min(end[cut - 1] - end[begin], end[after - 1] - end[cut]) >= MIN_SEGMENT_SECONDS:
            kept.append(cut)
            begin = cut
    return kept


def segment_of_attempts(attempts: Attempts, replicas: list[str], speeds: SpeedSegments) -> NDArray[np.int64]:
    """In which stretch each attempt ended: its number if those of all replicas are put in a row."""
    met = np.empty(len(attempts.end), dtype=np.int64)
    before = dict(zip(replicas, np.cumsum([0, *(len(speeds[id]) for id in replicas)]).tolist(), strict=False))
    for mine in attempts.by_replica():
        id = replicas[attempts.replica[mine.start]]
        begins = [stretch.begin for stretch in speeds[id]]
        place = np.searchsorted(begins, attempts.end[mine], side="left") - 1
        met[mine] = before[id] + np.maximum(place, 0)
    return met
