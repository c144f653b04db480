"""Traffic of people and agents who talk with a model: `workload.conversations`."""

from __future__ import annotations

import msgspec

from ...documents import Seconds
from .dynamics import check


class TokenCount(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """Lognormal."""

    mean: float
    cv: float = 1.0  # standard deviation / mean

    def __post_init__(self) -> None:
        check(self.mean >= 1, "mean", "at least 1")
        check(self.cv >= 0, "cv", "0 or more")


class SharedPrompts(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """System prompts and tools: each conversation begins with one of them."""

    count: int = 1
    tokens: int = 2000
    zipf: float = 1.0  # the k-th is chosen with weight 1 / k^zipf

    def __post_init__(self) -> None:
        check(self.count >= 1, "count", "at least 1")
        check(self.tokens >= 1, "tokens", "at least 1")
        check(self.zipf >= 0, "zipf", "0 or more")


class Conversations(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """Conversations begin at random times; each further turn comes a while after the answer to the one before it, and
    its prompt is all that was said, with new text."""

    turns: float = 1.0  # mean of a geometric distribution
    think: Seconds = Seconds(10.0)  # mean of an exponential one: from an answer to the next turn
    shared: SharedPrompts | None = None
    prompt: TokenCount = TokenCount(mean=500)  # of the first turn, without the shared part
    text: TokenCount = TokenCount(mean=100)  # new in each further turn
    output: TokenCount = TokenCount(mean=250)
    max_context: int = 32_768  # tokens; a conversation ends before

    def __post_init__(self) -> None:
        check(self.turns >= 1, "turns", "at least 1")
        check(self.think >= 0, "think", "0 or more")
        check(self.max_context >= 16, "max_context", "at least 16")
        shared = self.shared.tokens if self.shared is not None else 0
        check(shared < self.max_context, "shared", "shorter than `max_context`")
