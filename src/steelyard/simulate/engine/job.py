"""A simulated request: what the balancer sees, and the truth."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ...core.outcome import Outcome
from ...core.prompt import BLOCK_BYTES, MAX_BLOCKS, Prompt
from ...core.request import INFINITY, Request

if TYPE_CHECKING:
    from ...core.balancer import Balancer
    from .servers import Server


class Job(Request):
    """`work`: true seconds alone on a replica of speed 1, unknown to the balancer."""

    __slots__ = (
        "balancer",
        "finish",
        "intended_at",
        "origin",
        "planned_outcome",
        "prefix",
        "saved_per_block",
        "server",
        "work",
    )

    def __init__(
        self,
        intended_at: float,
        work: float,
        features: tuple[float, ...],
        *,
        model: str = "",
        deadline: float = INFINITY,
        priority: int = 0,
        tenant: str = "",
        kind: str = "",
        key: str | None = None,
        cold_seconds: float = 0.0,
        prefix: tuple[int, ...] = (),
        saved_per_block: float = 0.0,
    ) -> None:
        super().__init__(
            model,
            features,
            deadline=deadline,
            priority=priority,
            tenant=tenant,
            kind=kind,
            key=key,
            cold_seconds=cold_seconds,
        )
        self.intended_at = intended_at  # latency counts from here
        self.work = work
        self.prefix = prefix  # blocks of context
        self.saved_per_block = saved_per_block  # seconds of `work` that each cached block saves
        self.finish = -1.0  # of the running attempt; an event at any other time is stale
        self.planned_outcome = Outcome.OK
        self.server: Server | None = None
        self.origin: Job | None = None  # of a hedge: the request
        self.balancer: Balancer | None = None

    def hedge_attempt(self) -> Job:
        hedge = Job(self.intended_at, self.work, self.features, kind=self.kind, prefix=self.prefix)
        hedge.saved_per_block = self.saved_per_block
        hedge.origin, hedge.balancer = self, self.balancer
        return hedge


BYTES_PER_TOKEN = 4
TOKENS_PER_HASH = BLOCK_BYTES // BYTES_PER_TOKEN
DEFAULT_MAX_TOKENS = 1024.0  # what the gateway believes of a request without a limit
_GOLDEN_RATIO_64 = 0x9E3779B97F4A7C15


class TokenJob(Job):
    """A prompt for a batching engine. The balancer knows its bytes and the hashes of its leading blocks, as the gateway
    does, and not the tokens of its answer."""

    __slots__ = (
        "block_tokens",
        "blocks",
        "cached_tokens",
        "first_token_at",
        "given_hits",
        "output_tokens",
        "prompt_tokens",
    )

    def __init__(
        self,
        intended_at: float,
        work: float,
        prompt_tokens: int,
        output_tokens: int,
        blocks: tuple[int, ...],
        block_tokens: int,
        *,
        key: str | None = None,
        deadline: float = INFINITY,
        kind: str = "",
    ) -> None:
        size = prompt_tokens * BYTES_PER_TOKEN
        super().__init__(
            intended_at, work, (float(size), DEFAULT_MAX_TOKENS, 1.0), key=key, deadline=deadline, kind=kind
        )
        self.prompt_tokens = prompt_tokens
        self.output_tokens = output_tokens
        self.block_tokens = block_tokens
        self.blocks = blocks  # ids of the full blocks of prompt and answer: equal ids are equal prefixes
        self.prompt = Prompt(size, prefix_hashes(blocks, prompt_tokens, block_tokens))
        self.cached_tokens = 0  # of the prompt, found where it ran
        self.first_token_at = 0.0
        self.given_hits = 0  # tokens of a recorded prompt that were cached, where its blocks are not known

    def hedge_attempt(self) -> TokenJob:
        hedge = TokenJob(
            self.intended_at, self.work, self.prompt_tokens, self.output_tokens, self.blocks, self.block_tokens
        )
        hedge.origin, hedge.balancer = self, self.balancer
        return hedge


def prefix_hashes(blocks: tuple[int, ...], prompt_tokens: int, block_tokens: int) -> tuple[int, ...]:
    """As the gateway hashes every 512 tokens or so of a prompt."""
    stride = max(1, TOKENS_PER_HASH // block_tokens)
    full = prompt_tokens // block_tokens
    return tuple(
        (block * _GOLDEN_RATIO_64 + stride) & (2**64 - 1) for block in blocks[stride - 1 : full : stride][:MAX_BLOCKS]
    )


class EngineStep(Job):
    """The next event of an engine."""

    def __init__(self, server: Server) -> None:
        super().__init__(0.0, 0.0, ())
        self.server = server


class BackgroundJob(Job):
    """A model load: it takes a slot, and no client waits for it."""

    __slots__ = ("on_done",)

    def __init__(self, now: float, work: float, on_done: Callable[[float], None]) -> None:
        super().__init__(now, work, ())
        self.on_done = on_done
