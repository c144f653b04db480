"""The inner loops of `prefix_work` (formula in policies/prefix_work.py), apart from the policy to be compiled: what a
request would cost on each replica, and the accounts of engine_load.py."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import exp
from typing import Final

from ..candidates import is_candidate
from ..estimator.least_cost import fewest_requests
from ..prompt import BLOCK_BYTES, Prompt, TokenUsage
from ..replica import Replica
from ..request import INFINITY, Attempt
from .engine_load import (
    IDLE_DECAY_PER_SECOND,
    MAX_TOKENS_PER_BYTE,
    MIN_TOKENS_PER_BYTE,
    POOL_SPEED_DECAY,
    PRIOR_BYTES,
    PRIOR_SECONDS_PER_TOKEN,
    PRIOR_TOKENS_PER_BYTE,
    USAGE_DECAY,
    EngineLoad,
    PromptAttempt,
)
from .index import NO_MATCHES, PrefixIndex

OWN_COST: Final = 1.5  # of a token of its own that is to be read: it delays those that write, too
CONTEXT_COST: Final = 0.1  # of a token in the cache of running requests, in tokens to be read
MAX_LONGEST_MATCHES: Final = 8  # compared beside a sample, of many candidates
SIZE_LEARNING_RATE: Final = 0.02
MIN_FIRST_BYTES: Final = 8  # heard, before seconds are predicted


class PrefillModel:
    """Of one pool."""

    def __init__(self, cache_blocks: int) -> None:
        self.index = PrefixIndex()
        self.tokens_per_byte = PRIOR_TOKENS_PER_BYTE
        self.seconds_per_token = PRIOR_SECONDS_PER_TOKEN
        self.first_bytes = 0  # heard so far
        self._cache_blocks = cache_blocks
        self._usage_bytes = PRIOR_BYTES
        self._usage_tokens = PRIOR_BYTES * PRIOR_TOKENS_PER_BYTE
        self._ahead = 1.0
        self._seconds = PRIOR_SECONDS_PER_TOKEN
        self._mean_uncached = 0.0
        self._by_slot: dict[int, Replica] = {}

    def tokens_of(self, prompt: Prompt) -> float:
        return prompt.text_bytes * self.tokens_per_byte + prompt.extra_tokens

    # ------------------------------------------------------------------ replicas

    def join(self, replica: Replica, now: float) -> None:
        """It is in rotation. What it runs already counts as if it were read."""
        if replica.notes is None:
            replica.notes = load = EngineLoad(self.index.add_replica(), self._cache_blocks)
            self._by_slot[load.slot] = replica
            for attempt in replica.running_attempts:
                if attempt.request.prompt is not None:
                    counted = PromptAttempt(load, self.tokens_of(attempt.request.prompt), 0.0, 0.0)
                    attempt.notes = counted
                    load.count(counted)
                    load.begin_answer(counted)
        self.look_up_weight(replica)

    def forget(self, replica: Replica, for_good: bool) -> None:
        """It restarted, with an empty cache and any speed; or it is gone."""
        load: EngineLoad | None = replica.notes
        if load is None:
            return
        load.forget_speed()
        if for_good:
            self.index.remove_replica(load.slot)
            del self._by_slot[load.slot]
        else:
            self.index.clear(load.slot)

    def review(self, members: Sequence[Replica], now: float) -> None:
        """About once a second."""
        for replica in members:
            load: EngineLoad = replica.notes
            load.settle(now)
            if not load.heard and load.ahead_seen:
                load.ahead_seen *= IDLE_DECAY_PER_SECOND
                load.seconds_seen *= IDLE_DECAY_PER_SECOND
            load.heard = False
            if replica.kv_tokens:
                load.cache_blocks = max(1, int(replica.kv_tokens / (BLOCK_BYTES * self.tokens_per_byte)))
            self.look_up_weight(replica)

    def look_up_weight(self, replica: Replica) -> None:
        load: EngineLoad = replica.notes
        load.speed_prior = exp(replica.slowness_filter.prior)
        load.update_speed(self.seconds_per_token)

    # ------------------------------------------------------------------ requests

    def dispatch(self, attempt: Attempt, now: float) -> None:
        request = attempt.request
        prompt = request.prompt
        load: EngineLoad | None = attempt.replica.notes
        if prompt is None or load is None:
            return
        load.settle(now)
        tokens = uncached = self.tokens_of(prompt)
        if prompt.blocks:
            uncached -= self.index.matched_by(load.slot, prompt.blocks) * BLOCK_BYTES * self.tokens_per_byte
            self.index.enter(load.slot, prompt.blocks, load.cache_blocks)
        if uncached < 1.0:
            uncached = 1.0
        self._mean_uncached += SIZE_LEARNING_RATE * (uncached - self._mean_uncached)
        attempt.notes = counted = PromptAttempt(load, tokens, uncached, load.uncached_tokens + uncached)
        load.count(counted)
        if request.first_byte > attempt.started:  # adopted, and answering already
            load.begin_answer(counted)
        elif not request.streams:
            load.expect(counted, now + counted.ahead * load.speed * self.seconds_per_token)

    def first_byte(self, attempt: Attempt, now: float) -> None:
        counted = attempt.notes
        if not isinstance(counted, PromptAttempt) or counted.answering or not attempt.request.streams:
            return
        counted.load.begin_answer(counted)
        self._observe(counted, now - attempt.started)

    def release(self, attempt: Attempt) -> None:
        counted = attempt.notes
        if isinstance(counted, PromptAttempt):  # else another policy's, at a replica that was removed
            counted.load.give_back(counted)

    def finish(self, attempt: Attempt, now: float) -> None:
        """It was answered, and released. Its driver may tell only now when the answer began. One that began with its
        end was no stream."""
        request = attempt.request
        counted = attempt.notes
        first = request.first_byte if request.streams else 0.0
        if isinstance(counted, PromptAttempt) and not counted.answering and attempt.started < first < now:
            self._observe(counted, first - attempt.started)
        if request.usage is not None and request.prompt is not None:
            self._learn_usage(request.prompt, request.usage)

    def _observe(self, counted: PromptAttempt, seconds: float) -> None:
        self.first_bytes += 1
        self._ahead = POOL_SPEED_DECAY * self._ahead + counted.ahead
        self._seconds = POOL_SPEED_DECAY * self._seconds + seconds
        self.seconds_per_token = max(self._seconds, 1e-9) / self._ahead
        counted.load.observe(counted.ahead, seconds, self.seconds_per_token)

    def _learn_usage(self, prompt: Prompt, usage: TokenUsage) -> None:
        tokens = usage.prompt - prompt.extra_tokens
        if prompt.text_bytes > 0 and 0.0 < tokens <= MAX_TOKENS_PER_BYTE * prompt.text_bytes:
            self._usage_bytes = USAGE_DECAY * self._usage_bytes + prompt.text_bytes
            self._usage_tokens = USAGE_DECAY * self._usage_tokens + tokens
            self.tokens_per_byte = max(MIN_TOKENS_PER_BYTE, self._usage_tokens / self._usage_bytes)

    # ------------------------------------------------------------------ choosing

    def match(self, prompt: Prompt) -> dict[int, int]:
        """Leading blocks that replicas hold, by slot."""
        return self.index.match(prompt.blocks) if prompt.blocks else NO_MATCHES

    def match_some(self, prompt: Prompt, some: list[Replica]) -> dict[int, int]:
        """As `match`, of few among many."""
        matched: dict[int, int] = {}
        for replica in some:
            load: EngineLoad = replica.notes
            count = self.index.matched_by(load.slot, prompt.blocks)
            if count:
                matched[load.slot] = count
        return matched

    def add_longest_matches(
        self, some: list[Replica], prompt: Prompt, candidates: Sequence[Replica], random_value: float
    ) -> None:
        """Adds those that hold most of the prompt. `random_value`: uniform in [0, 1)."""
        start = int(random_value * len(self._by_slot))
        for slot in self.index.longest_matches(prompt.blocks, MAX_LONGEST_MATCHES, start):
            replica = self._by_slot[slot]
            if replica not in some and is_candidate(candidates, replica):
                some.append(replica)

    def least_cost_replica(
        self,
        prompt: Prompt,
        candidates: Sequence[Replica],
        matched: dict[int, int],
        tie: float,
        random: Callable[[], float],
        now: float,
    ) -> Replica:
        """Of those that cost at most `tie` × the least, one with the fewest requests, by weight."""
        tokens = self.tokens_of(prompt)
        block_tokens = BLOCK_BYTES * self.tokens_per_byte
        mean = self._mean_uncached
        best = INFINITY
        replicas: list[Replica] = candidates if isinstance(candidates, list) else list(candidates)
        for replica in replicas:
            load: EngineLoad = replica.notes
            if load.prefilled_at <= now:
                load.settle(now)
            uncached = tokens
            if matched and load.slot in matched:
                uncached -= matched[load.slot] * block_tokens
            if uncached < 1.0:
                uncached = 1.0
            cost = load.uncached_tokens + OWN_COST * uncached + CONTEXT_COST * load.context_tokens
            others = replica.load - load.attempts
            if others > 0:
                cost += others * mean
            cost *= load.speed * replica.slow_start_factor
            replica.cost = cost
            if cost < best:
                best = cost
        return fewest_requests(replicas, best * tie, random)

    def cost(self, prompt: Prompt, replica: Replica, now: float) -> float:
        """The same, of one."""
        load: EngineLoad = replica.notes
        load.settle(now)
        cost = load.uncached_tokens + OWN_COST * self._uncached(prompt, load) + CONTEXT_COST * load.context_tokens
        cost += max(0, replica.load - load.attempts) * self._mean_uncached
        return cost * load.speed * replica.slow_start_factor

    def seconds_to_first_byte(self, prompt: Prompt, replicas: Sequence[Replica], now: float) -> float | None:
        """On the best of these; None: nothing is known yet."""
        if self.first_bytes < MIN_FIRST_BYTES:
            return None
        best = INFINITY
        for replica in replicas:
            load: EngineLoad = replica.notes
            load.settle(now)
            others = max(0, replica.load - load.attempts) * self._mean_uncached
            tokens = load.uncached_tokens + others + self._uncached(prompt, load)
            best = min(best, load.speed * tokens)
        return self.seconds_per_token * best

    def _uncached(self, prompt: Prompt, load: EngineLoad) -> float:
        matched = self.index.matched_by(load.slot, prompt.blocks) if prompt.blocks else 0
        return max(1.0, self.tokens_of(prompt) - matched * BLOCK_BYTES * self.tokens_per_byte)
