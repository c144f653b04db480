"""The coefficients of an engine, fitted to a decision log: `steelyard simulate --fit`.

Idea: an answer of O tokens takes part in O − 1 steps after its first token. From the log it is known what ran beside
it, so its time is linear in the coefficients:

    last − first = a·(O − 1) + b·(O − 1)·n̄ + k·(O − 1)·K̄ + c·(prompt tokens computed meanwhile) + h·(requests admitted)

with n̄ sequences and K̄ tokens of context on average. A prompt that came to an idle replica adds
first − sent = steps·a + c·tokens + h. Least squares of relative errors, no coefficient negative.

The error is that of a replay on simulated engines, with the hits that the log has: each half of the log with the
coefficients of the other half.

Source: Vidur (Agrawal et al., MLSys 2024) fits such steps to profiles. Limits: all replicas are one kind of engine;
memory and budgets are the defaults of EngineModel; time in the network counts as the engine's.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil

import msgspec
import numpy as np
from numpy.typing import NDArray

from ...core.errors import OptionError
from ...documents import Seconds
from .model import EngineModel
from .recorded import RecordedAnswer, replay

COEFFICIENTS = ("step_base", "per_sequence", "per_context_token", "per_prefill_token", "request_overhead")
MIN_ANSWERS = 100
MIN_STEP_SECONDS = 1e-5

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class RelativeErrors:
    """|simulated / observed − 1|."""

    mean: float
    p99: float


@dataclass(frozen=True, slots=True)
class EngineFit:
    model: EngineModel
    halves: tuple[EngineModel, EngineModel]  # from either half of the log
    first_byte: RelativeErrors
    end_to_end: RelativeErrors


def fit_engine(answers: Sequence[RecordedAnswer]) -> EngineFit:
    """Of answers in the order in which they were sent."""
    known = sum(1 for answer in answers if answer.known)
    if known < MIN_ANSWERS:
        raise OptionError(f"{known} answers with token counts are too few to fit: at least {MIN_ANSWERS}")
    middle = len(answers) // 2
    halves = least_squares(answers[:middle]), least_squares(answers[middle:])
    times = [*replay(answers, halves[1])[:middle], *replay(answers, halves[0])[middle:]]
    pairs = [(answer, both) for answer, both in zip(answers, times, strict=True) if answer.known]
    return EngineFit(
        least_squares(answers),
        halves,
        _errors([abs((when - answer.sent) / (answer.first - answer.sent) - 1.0) for answer, (when, _) in pairs]),
        _errors([abs((when - answer.sent) / (answer.last - answer.sent) - 1.0) for answer, (_, when) in pairs]),
    )


def _errors(values: Sequence[float]) -> RelativeErrors:
    return RelativeErrors(float(np.mean(values)), float(np.quantile(values, 0.99)))


def least_squares(answers: Sequence[RecordedAnswer]) -> EngineModel:
    by_replica: dict[str, list[RecordedAnswer]] = defaultdict(list)
    for answer in answers:
        by_replica[answer.replica].append(answer)
    rows: list[list[float]] = []
    seconds: list[float] = []
    for mine in by_replica.values():
        _add_rows(mine, rows, seconds)
    observed = np.array(seconds)
    found = _non_negative(np.array(rows) / observed[:, None], np.ones(len(rows)))
    values = {name: Seconds(value) for name, value in zip(COEFFICIENTS, found, strict=True)}
    values["step_base"] = Seconds(max(values["step_base"], MIN_STEP_SECONDS))
    return msgspec.structs.replace(EngineModel(), **values)


def _add_rows(answers: Sequence[RecordedAnswer], rows: list[list[float]], seconds: list[float]) -> None:
    prefill = [(a.sent, a.first, float(a.prompt - a.cached)) for a in answers]
    admitted = [(a.sent, a.first, 1.0) for a in answers]
    decode = [(a.first, a.last, 1.0) for a in answers]
    context = [(a.first, a.last, a.prompt + a.output / 2) for a in answers]
    tokens = _Integral([(begin, end, amount / (end - begin)) for begin, end, amount in prefill if end > begin])
    requests = _Integral([(begin, end, amount / (end - begin)) for begin, end, amount in admitted if end > begin])
    sequences, contexts = _Integral(decode), _Integral(context)
    prompts = _Integral(admitted)
    for answer in answers:
        steps, took = answer.output - 1, answer.last - answer.first
        if answer.known and steps > 0 and took > 0.0:
            beside = steps / took
            rows.append(
                [
                    float(steps),
                    beside * sequences.between(answer.first, answer.last),
                    beside * contexts.between(answer.first, answer.last),
                    tokens.between(answer.first, answer.last),
                    requests.between(answer.first, answer.last),
                ]
            )
            seconds.append(took)
        waited, computed = answer.first - answer.sent, answer.prompt - answer.cached
        alone = prompts.between(answer.sent, answer.first) < 1.001 * waited
        if answer.known and alone and sequences.between(answer.sent, answer.first) <= 0.0 < waited:
            rows.append([float(ceil(computed / EngineModel().prefill_budget)), 0.0, 0.0, float(computed), 1.0])
            seconds.append(waited)


class _Integral:
    """∫ over time of a sum of rectangles."""

    def __init__(self, rectangles: Sequence[tuple[float, float, float]]) -> None:
        """Each: begin, end, height."""
        turns = [(begin, height) for begin, _, height in rectangles]
        turns += [(end, -height) for _, end, height in rectangles]
        turns.sort()
        self._times = np.array([when for when, _ in turns] or [0.0])
        self._heights = np.cumsum([step for _, step in turns] or [0.0])
        gaps = np.diff(self._times, append=self._times[-1])
        self._sums = np.concatenate([[0.0], np.cumsum(gaps * self._heights)])

    def _until(self, when: float) -> float:
        place = int(np.searchsorted(self._times, when, side="right")) - 1
        if place < 0:
            return 0.0
        return float(self._sums[place] + (when - self._times[place]) * self._heights[place])

    def between(self, begin: float, end: float) -> float:
        return self._until(end) - self._until(begin)


def _non_negative(rows: Array, wanted: Array) -> list[float]:
    """Least squares; what comes out negative is left out, the worst first."""
    used = list(range(rows.shape[1]))
    while True:
        scale = np.maximum(np.abs(rows[:, used]).max(axis=0), 1e-300)
        found = np.linalg.lstsq(rows[:, used] / scale, wanted, rcond=None)[0] / scale
        worst = int(np.argmin(found * scale))
        if found[worst] >= 0.0 or len(used) == 1:
            break
        del used[worst]
    values = [0.0] * rows.shape[1]
    for place, value in zip(used, found, strict=True):
        values[place] = max(0.0, float(value))
    return values
