"""The public class: what a program calls, with its arguments checked."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from random import Random
from typing import Any, TypeVar

from ..core.balancer import Balancer
from ..core.errors import MisuseError, OptionError, UnknownReplicaError
from ..core.options import Concurrency, HedgeOptions, OutlierDetectionOptions, PoolOptions, RetryOptions
from ..core.outcome import Outcome
from ..core.replica import Event, State
from ..core.request import INFINITY, Request, RequestPhase
from . import arguments
from .calls import acall, call
from .engine import Engine
from .events import EventKind, EventQueue, OnEvent
from .failures import FailureClassifier, Failures
from .hedged_calls import hedged_acall, hedged_call
from .routed_request import RouteContext, RoutedRequest, Target
from .stats import Stats, stats_of

T = TypeVar("T")
LEASE_SECONDS = 3600.0


class LoadBalancer:
    """Picks a replica for each request and keeps count. Safe from any number of threads and event loops.

    `policy` is a name of `steelyard policies` or your own `package.module:Class`; `weights` is one number per replica,
    in a list or by id; `concurrency` is how many requests a replica takes at once (a number, "auto", "unlimited").
    Everything else is in docs/library.md.
    """

    def __init__(
        self,
        replicas: Iterable[str],
        policy: str = "least_connections",
        weights: Mapping[str, float] | Sequence[float] | None = None,
        *,
        policy_options: Mapping[str, Any] | None = None,
        concurrency: Concurrency = "unlimited",
        max_queue: int = 1024,
        queue_timeout: float = 30.0,
        outlier_detection: bool | OutlierDetectionOptions = True,
        retry: bool | RetryOptions = True,
        hedge: bool | HedgeOptions = False,
        failures: Failures | None = None,
        lease: float | None = LEASE_SECONDS,
        on_event: OnEvent | None = None,
        seed: int | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        ids = arguments.replica_ids(replicas)
        by_id = arguments.weights_by_id(ids, weights)
        arguments.integer("max_queue", max_queue)
        arguments.seconds("queue_timeout", queue_timeout)
        options = PoolOptions(
            concurrency=concurrency,
            max_queue=max_queue,
            queue_timeout=queue_timeout,
            outlier_detection=arguments.outlier_detection(outlier_detection),
            retry=arguments.retrying(retry),
            hedge=arguments.hedging(hedge),
        )
        lease = None if lease is None else arguments.positive_seconds("lease", lease)
        if on_event is not None:
            arguments.function("on_event", on_event, "one event")
        arguments.function("clock", clock, "no arguments")
        arguments.strings(policy=policy)
        self.classify_failure = FailureClassifier(failures)
        self._clock = clock
        self._feature_count = 0  # of a request; 0: not known yet
        now = clock()
        balancer = Balancer(Random(seed) if seed is not None else Random(time.monotonic_ns()))
        pool = balancer.add_model("", policy, options, policy_options, now)
        for id in ids:
            balancer.add_replica(id, weight=by_id[id], now=now)
        self._engine = Engine(balancer, pool, clock, lease, EventQueue(on_event), seeded=seed is not None)

    # ------------------------------------------------------------------ one call a request

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
        """The replica for a request, which counts there until `complete_request`, or until its lease ends.

        `features` are numbers that say how large the request is (tokens, bytes, batch), always in the same order.
        `timeout` is its deadline: it is refused at once if no replica could meet it. It does not interrupt your call.
        With a limited concurrency, `wait` is how many seconds to block for a free replica. Raises `Refused`.
        """
        return self.new_request(features, kind, key, tenant, priority, timeout, wait, idempotent=False).start()

    def complete_request(
        self, target: str, outcome: Outcome | str = Outcome.OK, *, latency: float | None = None
    ) -> None:
        """Pass what `route_request` returned; a bare id completes the oldest request there.

        `outcome` is an `Outcome` or its name ("ok", "error", …): failures teach the balancer to avoid a replica.
        `latency` in seconds replaces the time since `route_request`, for instance when replaying a log.
        """
        how = arguments.outcome(outcome)
        if latency is not None:
            arguments.seconds("latency", latency)
        with self._engine.turn() as now:
            request = self._running(target, now)
            if request is None:
                return  # its lease had expired
            if latency is not None and request.attempt is not None:
                self._engine.pool.backdate(request.attempt, latency, now)
            request.attempt_count = self._engine.pool.options.retry.max_attempts  # a retry is the caller's to make
            self._engine.end_attempt(request, how, now)

    # ------------------------------------------------------------------ a block, a function

    def route(
        self,
        features: Sequence[float] = (),
        *,
        kind: str = "",
        key: str | None = None,
        tenant: str = "",
        priority: int = 0,
        timeout: float | None = None,
        wait: float | None = None,
    ) -> RouteContext:
        """`with lb.route(…) as replica:` or `async with`: waits for a replica, counts it while the block runs, learns.

        An exception counts against the replica if `failures` says so; a cancellation never does. `wait` is how many
        seconds to wait for a free replica (None: `queue_timeout`).
        """
        routed = self.new_request(features, kind, key, tenant, priority, timeout, wait, idempotent=False)
        return RouteContext(routed, self.classify_failure)

    def call(
        self,
        fn: Callable[[Target], T],
        features: Sequence[float] = (),
        *,
        kind: str = "",
        key: str | None = None,
        tenant: str = "",
        priority: int = 0,
        timeout: float | None = None,
        wait: float | None = None,
        idempotent: bool = True,
    ) -> T:
        """Returns what `fn(replica)` returns. A failed one runs again on another replica, within the retry budget;
        with `hedge`, a slow one runs on a second replica too. Not `idempotent`: only where the first replica cannot
        have begun."""
        arguments.function("fn", fn, "the replica")
        routed = self.new_request(features, kind, key, tenant, priority, timeout, wait, idempotent)
        return (hedged_call if self._may_hedge(idempotent) else call)(routed, fn, self.classify_failure)

    async def acall(
        self,
        fn: Callable[[Target], Awaitable[T]],
        features: Sequence[float] = (),
        *,
        kind: str = "",
        key: str | None = None,
        tenant: str = "",
        priority: int = 0,
        timeout: float | None = None,
        wait: float | None = None,
        idempotent: bool = True,
    ) -> T:
        """`call` for a function whose result is awaited."""
        arguments.function("fn", fn, "the replica")
        routed = self.new_request(features, kind, key, tenant, priority, timeout, wait, idempotent)
        return await (hedged_acall if self._may_hedge(idempotent) else acall)(routed, fn, self.classify_failure)

    # ------------------------------------------------------------------ replicas

    def add_replica(self, id: str, weight: float = 1.0) -> None:
        """It gets requests at once."""
        arguments.replica_id(id)
        with self._engine.turn() as now:
            self._engine.carry_out(self._engine.balancer.add_replica(id, weight=weight, now=now))
            self._engine.events.add(EventKind.ADDED, id, f"Replica {id!r} is added.")

    def remove_replica(self, id: str) -> None:
        """Nothing new goes there; what runs there is completed by its target as usual."""
        with self._engine.turn() as now:
            replicas = self._engine.pool.replicas
            if len(replicas) == 1 and id in replicas:
                raise OptionError(f"replica {id!r} is the last one")
            self._engine.carry_out(self._engine.balancer.remove_replica(id, now=now))
            self._engine.leases.forget(id)
            self._engine.events.add(EventKind.REMOVED, id, f"Replica {id!r} is removed.")

    def drain(self, id: str) -> None:
        """Nothing new goes there until `undrain`."""
        with self._engine.turn() as now:
            self._engine.carry_out(self._engine.balancer.report(id, Event.DRAIN, now=now))
            self._engine.events.add(EventKind.DRAINING, id, f"Replica {id!r} is draining.")

    def undrain(self, id: str) -> None:
        """It gets requests again."""
        with self._engine.turn() as now:
            self._engine.carry_out(self._engine.balancer.report(id, Event.UNDRAIN, now=now))
            self._engine.carry_out(self._engine.balancer.report(id, Event.LOADED, now=now))
            self._engine.events.add(EventKind.UNDRAINED, id, f"Replica {id!r} gets requests again.")

    def set_weight(self, id: str, weight: float) -> None:
        """A replica of weight 2 gets twice the requests of one of weight 1."""
        with self._engine.turn() as now:
            self._engine.balancer.set_weight(id, weight, now=now)

    def set_policy(self, policy: str, **options: Any) -> None:
        """Changes the policy while requests run. `options`: those of the policy."""
        arguments.strings(policy=policy)
        with self._engine.turn() as now:
            self._engine.carry_out(self._engine.balancer.set_policy("", policy, options, now=now))

    # ------------------------------------------------------------------ what is

    @property
    def load(self) -> dict[str, int]:
        """Requests in flight by replica."""
        with self._engine.reading():
            return {id: replica.in_flight for id, replica in self._engine.pool.replicas.items()}

    @property
    def states(self) -> dict[str, State]:
        """The state of each replica."""
        with self._engine.reading():
            return {id: replica.state for id, replica in self._engine.pool.replicas.items()}

    @property
    def waiting(self) -> int:
        """Requests that wait for a free replica."""
        return len(self._engine.pool.queue)

    def stats(self) -> Stats:
        """All numbers at this moment, by replica and of all."""
        with self._engine.reading() as now:
            return stats_of(self._engine.pool, self._engine.leases.count, now)

    # ------------------------------------------------------------------ inside

    def _running(self, target: str, now: float) -> Request | None:
        """The request to complete; None: its lease has expired."""
        if isinstance(target, Target):
            if target.request.phase is RequestPhase.RUNNING:
                return target.request
            if self._engine.leases.is_late(target.request, now):
                return None
            raise MisuseError(f"this request to {str(target)!r} was completed before")
        replica = self._engine.pool.replicas.get(target)
        if replica is None:
            known = ", ".join(self._engine.pool.replicas)
            raise UnknownReplicaError(f"no replica {target!r} (known: {known})")
        for attempt in replica.running_attempts:
            return attempt.request
        if self._engine.leases.is_late_id(target):
            return None
        raise MisuseError(f"replica {target!r} has no request in flight: completed twice?")

    def _may_hedge(self, idempotent: bool) -> bool:
        return idempotent and self._engine.pool.options.hedge.enabled

    def new_request(
        self,
        features: Sequence[float] = (),
        kind: str = "",
        key: str | None = None,
        tenant: str = "",
        priority: int = 0,
        timeout: float | None = None,
        wait: float | None = None,
        idempotent: bool = True,
    ) -> RoutedRequest:
        """For integrations: `start`, then `retry` or `end`. Only an `idempotent` one gets further attempts."""
        numbers = arguments.feature_numbers(features)
        arguments.integer("priority", priority)
        arguments.strings(kind=kind, tenant=tenant, key=key or "")
        deadline = INFINITY if timeout is None else self._clock() + arguments.seconds("timeout", timeout)
        wait = None if wait is None else arguments.seconds("wait", wait)
        idempotent = arguments.boolean("idempotent", idempotent)
        self._check_feature_count(len(numbers))
        request = Request(
            "", numbers, deadline=deadline, priority=priority, tenant=tenant, kind=kind, key=key, idempotent=idempotent
        )
        return RoutedRequest(self._engine, request, wait)

    def _check_feature_count(self, count: int) -> None:
        """A request without features has an unknown size; all others have as many as the first."""
        known = self._feature_count
        if known and count not in (0, known):
            what = "give the same numbers in the same order each time"
            raise OptionError(f"features: {count} given, and earlier requests had {known}; {what}")
        self._feature_count = known or count
