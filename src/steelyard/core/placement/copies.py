"""The copies of all models while placement decides, and the value of each in seconds of waiting.

Formula: the loss of the last copy = P(used within the horizon) × load seconds × (1 + requests that wait meanwhile), P =
1 − e^(−rate × horizon); of one among several = the waiting added on the others (load_spread.py). Both plus the load
written off over the horizon, and the requests in flight there.

Source: docs/decisions/0015-placement.md. Limits: recent rates are assumed to last for the horizon; a copy in use stays
for MIN_RESIDENCY_LOADS × its load time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from heapq import nlargest
from math import exp
from typing import TYPE_CHECKING

from .load_spread import LoadSpread

if TYPE_CHECKING:
    from .planner import ModelCopy, ModelDemand, ServerState

MIN_RESIDENCY_LOADS = 2.0
IDLE_GRACE_SECONDS = 1.0  # after a load, in which a model is not idle yet
DEFAULT_REQUEST_SECONDS = 1.0  # of work, where none was seen
MAX_STRAINED_MODELS = 32  # looked at for one more copy
MAX_REUSE_PROBABILITY = 0.1  # below, a model may go for another's second copy


class ModelCopies:
    def __init__(
        self,
        servers: Sequence[ServerState],
        demands: Mapping[str, ModelDemand],
        typical: Mapping[str, float],
        horizon: float,
        now: float,
    ) -> None:
        self.demands = demands
        self.by_server: dict[str, dict[str, ModelCopy]] = {s.server: {h.model: h for h in s.copies} for s in servers}
        self._typical = typical  # seconds of work that a request of the model is
        self._horizon = horizon  # seconds for which recent rates are believed to last
        self._now = now
        self._holders: dict[str, list[str]] = {}
        for server, copies in self.by_server.items():
            for copy in copies.values():
                if copy.state != "unloading":
                    self._holders.setdefault(copy.model, []).append(server)
        self._spread = LoadSpread({s.server: s.capacity for s in servers})
        self._spread.divide_all({m: d.rate for m, d in demands.items()}, self._holders)
        self._losses: dict[tuple[str, str], float] = {}  # (server, model), as worked out since the last change

    def holders(self, model: str) -> Sequence[str]:
        """Servers on which it is resident or being loaded."""
        return self._holders.get(model, ())

    def add(self, model: str, server: str) -> None:
        self._holders.setdefault(model, []).append(server)
        self._changed(model)

    def remove(self, model: str, server: str) -> None:
        del self.by_server[server][model]
        self._holders[model].remove(server)
        self._changed(model)

    def _changed(self, model: str) -> None:
        self._spread.divide(model, self._rate(model), self.holders(model))
        self._losses.clear()

    def strained(self) -> list[ModelDemand]:
        """Models with a copy whose requests wait for longer than a load takes; of many, the worst off."""
        found = []
        for model, demand in self.demands.items():
            holders = self.holders(model)
            strain = self._strain(demand, holders) if holders else 0.0
            if strain > demand.load_seconds:
                found.append((strain / (len(holders) + 1), demand))
        return [demand for _, demand in nlargest(MAX_STRAINED_MODELS, found, key=lambda pair: pair[0])]

    def waiting_saved(self, demand: ModelDemand, server: str) -> float:
        now = self.holders(demand.model)
        return self._strain(demand, now) - self._strain(demand, [*now, server])

    def _strain(self, demand: ModelDemand, servers: Sequence[str]) -> float:
        """Seconds that requests wait, now and to come, with copies only there."""
        to_come = self._horizon * self._spread.waiting(demand.model, demand.rate, servers)
        behind = max(0.0, demand.waiting / len(servers) - 1.0)  # the first at each waits for no other
        return to_come + behind * demand.waiting_work / 2.0

    def waiting_cost(self, demand: ModelDemand, server: str) -> float:
        """Seconds of waiting there, with the only copy."""
        rate = max(demand.rate, demand.waiting_work / self._horizon)
        wait = self._horizon * self._spread.waiting(demand.model, rate, [server])
        return wait + demand.load_seconds * self.blocked_requests(server)

    def blocked_requests(self, server: str) -> float:
        """Requests that wait for a server while it loads: a share of those that wait now, and one at work."""
        turns = sum(self._waiting(m) / len(self.holders(m)) for m in self.by_server[server] if self.holders(m))
        return turns + self._spread.load[server] / self._spread.capacity[server]

    def eviction_loss(self, server: str, copy: ModelCopy) -> float:
        """Seconds of waiting that follow if it goes from there."""
        known = self._losses.get((server, copy.model))
        if known is None:
            known = self._losses[server, copy.model] = self._loss(server, copy)
        return known

    def _loss(self, server: str, copy: ModelCopy) -> float:
        model = copy.model
        seconds = self._load_seconds(model)
        # Its load is written off over time: a model just loaded is not evicted for a small gain.
        lost = seconds * max(0.0, 1.0 - (self._now - copy.since) / self._horizon)
        lost += copy.in_flight * self._typical.get(model, DEFAULT_REQUEST_SECONDS)  # they end first
        others = [s for s in self.holders(model) if s != server]
        demand = self.demands.get(model)
        if others:
            more = self._strain(demand, others) - self._strain(demand, self.holders(model)) if demand else 0.0
            return lost + max(0.0, more)
        # It must be loaded again, and requests that arrive meanwhile wait for half of that.
        meanwhile = self._waiting(model) + self._uses(model) * seconds / 2.0
        return lost + self._likely(model) * seconds * (1.0 + meanwhile)

    def may_evict(self, server: str, copy: ModelCopy, *, for_a_first: bool) -> bool:
        """May it go at all: for the first copy of another, or for one more?"""
        if copy.state != "resident" or copy.pinned:
            return False
        if len(self.holders(copy.model)) > 1:
            return True
        if not for_a_first:
            return self._likely(copy.model) < MAX_REUSE_PROBABILITY and not copy.in_flight
        return self._had_its_turn(server, copy)

    def _had_its_turn(self, server: str, copy: ModelCopy) -> bool:
        """Is it idle, or has it been there long enough for its load to pay?"""
        age = self._now - copy.since
        seconds = self._load_seconds(copy.model)
        if age >= min(IDLE_GRACE_SECONDS, seconds) and not copy.in_flight and not self._waiting(copy.model):
            return True
        busy = sum(1 for h in self.by_server[server].values() if h.in_flight or self._waiting(h.model))
        return age >= MIN_RESIDENCY_LOADS * seconds * max(1, busy)

    def loaded_in(self, copy: ModelCopy) -> float:
        return max(0.0, self._load_seconds(copy.model) - (self._now - copy.since))

    def eviction_reason(self, model: str) -> str:
        others = len(self.holders(model)) - 1
        if others:
            return f"{model} has {others} other {'copy' if others == 1 else 'copies'}"
        return f"{model} was used least, {self._load_seconds(model):.3g} s to reload"

    def _likely(self, model: str) -> float:
        """How likely it is wanted, at the recent rate."""
        return 1.0 if self._waiting(model) else 1.0 - exp(-self._uses(model) * self._horizon)

    def _uses(self, model: str) -> float:
        return self._rate(model) / self._typical.get(model, DEFAULT_REQUEST_SECONDS)

    def _rate(self, model: str) -> float:
        demand = self.demands.get(model)
        return demand.rate if demand is not None else 0.0

    def _waiting(self, model: str) -> int:
        demand = self.demands.get(model)
        return demand.waiting if demand is not None else 0

    def _load_seconds(self, model: str) -> float:
        demand = self.demands.get(model)
        return demand.load_seconds if demand is not None else 0.0
