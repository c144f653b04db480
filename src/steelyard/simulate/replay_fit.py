"""What really happened, explained: what replicas are like, how fast each was when, and what each request asked for."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from random import Random

import numpy as np
from numpy.typing import NDArray

from ..core.errors import OptionError
from ..core.outcome import Outcome
from .replay_log import Asked, Recording
from .replay_servers import KINDS, Numbers, ServerKind, Slots
from .replay_speeds import Fit, changes, fit, known_of

FLOOR = 0.0005  # seconds: shorter demands are lost in what clocks and sockets do
ENOUGH = 20_000  # attempts to choose a kind of server by
UNLIKELY = 1e-4  # how likely it is held, as a share, that a request took less than nothing
LONGEST_WAY = 0.01  # seconds
OFTEN_BESIDE = 0.1  # share of attempts that found another there, or none: fewer say nothing of the way
OUTLIER = 3.0  # sd
SHORTEST = 1.0  # seconds that a replica is faster or slower
FAILED = tuple(outcome.label for outcome in Outcome if outcome.failed)
FAILURES = 2  # attempts in a row that failed: the replica did, not the request


@dataclass
class Runs:
    """Attempts that took a replica's time, by replica and in order of their start."""

    request: NDArray[np.int64]
    replica: NDArray[np.int64]
    start: Numbers  # since the recording's beginning, as `end`
    end: Numbers
    whole: NDArray[np.bool_]  # ran to its end: its time tells its demand
    beside: Numbers  # requests that the gateway knew of there


@dataclass
class Explanation:
    kind: ServerKind
    replicas: list[str]
    work: Numbers  # by request: seconds alone on a replica of speed 1
    speeds: dict[str, list[tuple[float, float]]]  # from when on, how fast
    failing: dict[str, list[tuple[float, float]]]  # from, to
    overhead: float  # seconds of a request that are no replica's
    sigma: float  # of ln(demand), that nothing known explains
    side_by_side: bool  # were there ever two at once on a replica?
    unseen: float  # requests at a replica that the log does not tell of, for each that it does
    stood_still: float  # most seconds in which nothing ended anywhere, though replicas were busy
    guessed: int  # requests whose demand is a guess: no replica ever finished them


def explain(recording: Recording, kind: ServerKind | None = None) -> Explanation:
    """`kind`: what the replicas are known to be like; without it, what explains the log best."""
    asked = recording.asked
    replicas = sorted({a.replica for one in asked for a in one.attempts} | _members(recording))
    runs, failed = _runs(recording, {id: place for place, id in enumerate(replicas)})
    if not runs.whole.any():
        raise OptionError("no request in the log was served to its end: there is nothing to replay")
    known = known_of(asked)
    chosen = kind or _best_kind(runs, known, len(replicas))
    counted = _running_at_start(runs)
    way = _way(chosen, runs, known, len(replicas), counted == 0)
    demand, _ = _demands(chosen, runs, way)
    whole = runs.whole
    told = whole & (demand > FLOOR)  # what ended with another, as seen by a gateway that was busy, tells no speed
    told = told if told.any() else whole
    ln_demand = np.log(np.maximum(demand[told], FLOOR))
    fitted = fit(ln_demand, known[runs.request[told]], runs.replica[told], len(replicas))
    speeds = _speeds(runs, told, fitted, replicas)
    work = _guesses(known @ fitted.base, fitted)
    guessed = np.ones(len(asked), dtype=np.bool_)
    work[runs.request[whole]] = np.maximum(demand[whole], FLOOR) * _speed_met(runs, replicas, speeds)[whole]
    guessed[runs.request[whole]] = False
    return Explanation(
        kind=chosen,
        replicas=replicas,
        work=work,
        speeds=speeds,
        failing={replicas[place]: _stretches(times) for place, times in failed.items()},
        overhead=_overhead(asked) + way,
        sigma=fitted.sigma,
        side_by_side=bool((counted > 0).any()),
        unseen=float(np.maximum(runs.beside - counted, 0.0).mean()),
        stood_still=_standstill(runs),
        guessed=int(guessed.sum()),
    )


def _members(recording: Recording) -> set[str]:
    return {member.id for line in recording.fleet for member in line.replicas}


