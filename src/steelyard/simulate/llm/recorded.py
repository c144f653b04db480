"""Requests of a decision log as engines saw them: when each came to which replica, its tokens, its first and last byte.

`replay` sends them to simulated engines again, each where and when it was sent, with the cache hits it had.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import count
from statistics import median

from ...core.errors import OptionError
from ..engine.job import Job, TokenJob
from ..replay.recording import Recording
from .model import EngineModel
from .server import EngineServer

BLOCK_TOKENS = 16
MIN_KNOWN_SHARE = 0.5  # of the answers: fewer with token counts say too little of the load


@dataclass(frozen=True, slots=True)
class RecordedAnswer:
    replica: str
    sent: float  # seconds since the first
    first: float
    last: float
    prompt: int
    output: int
    cached: int
    known: bool  # its tokens were counted, and it was streamed; else they are typical ones


@dataclass(frozen=True, slots=True)
class AnswerLog:
    answers: list[RecordedAnswer]  # in the order in which they were sent
    notes: list[str]  # what the log does not say

    @property
    def known(self) -> list[RecordedAnswer]:
        return [answer for answer in self.answers if answer.known]


def answers_of(recording: Recording) -> AnswerLog:
    """Of the attempts that answered. Raises OptionError where what a fit needs is missing in all lines."""
    lines = [line for line in recording.requests if line.answered]
    counted = [line for line in lines if line.prompt_tokens and line.output_tokens and line.first_byte]
    missing = [
        name
        for name in ("prompt_tokens", "output_tokens", "first_byte")
        if sum(1 for line in lines if getattr(line, name)) < MIN_KNOWN_SHARE * len(lines)
    ]
    if missing or len(counted) < MIN_KNOWN_SHARE * len(lines):
        names = " and ".join(missing) or "prompt_tokens, output_tokens and first_byte together"
        raise OptionError(
            f"{recording.model}: {names} missing in most lines: the log must be of streamed answers that report their "
            "`usage` (`stream_options: {include_usage: true}`)"
        )
    notes = []
    if len(counted) < len(lines):
        notes.append(f"{len(lines) - len(counted)} of {len(lines)} answers have no token counts: typical ones assumed")
    if not any(line.cached_tokens for line in counted):
        notes.append("cached_tokens is missing, or nothing was cached: all prompt tokens count as computed")
    prompt = round(median(line.prompt_tokens for line in counted))
    output = round(median(line.output_tokens for line in counted))
    begin, answers = recording.begin, []
    for line in lines:
        attempt = line.attempts[-1]
        known = bool(line.prompt_tokens and line.output_tokens and line.first_byte)
        arrived = line.at - begin
        answers.append(
            RecordedAnswer(
                attempt.replica,
                arrived + attempt.after,
                arrived + (line.first_byte or line.seconds),
                arrived + line.seconds,
                line.prompt_tokens or prompt,
                line.output_tokens or output,
                min(line.cached_tokens, line.prompt_tokens - 1) if line.prompt_tokens else 0,
                known,
            )
        )
    return AnswerLog(sorted(answers, key=lambda answer: answer.sent), notes)


def recorded_job(answer: RecordedAnswer) -> TokenJob:
    job = TokenJob(answer.sent, answer.last - answer.sent, answer.prompt, answer.output, (), BLOCK_TOKENS)
    job.given_hits = max(0, answer.cached)
    return job


def replay(answers: Sequence[RecordedAnswer], model: EngineModel) -> list[tuple[float, float]]:
    """When the first and the last token of each came; inf where it could never fit."""
    by_replica: dict[str, list[int]] = defaultdict(list)
    for place, answer in enumerate(answers):
        by_replica[answer.replica].append(place)
    times = [(float("inf"), float("inf"))] * len(answers)
    for replica, places in by_replica.items():
        found = _replay_one(EngineServer(replica, model, BLOCK_TOKENS), [answers[place] for place in places])
        for place, both in zip(places, found, strict=True):
            times[place] = both
    return times


def _replay_one(engine: EngineServer, answers: Iterable[RecordedAnswer]) -> list[tuple[float, float]]:
    events: list[tuple[float, int, Job]] = []
    jobs = [recorded_job(answer) for answer in answers]
    last: dict[Job, float] = {}
    numbers = count()

    def schedule(when: float, job: Job) -> None:
        heappush(events, (when, next(numbers), job))

    def run_until(when: float) -> None:
        while events and events[0][0] <= when:
            now, _, job = heappop(events)
            if job.finish != now or isinstance(job, TokenJob):
                continue  # stale, or refused
            job.finish = -1.0
            engine.ended(job, now, schedule)
            for started in engine.take_started():
                started.first_token_at = now
            for done in engine.take_finished():
                last[done] = now

    for job in jobs:
        run_until(job.intended_at)
        engine.accept(job, job.intended_at, schedule)
    run_until(float("inf"))
    return [(job.first_token_at, last[job]) if job in last else (float("inf"), float("inf")) for job in jobs]
