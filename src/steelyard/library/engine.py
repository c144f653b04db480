"""The core behind a lock, with its decisions passed to the waiting callers.

A *turn* takes the lock, reads the time and does all that is due. Of the user's code only the policy runs inside one:
callbacks run after it, and what a finalizer or a signal handler ends meanwhile is put off to its end.

A fork waits for the end of a turn. The child's balancers work, without the requests of the parent.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from weakref import WeakSet

from ..core.balancer import Balancer
from ..core.decision import Decision
from ..core.errors import MisuseError
from ..core.outcome import Outcome
from ..core.pool import Pool
from ..core.replica import Replica
from ..core.request import Request, RequestPhase
from .events import EjectionNotifier, EventQueue
from .leases import ENDED_BY_FORK, RequestLeases
from .waiters import Waiter, Waiters


class Engine:
    def __init__(
        self,
        balancer: Balancer,
        pool: Pool,
        clock: Callable[[], float],
        lease: float | None,
        events: EventQueue,
        *,
        seeded: bool,
    ) -> None:
        self.balancer = balancer
        self.pool = pool
        self.clock = clock
        self.events = events
        self.leases = RequestLeases(pool, lease, events)
        self._ejections = EjectionNotifier(balancer, pool, events)
        self._seeded = seeded
        self.lock = threading.RLock()
        self._busy = False  # in a turn
        self._put_off: deque[Callable[[float], None]] = deque()
        self.waiters = Waiters(self.abandon)
        _engines.add(self)

    # ------------------------------------------------------------------ turns

    @contextmanager
    def turn(self) -> Iterator[float]:
        try:
            with self.lock:
                if self._busy:
                    what = "by a policy, or a signal handler"
                    raise MisuseError(f"the balancer was called in the middle of its own decision: {what}")
                self._busy = True
                try:
                    now = self.clock()
                    self._catch_up(now)
                    yield now
                finally:
                    try:
                        self._end_turn()
                    finally:  # here, so that not even Ctrl-C comes between
                        self._busy = False
        finally:
            self.events.deliver()

    @contextmanager
    def reading(self) -> Iterator[float]:
        """A turn, or part of the one that runs."""
        with self.lock:
            inside = self._busy
            if inside:
                yield self.clock()
        if not inside:
            with self.turn() as now:
                yield now

    def _catch_up(self, now: float) -> None:
        if now >= self.balancer.wake:
            self.carry_out(self.balancer.expire(now))
            for request in self.leases.expired(now):
                # Its own caller, if any, goes on: only others are told.
                self.carry_out([d for d in self.balancer.cancel(request, now) if d.request is not request])
            self._ejections.tell(now)

    def _end_turn(self) -> None:
        self.waiters.wake_by(self.balancer.wake)
        while self._put_off:
            self._put_off.popleft()(self.clock())
            self.waiters.wake_by(self.balancer.wake)

    def carry_out(self, decisions: Sequence[Decision]) -> None:
        """Wakes the waiting callers. A Send needs nothing else: the request is RUNNING and knows its replica."""
        for decision in decisions:
            self.waiters.tell(decision)

    # ------------------------------------------------------------------ requests

    def finish(self, request: Request, outcome: Outcome, *, replica: Replica | None = None) -> None:
        """Ends an attempt. Does nothing if the request is over: its lease expired, or its block completed it."""

        def end(now: float) -> None:
            if request.phase is RequestPhase.RUNNING:
                # Past its own deadline, a timeout is hardly the replica's fault.
                late = outcome is Outcome.TIMEOUT and now >= request.deadline
                self.end_attempt(request, Outcome.DEADLINE_EXCEEDED if late else outcome, now, replica=replica)
            else:
                self.leases.is_late(request, now)

        try:
            self._now_or_at_the_end(end)
        except BaseException:  # Ctrl-C, or an error of the user's own policy
            self.abandon(request)
            raise

    def end_attempt(self, request: Request, outcome: Outcome, now: float, *, replica: Replica | None = None) -> None:
        self.carry_out(self.balancer.finish(request, outcome, now, replica=replica))
        if self._ejections.changed:
            self._ejections.tell(now)

    def abandon(self, request: Request) -> None:

        def cancel(now: float) -> None:
            if request.phase in (RequestPhase.WAITING, RequestPhase.RUNNING):
                self.carry_out(self.balancer.cancel(request, now))

        self._now_or_at_the_end(cancel)

    def _now_or_at_the_end(self, action: Callable[[float], None]) -> None:
        with self.lock:
            if self._busy:
                self._put_off.append(action)
                return
        with self.turn() as now:
            action(now)

    # ------------------------------------------------------------------ waiting

    def start_waiting(self, waiter: Waiter) -> None:
        with self.lock:
            self.waiters.add(waiter)

    def stop_waiting(self, waiter: Waiter) -> None:
        self._now_or_at_the_end(lambda _: self.waiters.remove(waiter))

    def sleep(self, waiter: Waiter, now: float) -> float:
        """Seconds that this waiter may sleep; INFINITY: until woken. Inside a turn."""
        return max(0.0, self.waiters.sleep(waiter, self.balancer.wake) - now)

    # ------------------------------------------------------------------ forks

    def after_fork_in_child(self) -> None:
        """The threads and loops of the parent do not exist here: their requests are the parent's to count."""
        self.lock = threading.RLock()
        self._busy = False
        self._put_off.clear()
        self.waiters.clear()
        if not self._seeded:
            self.balancer.rng.seed()  # or all children choose alike
        now = self.clock()
        for request in list(self.pool.queue.ordered()):
            self.balancer.cancel(request, now)
        for replica in self.pool.replicas.values():
            for attempt in list(replica.running_attempts):
                if attempt.request.phase is RequestPhase.RUNNING:
                    attempt.request.context = ENDED_BY_FORK
                    self.balancer.cancel(attempt.request, now)


_engines: WeakSet[Engine] = WeakSet()
_held: list[Engine] = []  # by the fork that runs
_forking = threading.Lock()  # one fork at a time


def _before_fork() -> None:
    _forking.acquire()
    _held[:] = list(_engines)
    for engine in _held:
        engine.lock.acquire()


def _after_fork(*, in_child: bool) -> None:
    while _held:
        engine = _held.pop()
        if in_child:
            engine.after_fork_in_child()
        else:
            engine.lock.release()
    _forking.release()


if hasattr(os, "register_at_fork"):  # not on Windows
    in_parent, in_child = partial(_after_fork, in_child=False), partial(_after_fork, in_child=True)
    os.register_at_fork(before=_before_fork, after_in_parent=in_parent, after_in_child=in_child)
