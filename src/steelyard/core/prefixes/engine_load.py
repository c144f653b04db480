"""What a replica has to read, the prompts in its cache, and its speed.

Idea: an engine reads prompts one after the other and writes all answers at once. So prompts that wait to be read are
work that queues, answers share each step, and a cached prefix is work saved.

Formula, per replica: P tokens not cached of prompts without a first byte, K prompt tokens of all in flight. A request
of L tokens, u of them not cached, adds u to P and L to K at dispatch, and `ahead` is P then. Its first byte after t
seconds takes u off P, and (`ahead`, t) is an observation of speed: X and Y are their sums, decayed by SPEED_DECAY with
each. GX and GY are those of the pool, and s = GY / GX its seconds per token.

    v = (Y + PRIOR_TOKENS · s · v₀) / (X + PRIOR_TOKENS) / s        v₀ = 1 / weight

Tokens are bytes × ρ, ρ learned from the usage that answers tell. A request that does not stream counts as read after
ahead · v · s, and teaches nothing of speed.

Source: docs/decisions/0036-prompts-and-engines.md. Limits: seconds until the first byte contain the steps of those
that write.
"""

from __future__ import annotations

from typing import Final

from ..request import INFINITY

DEFAULT_CACHE_BLOCKS: Final = 800
PRIOR_TOKENS: Final = 20_000.0
MAX_SPEED_FACTOR: Final = 8.0  # that v may be off v₀
SPEED_DECAY: Final = 0.98  # per first byte
POOL_SPEED_DECAY: Final = 0.998
IDLE_DECAY_PER_SECOND: Final = 0.99  # of what is known of a replica while it is not used: so it is tried again
PRIOR_SECONDS_PER_TOKEN: Final = 2e-5
PRIOR_TOKENS_PER_BYTE: Final = 0.25
PRIOR_BYTES: Final = 40_000.0  # that this is worth
USAGE_DECAY: Final = 0.99  # per answer
MIN_TOKENS_PER_BYTE: Final = 0.02
MAX_TOKENS_PER_BYTE: Final = 2.0


class PromptAttempt:
    """Of one attempt: what is counted for it, and where."""

    __slots__ = ("ahead", "answering", "due", "load", "tokens", "uncached")

    def __init__(self, load: EngineLoad, tokens: float, uncached: float, ahead: float) -> None:
        self.load = load
        self.tokens = tokens
        self.uncached = uncached
        self.ahead = ahead  # tokens to be read before its first byte, its own included
        self.due = INFINITY  # when it should be read, where its first byte is not heard
        self.answering = False  # past its first byte


class EngineLoad:
    """Of one replica: the policy's notes."""

    __slots__ = (
        "ahead_seen",
        "attempts",
        "cache_blocks",
        "context_tokens",
        "heard",
        "prefilled_at",
        "prompts",
        "seconds_seen",
        "silent",
        "slot",
        "speed",
        "speed_prior",
        "uncached_tokens",
    )

    def __init__(self, slot: int, cache_blocks: int) -> None:
        self.slot = slot  # in the index
        self.cache_blocks = cache_blocks
        self.attempts = 0  # that are counted here
        self.prompts = 0  # of those, without a first byte …
        self.uncached_tokens = 0.0  # … and what has to be read of them: P
        self.context_tokens = 0.0  # of all: K
        self.ahead_seen = 0.0  # X
        self.seconds_seen = 0.0  # Y
        self.heard = False  # since the last review
        self.speed_prior = 1.0  # v₀
        self.speed = 1.0  # v
        self.silent: dict[PromptAttempt, None] = {}  # whose first byte will not be heard, in order of dispatch
        self.prefilled_at = INFINITY  # when the first of them should be read

    def count(self, attempt: PromptAttempt) -> None:
        self.attempts += 1
        self.prompts += 1
        self.uncached_tokens += attempt.uncached
        self.context_tokens += attempt.tokens

    def begin_answer(self, attempt: PromptAttempt) -> None:
        self._end_prompt(attempt)
        attempt.answering = True

    def give_back(self, attempt: PromptAttempt) -> None:
        if not attempt.answering:
            self._end_prompt(attempt)
        self.attempts -= 1
        self.context_tokens = self.context_tokens - attempt.tokens if self.attempts else 0.0

    def _end_prompt(self, attempt: PromptAttempt) -> None:
        self.prompts -= 1
        self.uncached_tokens = self.uncached_tokens - attempt.uncached if self.prompts else 0.0
        if attempt.due < INFINITY:
            attempt.due = INFINITY
            del self.silent[attempt]
            self._find_next()

    def expect(self, attempt: PromptAttempt, due: float) -> None:
        """Its first byte will not be heard: it should be read at `due`."""
        attempt.due = due
        self.silent[attempt] = None
        self._find_next()

    def _find_next(self) -> None:
        first = next(iter(self.silent), None)
        self.prefilled_at = first.due if first is not None else INFINITY

    def settle(self, now: float) -> None:
        """What should be read by now is."""
        while self.prefilled_at <= now:
            self.begin_answer(next(iter(self.silent)))

    def observe(self, ahead: float, seconds: float, usual: float) -> None:
        """A first byte came after `seconds`. `usual`: seconds per token of the pool."""
        self.heard = True
        self.ahead_seen = SPEED_DECAY * self.ahead_seen + ahead
        self.seconds_seen = SPEED_DECAY * self.seconds_seen + seconds
        self.update_speed(usual)

    def update_speed(self, usual: float) -> None:
        prior = self.speed_prior
        seconds = self.seconds_seen + PRIOR_TOKENS * usual * prior
        speed = seconds / (self.ahead_seen + PRIOR_TOKENS) / usual
        least, most = prior / MAX_SPEED_FACTOR, prior * MAX_SPEED_FACTOR
        self.speed = least if speed < least else most if speed > most else speed

    def forget_speed(self) -> None:
        self.ahead_seen = self.seconds_seen = 0.0
        self.speed = self.speed_prior
