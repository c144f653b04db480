"""What really happened, explained: what replicas are like, how fast each was when, and what each request asked for."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import exp, log
from random import Random

import numpy as np
from numpy.typing import NDArray

from ...core.errors import OptionError
from .attempts import MIN_DEMAND_SECONDS, Attempts, collect_attempts
from .failures import (
    FailureWindow,
    RequestFailures,
    ended_attempts,
    failures_of_request,
    find_failure_windows,
    killed_with_replica,
)
from .model_selection import NetworkDelay, estimate_network_delay, select_server_model
from .recording import RecordedRequest, Recording
from .server_models import FloatArray, ServerModel
from .speeds import SpeedSegments, design_matrix, fit_regression, fit_speed_segments, segment_of_attempts
from .stalls import Stall, ended_in_stall, find_stalls

# What requests ask for that nobody finished. No guess is above the largest that was seen, or below the least.


@dataclass(frozen=True)
class WorkPrior:
    """As what is known of each says, spread as the others are around that. Logarithms of seconds at speed 1."""

    typical: FloatArray  # by request
    at_least: FloatArray  # by request: so much was done when it was cut off; -inf: nothing is known
    spread: FloatArray  # of the others
    least: float
    most: float

    def draw(self, rng: Random) -> FloatArray:
        """Seconds, by request."""
        drawn = self.typical + np.array(rng.choices(self.spread.tolist(), k=len(self.typical)))
        ordered = np.sort(self.spread)
        for n in np.flatnonzero(drawn < self.at_least):  # once more, of what leaves room for that which was done
            first = int(np.searchsorted(ordered, self.at_least[n] - self.typical[n]))
            if first < len(ordered):
                drawn[n] = self.typical[n] + ordered[rng.randrange(first, len(ordered))]
        return np.asarray(np.exp(np.maximum(np.clip(drawn, self.least, self.most), self.at_least)))


def fit_work_prior(
    typical: FloatArray, at_least: FloatArray, residual: FloatArray, seen: FloatArray, told: NDArray[np.int64]
) -> WorkPrior:
    """`seen`: work of the requests that were finished; `told`: requests that the fit knows."""
    known = typical[told]
    within = np.clip(typical, known.min(), known.max())
    least, most = float(np.log(seen.min())), float(np.log(seen.max()))
    return WorkPrior(within, at_least, residual, least, most)


DELAY_STEP_SECONDS = 1e-5  # seconds
NOT_SERVED = -1
MAX_LOG_SPEED_ERROR = log(4.0)  # no speed is drawn further than so from what it seems to be


@dataclass(frozen=True)
class Calibration:
    server_model: ServerModel
    replicas: list[str]
    work: FloatArray  # by request: seconds alone on a replica of speed 1
    speeds: SpeedSegments
    failure_windows: dict[str, list[FailureWindow]]
    request_failures: dict[int, RequestFailures]  # by request, where something went wrong with it
    stalls: list[Stall]
    overhead: float  # seconds of a request that are no replica's
    network_delay: NetworkDelay  # a part of that
    segment: NDArray[np.int64]  # by request: in which stretch of all it was served; NOWHERE: its work is a guess
    work_prior: WorkPrior
    redrawn_requests: NDArray[np.int64]  # requests whose work may as well be another guess
    work_per_delay_second: FloatArray  # by request: how much more work it was if the way was a second shorter
    sigma: float  # of ln(demand), that nothing known explains
    saw_concurrency: bool  # were there ever two at once on a replica?
    unlogged_per_request: float  # requests at a replica that the log does not tell of, for each that it does

    @property
    def guessed(self) -> int:
        """Requests whose demand is a guess: no replica ever finished them, but one might."""
        return int((self.segment == NOT_SERVED).sum()) - self.failed

    @property
    def failed(self) -> int:
        """Requests that fail wherever they go."""
        return sum(fate.always for fate in self.request_failures.values())

    def resampled(self, rng: Random) -> Calibration:
        """Another that the log allows as well: speeds, when they changed, and the way are known within errors only, and
        what nobody finished is a guess.

        A request that goes where it went then takes as long as it did: only what it would take elsewhere differs.
        """
        speeds: SpeedSegments = {}
        factors = []
        for id in self.replicas:
            drawn = []
            for stretch in self.speeds[id]:
                factor = exp(min(max(rng.gauss(0.0, stretch.error), -MAX_LOG_SPEED_ERROR), MAX_LOG_SPEED_ERROR))
                begin = stretch.begin + stretch.begin_error * rng.uniform(-1.0, 1.0)
                factors.append(factor)
                drawn.append(replace(stretch, begin=begin, speed=stretch.speed * factor))
            speeds[id] = drawn
        seconds = max(0.0, rng.gauss(self.network_delay.seconds, self.network_delay.error))
        more = seconds - self.network_delay.seconds
        work = np.maximum(self.work - more * self.work_per_delay_second, MIN_DEMAND_SECONDS)
        work = work * np.where(self.segment == NOT_SERVED, 1.0, np.array(factors)[self.segment])
        if len(self.redrawn_requests):
            work[self.redrawn_requests] = self.work_prior.draw(rng)[self.redrawn_requests]
        way = replace(self.network_delay, seconds=seconds)
        return replace(self, speeds=speeds, work=work, network_delay=way, overhead=self.overhead + more)


def calibrate(recording: Recording, kind: ServerModel | None = None) -> Calibration:
    """`kind`: what the replicas are known to be like; without it, what explains the log best."""
    asked = recording.requests
    members = {member.id for line in recording.fleet for member in line.replicas}
    replicas = sorted({a.replica for one in asked for a in one.attempts} | members)
    ended = ended_attempts(recording, replicas)
    attempts = collect_attempts(recording, ended)
    if not attempts.completed.any():
        raise OptionError("no request in the log was served to its end: there is nothing to replay")
    stalls = find_stalls(np.array([one.arrived_at - recording.begin for one in asked]), attempts)
    late = ended_in_stall(stalls, attempts)
    if (attempts.completed & ~late).any():
        attempts.completed &= ~late  # when it ended nobody knows
    known = design_matrix(asked)
    chosen = kind or select_server_model(attempts, known, len(replicas))
    first = _Decomposition(attempts, known, replicas, chosen, 0.0)
    way = estimate_network_delay(chosen, attempts, known, len(replicas), first.speed)
    reading = _Decomposition(attempts, known, replicas, chosen, way.seconds) if way.seconds else first
    guessed = reading.guesses()
    work, met = reading.work(guessed)
    _fit_into_stalls(stalls, attempts, reading, work)
    redrawn = met == NOT_SERVED
    redrawn[attempts.request[late]] = False
    failing, excused = find_failure_windows(ended)
    fates = reading.fates(asked, excused | killed_with_replica(recording, ended))
    found = attempts.in_flight_at_start()
    return Calibration(
        server_model=chosen,
        replicas=replicas,
        work=work,
        speeds=reading.speeds,
        failure_windows=failing,
        request_failures=fates,
        stalls=stalls,
        overhead=_overhead(asked) + way.seconds,
        network_delay=way,
        segment=met,
        work_prior=guessed,
        redrawn_requests=np.flatnonzero(redrawn),
        work_per_delay_second=reading.on_way() if way.error else np.zeros(len(asked)),
        sigma=reading.fitted.sigma,
        saw_concurrency=bool((found > 0).any()),
        unlogged_per_request=float(np.maximum(attempts.logged_in_flight - found, 0.0).mean()),
    )


class _Decomposition:
    """The attempts read as if replicas were of a kind, and so many seconds of each attempt were spent on the way."""

    def __init__(
        self, attempts: Attempts, known: FloatArray, replicas: list[str], kind: ServerModel, way: float
    ) -> None:
        self.attempts, self.known, self.kind, self.way = attempts, known, kind, way
        self.demand, _ = attempts.demands(kind, way)
        told = attempts.completed & (
            self.demand > MIN_DEMAND_SECONDS
        )  # what ended with another, seen late, tells no speed
        told = told if told.any() else attempts.completed
        ln_demand = np.log(np.maximum(self.demand[told], MIN_DEMAND_SECONDS))
        self.told = attempts.request[told]
        self.fitted = fit_regression(ln_demand, known[self.told], attempts.replica[told], len(replicas))
        self.speeds = fit_speed_segments(attempts, told, self.fitted, replicas)
        self.met = segment_of_attempts(attempts, replicas, self.speeds)
        self.speed = np.array([stretch.speed for id in replicas for stretch in self.speeds[id]])[self.met]

    def guesses(self) -> WorkPrior:
        """What was cut off asked for more than it had got."""
        whole, cut = self.attempts.completed, self.attempts.censored
        seen = np.maximum(self.demand[whole], MIN_DEMAND_SECONDS) * self.speed[whole]
        had = np.zeros(len(self.known))
        np.maximum.at(
            had, self.attempts.request[cut], np.maximum(self.demand[cut], MIN_DEMAND_SECONDS) * self.speed[cut]
        )
        with np.errstate(divide="ignore"):
            at_least = np.log(had)
        return fit_work_prior(self.known @ self.fitted.base, at_least, self.fitted.residual, seen, self.told)

    def fates(self, asked: list[RecordedRequest], excused: set[tuple[int, int]]) -> dict[int, RequestFailures]:
        """`excused`: attempts, by request and place, that failed by what their replica was like then."""
        attempts = self.attempts
        turns = np.flatnonzero(~attempts.completed & (self.demand > MIN_DEMAND_SECONDS))
        places = zip(attempts.request[turns].tolist(), attempts.nth[turns].tolist(), strict=True)
        works = dict(zip(places, (self.demand[turns] * self.speed[turns]).tolist(), strict=True))
        found = {number: failures_of_request(one, number, excused, works) for number, one in enumerate(asked)}
        return {number: fate for number, fate in found.items() if fate is not None}

    def work(self, guessed: WorkPrior) -> tuple[FloatArray, NDArray[np.int64]]:
        """By request: what it asked for, and the stretch in which it was served."""
        whole = self.attempts.completed
        request = self.attempts.request[whole]
        work = guessed.draw(Random("guesses"))
        work[request] = np.maximum(self.demand[whole], MIN_DEMAND_SECONDS) * self.speed[whole]
        met = np.full(len(work), NOT_SERVED, dtype=np.int64)
        met[request] = self.met[whole]
        return work, met

    def on_way(self) -> FloatArray:
        whole = self.attempts.completed
        longer, _ = self.attempts.demands(self.kind, self.way + DELAY_STEP_SECONDS)
        found = np.zeros(len(self.known))
        found[self.attempts.request[whole]] = ((self.demand - longer) / DELAY_STEP_SECONDS * self.speed)[whole]
        return np.maximum(found, 0.0)


def _fit_into_stalls(stalls: list[Stall], attempts: Attempts, reading: _Decomposition, work: FloatArray) -> None:
    """What a replica finished during a standstill fits into it, and fills it if there was more to do all along."""
    done = np.maximum(reading.demand, 0.0) * reading.speed
    for stall in stalls:
        late = ended_in_stall([stall], attempts)
        left = attempts.replica[(attempts.start <= stall.begin) & (attempts.end > stall.caught_up)]
        for place in np.unique(attempts.replica[late]):
            mine = late & (attempts.replica == place)
            requests = attempts.request[mine]
            fits = float(done[mine].sum() / work[requests].sum())
            work[requests] = np.maximum(
                work[requests] * (fits if place in left else min(1.0, fits)), MIN_DEMAND_SECONDS
            )


def _overhead(asked: list[RecordedRequest]) -> float:
    """The usual time from the end of the attempt to the end of the request."""
    rests = [
        one.seconds - max(a.after + a.seconds for a in one.attempts if a.seconds is not None)
        for one in asked
        if one.answered and any(a.seconds is not None for a in one.attempts)
    ]
    return max(0.0, float(np.median(rests))) if rests else 0.0
