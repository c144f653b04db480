"""Requests that come at a steady rate whatever happens to them, in virtual time: a driver for tests about trouble."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable
from random import Random

from steelyard.core.balancer import Balancer
from steelyard.core.decision import Decision, Reject, Send
from steelyard.core.options import PoolOptions
from steelyard.core.outcome import Outcome
from steelyard.core.replica import Replica, State
from steelyard.core.request import INFINITY, Request, RequestPhase

Ends = tuple[float, Outcome]  # after so many seconds, like this
NEVER: Ends = (INFINITY, Outcome.TIMEOUT)


class OpenLoop:
    """`behave(id, request, now)` says how an attempt sent now ends. What nobody answers ends at its deadline."""

    def __init__(
        self,
        ids: str,
        behave: Callable[[str, Request, float], Ends],
        *,
        rate: float = 100.0,
        allowed: float = INFINITY,
        idempotent: bool = True,
        policy: str = "least_work",
        seed: int = 1,
        **options: object,
    ) -> None:
        self.balancer = Balancer(Random(seed))
        self.balancer.add_model("", policy, PoolOptions(**options))  # type: ignore[arg-type]
        self.balancer.on_silent_ejection = self.move_on
        for id in ids:
            self.balancer.add_replica(id, now=0.0)
        self.behave = behave
        self.rng = Random(seed)
        self.gap, self.allowed, self.idempotent = 1.0 / rate, allowed, idempotent
        self.now = 0.0
        self.ended: list[tuple[float, str, str]] = []  # when, how, where
        self.sent: list[tuple[float, str]] = []
        self._events: list[tuple[float, int, str, Request | None, Replica | None]] = []
        self._silent: list[Replica] = []
        self._number = 0
        self._plan(0.0, "arrive")

    def replica(self, id: str) -> Replica:
        return self.balancer.pool().find(id)

    def states(self) -> dict[str, State]:
        return {id: replica.state for id, replica in self.balancer.pool().replicas.items()}

    def counts(self, since: float, until: float = INFINITY) -> Counter[str]:
        return Counter(how for when, how, _ in self.ended if since <= when < until)

    def run(self, until: float) -> None:
        while True:
            wake = self.balancer.next_wake()
            when = min(self._events[0][0] if self._events else INFINITY, INFINITY if wake is None else wake)
            if when > until:
                return
            self.now = max(self.now, when)
            if wake is not None and wake <= self.now:
                self._carry_out(self.balancer.expire(self.now))
                for replica in self._silent:
                    self._move(replica)
                self._silent.clear()
                continue
            _, _, kind, request, replica = heapq.heappop(self._events)
            if kind == "arrive":
                self._arrive()
            elif request is not None and replica is not None:
                self._end(request, replica, Outcome[kind])

    def move_on(self, replica: Replica) -> None:
        self._silent.append(replica)

    def submit(self, request: Request) -> None:
        self._carry_out([self.balancer.submit(request, self.now)])

    def stop(self) -> None:
        """No more of them come."""
        self._events = [event for event in self._events if event[2] != "arrive"]
        heapq.heapify(self._events)

    def _arrive(self) -> None:
        self._plan(self.now + self.gap, "arrive")
        deadline = self.now + self.allowed * self.rng.uniform(0.9, 1.1)
        self.submit(Request(deadline=deadline, idempotent=self.idempotent))

    def _carry_out(self, decisions: list[Decision] | tuple[Decision, ...]) -> None:
        for decision in decisions:
            if isinstance(decision, Reject):
                self.ended.append((self.now, decision.reason.code, ""))
            elif isinstance(decision, Send):
                request, replica = decision.request, decision.replica
                self.sent.append((self.now, replica.id))
                seconds, outcome = self.behave(replica.id, request, self.now)
                late = self.now + seconds > request.deadline
                when = min(self.now + seconds, request.deadline)
                if when < INFINITY:
                    self._plan(when, Outcome.CLIENT_DEADLINE_EXCEEDED.name if late else outcome.name, request, replica)

    def _end(self, request: Request, replica: Replica, outcome: Outcome) -> None:
        if (
            request.phase is not RequestPhase.RUNNING
            or request.attempt is None
            or request.attempt.replica is not replica
        ):
            return
        decisions = self.balancer.finish(request, outcome, self.now)
        if request.phase is RequestPhase.DONE and not any(d.request is request for d in decisions):
            self.ended.append((self.now, outcome.label, replica.id))
        self._carry_out(decisions)  # type: ignore[arg-type]

    def _move(self, replica: Replica) -> None:
        """As a gateway does with what waits at a replica that gives no answer."""
        for attempt in list(replica.running_attempts):
            if self.balancer.can_fail_over(attempt.request, self.now):
                self._end(attempt.request, replica, Outcome.TIMEOUT)

    def _plan(self, when: float, kind: str, request: Request | None = None, replica: Replica | None = None) -> None:
        self._number += 1
        heapq.heappush(self._events, (when, self._number, kind, request, replica))
