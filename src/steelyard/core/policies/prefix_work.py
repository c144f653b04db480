"""Least prompt tokens left to read, cached prefixes counted: for engines that batch text generation.

Idea: such an engine reads prompts one after the other, and writes all answers at once. A request goes where it will be
read soonest: where few tokens wait, and where most of its own prompt is in the cache already. A hot prefix spreads by
itself: its replica gets busy.

Formula: scoreᵢ = vᵢ · dragᵢ · (Pᵢ + 1.5 · uᵢ + Kᵢ / 10); least wins, and of those within `tie` the one with the fewest
requests. u is what is not cached of the prompt, P what waits to be read, K the prompt tokens of all in flight, v how
slow the replica reads (1: as usual), drag slow start and failures (core/prefixes).

Source: docs/decisions/0036-prompts-and-engines.md. Limits: a request without a prompt goes by `least_work`; above 64
candidates it compares those that hold most of the prompt and a sample.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import ClassVar

from ..estimator.patience import SAMPLE_ABOVE_CANDIDATES
from ..outcome import Outcome
from ..prefixes.engine_load import DEFAULT_CACHE_BLOCKS
from ..prefixes.prefill import PrefillModel
from ..replica import Replica
from ..request import Attempt, Request
from .base import number
from .least_work import LeastWork


class PrefixWork(LeastWork):
    needs_prompt = True
    renamed_options: ClassVar[dict[str, str]] = {}

    rule = "the replica that will have read this prompt soonest, by tokens to read that its cache does not hold"
    wins = "LLM engines that batch and cache prefixes (vLLM, SGLang, TGI): conversations, tools, unequal GPUs"
    loses = "nothing to gain for requests without a prompt, which go by least_work"
    score_meaning = "prompt tokens to be read before its first byte, at the speed of a typical replica"
    chosen_because = "expected to have read its prompt soonest"

    def __init__(
        self,
        rng: Random,
        *,
        cache_blocks: int = DEFAULT_CACHE_BLOCKS,
        wait_factor: float = 1.0,
        tie: float = 0.1,
    ) -> None:
        super().__init__(rng, wait_factor=wait_factor, tie=tie)
        self.prefill = PrefillModel(int(number("cache_blocks", cache_blocks, least=1)))

    @property
    def prefix_index_blocks(self) -> int:
        return self.prefill.index.entries

    def joined(self, replica: Replica, now: float) -> None:
        self.prefill.join(replica, now)

    def reweighted(self, replica: Replica, now: float) -> None:
        if replica.notes is not None:
            self.prefill.look_up_weight(replica)

    def restarted(self, replica: Replica, now: float) -> None:
        self.prefill.forget(replica, False)

    def removed(self, replica: Replica, now: float) -> None:
        self.prefill.forget(replica, True)

    def tick(self, members: Sequence[Replica], now: float) -> None:
        self.prefill.review(members, now)

    def choose(self, request: Request, candidates: Sequence[Replica], now: float) -> Replica:
        prompt = request.prompt
        if prompt is None:
            return super().choose(request, candidates, now)
        if len(candidates) == 1:
            return candidates[0]
        prefill = self.prefill
        if len(candidates) > SAMPLE_ABOVE_CANDIDATES:
            some = self._sample(request, candidates)
            if prompt.blocks:
                prefill.add_longest_matches(some, prompt, candidates, self._random())
            matched = prefill.match_some(prompt, some)
            candidates = some
        else:
            matched = prefill.match(prompt)
        self._last = choice = prefill.least_cost_replica(prompt, candidates, matched, self._tie, self._random, now)
        return choice

    def patience(self, request: Request, replica: Replica, ahead: float, now: float) -> float:
        return super().patience(request, replica, ahead, now) if request.prompt is None else 0.0

    def score(self, request: Request, replica: Replica, now: float) -> float:
        if request.prompt is None or replica.notes is None:
            return super().score(request, replica, now)
        return self.prefill.cost(request.prompt, replica, now)

    def predict_first_byte(self, request: Request, candidates: Sequence[Replica], now: float) -> float | None:
        if request.prompt is None or not request.streams:
            return None
        return self.prefill.seconds_to_first_byte(request.prompt, candidates, now)

    def sent(self, attempt: Attempt, now: float) -> None:
        self.prefill.dispatch(attempt, now)

    def first_byte(self, attempt: Attempt, now: float) -> None:
        self.prefill.first_byte(attempt, now)

    def released(self, attempt: Attempt, now: float) -> None:
        self.prefill.release(attempt)

    def finished(self, attempt: Attempt, seconds: float, outcome: Outcome, now: float) -> None:
        if outcome is Outcome.OK:
            self.prefill.finish(attempt, now)
