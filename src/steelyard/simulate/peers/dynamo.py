"""A model of the KV router of NVIDIA Dynamo.

Idea: the worker with the least cost, in blocks; ties at random (temperature 0).

    prefill blocks + decode blocks
    prefill blocks = (prompt tokens there without a first token + this prompt − what is cached of it) / block size
    decode blocks  = blocks of all active requests, shared ones once, with those of this prompt

What is cached is known from the engines' KV events; the rest from its own accounts: a prompt counts until its first
token, its blocks until the end. Generated tokens do not count (`router_track_output_blocks` is off).

Source: github.com/ai-dynamo/dynamo at bb3100e (2026-08-22), "Router Design" and the defaults (overlap credit 1, prefill
load scale 1). Limits: KV events arrive at once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from ...core.replica import Replica
from ...core.request import Attempt, Request
from ..llm.server import EngineServer
from .base import PeerPolicy, any_of, prompt_blocks, prompt_tokens


class _Worker:
    __slots__ = ("active", "blocks")

    def __init__(self) -> None:
        self.active: dict[Attempt, int] = {}  # uncached tokens of its prompt
        self.blocks: Counter[int] = Counter()  # by block: active requests that have it

    def forget_ended(self, replica: Replica) -> None:
        ended = [attempt for attempt in self.active if attempt not in replica.running_attempts]
        for attempt in ended:
            del self.active[attempt]
            for block in prompt_blocks(attempt.request)[0]:
                self.blocks[block] -= 1
                if not self.blocks[block]:
                    del self.blocks[block]

    @property
    def prefill_tokens(self) -> int:
        return sum(tokens for attempt, tokens in self.active.items() if not attempt.request.first_byte)


class DynamoCost(PeerPolicy):
    rule = "model of Dynamo's KV router: prefill blocks that are not cached, and blocks of active requests"

    def connect(self, engines: Iterable[EngineServer]) -> None:
        super().connect(engines)
        self._workers = {id: _Worker() for id in self.engines}

    def choose(self, request: Request, candidates: Sequence[Replica], now: float) -> Replica:
        best: list[Replica] = []
        least = float("inf")
        blocks, size = prompt_blocks(request)
        for replica in candidates:
            worker = self._workers[replica.id]
            worker.forget_ended(replica)
            prefill = worker.prefill_tokens + self._uncached(request, replica)
            decode = len(worker.blocks) + len(blocks) - sum(map(worker.blocks.__contains__, blocks))
            cost = prefill / size + decode
            if cost < least:
                best, least = [replica], cost
            elif cost == least:
                best.append(replica)
        return any_of(best, self._random())

    def _uncached(self, request: Request, replica: Replica) -> int:
        blocks, size = prompt_blocks(request)
        return prompt_tokens(request) - size * self.engines[replica.id].kv.match(blocks, len(blocks))

    def sent(self, attempt: Attempt, now: float) -> None:
        worker = self._workers[attempt.replica.id]
        worker.active[attempt] = self._uncached(attempt.request, attempt.replica)
        worker.blocks.update(prompt_blocks(attempt.request)[0])
