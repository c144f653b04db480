"""The library for programs that balance their own calls: the core, a lock and the monotonic clock.

lb = LoadBalancer(replicas=["a", "b", "c"])
target = lb.route_request()
lb.complete_request(target)
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from math import isfinite
from random import Random
from typing import Any

from .core.balancer import Balancer
from .core.decision import Decision, Reject, Send
from .core.errors import MisuseError, OptionError, SteelyardError, UnknownReplicaError
from .core.options import Concurrency, EjectionOptions, PoolOptions
from .core.outcome import Outcome
from .core.reason import Reason
from .core.replica import Event, State, check_weight
from .core.request import INFINITY, Phase, Request


class Refused(SteelyardError):
    """No replica can take the request. `reason` is stable; `retry_after` says in how many seconds to try again."""

    def __init__(self, decision: Reject) -> None:
        super().__init__(decision.reason.sentence)
        self.reason = decision.reason.code
        self.status = decision.status
        self.retry_after = decision.retry_after


class Target(str):
    """The id of the replica to use. It is a plain string, and remembers which request it was given for."""

    __slots__ = ("request",)
    request: Request

    def __new__(cls, id: str, request: Request) -> Target:
        target = super().__new__(cls, id)
        target.request = request
        return target

    def __reduce__(self) -> tuple[type[str], tuple[str]]:
        return str, (str(self),)  # to another process only the id travels


class _Waiter:
    """Somebody who waits for a replica, and how to wake it up."""

    __slots__ = ("refusal", "request", "wake")

    def __init__(self, request: Request, wake: Callable[[], object]) -> None:
        self.request = request
        self.wake = wake
        self.refusal: Reject | None = None


class LoadBalancer:
    """Picks a replica for each request and keeps count. Safe to use from any number of threads.

    `policy` is a name of `steelyard policies` or your own `package.module:Class`; `weights` is one number per replica,
    in a list or by id; `concurrency` is how many requests a replica takes at once (a number, "auto", "unlimited").
    """

    def __init__(
        self,
        replicas: Iterable[str],
        policy: str = "least_connections",
        weights: Mapping[str, float] | Sequence[float] | None = None,
        *,
        policy_options: Mapping[str, Any] | None = None,
        concurrency: Concurrency = "unlimited",
        queue: int = 1024,
        eject: bool = True,
        seed: int | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        if isinstance(replicas, str):
            raise OptionError(f"replicas: a list of ids is wanted, not the string {replicas!r}")
        ids = list(replicas)
        if not ids:
            raise OptionError("replicas: at least one is needed")
        for id in ids:
            _check_id(id)
        doubled = sorted(id for id, times in Counter(ids).items() if times > 1)
        if doubled:
            raise OptionError(f"replicas: {', '.join(map(repr, doubled))} given more than once")
        by_id = _weights(ids, weights)
        options = PoolOptions(concurrency=concurrency, queue=queue, ejection=EjectionOptions(enabled=eject))
        self._clock = clock
        self._lock = threading.RLock()
        self._waiters: dict[Request, _Waiter] = {}  # longest waiting first
        self._lookout: _Waiter | None = None  # the one of them that also wakes up for the balancer
        self._slept_until = INFINITY  # … at this time
        self._balancer = Balancer(Random(seed) if seed is not None else Random(time.monotonic_ns()))
        now = clock()
        self._pool = self._balancer.add_model("", policy, options, policy_options, now)
        for id in ids:
            self._balancer.add_replica(id, weight=by_id[id], now=now)

    # ------------------------------------------------------------------ the small API

    def route_request(
        self,
        features: Sequence[float] = (),
        *,
        kind: str = "",
        key: str | None = None,
        tenant: str = "",
        priority: int = 0,
        timeout: float | None = None,
        wait: float = 0.0,
    ) -> Target:
        """The replica to send a request to; its load counts from now until `complete_request`.

        `features` are numbers that say how large the request is (tokens, bytes, batch), always in the same order.
        `timeout` is how many seconds it may take in all: if no replica could make it, it is refused at once. With a
        limited concurrency, `wait` is how many seconds to block for a free replica. Raises `Refused`.
        """
        wait = _seconds("wait", wait)
        request = self._request(features, kind, key, tenant, priority, timeout)
        with self._turn() as now:
            decision = self._balancer.submit(request, now, wait=wait > 0.0)
            if isinstance(decision, Reject):
                raise Refused(decision)
            if not isinstance(decision, Send):
                self._block(request, now + wait)
            return self._target(request)

    def complete_request(
        self, target: str, outcome: Outcome | str = Outcome.OK, *, latency: float | None = None
    ) -> None:
        """The request is over. Pass what `route_request` gave; a bare id completes the oldest request there.

        `outcome` is an `Outcome` or its name ("ok", "error", …): failures teach the balancer to avoid a replica.
        `latency` in seconds replaces the time since `route_request`, for instance when replaying a log.
        """
        how = _outcome(outcome)
        if latency is not None:
            _seconds("latency", latency)
        with self._turn() as now:
            request = self._running(target)
            flight = request.flight
            assert flight is not None
            if latency is not None:
                self._pool.redate(flight, latency, now)
            request.attempts = self._pool.options.retry.attempts  # a retry is the caller's to make
            self._carry_out(self._balancer.finish(request, how, now))

    @property
    def load(self) -> dict[str, int]:
        """Requests in flight by replica."""
        with self._lock:
            return {id: replica.in_flight for id, replica in self._pool.replicas.items()}

    # ------------------------------------------------------------------ async

    @asynccontextmanager
    async def route(
        self,
        features: Sequence[float] = (),
        *,
        kind: str = "",
        key: str | None = None,
        tenant: str = "",
        priority: int = 0,
        timeout: float | None = None,
    ) -> AsyncIterator[Target]:
        """`async with lb.route(…) as replica:` waits for a replica, counts it while the block runs, and learns.

        An exception in the block counts as a failure of the replica, a cancellation as the client leaving.
        """
        request = self._request(features, kind, key, tenant, priority, timeout)
        with self._turn() as now:
            decision = self._balancer.submit(request, now)
        if isinstance(decision, Reject):
            raise Refused(decision)
        if not isinstance(decision, Send):
            await self._wait(request)
        target = self._target(request)
        outcome = Outcome.ERROR
        try:
            yield target
            outcome = Outcome.OK
        except (asyncio.CancelledError, GeneratorExit):
            outcome = Outcome.CANCELLED
            raise
        finally:
            if request.phase is Phase.RUNNING:  # else the block has told the outcome itself
                self.complete_request(target, outcome)

    # ------------------------------------------------------------------ replicas

    def add_replica(self, id: str, weight: float = 1.0) -> None:
        _check_id(id)
        with self._turn() as now:
            self._carry_out(self._balancer.add_replica(id, weight=weight, now=now))

    def remove_replica(self, id: str) -> None:
        """Nothing new goes there; what runs there is completed by its target as usual."""
        with self._turn() as now:
            if len(self._pool.replicas) == 1 and id in self._pool.replicas:
                raise OptionError(f"replica {id!r} is the last one")
            self._carry_out(self._balancer.remove_replica(id, now=now))

    def drain(self, id: str) -> None:
        with self._turn() as now:
            self._carry_out(self._balancer.report(id, Event.DRAIN, now=now))

    def undrain(self, id: str) -> None:
        with self._turn() as now:
            self._carry_out(self._balancer.report(id, Event.UNDRAIN, now=now))
            self._carry_out(self._balancer.report(id, Event.LOADED, now=now))

    def set_weight(self, id: str, weight: float) -> None:
        with self._turn() as now:
            self._balancer.set_weight(id, weight, now=now)

    def set_policy(self, policy: str, **options: Any) -> None:
        with self._turn() as now:
            self._carry_out(self._balancer.set_policy("", policy, options, now=now))

    @property
    def states(self) -> dict[str, State]:
        with self._lock:
            return {id: replica.state for id, replica in self._pool.replicas.items()}

    @property
    def waiting(self) -> int:
        """Requests that wait for a free replica."""
        return len(self._pool.line)

    # ------------------------------------------------------------------ one thing at a time

    @contextmanager
    def _turn(self) -> Iterator[float]:
        """The lock, and the time with everything done that it brought about. Whoever sleeps too long is woken after."""
        with self._lock:
            now = self._clock()
            if now >= self._balancer.wake:
                self._carry_out(self._balancer.expire(now))
            try:
                yield now
            finally:
                if self._lookout is not None and self._balancer.wake < self._slept_until:
                    self._slept_until = self._balancer.wake
                    self._rouse([self._lookout])

    def _carry_out(self, decisions: Sequence[Decision]) -> None:
        """Tell whoever waits. A Send needs nothing else: the request is RUNNING and knows its replica."""
        decided = []
        for decision in decisions:
            waiter = self._waiters.pop(decision.request, None)
            if waiter is not None:
                waiter.refusal = decision if isinstance(decision, Reject) else None
                decided.append(waiter)
        self._rouse(decided)

    def _rouse(self, waiters: Sequence[_Waiter]) -> None:
        for waiter in waiters:
            try:
                waiter.wake()
            except RuntimeError:  # its event loop is closed: nobody is there to take the replica
                self._leave(waiter.request)

    # ------------------------------------------------------------------ waiting

    def _block(self, request: Request, until: float) -> None:
        """Wait as a thread, with the lock held on entry and on return."""
        condition = threading.Condition(self._lock)
        waiter = self._waiters[request] = _Waiter(request, condition.notify)
        try:
            while request.phase is Phase.WAITING:
                now = self._clock()
                if now >= until:
                    raise Refused(Reject(request, Reason.WAITED, self._pool.retry_after(now)))
                condition.wait(max(0.0, min(until, self._sleep(waiter)) - now))
                with self._turn():
                    pass
        except BaseException:
            self._leave(request)
            raise
        finally:
            self._resign(waiter)
        if waiter.refusal is not None:
            raise Refused(waiter.refusal)

    async def _wait(self, request: Request) -> None:
        """Wait as a task."""
        loop = asyncio.get_running_loop()
        roused = asyncio.Event()
        waiter = _Waiter(request, lambda: loop.call_soon_threadsafe(roused.set))
        with self._lock:
            if request.phase is Phase.WAITING:
                self._waiters[request] = waiter
        try:
            while request.phase is Phase.WAITING:
                with self._lock:
                    seconds = self._sleep(waiter) - self._clock()
                with suppress(TimeoutError):
                    await asyncio.wait_for(roused.wait(), None if seconds == INFINITY else max(0.0, seconds))
                roused.clear()
                with self._turn():
                    pass
        except BaseException:
            self._leave(request)
            raise
        finally:
            with self._lock:
                self._resign(waiter)
        with self._lock:
            if request.flight is None:
                refusal = waiter.refusal or Reject(request, Reason.WAITED, self._pool.retry_after(self._clock()))
                raise Refused(refusal)

    def _sleep(self, waiter: _Waiter) -> float:
        """Until when this waiter may sleep: one of them wakes up for the balancer, the others only when decided."""
        if self._lookout is None:
            self._lookout = waiter
        if self._lookout is not waiter:
            return INFINITY
        self._slept_until = self._balancer.wake
        return self._slept_until

    def _resign(self, waiter: _Waiter) -> None:
        """This waiter is done; if it was the lookout, another takes over."""
        self._waiters.pop(waiter.request, None)
        if self._lookout is waiter:
            self._lookout = None
            self._slept_until = INFINITY
            self._rouse(list(self._waiters.values())[:1])

    def _leave(self, request: Request) -> None:
        """Nobody wants the answer any more."""
        with self._turn() as now:
            self._waiters.pop(request, None)
            if request.phase in (Phase.WAITING, Phase.RUNNING):
                self._carry_out(self._balancer.cancel(request, now))

    # ------------------------------------------------------------------ inside, with the lock held

    def _target(self, request: Request) -> Target:
        assert request.flight is not None
        return Target(request.flight.replica.id, request)

    def _running(self, target: str) -> Request:
        if isinstance(target, Target):
            if target.request.phase is not Phase.RUNNING:
                raise MisuseError(f"this request to {str(target)!r} was completed before")
            return target.request
        replica = self._pool.replicas.get(target)
        if replica is None:
            known = ", ".join(self._pool.replicas)
            raise UnknownReplicaError(f"no replica {target!r} (known: {known})")
        for flight in replica.flights:
            return flight.request
        raise MisuseError(f"replica {target!r} has no request in flight: completed twice?")

    def _request(
        self,
        features: Sequence[float],
        kind: str,
        key: str | None,
        tenant: str,
        priority: int,
        timeout: float | None,
    ) -> Request:
        try:
            numbers = tuple(float(x) for x in features)
        except (TypeError, ValueError, OverflowError):
            raise OptionError(f"features: numbers from 0 up are wanted, not {features!r}") from None
        if any(not isfinite(x) or x < 0 for x in numbers):
            raise OptionError(f"features: numbers from 0 up are wanted, not {list(features)!r}")
        if isinstance(priority, bool) or not isinstance(priority, int):
            raise OptionError(f"priority: a whole number is wanted, not {priority!r}")
        for name, text in (("kind", kind), ("tenant", tenant), ("key", key or "")):
            if not isinstance(text, str):
                raise OptionError(f"{name}: a string is wanted, not {text!r}")
        deadline = INFINITY if timeout is None else self._clock() + _seconds("timeout", timeout)
        return Request("", numbers, deadline=deadline, priority=priority, tenant=tenant, kind=kind, key=key)


def _seconds(name: str, value: float) -> float:
    if not isinstance(value, int | float) or isinstance(value, bool) or not isfinite(value) or value < 0:
        raise OptionError(f"{name}: seconds from 0 up are wanted, not {value!r}")
    return float(value)


def _outcome(value: Outcome | str) -> Outcome:
    if isinstance(value, Outcome):
        return value
    for outcome in Outcome:
        if outcome.label == value:
            return outcome
    raise OptionError(f"outcome: one of {', '.join(o.label for o in Outcome)} is wanted, not {value!r}")


def _check_id(id: object) -> None:
    if not isinstance(id, str) or not id:
        raise OptionError(f"replicas: an id is a string that is not empty, not {id!r}")


def _weights(ids: list[str], weights: Mapping[str, float] | Sequence[float] | None) -> dict[str, float]:
    if weights is None:
        return dict.fromkeys(ids, 1.0)
    if isinstance(weights, Mapping):
        unknown = [id for id in weights if id not in ids]
        if unknown:
            raise OptionError(f"weights: no replica {', '.join(map(repr, unknown))}")
        found = {id: weights.get(id, 1.0) for id in ids}
    else:
        if len(weights) != len(ids):
            raise OptionError(f"weights: {len(weights)} given for {len(ids)} replicas")
        found = dict(zip(ids, weights, strict=True))
    for id, weight in found.items():
        check_weight(id, weight)
    return found
