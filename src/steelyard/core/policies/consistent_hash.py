"""Weighted rendezvous hashing on the request's key, with bounded load.

Idea: each key has its own order of all replicas, and uses the first that is not overloaded. When a replica comes or
goes, only the keys that rank it first move.

Formula: replicas ranked by −ln(uᵢ) / weightᵢ, uᵢ = mix(hash(key) xor hash(idᵢ)). Replica i takes a request if
(nᵢ + 1) / wᵢ ≤ bound × (Σn + 1) / Σw, or if it is idle and has not just failed.

Source: Thaler and Ravishankar 1998 (rendezvous); Mirrokni, Thorup and Zadimoghaddam 2018 (bounded loads); the mixer of
MurmurHash3; docs/decisions/0035-large-fleets.md. Limits: a hot key loads its replica up to the bound; a request without
a key goes to the least loaded.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from hashlib import blake2b
from math import exp, log
from random import Random

import numpy as np
from numpy.typing import NDArray

from ..candidates import MANY_CANDIDATES
from ..load_index import LoadIndex
from ..pool import Pool
from ..replica import Replica
from ..request import Request
from .base import Policy, left_out, number, weighted_choice, weighted_load

MAX_CACHED_KEYS = 4096  # keys whose first replicas are kept …
CACHED_REPLICAS = 8  # … and how many of them
MAX_SCALAR_REPLICAS = 8  # up to so many, one after the other is faster than vectors
MASK = 2**64 - 1
MULTIPLIERS = (0xFF51AFD7ED558CCD, 0xC4CEB9FE1A85EC53)
SHIFT = 33
VECTOR_MULTIPLIERS, VECTOR_SHIFT = tuple(map(np.uint64, MULTIPLIERS)), np.uint64(SHIFT)
NARROWING = 8  # × the replicas wanted: so many are looked at closely


class ConsistentHash(Policy):
    rule = "the replica its session or prefix hashes to, unless that one has over 1.25 × the mean load"
    wins = "sessions and prefix caches: the same key finds its data warm"
    loses = "nothing to gain without keys, and a hot key makes a hot replica up to the bound"
    score_meaning = "its place in the order that the key has of all replicas"

    def __init__(self, rng: Random, *, bound: float = 1.25) -> None:
        super().__init__(rng)
        self._bound = number("bound", bound, least=1.0)
        self._table = _HashTable()
        self._first: dict[str, list[Replica]] = {}

    def attach(self, pool: Pool) -> None:
        self._pool = pool

    def joined(self, replica: Replica, now: float) -> None:
        self._table.add(replica)
        self._first.clear()

    def left(self, replica: Replica, now: float) -> None:
        self._table.remove(replica)
        self._first.clear()

    def reweighted(self, replica: Replica, now: float) -> None:
        self._table.reweigh(replica)
        self._first.clear()

    def choose(self, request: Request, candidates: Sequence[Replica], now: float) -> Replica:
        key = request.key
        index = self._pool.index_of(candidates) if len(candidates) > MANY_CANDIDATES else None
        if index is not None:
            return self._choose_of_many(request, index, left_out(candidates))
        if key is None:
            least = min(map(weighted_load, candidates))
            return weighted_choice([r for r in candidates if weighted_load(r) == least], self._random())
        total = share = 0.0
        for replica in candidates:
            total += replica.load
            share += replica.effective_weight
        # The newcomer counts: with an idle fleet everyone is under the bound.
        allowed = self._bound * (total + 1.0) / share
        first = self._first.get(key) or self._remember(key)
        every = self._table.members
        usable = first if len(candidates) == len(every) else [r for r in first if r in candidates]
        for replica in usable:
            idle = not (replica.load or replica.failure_penalty)
            if idle or (replica.load + 1) / replica.effective_weight <= allowed:
                return replica
        if len(first) < len(every):
            for replica in self._table.ranked(key, len(every))[len(first) :]:
                if replica in candidates:
                    if _has_room(replica, allowed):
                        return replica
                    usable = usable or [replica]
        return usable[0] if usable else candidates[0]

    def _choose_of_many(self, request: Request, index: LoadIndex, without: Sequence[Replica]) -> Replica:
        """The same, with sums that are kept up to date instead of a look at all."""
        if request.key is None:
            return index.least_loaded(self._random, without, True)
        total, share = index.totals(without)
        allowed = self._bound * (total + 1.0) / share
        fallback: Replica | None = None
        for replica in self._ranked(request.key):
            if replica in without or not self._pool.is_open(replica):
                continue
            if fallback is None:
                fallback = replica
            if _has_room(replica, allowed):
                return replica
        return fallback if fallback is not None else index.least_loaded(self._random, without, True)

    def score(self, request: Request, replica: Replica, now: float) -> float:
        """The least is chosen unless that one is over the bound."""
        if request.key is None:
            return weighted_load(replica)
        return _score(_hash(request.key), _hash(replica.id), replica.weight)

    def _ranked(self, key: str) -> Iterator[Replica]:
        first = self._first.get(key) or self._remember(key)
        yield from first
        if len(first) < len(self._table.members):
            yield from self._table.ranked(key, len(self._table.members))[len(first) :]

    def _remember(self, key: str) -> list[Replica]:
        first = self._table.ranked(key, CACHED_REPLICAS)
        if len(self._first) >= MAX_CACHED_KEYS:
            del self._first[next(iter(self._first))]
        self._first[key] = first
        return first


def _has_room(replica: Replica, allowed: float) -> bool:
    idle = not (replica.load or replica.failure_penalty)
    return idle or (replica.load + 1) / replica.effective_weight <= allowed


class _HashTable:
    """Hashes and weights of the members, in no order."""

    def __init__(self) -> None:
        self.members: list[Replica] = []
        self._places: dict[Replica, int] = {}
        self._hash = np.zeros(MAX_SCALAR_REPLICAS, np.uint64)
        self._weight = np.zeros(MAX_SCALAR_REPLICAS)
        self._changed()

    def add(self, replica: Replica) -> None:
        place = len(self.members)
        if place == len(self._hash):
            self._hash = np.concatenate([self._hash, np.zeros_like(self._hash)])
            self._weight = np.concatenate([self._weight, np.zeros_like(self._weight)])
        self.members.append(replica)
        self._places[replica] = place
        self._hash[place] = _hash(replica.id)
        self._weight[place] = replica.weight
        self._changed()

    def remove(self, replica: Replica) -> None:
        """The last one takes its place."""
        place = self._places.pop(replica, None)
        if place is None:
            return
        last = self.members.pop()
        if last is not replica:
            self.members[place] = last
            self._places[last] = place
            self._hash[place] = self._hash[len(self.members)]
            self._weight[place] = self._weight[len(self.members)]
        self._changed()

    def reweigh(self, replica: Replica) -> None:
        self.remove(replica)
        self.add(replica)

    def _changed(self) -> None:
        self._sums: tuple[float, float] | None = None

    def ranked(self, key: str, count: int) -> list[Replica]:
        """The first so many of them for this key."""
        salt, size = _hash(key), len(self.members)
        if size <= MAX_SCALAR_REPLICAS:
            hashes = zip(self.members, self._hash.tolist(), strict=False)
            return [r for _, _, r in sorted((_score(salt, each, r.weight), r.id, r) for r, each in hashes)]
        mixed = self._mixed(salt)
        places = self._promising(mixed, count) if NARROWING * count < size else None
        if places is None:
            places = np.argsort(self._scores(mixed, slice(size)), kind="stable")[:count]
        members = self.members
        return [members[place] for place in places.tolist()]

    def _promising(self, mixed: NDArray[np.uint64], count: int) -> NDArray[np.intp] | None:
        """The first of so many that the logarithms of the others are not needed; None: there were too few."""
        if self._sums is None:
            weights = self._weight[: len(self.members)]
            self._sums = float(weights.sum()), float(weights.max())
        total, largest = self._sums
        limit = NARROWING * count / total  # a score that NARROWING × count of them are expected to be below
        some = np.flatnonzero(mixed >= np.uint64(min(exp(-limit * largest) * 2.0**64, MASK >> 11 << 11)))
        scores = self._scores(mixed[some], some)
        order = np.argsort(scores, kind="stable")[:count]
        if len(order) < count or scores[order[-1]] > limit:
            return None
        return some[order]

    def _mixed(self, salt: int) -> NDArray[np.uint64]:
        x = np.bitwise_xor(self._hash[: len(self.members)], np.uint64(salt))
        shifted = np.empty_like(x)
        for multiplier in VECTOR_MULTIPLIERS:
            np.right_shift(x, VECTOR_SHIFT, out=shifted)
            np.bitwise_xor(x, shifted, out=x)
            np.multiply(x, multiplier, out=x)
        np.right_shift(x, VECTOR_SHIFT, out=shifted)
        return np.bitwise_xor(x, shifted, out=x)

    def _scores(self, mixed: NDArray[np.uint64], which: NDArray[np.intp] | slice) -> NDArray[np.float64]:
        """As `_score`."""
        scores: NDArray[np.float64] = np.log((mixed + 0.5) / 2.0**64) / -self._weight[which]
        return scores


def _hash(text: str) -> int:
    return int.from_bytes(blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "big")


def _score(salt: int, own: int, weight: float) -> float:
    """-ln(u)/w is exponential with rate w, so a replica is first for w's share of the keys."""
    x = salt ^ own
    for multiplier in MULTIPLIERS:
        x = ((x ^ (x >> SHIFT)) * multiplier) & MASK
    return -log(((x ^ (x >> SHIFT)) + 0.5) / 2**64) / weight
