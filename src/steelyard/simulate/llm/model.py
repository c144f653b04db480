"""What an engine is: the coefficients of a step, and the sizes that bound it. Presets for known GPUs.

Capacity, in requests a second, follows from the mean request. A request costs c for each prompt token, b + k × context
for each output token, and a share of the a of each step it takes part in:

    seconds = c·P·(1 - h) + b·O + k·O·(P + O/2) + a · max(O / N, P·(1 - h) / budget) + overhead

with N the sequences that fit at once, and h the share of prompt tokens found in caches.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import msgspec

from ...core.errors import OptionError
from ...documents import Seconds
from ..scenario.dynamics import check

MILLISECOND, MICROSECOND = 1e-3, 1e-6
KV_BLOCK_TOKENS = 16  # the engine's own; half of the last one is empty on average


class EngineModel(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """A step takes step_base + per_sequence × decoding sequences + per_context_token × tokens in their contexts +
    per_prefill_token × prompt tokens of the step + request_overhead × requests that it admits."""

    step_base: Seconds = Seconds(6.8 * MILLISECOND)
    per_sequence: Seconds = Seconds(10 * MICROSECOND)
    per_context_token: Seconds = Seconds(0.076 * MICROSECOND)
    per_prefill_token: Seconds = Seconds(20 * MICROSECOND)
    request_overhead: Seconds = Seconds(0.0)
    prefill_budget: int = 2048  # prompt tokens in a step
    max_sequences: int = 256
    kv_tokens: int = 400_000
    prefix_cache: bool = True

    def __post_init__(self) -> None:
        check(self.step_base > 0, "step_base", "positive")
        for name in ("per_sequence", "per_context_token", "per_prefill_token", "request_overhead"):
            check(getattr(self, name) >= 0, name, "0 or more")
        check(self.prefill_budget >= 1, "prefill_budget", "at least 1")
        check(self.max_sequences >= 1, "max_sequences", "at least 1")
        check(self.kv_tokens >= 1024, "kv_tokens", "at least 1024")

    def requests_per_second(self, mix: TokenMix, hits: float = 0.0) -> float:
        together = max(1.0, min(float(self.max_sequences), self.kv_tokens / mix.context))
        prefill = mix.prompt * (1.0 - hits)
        seconds = self.per_prefill_token * prefill + self.request_overhead
        seconds += mix.output * (self.per_sequence + self.per_context_token * mix.context)
        seconds += self.step_base * max(mix.output / together, prefill / self.prefill_budget)
        return 1.0 / seconds

    def seconds_alone(self, prompt: int, output: int) -> float:
        """Of one request on an empty engine without a cache hit."""
        steps = -(-prompt // self.prefill_budget)
        prefill = steps * self.step_base + prompt * self.per_prefill_token + self.request_overhead
        further = output - 1
        contexts = further * prompt + further * (further - 1) / 2
        decode = further * (self.step_base + self.per_sequence) + contexts * self.per_context_token
        return float(prefill + decode)


# From the public profiles of Vidur (Agrawal et al., MLSys 2024).
ENGINES: dict[str, EngineModel] = {
    "8b-h100": EngineModel(),
    "8b-a100": EngineModel(
        step_base=Seconds(10.5 * MILLISECOND),
        per_sequence=Seconds(35 * MICROSECOND),
        per_context_token=Seconds(0.125 * MICROSECOND),
        per_prefill_token=Seconds(66 * MICROSECOND),
    ),
}


@dataclass(frozen=True, slots=True)
class TokenMix:
    """The mean request. `context`: tokens there while an output token is made, averaged over output tokens."""

    prompt: float
    output: float
    context: float


TYPICAL_MIX = TokenMix(prompt=2000.0, output=250.0, context=2125.0)  # to compare engines with each other


def token_mix(requests: Iterable[tuple[int, int]]) -> TokenMix:
    """Of pairs of prompt and output tokens."""
    count = prompts = outputs = contexts = 0.0
    for prompt, output in requests:
        count += 1
        prompts += prompt
        outputs += output
        contexts += output * (prompt + output / 2)
    if not count or not outputs:
        raise OptionError("a mix of tokens needs at least one request with output")
    return TokenMix(prompts / count, outputs / count, contexts / outputs)


def find_engine(named: str | EngineModel) -> EngineModel:
    if isinstance(named, EngineModel):
        return named
    if named not in ENGINES:
        raise ValueError(f"`engine` must be one of {', '.join(ENGINES)}, or its coefficients, not {named!r}")
    return ENGINES[named]
