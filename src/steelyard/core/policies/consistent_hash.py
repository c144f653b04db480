"""Weighted rendezvous hashing on the request's key, with bounded load.

Idea: each key has its own order of all replicas, and uses the first that is not overloaded. When a replica comes or
goes, only the keys that rank it first move.

Formula: replicas ranked by −ln(uᵢ) / weightᵢ, uᵢ a hash of key and replica. Replica i takes a request if
(nᵢ + 1) / wᵢ ≤ bound × (Σn + 1) / Σw, or if it is idle and has not just failed.

Source: Thaler and Ravishankar 1998 (rendezvous); Mirrokni, Thorup and Zadimoghaddam 2018 (bounded loads). Limits: a
hot key loads its replica up to the bound; a request without a key goes to the least loaded.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from math import log
from random import Random

from ..replica import Replica
from ..request import Request
from .base import Policy, number, weighted_choice, weighted_load

MAX_CACHED_KEYS = 4096  # keys whose order of replicas is kept


class ConsistentHash(Policy):
    rule = "the replica its session or prefix hashes to, unless that one has over 1.25 × the mean load"
    wins = "sessions and prefix caches: the same key finds its data warm"
    loses = "nothing to gain without keys, and a hot key makes a hot replica up to the bound"
    score_meaning = "its place in the order that the key has of all replicas"

    def __init__(self, rng: Random, *, bound: float = 1.25) -> None:
        super().__init__(rng)
        self._bound = number("bound", bound, least=1.0)
        self._members: list[Replica] = []
        self._ranked: dict[str, list[Replica]] = {}

    def joined(self, replica: Replica, now: float) -> None:
        self._members = [*self._members, replica]
        self._ranked.clear()

    def left(self, replica: Replica, now: float) -> None:
        self._members = [r for r in self._members if r is not replica]
        self._ranked.clear()

    def reweighted(self, replica: Replica, now: float) -> None:
        self._ranked.clear()

    def choose(self, request: Request, candidates: Sequence[Replica], now: float) -> Replica:
        if request.key is None:
            least = min(map(weighted_load, candidates))
            return weighted_choice([r for r in candidates if weighted_load(r) == least], self._random())
        ranked = self._ranked.get(request.key)
        if ranked is None:
            ranked = self._rank(request.key)
        total = share = 0.0
        for replica in candidates:
            total += replica.load
            share += replica.effective_weight
        # The newcomer counts: with an idle fleet everyone is under the bound.
        allowed = self._bound * (total + 1.0) / share
        possible = candidates if len(candidates) < len(ranked) else None
        fallback: Replica | None = None
        for replica in ranked:
            if possible is not None and replica not in possible:
                continue
            if fallback is None:
                fallback = replica
            idle = not (replica.load or replica.failure_penalty)
            if idle or (replica.load + 1) / replica.effective_weight <= allowed:
                return replica
        return fallback if fallback is not None else candidates[0]

    def score(self, request: Request, replica: Replica, now: float) -> float:
        """The least is chosen unless that one is over the bound."""
        return weighted_load(replica) if request.key is None else _score(request.key, replica)

    def _rank(self, key: str) -> list[Replica]:
        scored = sorted(self._members, key=lambda r: (_score(key, r), r.id))
        if len(self._ranked) >= MAX_CACHED_KEYS:
            del self._ranked[next(iter(self._ranked))]
        self._ranked[key] = scored
        return scored


def _score(key: str, replica: Replica) -> float:
    """-ln(u)/w is exponential with rate w, so a replica is first for w's share of the keys."""
    digest = blake2b(f"{replica.id}\0{key}".encode("utf-8", "surrogatepass"), digest_size=8).digest()
    u = (int.from_bytes(digest, "big") + 0.5) / 2**64
    return -log(u) / replica.weight
