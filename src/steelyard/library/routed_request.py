"""One request in the balancer, driven by a thread or an asyncio task."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress

from ..core.decision import Reject
from ..core.errors import MisuseError
from ..core.outcome import Outcome
from ..core.reason import Reason
from ..core.request import INFINITY, Request, RequestPhase
from .engine import Engine
from .failures import FailureClassifier, Refused
from .waiters import Waiter


class Target(str):
    """The id of the replica to use: a string that remembers its request."""

    __slots__ = ("_clock", "request")
    request: Request
    _clock: Callable[[], float]

    def __new__(cls, id: str, request: Request, clock: Callable[[], float]) -> Target:
        target = super().__new__(cls, id)
        target.request = request
        target._clock = clock
        return target

    @property
    def seconds_left(self) -> float | None:
        """Of the request's `timeout`, to pass on to your client; None: it has no timeout."""
        deadline = self.request.deadline
        return None if deadline == INFINITY else max(0.0, deadline - self._clock())

    def __reduce__(self) -> tuple[type[str], tuple[str]]:
        return str, (str(self),)  # to another process only the id travels


class RoutedRequest:
    """`start` it, run it on the target, then `retry` or `end` it. With an `a` in front: for tasks."""

    def __init__(self, engine: Engine, request: Request, wait: float | None = None) -> None:
        """`wait`: seconds for a free replica; None: as long as the balancer allows."""
        self.engine = engine
        self.request = request
        self._wait = wait

    def start(self) -> Target:
        """Waits for a replica. Raises Refused."""
        self._check_new()
        try:
            until = self._submit()
            if self.request.phase is RequestPhase.WAITING:
                self._block(until)
            return self._target()
        except BaseException:  # Ctrl-C
            self.engine.abandon(self.request)
            raise

    async def astart(self) -> Target:
        self._check_new()
        until = self._submit()
        if self.request.phase is RequestPhase.WAITING:
            await self._sleep(until)
        return self._target()

    def end(self, outcome: Outcome) -> None:
        """Without another attempt."""
        self.request.attempt_count = self.engine.pool.options.retry.max_attempts
        self.engine.finish(self.request, outcome)

    def retry(self, outcome: Outcome) -> Target | None:
        """Ends this attempt. Returns where to try again; None: the request is over."""
        self.engine.finish(self.request, outcome)
        with suppress(Refused):
            if self.request.phase is RequestPhase.WAITING:
                self._block(INFINITY)
            return self._target() if self.request.phase is RequestPhase.RUNNING else None
        return None

    async def aretry(self, outcome: Outcome) -> Target | None:
        self.engine.finish(self.request, outcome)
        with suppress(Refused):
            if self.request.phase is RequestPhase.WAITING:
                await self._sleep(INFINITY)
            return self._target() if self.request.phase is RequestPhase.RUNNING else None
        return None

    # ------------------------------------------------------------------ inside

    def _check_new(self) -> None:
        if self.request.phase is not RequestPhase.NEW:
            raise MisuseError("this route was entered before: call lb.route(…) for each request")

    def _submit(self) -> float:
        with self.engine.turn() as now:
            decision = self.engine.balancer.submit(self.request, now, wait=self._wait is None or self._wait > 0.0)
            if isinstance(decision, Reject):
                raise Refused(decision.reason, decision.retry_after)
            return INFINITY if self._wait is None else now + self._wait

    def _target(self) -> Target:
        attempt = self.request.attempt
        if attempt is None:  # a fork or another thread just ended it
            raise Refused(Reason.QUEUE_TIMEOUT)
        return Target(attempt.replica.id, self.request, self.engine.clock)

    def _block(self, until: float) -> None:
        woken = threading.Event()
        waiter = Waiter(self.request, woken.set)
        try:
            _refuse_in_a_loop()
            self.engine.start_waiting(waiter)
            while (seconds := self._pause(waiter, until)) is not None:
                woken.wait(None if seconds == INFINITY else seconds)
                woken.clear()
        except BaseException:
            self.engine.abandon(self.request)
            raise
        finally:
            self.engine.stop_waiting(waiter)

    async def _sleep(self, until: float) -> None:
        woken = asyncio.Event()
        waiter = Waiter(self.request, lambda: loop.call_soon_threadsafe(woken.set))
        try:
            loop = _running_loop()
            self.engine.start_waiting(waiter)
            while (seconds := self._pause(waiter, until)) is not None:
                with suppress(TimeoutError):
                    await asyncio.wait_for(woken.wait(), None if seconds == INFINITY else seconds)
                woken.clear()
        except BaseException:
            self.engine.abandon(self.request)
            raise
        finally:
            self.engine.stop_waiting(waiter)

    def _pause(self, waiter: Waiter, until: float) -> float | None:
        """Seconds to sleep; None: it is decided. Raises Refused."""
        with self.engine.turn() as now:
            if self.request.phase is RequestPhase.WAITING:
                if now >= until:
                    raise Refused(Reason.QUEUE_TIMEOUT, self.engine.pool.retry_after(now))
                # Its own end is not left to the leader of the waiters, whose event loop may be busy.
                return max(0.0, min(until - now, self.request.expires - now, self.engine.sleep(waiter, now)))
            if self.request.phase is RequestPhase.DONE:
                refusals = [decision for decision in waiter.inbox if isinstance(decision, Reject)]
                refusal = next(iter(refusals), Reject(self.request, Reason.QUEUE_TIMEOUT))
                raise Refused(refusal.reason, refusal.retry_after)
            return None


def _refuse_in_a_loop() -> None:
    """The slots that a blocked event loop waits for may be held by its own tasks."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    raise MisuseError("every replica is full, and waiting here would block the event loop: use `async with`")


def _running_loop() -> asyncio.AbstractEventLoop:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        raise MisuseError("every replica is full, and waiting needs an event loop of asyncio: none runs here") from None


class RouteContext:
    """`with lb.route() as replica:` and `async with`: the block is the request. Entered once."""

    def __init__(self, routed: RoutedRequest, judge: FailureClassifier) -> None:
        self._routed = routed
        self._judge = judge

    def __enter__(self) -> Target:
        return self._routed.start()

    def __exit__(self, kind: object, error: BaseException | None, at: object) -> None:
        self._routed.end(Outcome.OK if error is None else self._judge(error))

    async def __aenter__(self) -> Target:
        return await self._routed.astart()

    async def __aexit__(self, kind: object, error: BaseException | None, at: object) -> None:
        self._routed.end(Outcome.OK if error is None else self._judge(error))
