"""A model of `cache_aware` of smg (Shepherd Model Gateway, formerly SGLang's router).

Idea: a tree of the texts sent, each node with the worker it went to. When one worker has many more requests than
another, the one with the fewest. Else the worker of the longest match, if that is a large enough share of the text;
else the one with the fewest requests.

    imbalanced:  max − min > balance_abs_threshold  and  max > balance_rel_threshold × min
    match:       matched characters / characters > cache_threshold

Source: github.com/lightseekorg/smg at 73da68c (2026-08-07), the description of `cache_aware` over HTTP; defaults of its
command (0.3, 64, 1.5). Limits: the tree is by blocks of the workload, not characters, and is never pruned: its limit of
2²⁶ characters a worker is more than a run sends.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from random import Random

from ...core.policies.base import number
from ...core.replica import Replica
from ...core.request import Attempt, Request
from .base import PeerPolicy, prompt_blocks, prompt_tokens


class SmgCacheAware(PeerPolicy):
    rule = "model of smg `cache_aware`: longest match in a tree of sent texts, or fewest requests when imbalanced"

    def __init__(
        self,
        rng: Random,
        *,
        cache_threshold: float = 0.3,
        balance_abs_threshold: float = 64,
        balance_rel_threshold: float = 1.5,
    ) -> None:
        super().__init__(rng)
        self._cache_threshold = number("cache_threshold", cache_threshold, least=0.0, most=1.0)
        self._abs_threshold = number("balance_abs_threshold", balance_abs_threshold, least=0.0)
        self._rel_threshold = number("balance_rel_threshold", balance_rel_threshold, least=1.0)
        self._owners: dict[int, str] = {}  # by block: the worker that its node names
        self._processed: Counter[str] = Counter()

    def choose(self, request: Request, candidates: Sequence[Replica], now: float) -> Replica:
        loads = [replica.load for replica in candidates]
        least, most = min(loads), max(loads)
        if most - least > self._abs_threshold and most > self._rel_threshold * least:
            return self._fewest(candidates)
        blocks, size = prompt_blocks(request)
        matched, owner = 0, ""
        for block in blocks:
            if block not in self._owners:
                break
            matched += 1
            owner = self._owners[block]
        if matched * size > self._cache_threshold * prompt_tokens(request):
            return next((replica for replica in candidates if replica.id == owner), candidates[0])
        return self._fewest(candidates)

    def _fewest(self, candidates: Sequence[Replica]) -> Replica:
        return min(candidates, key=lambda replica: (replica.load, self._processed[replica.id]))

    def sent(self, attempt: Attempt, now: float) -> None:
        id = attempt.replica.id
        self._processed[id] += 1
        blocks, _ = prompt_blocks(attempt.request)
        for block in blocks:
            self._owners.setdefault(block, id)  # a node that is there keeps the worker it names …
        if blocks:
            self._owners[blocks[-1]] = id  # … except the one that the text ends with
