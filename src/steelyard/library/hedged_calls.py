"""`lb.call(fn)` with hedges: a second attempt may run beside the first, and the first answer wins.

Attempts of `call` are threads: a loser runs to its end, and its result is dropped. Those of `acall` are tasks: a loser
is cancelled.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress
from contextvars import copy_context
from typing import Any, Generic, NamedTuple, TypeVar

from ..core.decision import Cancel, Reject, Send
from ..core.outcome import Outcome
from ..core.replica import Replica
from ..core.request import INFINITY, RequestPhase
from .calls import arun, run
from .failures import FailureClassifier, Refused
from .routed_request import RoutedRequest, Target
from .waiters import Waiter

T = TypeVar("T")


class AttemptResult(NamedTuple):
    attempt: object
    replica: Replica
    result: Any
    error: BaseException | None


class HedgedCall(Generic[T]):
    """The attempts of one call, which the driver starts and stops."""

    def __init__(self, routed: RoutedRequest, judge: FailureClassifier, wake: Callable[[], object]) -> None:
        self.engine = routed.engine
        self.request = routed.request
        self.waiter = Waiter(self.request, wake)
        self.ended: deque[AttemptResult] = deque()  # filled by the attempts
        self.attempts: dict[object, Replica] = {}  # that run
        self._judge = judge
        self._error: BaseException | None = None  # of the attempt that failed last

    def begin(self) -> list[Replica]:
        """Where it runs; a hedge may have been decided already."""
        with self.engine.turn():
            self.engine.start_waiting(self.waiter)
            return [one.replica for one in (self.request.attempt, self.request.hedge) if one is not None]

    def sleep_seconds(self) -> float | None:
        """None: until woken."""
        with self.engine.turn() as now:
            if self.ended or self.waiter.inbox:
                return 0.0
            seconds = min(self.engine.sleep(self.waiter, now), self._next_look() - now)
        return None if seconds == INFINITY else max(0.0, seconds)

    def _next_look(self) -> float:
        """When the core may hedge: not left to the leader of the waiters, whose event loop may be busy."""
        if self.request.phase is RequestPhase.WAITING:
            return self.request.expires
        entry = self.request.attempt.hedge_entry if self.request.attempt is not None else None
        return INFINITY if entry is None else float(entry[0])

    def take_results(self) -> tuple[T] | None:
        """The result, once there is one; raises the last error once nothing is left to try."""
        while self.ended:
            ended = self.ended.popleft()
            if self.attempts.pop(ended.attempt, None) is None:
                continue  # it has lost
            over = self.request.phase is RequestPhase.DONE  # its lease expired; the answer still counts
            outcome = Outcome.OK if ended.error is None else self._judge(ended.error)
            self.engine.finish(self.request, outcome, replica=ended.replica)
            if ended.error is None:
                return (ended.result,)
            self._error = ended.error
            if (over and not self.attempts) or (not over and self.request.phase is RequestPhase.DONE):
                raise ended.error
        return None

    def next_steps(self) -> tuple[list[Replica], list[object]]:
        start: list[Replica] = []
        stop: list[object] = []
        decisions, self.waiter.inbox = self.waiter.inbox, []
        for decision in decisions:
            if isinstance(decision, Send):
                start.append(decision.replica)
            elif isinstance(decision, Cancel):
                stop += [attempt for attempt, replica in self.attempts.items() if replica is decision.replica]
            elif isinstance(decision, Reject):
                raise self._error if self._error is not None else Refused(decision.reason, decision.retry_after)
        for attempt in stop:
            del self.attempts[attempt]
        return start, stop

    def target(self, replica: Replica) -> Target:
        return Target(replica.id, self.request, self.engine.clock)

    def close(self) -> None:
        self.engine.abandon(self.request)
        self.engine.stop_waiting(self.waiter)


def hedged_call(routed: RoutedRequest, fn: Callable[[Target], T], judge: FailureClassifier) -> T:
    routed.start()
    woken = threading.Event()
    state: HedgedCall[T] = HedgedCall(routed, judge, woken.set)
    try:
        start = state.begin()
        while True:
            for replica in start:
                _start_thread(state, fn, replica, woken)
            woken.wait(state.sleep_seconds())
            woken.clear()
            result = state.take_results()
            if result is not None:
                return result[0]
            start, _ = state.next_steps()
    finally:
        state.close()


def _start_thread(state: HedgedCall[T], fn: Callable[[Target], T], replica: Replica, woken: threading.Event) -> None:
    attempt = object()

    def work() -> None:
        result: Any = None
        error: BaseException | None = None
        try:
            result = context.run(run, fn, state.target(replica))
        except BaseException as raised:
            error = raised
        state.ended.append(AttemptResult(attempt, replica, result, error))
        woken.set()

    context = copy_context()
    state.attempts[attempt] = replica
    threading.Thread(target=work, name=f"steelyard-call-{replica.id}", daemon=True).start()


async def hedged_acall(routed: RoutedRequest, fn: Callable[[Target], Awaitable[T]], judge: FailureClassifier) -> T:
    await routed.astart()
    loop = asyncio.get_running_loop()
    woken = asyncio.Event()
    state: HedgedCall[T] = HedgedCall(routed, judge, lambda: loop.call_soon_threadsafe(woken.set))
    try:
        start = state.begin()
        while True:
            for replica in start:
                _start_task(state, fn, replica, woken)
            with suppress(TimeoutError):
                await asyncio.wait_for(woken.wait(), state.sleep_seconds())
            woken.clear()
            result = state.take_results()
            if result is not None:
                return result[0]
            start, stop = state.next_steps()
            _cancel(stop)
    finally:
        state.close()
        _cancel([*state.attempts])


def _start_task(
    state: HedgedCall[T], fn: Callable[[Target], Awaitable[T]], replica: Replica, woken: asyncio.Event
) -> None:
    def done(task: asyncio.Task[T]) -> None:
        error = asyncio.CancelledError() if task.cancelled() else task.exception()
        state.ended.append(AttemptResult(task, replica, task.result() if error is None else None, error))
        woken.set()

    task = asyncio.ensure_future(arun(fn, state.target(replica)))
    state.attempts[task] = replica
    task.add_done_callback(done)


def _cancel(tasks: list[object]) -> None:
    for task in tasks:
        assert isinstance(task, asyncio.Task)
        task.cancel()
