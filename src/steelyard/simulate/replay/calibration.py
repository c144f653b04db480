"""A recording explained: the kind of server, speeds over time, and each request's work.

The kind of server is the one under which the observed ends are most likely. A request's own time is its work times the
slowness of its replica: a regression of ln(demand) on features and replica separates the two. Requests that no replica
finished get a work drawn from what their features make likely.
"""

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
from .recording import RecordedRequest, Recording
from .server_models import SERVER_MODELS, BatchModel, FloatArray, ServerModel, SlotModel
from .speeds import SpeedSegments, design_matrix, fit_regression, fit_speed_segments, segment_of_attempts
from .stalls import Stall, ended_in_stall, find_stalls

NOT_SERVED = -1
MAX_LOG_SPEED_ERROR = log(4.0)  # of a drawn speed
MAX_SELECTION_ATTEMPTS = 20_000  # to choose a kind of server by
IMPOSSIBLE_LIKELIHOOD = 1e-4  # that a request took less than nothing


@dataclass(frozen=True)
class WorkPrior:
    """Work of requests that no replica finished, as ln of seconds at speed 1."""

    typical: FloatArray  # by request
    at_least: FloatArray  # what was done when it was cut off; -inf: not known
    spread: FloatArray  # residuals of the others
    limits: tuple[float, float]  # seen elsewhere

    def draw(self, rng: Random) -> FloatArray:
        drawn = self.typical + np.array(rng.choices(self.spread.tolist(), k=len(self.typical)))
        ordered = np.sort(self.spread)
        for n in np.flatnonzero(drawn < self.at_least):  # draw again, above what was done
            first = int(np.searchsorted(ordered, self.at_least[n] - self.typical[n]))
            if first < len(ordered):
                drawn[n] = self.typical[n] + ordered[rng.randrange(first, len(ordered))]
        return np.asarray(np.exp(np.maximum(np.clip(drawn, *self.limits), self.at_least)))


@dataclass(frozen=True)
class Calibration:
    server_model: ServerModel
    replicas: list[str]
    work: FloatArray  # by request: seconds alone on a replica of speed 1
    speeds: SpeedSegments
    failure_windows: dict[str, list[FailureWindow]]
    request_failures: dict[int, RequestFailures]
    stalls: list[Stall]
    overhead: float  # seconds of a request outside its attempts
    segment: NDArray[np.int64]  # by request, over all replicas; NOT_SERVED: its work is a guess
    work_prior: WorkPrior
    redrawn_requests: NDArray[np.int64]  # whose work may as well be another guess
    saw_concurrency: bool  # ever two at once on a replica
    unlogged_per_request: float  # at replicas, for each request of the log

    @property
    def guessed(self) -> int:
        """Requests that no replica finished, but one might."""
        return int((self.segment == NOT_SERVED).sum()) - self.failed

    @property
    def failed(self) -> int:
        return sum(fate.always for fate in self.request_failures.values())

    def resampled(self, rng: Random) -> Calibration:
        """Other speeds within their errors, other guesses."""
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
        work = self.work * np.where(self.segment == NOT_SERVED, 1.0, np.array(factors)[self.segment])
        if len(self.redrawn_requests):
            work[self.redrawn_requests] = self.work_prior.draw(rng)[self.redrawn_requests]
        return replace(self, speeds=speeds, work=work)


def calibrate(recording: Recording, kind: ServerModel | None = None) -> Calibration:
    """`kind` None: the one that explains the log best."""
    asked = recording.requests
    members = {member.id for line in recording.fleet for member in line.replicas}
    replicas = sorted({a.replica for one in asked for a in one.attempts} | members)
    ended = ended_attempts(recording, replicas)
    attempts = collect_attempts(recording, ended)
    if not attempts.completed.any():
        raise OptionError("no request in the log was served to its end: there is nothing to replay")
    stalls = find_stalls(np.array([one.at - recording.begin for one in asked]), attempts)
    late = ended_in_stall(stalls, attempts)
    if (attempts.completed & ~late).any():
        attempts.completed &= ~late  # when it ended is not known
    known = design_matrix(asked)
    chosen = kind or select_server_model(attempts, known, len(replicas))
    reading = _Decomposition(attempts, known, replicas, chosen)
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
        overhead=_overhead(asked),
        segment=met,
        work_prior=guessed,
        redrawn_requests=np.flatnonzero(redrawn),
        saw_concurrency=bool((found > 0).any()),
        unlogged_per_request=float(np.maximum(attempts.logged_in_flight - found, 0.0).mean()),
    )


