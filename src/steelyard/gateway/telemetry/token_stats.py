"""Tokens that were read and written, and how long they took: of a model, or of a replica."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...core.prompt import TokenUsage

if TYPE_CHECKING:
    from ..exchange import Exchange


class TokenStats:
    __slots__ = ("answers", "cached", "first_token_seconds", "further", "further_seconds", "output", "prompt")

    def __init__(self) -> None:
        self.prompt = 0
        self.cached = 0  # of those, found in the engine's cache
        self.output = 0
        self.answers = 0  # that streamed …
        self.first_token_seconds = 0.0  # … and the time to their first token
        self.further = 0  # tokens after the first of those answers …
        self.further_seconds = 0.0  # … and what they took

    def add(self, usage: TokenUsage) -> None:
        self.prompt += usage.prompt
        self.cached += usage.cached
        self.output += usage.output

    def add_stream(self, first: float, further: float, seconds: float) -> None:
        """Seconds to the first token; and of all `further` tokens together."""
        self.answers += 1
        self.first_token_seconds += first
        self.further += round(further)
        self.further_seconds += seconds

    def counts(self) -> dict[str, int]:
        """Empty: nothing was counted."""
        found = {"prompt": self.prompt, "cached": self.cached, "output": self.output}
        if not any(found.values()):
            return {}
        return {**found, "answers": self.answers, "further": self.further}

    def seconds(self) -> dict[str, float]:
        if not self.answers:
            return {}
        return {"first_token": self.first_token_seconds, "further": self.further_seconds}


def further_tokens(exchange: Exchange, usage: TokenUsage) -> float:
    """Tokens after the first, of each of the texts that were written side by side."""
    texts = exchange.features[2] if len(exchange.features) > 2 else 1.0
    return usage.output / max(1.0, texts) - 1.0


def seconds_per_token(exchange: Exchange, usage: TokenUsage, more: float, now: float) -> float:
    """The mean of the tokens after the first; 0.0: there was none. `more` are waited for."""
    further = further_tokens(exchange, usage) + more
    return further_seconds(exchange, now) / further if further >= 1.0 else 0.0


def further_seconds(exchange: Exchange, now: float) -> float:
    """From the first token to the last, without the time for which its client did not read."""
    return max(0.0, now - exchange.first_byte - exchange.write_wait_seconds)