def _runs(recording: Recording, places: dict[str, int]) -> tuple[Runs, dict[int, list[tuple[float, float, bool]]]]:
    """What occupied replicas; and, by replica, from when to when each attempt ran and whether it failed."""
    rows: list[tuple[int, float, float, int, bool, int]] = []
    ended: dict[int, list[tuple[float, float, bool]]] = {}
    for number, one in enumerate(recording.asked):
        for attempt in one.attempts:
            start = one.at - recording.begin + attempt.after
            lasted = attempt.seconds if attempt.seconds is not None else max(one.seconds - attempt.after, 0.0)
            whole = one.answered and attempt.seconds is not None and not attempt.outcome
            failed = attempt.outcome in FAILED
            ended.setdefault(places[attempt.replica], []).append((start, start + lasted, failed))
            if not failed:
                rows.append((places[attempt.replica], start, start + lasted, number, whole, attempt.beside))
    rows.sort()
    table = np.array(rows, dtype=np.float64).reshape(-1, 6)
    return (
        Runs(
            request=table[:, 3].astype(np.int64),
            replica=table[:, 0].astype(np.int64),
            start=table[:, 1],
            end=table[:, 2],
            whole=table[:, 4] > 0,
            beside=table[:, 5],
        ),
        ended,
    )


def _demands(kind: ServerKind, runs: Runs, way: float = 0.0) -> tuple[Numbers, Numbers]:
    """`way`: seconds of an attempt that are spent on the way to the replica and back, and keep nobody else waiting."""
    demand = np.empty(len(runs.start))
    density = np.empty(len(runs.start))
    for mine in _by_replica(runs):
        demand[mine], density[mine] = kind.demands(np.minimum(runs.start[mine] + way, runs.end[mine]), runs.end[mine])
    return demand, density


def _by_replica(runs: Runs) -> list[slice]:
    edges = [0, *(np.flatnonzero(np.diff(runs.replica)) + 1).tolist(), len(runs.replica)]
    return [slice(a, b) for a, b in pairwise(edges) if b > a]


def _beginning(runs: Runs) -> Runs:
    """Enough of them to choose by."""
    if len(runs.start) <= ENOUGH:
        return runs
    keep = runs.start < float(np.sort(runs.start)[ENOUGH])
    return Runs(*(getattr(runs, name)[keep] for name in Runs.__dataclass_fields__))


def _best_kind(runs: Runs, known: Numbers, replicas: int) -> ServerKind:
    """The kind under which the times at which requests ended were the most likely."""
    part = _beginning(runs)
    likely = [_likelihood(kind, part, known, replicas) for kind in KINDS]
    best = max(likely)
    return next(kind for kind, value in zip(KINDS, likely, strict=True) if value >= best - 1e-6 * abs(best) - 1e-9)


def _way(kind: ServerKind, runs: Runs, known: Numbers, replicas: int, idle: NDArray[np.bool_]) -> float:
    """It shows in that those that found the replica idle seem to ask for more than those that waited there."""
    demand, _ = _demands(kind, runs)
    told = runs.whole & (demand > FLOOR)
    alone = idle[told].astype(np.float64)
    if not isinstance(kind, Slots) or not OFTEN_BESIDE <= alone.mean() <= 1.0 - OFTEN_BESIDE:
        return 0.0
    columns = np.column_stack([known[runs.request[told]], alone])
    fitted = fit(np.log(demand[told]), columns, runs.replica[told], replicas)
    more = float(fitted.base[-1])
    if more < 2.0 * fitted.sigma / float(np.sqrt(len(alone) * alone.mean() * (1.0 - alone.mean()))):
        return 0.0
    typical, least = np.quantile(demand[told & idle], (0.5, 0.02))
    return float(min(typical * (1.0 - np.exp(-more)), least, LONGEST_WAY))


def _likelihood(kind: ServerKind, runs: Runs, known: Numbers, replicas: int) -> float:
    """ln of the density of the observed ends, if demands are lognormal around what is known of a request."""
    demand, density = _demands(kind, runs)
    possible = runs.whole & (demand > -FLOOR)
    impossible = int((runs.whole & ~possible).sum())
    if not possible.any():
        return -np.inf
    ln = np.log(np.maximum(demand[possible], FLOOR))
    fitted = fit(ln, known[runs.request[possible]], runs.replica[possible], replicas)
    chance = -ln - 0.5 * (fitted.residual / fitted.sigma) ** 2 - np.log(fitted.sigma) + density[possible]
    typical = float(np.median(runs.end - runs.start))
    return float(chance.sum()) + impossible * float(np.log(UNLIKELY / max(typical, FLOOR)))


