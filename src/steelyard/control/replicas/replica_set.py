"""The managed replicas of one model: what happens to them, and what is done about it."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from contextlib import suppress

from ...config import RuntimeConfig
from ...core.replica import Event, State
from ...runtimes import Instance, InstancePhase, ReplicaSpec, ReplicaStartError
from ...units import format_seconds
from ..fleet.observer import ReplicaLoad
from .context import START_ANSWER_SECONDS, ControllerContext
from .failures import FailureRecorder
from .lifecycle import TERMINATING_PHASES, PhaseEvent, ReplicaPhase
from .managed_replica import ManagedReplica, ReplicaUsage, apply_fleet_state
from .notifier import FleetNotifier
from .reconcile import hung_or_overdue, plan_reconcile
from .shutdown import ReplicaShutdown
from .start_requests import NoDeviceMemoryError, StartRequestBuilder

log = logging.getLogger("steelyard.control.replicas")


class ReplicaSet:
    def __init__(self, model: str, context: ControllerContext) -> None:
        self.model = model
        self.desired: int | None = None  # not decided yet
        self.missing = 0
        self.replicas: dict[str, ManagedReplica] = {}
        self.failures = FailureRecorder(context.fleet)
        self.usage = ReplicaUsage()
        self.start_requests = StartRequestBuilder(model, context)
        self.shutdown = ReplicaShutdown(model, context, self._gone)
        self.settings: RuntimeConfig | None = None  # None: no runtime
        self._made_of = ""
        self._reason = ""
        self._context = context
        self._fleet = context.fleet
        self._notifier = FleetNotifier(model, context.fleet)
        self._reconciling = self._dirty = False

    # ------------------------------------------------------------------ the desired number

    def follow(self, settings: RuntimeConfig | None) -> None:
        if settings is None:
            self.desired = None
        if settings != self.settings:
            self.failures.backoff.clear()
        self.settings = settings
        if settings is not None:
            self.shutdown.settings, self._made_of = settings, settings.fingerprint()
        self.reconcile()
        if self.model not in self._context.config.models:  # the fleet has dropped it too
            for replica in self.replicas.values():
                replica.member = False
            self._notifier.forgotten()

    def scale(self, replicas: int, reason: str) -> None:
        if replicas != self.desired and self.settings is not None:
            self.desired, self._reason = replicas, reason
            self.reconcile()

    def outdated(self, replica: ManagedReplica) -> bool:
        settings, instance = self.settings, replica.instance
        if settings is None or instance.fingerprint != self._made_of:
            return True
        return self.start_requests.misplaced(settings, instance.device)

    def reconcile(self) -> None:
        """Steps may call back here: then once more."""
        self._dirty = True
        if self._reconciling:
            return
        self._reconciling = True
        try:
            while self._dirty and not self._context.paused:
                self._dirty = False
                self._reconcile_once()
        finally:
            self._reconciling = False

    def _reconcile_once(self) -> None:
        if self.desired is None and self.settings is not None:
            return
        now = self._context.clock()
        todo = plan_reconcile(self, now)
        self.missing = todo.missing
        for replica, reason in todo.terminate:
            if self._context.keep_adopted and replica.adopted:
                continue
            self.shutdown.drain_and_stop(replica, reason)
            self._dirty = True  # the plan may differ without it
        for replica in todo.undrain:
            self.shutdown.cancel_drain(replica, now)
            self._publish_ready_time(now)
        if todo.starts:
            self._start(todo.starts, now)
        else:
            self.failures.shortage.end()  # a shortage does not hold anything up now

    # ------------------------------------------------------------------ starts

    def _start(self, count: int, now: float) -> None:
        try:
            for _ in range(count):
                self._start_one(now)
            self.failures.shortage.end()
        except NoDeviceMemoryError as problem:
            self.failures.no_room(self.model, str(problem), self._outdated_count(), now)
        self._publish_ready_time(now)

    def _start_one(self, now: float) -> None:
        replica, spec = self.start_requests.new(self.shutdown.settings, self.replicas, now)
        self.replicas[replica.id] = replica
        self.usage.starts += 1
        where = f" on {spec.device}" if spec.device else ""
        self._fleet.record("scaling", f"is being started{where}: {self._reason}", *replica.key)
        self._context.operations.start(replica, self._start_process(replica, spec))

    async def _start_process(self, replica: ManagedReplica, spec: ReplicaSpec) -> None:
        try:
            instance = await replica.runtime.start(spec)
        except ReplicaStartError as problem:
            self._refused(replica, problem.reason, str(problem))
        except Exception as problem:
            log.exception("a start of %s/%s failed unexpectedly", *replica.key)
            with suppress(Exception):  # it may have left something behind
                await replica.runtime.stop(*replica.key, timeout=START_ANSWER_SECONDS)
            self._refused(replica, "failed", f"{type(problem).__name__}: {problem}")
        else:
            self._began(replica, instance)

    def _began(self, replica: ManagedReplica, instance: Instance) -> None:
        if replica.instance.phase is InstancePhase.STARTING and not replica.instance.url:  # no news meanwhile
            replica.instance = instance
        if replica.phase is ReplicaPhase.STOPPING:  # surplus by now
            self.shutdown.stop(replica)
            return
        replica.transition(PhaseEvent.STARTED, replica.began)
        self._instance_changed(replica)

    def _instance_changed(self, replica: ManagedReplica) -> None:
        if replica.has_ended:
            self._ended(replica)
        else:
            self._changed()

    def _refused(self, replica: ManagedReplica, reason: str, message: str) -> None:
        unwanted = replica.phase is ReplicaPhase.STOPPING
        replica.transition(PhaseEvent.START_FAILED, self._context.clock())
        if not unwanted:
            self._failed(replica, reason, f"it could not be started: {message}", replica.began)
        self._forget(replica)

    def adopt(self, instance: Instance, kind: str) -> None:
        replica = self.start_requests.found(instance, kind, self.replicas, self._context.clock())
        self.replicas[instance.id] = replica
        if instance.id in self._context.listed(self.model):
            self.shutdown.drain_and_stop(replica, "another replica has its name now")
        elif self.settings is not None:
            self._fleet.record("scaling", f"adopted: it has run for {format_seconds(instance.age)}", *replica.key)
            self._changed()

    # ------------------------------------------------------------------ events

    def runtime_changed(self, instance: Instance) -> None:
        replica = self.replicas.get(instance.id)
        if replica is not None:
            replica.instance = instance
            if replica.phase not in (ReplicaPhase.REQUESTED, ReplicaPhase.STOPPING):  # there, its operation acts
                self._instance_changed(replica)

    def fleet_changed(self, id: str, state: State, now: float) -> None:
        replica = self.replicas.get(id)
        if replica is None or state is State.GONE:
            return
        replica.fleet_state_changed(state, now)
        if replica.phase in TERMINATING_PHASES:
            if state is not State.DRAINING:  # undone by an operator or a reload
                self._fleet.transition(replica.key, Event.DRAIN, "it is on its way out")
            return
        before = replica.phase
        if (seconds := apply_fleet_state(replica, state, now)) is not None:
            self._context.load_times.learn(self.model, seconds)
            self._fleet.record("scaling", f"ready {format_seconds(seconds)} after its start", *replica.key)
        if replica.phase is not before:
            self.reconcile()

    def tick(self, now: float) -> None:
        for replica in list(self.replicas.values()):
            if replica.is_steady(now) and not replica.proven:
                replica.proven = True
                if not self.outdated(replica):
                    self.failures.backoff.clear()
        for replica, reason in hung_or_overdue(
            self.replicas.values(), self.shutdown.settings.start_timeout, self.missing, now
        ):
            self._failed(replica, "start_timeout", reason, replica.since)
            self.shutdown.drain_and_stop(replica, reason, given_up=True)
        if not any(replica.on_trial for replica in self.replicas.values()):
            self.failures.backoff.fade(now)
        if self.shutdown.settings.devices and self.replicas:
            self.start_requests.footprint()  # remembered for when none is left
        self._publish_members()
        self.reconcile()
        self._publish_if_due(now)

    # ------------------------------------------------------------------ failures

    def _ended(self, replica: ManagedReplica) -> None:
        now, leaving = self._context.clock(), replica.phase in (*TERMINATING_PHASES, ReplicaPhase.CORDONED)
        proven = replica.proven or replica.is_steady(now)
        self._context.operations.cancel(replica)
        replica.transition(PhaseEvent.ENDED, now)
        message = f"its process ended: {replica.instance.exit_reason or 'exit status unknown'}"
        if leaving or proven:
            self.usage.crashes += 1
        if leaving:
            self.failures.ended_leaving(replica, message)
        elif proven:
            self.failures.ended(replica, message, now)
        else:
            self._failed(replica, "ended", message, replica.began)
        self._fleet.transition(replica.key, Event.LOST, message)
        self._forget(replica)

    def _failed(self, replica: ManagedReplica, reason: str, message: str, began: float) -> None:
        former = 0 if self.outdated(replica) else self._outdated_count()
        self.usage.crashes += 1
        self.failures.failed(replica, reason, message, began, former, self._context.clock())
        self._notifier.withdraw_ready_time()

    def _outdated_count(self) -> int:
        return sum(1 for replica in self.replicas.values() if replica.alive and self.outdated(replica))

    # ------------------------------------------------------------------ ends

    def _gone(self, replica: ManagedReplica) -> None:
        replica.transition(PhaseEvent.ENDED, self._context.clock())
        self.usage.stops += 1
        self._fleet.record("scaling", "stopped", *replica.key)
        if replica.drained_ready:
            self.failures.backoff.left_well(replica.began)
        self._forget(replica)

    def _forget(self, replica: ManagedReplica) -> None:
        self.usage.charge(replica, self.price(replica), self._context.clock())
        del self.replicas[replica.id]
        self._changed()
        self.reconcile()
        self._publish_if_due(self._context.clock())

    # ------------------------------------------------------------------ publishing and queries

    def _changed(self) -> None:
        if not self._context.silent:
            self._publish_members()

    def _publish_members(self) -> None:
        if self.model in self._context.config.models:
            self._notifier.publish_members(self.replicas.values())

    def _publish_ready_time(self, now: float) -> None:
        measured = self._context.cold_start(self.model)[1]
        self._notifier.publish_ready_time(self.ready_in(now), now, guessed=not measured, failure=self.last_failure(now))

    def _publish_if_due(self, now: float) -> None:
        if self._notifier.is_due(now):
            self._publish_ready_time(now)

    def loads(self) -> Mapping[str, ReplicaLoad]:
        return self._fleet.replica_loads(self.model)

    def price(self, replica: ManagedReplica) -> float:
        return self._context.price(self.model, replica.instance.device)

    def last_failure(self, now: float) -> str:
        """Why the last start failed, for clients; empty: none did, or another is under way."""
        if any(replica.ready_in(now) is not None for replica in self.replicas.values()):
            return ""
        return self.failures.client_message(self.settings is not None and self.settings.expose_log_tail)

    def ready_in(self, now: float) -> float:
        measured = self._context.cold_start(self.model)[1]
        soon = [s for replica in self.replicas.values() if (s := replica.ready_in(now, measured)) is not None]
        if soon:
            return min(soon)
        backoff = self.failures.backoff
        if self.missing and backoff.consecutive_failures and not self.failures.shortage.message:
            return backoff.retry_in(now) + self._context.cold_start(self.model)[0]
        return 0.0

    def log_tail(self, id: str, lines: int) -> tuple[str, ...] | None:
        """Also of a replica that ended, while its runtime knows it; None: not managed."""
        replica = self.replicas.get(id)
        if replica is not None:
            return replica.runtime.log_tail(self.model, id, lines)
        if self.settings is None or not self._context.ids.was_used(self.model, id):
            return None
        return self._context.runtimes[self.settings.kind].log_tail(self.model, id, lines)

    def charge(self, now: float) -> None:
        for replica in self.replicas.values():
            self.usage.charge(replica, self.price(replica), now)
