"""A model of the default profile of llm-d's router (Gateway API Inference Extension's endpoint picker).

Idea: each endpoint gets a sum of scores from 0 to 1; the highest wins, ties at random.

    2 × queue + 2 × (1 − KV utilisation) + 3 × matched blocks / blocks of the prompt

queue is 1 for the shortest waiting queue, 0 for the longest, linear between (all equal: 1). Queues and KV utilisation
are metrics of the engines, scraped every 50 ms. Matches come from an index of what was sent: an LRU of block hashes for
each endpoint, as many as its cache has blocks, of at most the first 4,096 tokens of a prompt.

Source: github.com/llm-d/llm-d-inference-scheduler at 520af47 (2026-05-17), READMEs of the scorers and its default
configuration (256 blocks of 16 tokens). Limits: blocks are those of the workload.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from typing import ClassVar

from ...core.replica import Replica
from ...core.request import Attempt, Request
from ..llm.server import EngineServer
from .base import PeerPolicy, any_of, prompt_blocks

QUEUE_WEIGHT, KV_WEIGHT, PREFIX_WEIGHT = 2.0, 2.0, 3.0
MAX_MATCHED_TOKENS = 4096


class LlmdDefault(PeerPolicy):
    rule = "model of llm-d's default scorers: waiting queue, KV utilisation and matched prefix"
    scrape_interval: ClassVar[float] = 0.05

    def connect(self, engines: Iterable[EngineServer]) -> None:
        super().connect(engines)
        self._index: dict[str, OrderedDict[int, None]] = {id: OrderedDict() for id in self.engines}
        self.scrape(0.0)

    def scrape(self, now: float) -> None:
        self._waiting = {id: len(engine.queue) for id, engine in self.engines.items()}
        self._usage = {id: engine.kv.held / engine.kv.capacity for id, engine in self.engines.items()}

    def choose(self, request: Request, candidates: Sequence[Replica], now: float) -> Replica:
        waiting = [self._waiting[replica.id] for replica in candidates]
        shortest, longest = min(waiting), max(waiting)
        blocks = self._hashed(request)
        matches = self._matches(blocks, candidates)
        best: list[Replica] = []
        highest = -1.0
        for replica, queue in zip(candidates, waiting, strict=True):
            score = QUEUE_WEIGHT * ((longest - queue) / (longest - shortest) if longest > shortest else 1.0)
            score += KV_WEIGHT * (1.0 - self._usage[replica.id])
            score += PREFIX_WEIGHT * matches[replica.id] / len(blocks) if blocks else 0.0
            if score > highest:
                best, highest = [replica], score
            elif score == highest:
                best.append(replica)
        return any_of(best, self._random())

    def _hashed(self, request: Request) -> Sequence[int]:
        blocks, size = prompt_blocks(request)
        return blocks[: MAX_MATCHED_TOKENS // size]

    def _matches(self, blocks: Sequence[int], candidates: Sequence[Replica]) -> dict[str, int]:
        found = {replica.id: 0 for replica in candidates}
        indexes = [(id, self._index[id]) for id in found]
        for block in blocks:
            holders = [id for id, index in indexes if block in index]
            if not holders:
                break
            for id in holders:
                found[id] += 1
        return found

    def sent(self, attempt: Attempt, now: float) -> None:
        id = attempt.replica.id
        index, kv = self._index[id], self.engines[id].kv
        for block in self._hashed(attempt.request):
            index[block] = None
            index.move_to_end(block)
        while len(index) > kv.capacity // kv.block_tokens:
            index.popitem(last=False)