def _speeds(
    runs: Runs, told: NDArray[np.bool_], fitted: Fit, replicas: list[str]
) -> dict[str, list[tuple[float, float]]]:
    """Every replica's speed: from when on, how fast."""
    replica, start, end = runs.replica[told], runs.start[told], runs.end[told]
    usual = max(1.4826 * float(np.median(np.abs(fitted.residual))), 1e-3)
    residual = np.clip(fitted.residual, -OUTLIER * usual, OUTLIER * usual)  # one request is no change of speed
    speeds: dict[str, list[tuple[float, float]]] = {}
    for place, id in enumerate(replicas):
        mine = np.flatnonzero(replica == place)
        mine = mine[np.argsort(end[mine], kind="stable")]
        slowness = float(fitted.slowness[place]) if len(mine) else float(np.median(fitted.slowness))
        cuts = _lasting(changes(residual[mine], float(residual.std())), end[mine])
        edges = [0, *cuts, len(mine)] if cuts else []
        stretches = [
            (
                float(end[mine[a - 1]] + max(end[mine[a - 1]], start[mine[a]])) / 2 if a else 0.0,
                float(np.exp(-slowness - _middle(fitted.residual[mine[a:b]], usual))),
            )
            for a, b in pairwise(edges)
        ]
        speeds[id] = stretches or [(0.0, float(np.exp(-slowness)))]
    return speeds


def _middle(residual: Numbers, usual: float) -> float:
    """The mean of those that are no outliers."""
    off = residual - np.median(residual)
    return float(residual[np.abs(off) <= OUTLIER * usual].mean())


def _speed_met(runs: Runs, replicas: list[str], speeds: dict[str, list[tuple[float, float]]]) -> Numbers:
    """How fast its replica was as each run ended."""
    met = np.empty(len(runs.end))
    for mine in _by_replica(runs):
        stretches = speeds[replicas[runs.replica[mine.start]]]
        place = np.searchsorted([begin for begin, _ in stretches], runs.end[mine], side="left") - 1
        met[mine] = np.array([speed for _, speed in stretches])[np.maximum(place, 0)]
    return met


def _lasting(cuts: list[int], end: Numbers) -> list[int]:
    """Without those that part off a moment: a gateway that stood still sees much end at once, but nobody was fast."""
    kept: list[int] = []
    begin = 0
    for cut, after in pairwise([*cuts, len(end)]):
        if min(end[cut - 1] - end[begin], end[after - 1] - end[cut]) >= SHORTEST:
            kept.append(cut)
            begin = cut
    return kept


def _guesses(ln_typical: Numbers, fitted: Fit) -> Numbers:
    """Demands of requests that nobody finished: as what is known of each says, spread as the others are."""
    rng = Random("guesses")
    spread = np.array(rng.choices(fitted.residual.tolist(), k=len(ln_typical)))
    return np.asarray(np.exp(ln_typical + spread))


def _running_at_start(runs: Runs) -> Numbers:
    """Requests of the log that were on the replica as each began."""
    found = np.zeros(len(runs.start))
    for mine in _by_replica(runs):
        start, end = runs.start[mine], np.sort(runs.end[mine])
        found[mine] = np.arange(len(start)) - np.searchsorted(end, start + FLOOR, side="right")
    return np.maximum(found, 0.0)


def _standstill(runs: Runs) -> float:
    """The longest time between two ends while at least half the replicas that had work had some all along."""
    ends = np.sort(runs.end)
    if len(ends) < 2:
        return 0.0
    longest = int(np.argmax(np.diff(ends)))
    begin, until = ends[longest], ends[longest + 1]
    through = (runs.start <= begin) & (runs.end >= until)
    busy = len(np.unique(runs.replica[through]))
    return float(until - begin) if 2 * busy >= len(np.unique(runs.replica)) else 0.0


def _overhead(asked: list[Asked]) -> float:
    """The usual time from the end of the attempt to the end of the request."""
    rests = [
        one.seconds - max(a.after + a.seconds for a in one.attempts if a.seconds is not None)
        for one in asked
        if one.answered and any(a.seconds is not None for a in one.attempts)
    ]
    return max(0.0, float(np.median(rests))) if rests else 0.0


def _stretches(attempts: list[tuple[float, float, bool]]) -> list[tuple[float, float]]:
    """When the replica failed whatever it got."""
    found: list[tuple[float, float]] = []
    row: list[tuple[float, float]] = []
    for start, end, failed in [*sorted(attempts, key=lambda a: a[1]), (0.0, 0.0, False)]:
        if failed:
            row.append((start, end))
            continue
        if len(row) >= FAILURES:
            found.append((row[0][1], row[-1][1]))
        row = []
    return found
