"""What really happened, explained: what replicas are like, how fast each was when, and what each request asked for."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import exp, log
from random import Random

import numpy as np
from numpy.typing import NDArray

from ..core.errors import OptionError
from .replay_attempts import FLOOR, Attempts, attempts_of
from .replay_guess import Guesses, guesses
from .replay_kind import Way, best_kind, find_way
from .replay_log import Asked, Recording
from .replay_servers import Numbers, ServerKind
from .replay_speeds import fit, known_of
from .replay_stalls import Stall, find_stalls, seen_late
from .replay_stretches import Speeds, find_speeds, stretch_met
from .replay_troubles import Failing, Fate, ended_attempts, fate_of, find_failing, lost_with_their_replica

A_BIT = 1e-5  # seconds
NOWHERE = -1
MOST_OFF = log(4.0)  # no speed is drawn further than so from what it seems to be


@dataclass(frozen=True)
class Explanation:
    kind: ServerKind
    replicas: list[str]
    work: Numbers  # by request: seconds alone on a replica of speed 1
    speeds: Speeds
    failing: dict[str, list[Failing]]
    fates: dict[int, Fate]  # by request, where something went wrong with it
    stalls: list[Stall]
    overhead: float  # seconds of a request that are no replica's
    way: Way  # a part of that
    met: NDArray[np.int64]  # by request: in which stretch of all it was served; NOWHERE: its work is a guess
    guesses: Guesses
    redrawn: NDArray[np.int64]  # requests whose work may as well be another guess
    on_way: Numbers  # by request: how much more work it was if the way was a second shorter
    sigma: float  # of ln(demand), that nothing known explains
    side_by_side: bool  # were there ever two at once on a replica?
    unseen: float  # requests at a replica that the log does not tell of, for each that it does

    @property
    def guessed(self) -> int:
        """Requests whose demand is a guess: no replica ever finished them, but one might."""
        return int((self.met == NOWHERE).sum()) - self.failed

    @property
    def failed(self) -> int:
        """Requests that fail wherever they go."""
        return sum(fate.always for fate in self.fates.values())

    def varied(self, rng: Random) -> Explanation:
        """Another that the log allows as well: speeds, when they changed, and the way are known within errors only, and
        what nobody finished is a guess.

        A request that goes where it went then takes as long as it did: only what it would take elsewhere differs.
        """
        speeds: Speeds = {}
        factors = []
        for id in self.replicas:
            drawn = []
            for stretch in self.speeds[id]:
                factor = exp(min(max(rng.gauss(0.0, stretch.error), -MOST_OFF), MOST_OFF))
                begin = stretch.begin + stretch.margin * rng.uniform(-1.0, 1.0)
                factors.append(factor)
                drawn.append(replace(stretch, begin=begin, speed=stretch.speed * factor))
            speeds[id] = drawn
        seconds = max(0.0, rng.gauss(self.way.seconds, self.way.error))
        more = seconds - self.way.seconds
        work = np.maximum(self.work - more * self.on_way, FLOOR)
        work = work * np.where(self.met == NOWHERE, 1.0, np.array(factors)[self.met])
        if len(self.redrawn):
            work[self.redrawn] = self.guesses.draw(rng)[self.redrawn]
        way = replace(self.way, seconds=seconds)
        return replace(self, speeds=speeds, work=work, way=way, overhead=self.overhead + more)


def explain(recording: Recording, kind: ServerKind | None = None) -> Explanation:
    """`kind`: what the replicas are known to be like; without it, what explains the log best."""
    asked = recording.asked
    members = {member.id for line in recording.fleet for member in line.replicas}
    replicas = sorted({a.replica for one in asked for a in one.attempts} | members)
    ended = ended_attempts(recording, replicas)
    attempts = attempts_of(recording, ended)
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
    guessed = reading.guesses()
    work, met = reading.work(guessed)
    _fit_into(stalls, attempts, reading, work)
    redrawn = met == NOWHERE
    redrawn[attempts.request[late]] = False
    failing, excused = find_failing(ended)
    fates = reading.fates(asked, excused | lost_with_their_replica(recording, ended))
    found = attempts.found_there()
    return Explanation(
        kind=chosen,
        replicas=replicas,
        work=work,
        speeds=reading.speeds,
        failing=failing,
        fates=fates,
        stalls=stalls,
        overhead=_overhead(asked) + way.seconds,
        way=way,
        met=met,
        guesses=guessed,
        redrawn=np.flatnonzero(redrawn),
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
        self.told = attempts.request[told]
        self.fitted = fit(ln_demand, known[self.told], attempts.replica[told], len(replicas))
        self.speeds = find_speeds(attempts, told, self.fitted, replicas)
        self.met = stretch_met(attempts, replicas, self.speeds)
        self.speed = np.array([stretch.speed for id in replicas for stretch in self.speeds[id]])[self.met]

    def guesses(self) -> Guesses:
        """What was cut off asked for more than it had got."""
        whole, cut = self.attempts.whole, self.attempts.cut
        seen = np.maximum(self.demand[whole], FLOOR) * self.speed[whole]
        had = np.zeros(len(self.known))
        np.maximum.at(had, self.attempts.request[cut], np.maximum(self.demand[cut], FLOOR) * self.speed[cut])
        with np.errstate(divide="ignore"):
            at_least = np.log(had)
        return guesses(self.known @ self.fitted.base, at_least, self.fitted.residual, seen, self.told)

    def fates(self, asked: list[Asked], excused: set[tuple[int, int]]) -> dict[int, Fate]:
        """`excused`: attempts, by request and place, that failed by what their replica was like then."""
        attempts = self.attempts
        turns = np.flatnonzero(~attempts.whole & (self.demand > FLOOR))
        places = zip(attempts.request[turns].tolist(), attempts.nth[turns].tolist(), strict=True)
        works = dict(zip(places, (self.demand[turns] * self.speed[turns]).tolist(), strict=True))
        found = {number: fate_of(one, number, excused, works) for number, one in enumerate(asked)}
        return {number: fate for number, fate in found.items() if fate is not None}

    def work(self, guessed: Guesses) -> tuple[Numbers, NDArray[np.int64]]:
        """By request: what it asked for, and the stretch in which it was served."""
        whole = self.attempts.whole
        request = self.attempts.request[whole]
        work = guessed.draw(Random("guesses"))
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
            work[requests] = np.maximum(work[requests] * (fits if place in left else min(1.0, fits)), FLOOR)


def _overhead(asked: list[Asked]) -> float:
    """The usual time from the end of the attempt to the end of the request."""
    rests = [
        one.seconds - max(a.after + a.seconds for a in one.attempts if a.seconds is not None)
        for one in asked
        if one.answered and any(a.seconds is not None for a in one.attempts)
    ]
    return max(0.0, float(np.median(rests))) if rests else 0.0
