"""Conversations as a closed loop: a turn comes after the answer to the one before it (scenario/conversations.py).

All of a conversation is drawn when it begins, so every policy meets the same. Some are under way when the run begins,
with a history that no cache knows, so the load is steady from the start. A conversation ends with a failed answer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import lru_cache
from heapq import merge
from itertools import count
from math import exp, log, sqrt
from random import Random
from typing import Protocol

from ...core.request import INFINITY
from ..engine.job import Job, TokenJob
from ..scenario.conversations import Conversations, TokenCount
from .model import ENGINES, TokenMix, token_mix

BLOCK_TOKENS = 64  # of cache identity; a prompt of n tokens has n // 64 blocks
MAX_TURNS = 40
MIX_SAMPLES = 2000  # conversations
MIX_SEED = 0
ANSWER_SECONDS = 5.0  # supposed, of turns before the run
BLOCKS_PER_STREAM = 1 << 20


class Driver(Protocol):
    """What sends the jobs: a simulation, or a load generator."""

    arrival_limit: int
    on_request_end: Callable[[Job, bool, float], None] | None  # request, answered?, now

    def submit_at(self, when: float, job: Job) -> None: ...


class Conversation:
    __slots__ = ("number", "shared", "shared_tokens", "turn", "turns")

    def __init__(self, number: int, shared: int, shared_tokens: int, turns: list[tuple[int, int, float]]) -> None:
        self.number = number
        self.shared = shared  # which shared prompt
        self.shared_tokens = shared_tokens
        self.turns = turns  # tokens of the prompt, tokens of the answer, seconds until the next turn
        self.turn = 0

    def job(self, when: float, allowance: float) -> TokenJob:
        """Of the present turn. `allowance`: its deadline, from when it is due."""
        prompt, output, _ = self.turns[self.turn]
        return ConversationJob(when, prompt, output, self, when + allowance)

    def blocks(self, tokens: int) -> tuple[int, ...]:
        """Ids of the full blocks of what has been said."""
        common, whole = self.shared_tokens // BLOCK_TOKENS, tokens // BLOCK_TOKENS
        first = (self.shared + 1) * BLOCKS_PER_STREAM  # shared prompts come first, then conversations
        own = (self.number + (1 << 20)) * BLOCKS_PER_STREAM
        return (*range(first, first + min(common, whole)), *range(own + common, own + whole))


class ConversationJob(TokenJob):
    __slots__ = ("conversation",)

    def __init__(self, when: float, prompt: int, output: int, conversation: Conversation, deadline: float) -> None:
        work = ENGINES["8b-h100"].seconds_alone(prompt, output)
        blocks = conversation.blocks(prompt + output)
        key = f"c{conversation.number}"
        super().__init__(when, work, prompt, output, blocks, BLOCK_TOKENS, key=key, deadline=deadline)
        self.conversation = conversation


class ConversationDraws:
    """Draws conversations, the same ones for the same seed."""

    def __init__(self, spec: Conversations, seed: int) -> None:
        self._spec = spec
        self._rng = Random(f"conversations/{seed}")
        self._numbers = count()
        shared = spec.shared
        self._shared_tokens = shared.tokens if shared is not None else 0
        ranks = range(1, 1 + (shared.count if shared is not None else 1))
        self._weights = [rank ** -(shared.zipf if shared is not None else 0.0) for rank in ranks]

    def draw(self) -> Conversation:
        spec, rng = self._spec, self._rng
        which = rng.choices(range(len(self._weights)), self._weights)[0]
        end = 1.0 / spec.turns
        context = self._shared_tokens + self._tokens(spec.prompt)
        turns: list[tuple[int, int, float]] = []
        while True:
            output = self._tokens(spec.output)
            if context + output > spec.max_context:
                if turns:
                    break
                context, output = (
                    spec.max_context - min(output, spec.max_context // 2),
                    min(output, spec.max_context // 2),
                )
            turns.append((context, output, rng.expovariate(1.0) * spec.think))
            if len(turns) >= MAX_TURNS or rng.random() < end:
                break
            context += output + self._tokens(spec.text)
        return Conversation(next(self._numbers), which, self._shared_tokens, turns)

    def _tokens(self, size: TokenCount) -> int:
        variance = log(1.0 + size.cv**2)
        return max(1, round(size.mean * exp(sqrt(variance) * self._rng.gauss(0.0, 1.0) - variance / 2)))


@lru_cache(maxsize=64)
def conversation_mix(spec: Conversations) -> tuple[TokenMix, float]:
    """The mean request, and the mean number of turns."""
    draws = ConversationDraws(spec, MIX_SEED)
    drawn = [draws.draw() for _ in range(MIX_SAMPLES)]
    requests = [(prompt, output) for one in drawn for prompt, output, _ in one.turns]
    return token_mix(requests), len(requests) / len(drawn)


class ConversationSource:
    """The jobs of a run: first turns as it is iterated, without end, further ones as answers end (`attach`)."""

    def __init__(self, spec: Conversations, requests: int, rate: float, seed: int, allowance: float = INFINITY) -> None:
        """`rate`: requests a second, of all turns."""
        self._requests = requests
        self._allowance = allowance
        self._draws = ConversationDraws(spec, seed)
        self._rng = Random(f"arrivals/{seed}")
        _, turns = conversation_mix(spec)
        self._rate = rate / turns
        # Longer ones that began before the run are too rare to look for.
        most_turns = min(MAX_TURNS, 4.0 * spec.turns) if spec.turns > 1 else 0.0
        self._longest = most_turns * (float(spec.think) + ANSWER_SECONDS)
        self._driver: Driver | None = None

    def attach(self, driver: Driver) -> None:
        self._driver = driver
        driver.on_request_end = self.answered
        driver.arrival_limit = self._requests

    def __iter__(self) -> Iterator[Job]:
        for when, conversation in merge(self._under_way(), self._beginning(), key=lambda one: one[0]):
            yield conversation.job(when, self._allowance)

    def _beginning(self) -> Iterator[tuple[float, Conversation]]:
        now = 0.0
        while True:
            now += self._rng.expovariate(self._rate)
            yield now, self._draws.draw()

    def _under_way(self) -> list[tuple[float, Conversation]]:
        """Conversations that began before the run, each at its first turn within it."""
        found = []
        began = -self._longest
        while (began := began + self._rng.expovariate(self._rate)) < 0.0:
            conversation, when = self._draws.draw(), began
            while when < 0.0 and conversation.turn < len(conversation.turns):
                when += ANSWER_SECONDS + conversation.turns[conversation.turn][2]
                conversation.turn += 1
            if conversation.turn < len(conversation.turns):
                found.append((when, conversation))
        return sorted(found, key=lambda one: one[0])

    def answered(self, job: Job, answered: bool, now: float) -> None:
        assert isinstance(job, ConversationJob)
        conversation = job.conversation
        think = conversation.turns[conversation.turn][2]
        conversation.turn += 1
        if answered and conversation.turn < len(conversation.turns):
            assert self._driver is not None
            self._driver.submit_at(now + think, conversation.job(now + think, self._allowance))
