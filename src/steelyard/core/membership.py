"""Membership of a pool: its replicas, which of them are in rotation (`members`) and have a free slot (`open`).

Both lists are kept up to date in a stable order, so that a decision filters nothing. A change of one replica does not
look at the others, unless a panic begins or ends.

Panic: when fewer than `panic_threshold` of the expected replicas are ready, the ejected ones are in rotation too, or
the rest would be overloaded (Envoy's panic threshold).
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Sequence
from itertools import islice
from typing import Final

from .candidates import MANY_CANDIDATES, CandidatesWithout, leave_out
from .errors import UnknownReplicaError
from .load_index import LoadIndex
from .options import PoolOptions
from .replica import Replica, State
from .request import INFINITY

EXPECTED_STATES = (State.READY, State.EJECTED, State.UNREACHABLE)  # loading or draining is no reason to panic
RECOVERABLE_STATES = (State.STARTING, State.LOADING, State.UNREACHABLE, State.EJECTED)
MAX_NAMES_IN_ERROR = 10
# Bound once: a lookup through the enumeration costs more than the comparison, compiled or not.
READY: Final = State.READY
EJECTED: Final = State.EJECTED
GONE: Final = State.GONE


class Membership:
    def __init__(self, model: str, options: PoolOptions) -> None:
        self.model = model
        self.options = options
        self.replicas: dict[str, Replica] = {}
        self.members: list[Replica] = []
        self.open: list[Replica] = []
        self._open_orders: list[int] = []  # `order` of each in `open`, for bisection
        self.load_index: LoadIndex | None = None  # once a policy asks for it
        self.out_of_rotation: dict[Replica, None] = {}
        self.ejected_replicas: dict[Replica, None] = {}
        self._states: dict[State, int] = dict.fromkeys(State, 0)  # replicas in each
        self.panicking = False
        self.expected_count = 0  # replicas that should serve
        self.lost_at = -INFINITY  # when the last of the members was lost

    def _member_joined(self, replica: Replica, now: float) -> None:
        """It is in rotation now."""

    def _member_left(self, replica: Replica, now: float) -> None:
        """It is out of rotation now."""

    def _rotation_rebuilt(self, left: Sequence[Replica], joined: Sequence[Replica], now: float) -> None:
        """Many joined and left at once."""

    def find(self, id: str) -> Replica:
        try:
            return self.replicas[id]
        except KeyError:
            some = list(islice(self.replicas, MAX_NAMES_IN_ERROR))
            known = ", ".join([*sorted(some), *["…"] * (len(self.replicas) > MAX_NAMES_IN_ERROR)]) or "none"
            raise UnknownReplicaError(f"no replica {id!r} in the pool{self._of_model()} (known: {known})") from None

    def _of_model(self) -> str:
        return f" of {self.model!r}" if self.model else ""  # the library has one pool, without a name

    def in_rotation(self, replica: Replica) -> bool:
        state = replica.state
        return state is READY or (state is EJECTED and self.panicking)

    def is_open(self, replica: Replica) -> bool:
        return replica.load < replica.limit and not replica.suspended and self.in_rotation(replica)

    def may_recover(self) -> bool:
        """Could one become ready by itself?"""
        return any(self._states[state] for state in RECOVERABLE_STATES)

    def _update_rotation(self, replica: Replica, before: State | None, now: float) -> None:
        states, panicked = self._states, self.panicking
        if before is not None:
            states[before] -= 1
        states[replica.state] += 1
        self._classify(replica)
        self.expected_count = expected = sum(states[state] for state in EXPECTED_STATES)
        self.panicking = (
            bool(states[EJECTED]) and states[READY] < self.options.outlier_detection.panic_threshold * expected
        )
        if self.panicking is not panicked:
            self.rebuild_rotation(now)
            return
        if not self.in_rotation(replica) and replica.state is not GONE:
            self.out_of_rotation[replica] = None
        else:
            self.out_of_rotation.pop(replica, None)
        was = before is READY or (before is EJECTED and panicked)
        is_now = self.in_rotation(replica)
        if is_now and not was:
            self._join(replica, now)
        elif was and not is_now:
            self._leave(replica, now)

    def _classify(self, replica: Replica) -> None:
        if replica.state is EJECTED:
            self.ejected_replicas[replica] = None
        else:
            self.ejected_replicas.pop(replica, None)

    def ready_count(self) -> int:
        return self._states[READY]

    def _join(self, replica: Replica, now: float) -> None:
        if self.members and self.members[-1].order > replica.order:
            insort(self.members, replica, key=_by_order)
        else:
            self.members.append(replica)
        self.update_open(replica)
        self._member_joined(replica, now)

    def _leave(self, replica: Replica, now: float) -> None:
        del self.members[bisect_left(self.members, replica.order, key=_by_order)]
        self.update_open(replica)
        if not self.members:
            self.lost_at = now
        self._member_left(replica, now)

    def rebuild_rotation(self, now: float) -> None:
        before = self.members
        self.out_of_rotation = {r: None for r in self.replicas.values() if not self.in_rotation(r)}
        self.members = members = [r for r in self.replicas.values() if self.in_rotation(r)]
        self.open = [r for r in members if r.load < r.limit and not r.suspended]
        self._open_orders = [r.order for r in self.open]
        if before and not members:
            self.lost_at = now
        self.load_index = None
        then, after = set(before), set(members)
        self._rotation_rebuilt([r for r in before if r not in after], [r for r in members if r not in then], now)

    def update_open(self, replica: Replica) -> None:
        spot = bisect_left(self._open_orders, replica.order)
        listed = spot < len(self.open) and self.open[spot] is replica
        wanted = self.is_open(replica)
        if listed and not wanted:
            del self.open[spot]
            del self._open_orders[spot]
        elif wanted and not listed:
            self.open.insert(spot, replica)
            self._open_orders.insert(spot, replica.order)
        if self.load_index is not None:
            self.load_index.update(replica)

    def open_without(self, some: Sequence[Replica]) -> Sequence[Replica]:
        """Of many open ones, all but those, in the same order."""
        return leave_out(self.open, self._open_orders, some)

    def index_of(self, candidates: Sequence[Replica]) -> LoadIndex | None:
        """The index of these candidates by load; None: they are few, or not the open replicas."""
        if len(candidates) <= MANY_CANDIDATES:
            return None
        every: object = candidates.every if isinstance(candidates, CandidatesWithout) else candidates
        if every is not self.open:
            return None
        index = self.load_index
        if index is None:
            index = self.load_index = LoadIndex(self.replicas.values(), self.is_open)
        return index


def _by_order(replica: Replica) -> int:
    return replica.order
