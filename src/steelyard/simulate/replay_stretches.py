"""How fast each replica was from when to when, and how sure that is."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from .replay_attempts import Attempts
from .replay_servers import Numbers
from .replay_speeds import Fit, changes

OUTLIER = 3.0  # sd
SHORTEST = 1.0  # seconds that a replica is faster or slower


@dataclass(frozen=True)
class Stretch:
    """Until the next one begins."""

    begin: float
    speed: float
    error: float = 0.0  # of ln(speed), sd
    margin: float = 0.0  # seconds by which it may have begun sooner or later


Speeds = dict[str, list[Stretch]]


def find_speeds(attempts: Attempts, told: NDArray[np.bool_], fitted: Fit, replicas: list[str]) -> Speeds:
    replica, start, end = attempts.replica[told], attempts.start[told], attempts.end[told]
    usual = max(1.4826 * float(np.median(np.abs(fitted.residual))), 1e-3)
    residual = np.clip(fitted.residual, -OUTLIER * usual, OUTLIER * usual)  # one request is no change of speed
    speeds: Speeds = {}
    for place, id in enumerate(replicas):
        mine = np.flatnonzero(replica == place)
        mine = mine[np.argsort(end[mine], kind="stable")]
        if not len(mine):
            speeds[id] = [Stretch(0.0, float(np.exp(-np.median(fitted.slowness))), fitted.sigma)]
            continue
        cuts = _lasting(changes(residual[mine], float(residual.std())), end[mine])
        slowness = float(fitted.slowness[place])
        speeds[id] = [
            _stretch(mine[a:b], mine[a - 1] if a else None, start, end, slowness, fitted, usual, whole=not cuts)
            for a, b in pairwise([0, *cuts, len(mine)])
        ]
    return speeds


def _stretch(
    mine: NDArray[np.int64], before: int | None, start: Numbers, end: Numbers, slowness: float, fitted: Fit,
    usual: float, *, whole: bool,
) -> Stretch:  # fmt: skip
    """`whole`: there is no other, and the fit has its speed."""
    error = fitted.sigma / float(np.sqrt(len(mine)))
    speed = float(np.exp(-slowness - (0.0 if whole else _middle(fitted.residual[mine], usual))))
    if before is None:
        return Stretch(0.0, speed, error)
    earliest, latest = float(end[before]), float(max(end[before], start[mine[0]]))
    return Stretch((earliest + latest) / 2, speed, error, (latest - earliest) / 2)


def _middle(residual: Numbers, usual: float) -> float:
    """The mean of those that are no outliers."""
    middle = float(np.median(residual))
    usual_ones = residual[np.abs(residual - middle) <= OUTLIER * usual]
    return float(usual_ones.mean()) if len(usual_ones) else middle


def _lasting(cuts: list[int], end: Numbers) -> list[int]:
    """Without those that part off a moment: a gateway that stood still sees much end at once, but nobody was fast."""
    kept: list[int] = []
    begin = 0
    for cut, after in pairwise([*cuts, len(end)]):
        if min(end[cut - 1] - end[begin], end[after - 1] - end[cut]) >= SHORTEST:
            kept.append(cut)
            begin = cut
    return kept


def stretch_met(attempts: Attempts, replicas: list[str], speeds: Speeds) -> NDArray[np.int64]:
    """In which stretch each attempt ended: its number if those of all replicas are put in a row."""
    met = np.empty(len(attempts.end), dtype=np.int64)
    before = dict(zip(replicas, np.cumsum([0, *(len(speeds[id]) for id in replicas)]).tolist(), strict=False))
    for mine in attempts.by_replica():
        id = replicas[attempts.replica[mine.start]]
        begins = [stretch.begin for stretch in speeds[id]]
        place = np.searchsorted(begins, attempts.end[mine], side="left") - 1
        met[mine] = before[id] + np.maximum(place, 0)
    return met
