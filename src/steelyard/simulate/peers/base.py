"""What models of peers have in common: they may see the engines, as their metrics or cache events would show them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import ClassVar

from ...core.policies.base import Policy
from ...core.replica import Replica
from ...core.request import Request
from ..engine.job import TokenJob
from ..llm.server import EngineServer


class PeerPolicy(Policy):
    scrape_interval: ClassVar[float] = 0.0  # seconds between two looks at the metrics of the engines; 0.0: none

    def connect(self, engines: Iterable[EngineServer]) -> None:
        """Called once, before the first request."""
        self.engines = {engine.id: engine for engine in engines}

    def scrape(self, now: float) -> None:
        """Reads the metrics of the engines."""


def prompt_blocks(request: Request) -> tuple[Sequence[int], int]:
    """Ids of the full blocks of its prompt, and their tokens: finer than the hashes that a gateway has."""
    assert isinstance(request, TokenJob)
    size = request.block_tokens
    return request.blocks[: request.prompt_tokens // size], size


def prompt_tokens(request: Request) -> int:
    assert isinstance(request, TokenJob)
    return request.prompt_tokens


def any_of(replicas: Sequence[Replica], random: float) -> Replica:
    return replicas[int(random * len(replicas))]
