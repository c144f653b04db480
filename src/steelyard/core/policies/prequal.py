"""Prequal: probes of load and latency, hot or cold.

Idea: avoid the replicas with many requests in flight; among the others take the fastest. A probe reads what the
balancer already knows of a replica (its own load, what others reported, recent latency): no packet is sent.

Formula: per request `probes_per_request` random replicas are probed into a pool bounded in number and age. A probe is
hot if its n / w is above the `hot_quantile` of the pool; of the cold ones the least mean rtt wins, then the fewest
requests. A used probe counts one request more; `removals_per_request` probes are dropped, alternately the worst and the
oldest.

Source: Wydrowski et al., "Load is not what you should balance: Introducing Prequal", NSDI 2024. Limits: in small fleets
comparing all replicas is cheaper and better.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import ClassVar

from ..candidates import MANY_CANDIDATES
from ..outcome import Outcome
from ..pool import Pool
from ..replica import Replica
from ..request import Attempt, Request
from ..statistics.latency import DecayedMean
from .base import Policy, left_out, number, weighted_choice, weighted_load

TIE_FACTOR = 1.001  # means of equal latencies differ in their last digits


class _Probe:
    __slots__ = ("in_flight", "latency", "replica", "stamp")

    def __init__(self, replica: Replica, in_flight: float, latency: float, stamp: float) -> None:
        self.replica = replica
        self.in_flight = in_flight
        self.latency = latency
        self.stamp = stamp


class Prequal(Policy):
    renamed_options: ClassVar[dict[str, str]] = {
        "pool": "pool_size",
        "rate": "probes_per_request",
        "remove": "removals_per_request",
        "hot": "hot_quantile",
    }

    rule = "among recent probes, without the busiest sixth: the fastest, then the least busy"
    wins = "noisy neighbours, mixed hardware, many balancers over many replicas"
    loses = "small fleets, where comparing all replicas is cheaper and better"

    def __init__(
        self,
        rng: Random,
        *,
        pool_size: int = 16,
        max_age: float = 1.0,
        probes_per_request: int = 3,
        removals_per_request: int = 1,
        hot_quantile: float = 0.84,
    ) -> None:
        super().__init__(rng)
        self._size = int(number("pool_size", pool_size, least=2))
        self._max_age = number("max_age", max_age, above=0.0)
        self._rate = int(number("probes_per_request", probes_per_request, least=1))
        self._remove = int(number("removals_per_request", removals_per_request, least=0))
        self._hot = number("hot_quantile", hot_quantile, above=0.0, below=1.0)
        self.probes: list[_Probe] = []
        self._drop_worst = False
        self._latency = DecayedMean(10.0)

    def attach(self, pool: Pool) -> None:
        self._pool = pool

    def joined(self, replica: Replica, now: float) -> None:
        replica.notes = DecayedMean(10.0)

    def left(self, replica: Replica, now: float) -> None:
        self.probes = [p for p in self.probes if p.replica is not replica]

    def finished(self, attempt: Attempt, seconds: float, outcome: Outcome, now: float) -> None:
        if attempt.replica.notes is not None:
            attempt.replica.notes.add(seconds, now)
        self._latency.add(seconds, now)

    def choose(self, request: Request, candidates: Sequence[Replica], now: float) -> Replica:
        if len(candidates) == 1:
            return candidates[0]
        usable = self._fresh(request, candidates, now)
        if len(usable) < 2:
            choice = self._any(candidates)
        else:
            probe = self._pick(usable)
            choice = probe.replica
            probe.in_flight += 1.0 / choice.effective_weight  # it will be one busier than the probe said
        self._forget()
        self._look(candidates, now)
        return choice

    def _any(self, candidates: Sequence[Replica]) -> Replica:
        if len(candidates) > MANY_CANDIDATES and (index := self._pool.index_of(candidates)) is not None:
            return index.by_weight(self._random(), left_out(candidates))
        return weighted_choice(candidates, self._random())

    def _fresh(self, request: Request, candidates: Sequence[Replica], now: float) -> list[_Probe]:
        oldest = now - self._max_age
        if self.probes and self.probes[0].stamp < oldest:
            self.probes = [p for p in self.probes if p.stamp >= oldest]
        if len(candidates) <= MANY_CANDIDATES:
            allowed = set(candidates)
            return [p for p in self.probes if p.replica in allowed]
        # Of very many, what makes a candidate is checked for each probe.
        free = [p for p in self.probes if p.replica.load < p.replica.limit and not p.replica.suspended]
        return [p for p in free if p.replica not in request.avoid]

    def _pick(self, probes: list[_Probe]) -> _Probe:
        ordered = sorted(p.in_flight for p in probes)
        limit = ordered[min(len(ordered) - 1, int(self._hot * len(ordered)))]
        cold = [p for p in probes if p.in_flight <= limit]
        level = min(p.latency for p in cold) * TIE_FACTOR
        tied = [p for p in cold if p.latency <= level]
        least = min(p.in_flight for p in tied)
        tied = [p for p in tied if p.in_flight == least]
        return tied[int(self._random() * len(tied))]

    def _forget(self) -> None:
        """The worst and the oldest by turns: reused and stale probes must not pile up."""
        for _ in range(min(self._remove, len(self.probes))):
            self._drop_worst = not self._drop_worst
            if self._drop_worst:
                self.probes.remove(max(self.probes, key=lambda p: (p.in_flight, p.latency)))
            else:
                del self.probes[0]

    def _look(self, candidates: Sequence[Replica], now: float) -> None:
        unknown = self._latency.value(1.0)
        for _ in range(self._rate):
            replica = candidates[int(self._random() * len(candidates))]
            latency = replica.notes.value(unknown) if replica.notes is not None else unknown
            busy = weighted_load(replica)
            # Prequal's latency is that at the present number in flight: from outside, this is nearest.
            self.probes.append(_Probe(replica, busy, latency * (busy + 1.0), now))
        if len(self.probes) > self._size:
            del self.probes[: len(self.probes) - self._size]
