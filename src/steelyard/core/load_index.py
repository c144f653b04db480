"""An index of the open replicas of a large pool by their load, for policies that compare all of them.

Idea: a segment tree over the replicas in the order in which they joined. Each node knows the least load for its weight
below it, the weight of all that have it, and the weight of all. A change of one replica, the choice of one with the
least load, and a choice by weight alone cost log₂ n steps instead of n.

Formula: key = (requests + failure penalty) / effective weight, as `weighted_load` in policies/base.py; ties at random
by weight, as `weighted_choice` in replica.py: both give the same replica, up to the rounding of sums of weights.

Limits: kept up only once a policy asks for it, in a pool of more than MANY_CANDIDATES replicas.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from .replica import Replica
from .request import INFINITY

MIN_SLOTS = 128


class LoadIndex:
    def __init__(self, replicas: Iterable[Replica], is_open: Callable[[Replica], bool]) -> None:
        """`replicas`: all of the pool, in the order they joined."""
        self._is_open = is_open
        self._build(list(replicas))

    def _build(self, replicas: list[Replica]) -> None:
        size = MIN_SLOTS
        while size < len(replicas) + len(replicas) // 4:
            size *= 2
        self._size = size
        self._replicas = replicas
        self._least = [INFINITY] * (2 * size)  # by node, the root at 1
        self._tied = [0.0] * (2 * size)  # weight of those with the least
        self._weight = [0.0] * (2 * size)
        self._load = [0] * size  # of the open ones
        self.total_load = 0
        for slot, replica in enumerate(replicas):
            replica.slot = slot
            self._set_leaf(slot, replica, self._is_open(replica))
        for node in range(size - 1, 0, -1):
            self._sum_up(node)

    def add(self, replica: Replica) -> None:
        """It came into the pool, after all others."""
        if len(self._replicas) < self._size:
            replica.slot = len(self._replicas)
            self._replicas.append(replica)
            self.update(replica)
        else:
            self._build([*(r for r in self._replicas if r.slot >= 0), replica])

    def remove(self, replica: Replica) -> None:
        """It left the pool."""
        if self._holds(replica):
            self._set(replica, False)
            replica.slot = -1

    def _holds(self, replica: Replica) -> bool:
        slot = replica.slot
        return 0 <= slot < len(self._replicas) and self._replicas[slot] is replica

    def update(self, replica: Replica) -> None:
        """Its load, weight or whether it is open may have changed."""
        if self._holds(replica):
            self._set(replica, self._is_open(replica))

    def _set(self, replica: Replica, is_open: bool) -> None:
        slot = replica.slot
        if not self._set_leaf(slot, replica, is_open):
            return
        node = (self._size + slot) >> 1
        while node:
            self._sum_up(node)
            node >>= 1

    def _set_leaf(self, slot: int, replica: Replica, is_open: bool) -> bool:
        """Did its key or weight change?"""
        node = self._size + slot
        load = replica.load if is_open else 0
        weight = replica.effective_weight if is_open else 0.0
        key = (replica.load + replica.failure_penalty) / weight if is_open else INFINITY
        self.total_load += load - self._load[slot]
        self._load[slot] = load
        if self._least[node] == key and self._weight[node] == weight:
            return False
        self._least[node] = key
        self._tied[node] = self._weight[node] = weight
        return True

    def _sum_up(self, node: int) -> None:
        least, tied = self._least, self._tied
        left = 2 * node
        mine, other = least[left], least[left + 1]
        if mine < other:
            least[node] = mine
            tied[node] = tied[left]
        elif other < mine:
            least[node] = other
            tied[node] = tied[left + 1]
        else:
            least[node] = mine
            tied[node] = tied[left] + tied[left + 1]
        self._weight[node] = self._weight[left] + self._weight[left + 1]

    def totals(self, without: Sequence[Replica]) -> tuple[int, float]:
        """Requests on the open replicas and their weight, of all but those."""
        if not without:
            return self.total_load, self._weight[1]
        self._leave_out(without)
        found = self.total_load, self._weight[1]
        self._bring_back(without)
        return found

    def least_loaded(self, random: Callable[[], float], without: Sequence[Replica], always_random: bool) -> Replica:
        """One with the least load, by weight. `always_random`: draw even where there is only one."""
        self._leave_out(without)
        try:
            least, tied = self._least, self._tied
            wanted = least[1]
            node = self._first_with(wanted)
            if always_random or tied[node] < tied[1]:
                left = random() * tied[1]
                node = 1
                while node < self._size:
                    node *= 2
                    if least[node] != wanted:
                        node += 1
                    elif left >= tied[node] and least[node + 1] == wanted:
                        left -= tied[node]
                        node += 1
            return self._replicas[node - self._size]
        finally:
            self._bring_back(without)

    def _first_with(self, wanted: float) -> int:
        node = 1
        while node < self._size:
            node *= 2
            if self._least[node] != wanted:
                node += 1
        return node

    def by_weight(self, random_value: float, without: Sequence[Replica]) -> Replica:
        """Any of the open ones."""
        self._leave_out(without)
        try:
            weight = self._weight
            left = random_value * weight[1]
            node = 1
            while node < self._size:
                node *= 2
                if left >= weight[node] and weight[node + 1] > 0.0:
                    left -= weight[node]
                    node += 1
            return self._replicas[node - self._size]
        finally:
            self._bring_back(without)

    def _leave_out(self, some: Sequence[Replica]) -> None:
        for replica in some:
            if self._holds(replica):
                self._set(replica, False)

    def _bring_back(self, some: Sequence[Replica]) -> None:
        for replica in some:
            self.update(replica)
