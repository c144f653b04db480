"""What really happened, explained: what replicas are like, how fast each was when, and what each request asked for."""

from __future__ import annotations

from dataclasses import dataclass, replace
from random import Random

import numpy as np
from numpy.typing import NDArray

from ..core.errors import OptionError
from .replay_attempts import FLOOR, Attempts, attempts_of, failing_times
from .replay_kind import Way, best_kind, find_way
from .replay_log import Asked, Recording
from .replay_servers import Numbers, ServerKind
from .replay_speeds import Fit, fit, known_of
from .replay_stalls import Stall, find_stalls, seen_late
from .replay_stretches import Speeds, find_speeds, stretch_met

A_BIT = 1e-5  # seconds
NOWHERE = -1


@dataclass(frozen=True)
class Explanation:
    kind: ServerKind
    replicas: list[str]
    work: Numbers  # by request: seconds alone on a replica of speed 1
    speeds: Speeds
    failing: dict[str, list[tuple[float, float]]]  # from, to
    stalls: list[Stall]
    overhead: float  # seconds of a request that are no replica's
    way: Way  # a part of that
    met: NDArray[np.int64]  # by request: in which stretch of all it was served; NOWHERE: its work is a guess
    on_way: Numbers  # by request: how much more work it was if the way was a second shorter
    sigma: float  # of ln(demand), that nothing known explains
    side_by_side: bool  # were there ever two at once on a replica?
    unseen: float  # requests at a replica that the log does not tell of, for each that it does

    @property
    def guessed(self) -> int:
        """Requests whose demand is a guess: no replica ever finished them."""
        return int((self.met == NOWHERE).sum())

    def varied(self, rng: Random) -> Explanation:
        """Another that the log allows as well: speeds, when they changed, and the way are known within errors only.

        A request that goes where it went then takes as long as it did: only what it would take elsewhere differs.
        """
        speeds: Speeds = {}
        factors = []
        for id in self.replicas:
            drawn = []
            for stretch in self.speeds[id]:
                factor = float(np.exp(rng.gauss(0.0, stretch.error)))
                begin = stretch.begin + stretch.margin * rng.uniform(-1.0, 1.0)
                factors.append(factor)
                drawn.append(replace(stretch, begin=begin, speed=stretch.speed * factor))
            speeds[id] = drawn
        seconds = max(0.0, rng.gauss(self.way.seconds, self.way.error))
        more = seconds - self.way.seconds
        work = np.maximum(self.work - more * self.on_way, FLOOR)
        work = work * np.where(self.met == NOWHERE, 1.0, np.array(factors)[self.met])
        way = replace(self.way, seconds=seconds)
        return replace(self, speeds=speeds, work=work, way=way, overhead=self.overhead + more)


def explain(recording: Recording, kind: ServerKind | None = None) -> Explanation:
    """`kind`: what the replicas are known to be like; without it, what explains the log best."""
    asked = recording.asked
    members = {member.id for line in recording.fleet for member in line.replicas}
    replicas = sorted({a.replica for one in asked for a in one.attempts} | members)
    attempts, ended = attempts_of(recording, replicas)
    if not attempts.whole.any():
        raise OptionError("no request in the log was served to its end: there is nothing to replay")
    stalls = find_stalls(np.array([one.at - recording.begin for one in asked]), attempts)
    late = seen_late(stalls, attempts)
    if (attempts.whole & ~late).any():
        attempts.whole &= ~late  # when it ended nobody knows
    known = known_of(asked)
    chosen = kind or best_kind(attempts, known, len(replicas))
    first = _Reading(attempts, known, replicas, chosen, 0.0)
    way = find_way(chosen, attempts, known, len(replicas), first.speed)
    reading = _Reading(attempts, known, replicas, chosen, way.seconds) if way.seconds else first
    work, met = reading.work()
    _fit_into(stalls, attempts, reading, work)
    found = attempts.found_there()
    return Explanation(
        kind=chosen,
        replicas=replicas,
        work=work,
        speeds=reading.speeds,
        failing={id: failing_times(times) for id, times in ended.items()},
        stalls=stalls,
        overhead=_overhead(asked) + way.seconds,
        way=way,
        met=met,
        on_way=reading.on_way() if way.error else np.zeros(len(asked)),
        sigma=reading.fitted.sigma,
        side_by_side=bool((found > 0).any()),
        unseen=float(np.maximum(attempts.beside - found, 0.0).mean()),
    )


class _Reading:
    """The attempts read as if replicas were of a kind, and so many seconds of each attempt were spent on the way."""

    def __init__(self, attempts: Attempts, known: Numbers, replicas: list[str], kind: ServerKind, way: float) -> None:
        self.attempts, self.known, self.kind, self.way = attempts, known, kind, way
        self.demand, _ = attempts.demands(kind, way)
        told = attempts.whole & (self.demand > FLOOR)  # what ended with another, seen late, tells no speed
        told = told if told.any() else attempts.whole
        ln_demand = np.log(np.maximum(self.demand[told], FLOOR))
        self.fitted = fit(ln_demand, known[attempts.request[told]], attempts.replica[told], len(replicas))
        self.speeds = find_speeds(attempts, told, self.fitted, replicas)
        self.met = stretch_met(attempts, replicas, self.speeds)
        self.speed = np.array([stretch.speed for id in replicas for stretch in self.speeds[id]])[self.met]

    def work(self) -> tuple[Numbers, NDArray[np.int64]]:
        """By request: what it asked for, and the stretch in which it was served."""
        whole = self.attempts.whole
        request = self.attempts.request[whole]
        work = _guesses(self.known @ self.fitted.base, self.fitted)
        work[request] = np.maximum(self.demand[whole], FLOOR) * self.speed[whole]
        met = np.full(len(work), NOWHERE, dtype=np.int64)
        met[request] = self.met[whole]
        return work, met

    def on_way(self) -> Numbers:
        whole = self.attempts.whole
        longer, _ = self.attempts.demands(self.kind, self.way + A_BIT)
        found = np.zeros(len(self.known))
        found[self.attempts.request[whole]] = ((self.demand - longer) / A_BIT * self.speed)[whole]
        return np.maximum(found, 0.0)


def _fit_into(stalls: list[Stall], attempts: Attempts, reading: _Reading, work: Numbers) -> None:
    """What a replica finished during a standstill fits into it, and fills it if there was more to do all along."""
    done = np.maximum(reading.demand, 0.0) * reading.speed
    for stall in stalls:
        late = seen_late([stall], attempts)
        left = attempts.replica[(attempts.start <= stall.begin) & (attempts.end > stall.caught_up)]
        for place in np.unique(attempts.replica[late]):
            mine = late & (attempts.replica == place)
            requests = attempts.request[mine]
            fits = float(done[mine].sum() / work[requests].sum())
            work[requests] *= fits if place in left else min(1.0, fits)


def _guesses(ln_typical: Numbers, fitted: Fit) -> Numbers:
    """Demands of requests that nobody finished: as what is known of each says, spread as the others are."""
    rng = Random("guesses")
    spread = np.array(rng.choices(fitted.residual.tolist(), k=len(ln_typical)))
    return np.asarray(np.exp(ln_typical + spread))


def _overhead(asked: list[Asked]) -> float:
    """The usual time from the end of the attempt to the end of the request."""
    rests = [
        one.seconds - max(a.after + a.seconds for a in one.attempts if a.seconds is not None)
        for one in asked
        if one.answered and any(a.seconds is not None for a in one.attempts)
    ]
    return max(0.0, float(np.median(rests))) if rests else 0.0