class _Decomposition:
    """Times of attempts, split into work of requests and speeds of replicas."""

    def __init__(self, attempts: Attempts, known: FloatArray, replicas: list[str], kind: ServerModel) -> None:
        self.attempts, self.known = attempts, known
        self.demand, _ = attempts.demands(kind)
        # an attempt that seems to end with another was seen late
        informative = attempts.completed & (self.demand > MIN_DEMAND_SECONDS)
        informative = informative if informative.any() else attempts.completed
        ln_demand = np.log(np.maximum(self.demand[informative], MIN_DEMAND_SECONDS))
        self.informative = attempts.request[informative]
        self.fitted = fit_regression(ln_demand, known[self.informative], attempts.replica[informative], len(replicas))
        self.speeds = fit_speed_segments(attempts, informative, self.fitted, replicas)
        self.met = segment_of_attempts(attempts, replicas, self.speeds)
        self.speed = np.array([stretch.speed for id in replicas for stretch in self.speeds[id]])[self.met]

    def guesses(self) -> WorkPrior:
        whole, cut = self.attempts.completed, self.attempts.censored
        seen = np.maximum(self.demand[whole], MIN_DEMAND_SECONDS) * self.speed[whole]
        had = np.zeros(len(self.known))
        np.maximum.at(
            had, self.attempts.request[cut], np.maximum(self.demand[cut], MIN_DEMAND_SECONDS) * self.speed[cut]
        )
        with np.errstate(divide="ignore"):
            at_least = np.log(had)
        typical = self.known @ self.fitted.base
        fitted = typical[self.informative]
        limits = float(np.log(seen.min())), float(np.log(seen.max()))
        return WorkPrior(np.clip(typical, fitted.min(), fitted.max()), at_least, self.fitted.residual, limits)

    def fates(self, asked: list[RecordedRequest], excused: set[tuple[int, int]]) -> dict[int, RequestFailures]:
        """`excused`: attempts, by request and place, that failed because of their replica."""
        attempts = self.attempts
        turns = np.flatnonzero(~attempts.completed & (self.demand > MIN_DEMAND_SECONDS))
        places = zip(attempts.request[turns].tolist(), attempts.nth[turns].tolist(), strict=True)
        works = dict(zip(places, (self.demand[turns] * self.speed[turns]).tolist(), strict=True))
        found = {number: failures_of_request(one, number, excused, works) for number, one in enumerate(asked)}
        return {number: fate for number, fate in found.items() if fate is not None}

    def work(self, guessed: WorkPrior) -> tuple[FloatArray, NDArray[np.int64]]:
        """By request: its work, and the stretch in which it was served."""
        whole = self.attempts.completed
        request = self.attempts.request[whole]
        work = guessed.draw(Random("guesses"))
        work[request] = np.maximum(self.demand[whole], MIN_DEMAND_SECONDS) * self.speed[whole]
        met = np.full(len(work), NOT_SERVED, dtype=np.int64)
        met[request] = self.met[whole]
        return work, met


def _fit_into_stalls(stalls: list[Stall], attempts: Attempts, reading: _Decomposition, work: FloatArray) -> None:
    """Work finished during a stall fits into it, and fills it if there was more to do."""
    done = np.maximum(reading.demand, 0.0) * reading.speed
    for stall in stalls:
        late = ended_in_stall([stall], attempts)
        left = attempts.replica[(attempts.start <= stall.begin) & (attempts.end > stall.caught_up)]
        for place in np.unique(attempts.replica[late]):
            mine = late & (attempts.replica == place)
            requests = attempts.request[mine]
            fits = float(done[mine].sum() / work[requests].sum())
            factor = fits if place in left else min(1.0, fits)
            work[requests] = np.maximum(work[requests] * factor, MIN_DEMAND_SECONDS)


def _overhead(asked: list[RecordedRequest]) -> float:
    """The median time from the end of the attempt to the end of the request."""
    rests = [
        one.seconds - max(a.after + a.seconds for a in one.attempts if a.seconds is not None)
        for one in asked
        if one.answered and any(a.seconds is not None for a in one.attempts)
    ]
    return max(0.0, float(np.median(rests))) if rests else 0.0


def select_server_model(attempts: Attempts, known: FloatArray, replicas: int) -> ServerModel:
    """The most likely kind; a slope pays for what it explains by chance."""
    part = attempts.earliest(MAX_SELECTION_ATTEMPTS)
    by_chance = {SlotModel: 0.0, BatchModel: 0.5 * log(max(len(part.start), 1))}
    likely = [_likelihood(kind, part, known, replicas) - by_chance[type(kind)] for kind in SERVER_MODELS]
    best = max(likely)
    return next(
        kind for kind, value in zip(SERVER_MODELS, likely, strict=True) if value >= best - 1e-6 * abs(best) - 1e-9
    )


def _likelihood(kind: ServerModel, attempts: Attempts, known: FloatArray, replicas: int) -> float:
    """ln of the density of the observed ends, with demands lognormal around the regression."""
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
