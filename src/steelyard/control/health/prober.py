"""Probes every replica when it is due and reports changes: one timer, a bounded number of probes at once."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from random import Random

from ...core.replica import Event
from ...core.request import INFINITY
from ..fleet.registry import ReplicaKey
from ..observability.views import ProbeView
from .command_probe import CommandProbe
from .http_client import TlsContexts
from .http_probe import HttpProbe
from .probe import CheckResult, ProbeResult, ProbeStatus, ProbeTarget
from .schedule import Schedule, TaskLimiter
from .synthetic_requests import WarmUpRunner, run_inference_check
from .tracker import HealthChange, HealthTracker, RequestCheck

# Ready replicas have a limit of their own: a hundred dead ones, each a timeout long, do not delay them.
MAX_READY_PROBES, MAX_NOT_READY_PROBES, MAX_COMMAND_PROBES = 256, 128, 16
MAX_REQUEST_CHECKS = 128  # warm-ups and inferences at once
MAX_UNSPREAD_PROBES = 50  # up to this many new replicas are probed at once; probes of more are spread over …
MAX_SPREAD_SECONDS = 1.0  # … this time, or `interval` if that is less
MIN_PROBE_SPACING_SECONDS = 0.2  # between two probes of one replica, however often one is requested
MAX_NOT_READY_PROBES_PER_SECOND = 400.0  # over all replicas: a thousand cold ones are probed less often
INTERNAL_ERROR_RETRY_SECONDS = 5.0
BUSY_CHECK_TIMEOUT_SECONDS = 1.0  # for workers to say whether a replica makes progress
STALL_MARGIN_SECONDS = 0.5  # over the time limit of a probe: this process itself was stalled

log = logging.getLogger("steelyard.control.health")


class Prober:
    """Needs a running loop. Calls `saw(key, event, why)` for changes: LIVE (answers, not ready), LOADED (ready, warmed
    up), LOST (does not answer). `progress(key)`: do real requests make progress? Then a timeout is no failure."""

    def __init__(
        self,
        saw: Callable[[ReplicaKey, Event, str], None],
        progress: Callable[[ReplicaKey], Awaitable[bool]],
        *,
        rng: Random | None = None,
    ) -> None:
        self.result_counts: Counter[tuple[str, str]] = Counter()  # probes by model and result
        self.on_change = saw
        self._progress = progress
        self._rng = rng or Random()
        self._loop = asyncio.get_running_loop()
        self._contexts = TlsContexts()
        self._replicas: dict[ReplicaKey, ProbedReplica] = {}
        self._not_ready: set[ReplicaKey] = set()
        self._schedule = Schedule(self._enqueue)
        self._ready_probes = TaskLimiter(MAX_READY_PROBES, self._start_probe, self._task_ended)
        self._not_ready_probes = TaskLimiter(MAX_NOT_READY_PROBES, self._start_probe, self._task_ended)
        self._command_probes = TaskLimiter(MAX_COMMAND_PROBES, self._start_probe, self._task_ended)
        self._checks = TaskLimiter(MAX_REQUEST_CHECKS, self._start_check, self._task_ended)
        self._limiters = (self._ready_probes, self._not_ready_probes, self._command_probes, self._checks)

    # ------------------------------------------------------------------ for the fleet

    def set_targets(self, targets: Mapping[ReplicaKey, ProbeTarget]) -> None:
        """From now on exactly these. Where only settings changed, results stay."""
        now = self._loop.time()
        probed = {key: target for key, target in targets.items() if target.health.enabled}
        fresh: list[ProbedReplica] = []
        for key, replica in list(self._replicas.items()):
            wanted = probed.get(key)
            if wanted is None or not replica.target.is_same_server(wanted):
                self._drop(replica)
            elif replica.target != wanted:
                replica.change(wanted, now)
                self._update_check(replica)
                fresh.append(replica)
        for key, target in probed.items():
            if key not in self._replicas:
                replica = self._replicas[key] = ProbedReplica(key, target, self._contexts, self._rng, now)
                self._not_ready.add(key)
                fresh.append(replica)
        models = {model for model, _ in probed}
        for gone in [key for key in self.result_counts if key[0] not in models]:
            del self.result_counts[gone]
        for replica in fresh:
            longest = min(MAX_SPREAD_SECONDS, replica.target.health.interval)
            spread = longest if len(fresh) > MAX_UNSPREAD_PROBES else 0.0
            self._probe_at(replica, now + self._rng.uniform(0.0, spread))

    def probe_now(self, key: ReplicaKey) -> None:
        """At most a few times a second, however often this is called."""
        replica = self._replicas.get(key)
        if replica is None:
            return
        if replica.probe_task is not None:
            replica.probe_again = True
        elif replica.tracker.next_probe_at != INFINITY:
            self._probe_at(replica, min(self._schedule.time_of(replica), self._earliest(replica)))

    def reprobe(self, key: ReplicaKey) -> None:
        if (replica := self._replicas.get(key)) is not None:
            replica.tracker.reprobe(self._loop.time())
            self._start_over(replica)

    def model_unloaded(self, key: ReplicaKey) -> None:
        if (replica := self._replicas.get(key)) is not None:
            replica.tracker.model_unloaded(self._loop.time())
            self._start_over(replica)

    def view(self, key: ReplicaKey) -> ProbeView | None:
        """None: it is not probed."""
        replica = self._replicas.get(key)
        return replica.view(self._loop.time()) if replica is not None else None

    async def close(self) -> None:
        self._schedule.close()
        for replica in list(self._replicas.values()):
            self._drop(replica)
        for limiter in self._limiters:
            await limiter.close()

    def _start_over(self, replica: ProbedReplica) -> None:
        replica.discard_result = replica.probe_task is not None
        self._not_ready.add(replica.key)
        self._update_check(replica)
        self._probe_at(replica, self._earliest(replica))

    def _drop(self, replica: ProbedReplica) -> None:
        del self._replicas[replica.key]
        self._not_ready.discard(replica.key)
        self._schedule.forget(replica)
        for limiter in self._limiters:
            limiter.forget(replica)
        for task in (replica.probe_task, replica.check_task):
            if task is not None:
                task.cancel()

    def _is_followed(self, replica: ProbedReplica) -> bool:
        return self._replicas.get(replica.key) is replica

    # ------------------------------------------------------------------ probes

    def _probe_at(self, replica: ProbedReplica, when: float) -> None:
        """Unless one is under way or waits for its turn."""
        if replica.probe_task is None and not replica.queued:
            self._schedule.at(replica, when)

    def _earliest(self, replica: ProbedReplica) -> float:
        return max(self._loop.time(), replica.probe_started_at + MIN_PROBE_SPACING_SECONDS)

    def _enqueue(self, replica: ProbedReplica) -> None:
        replica.queued = True
        if replica.target.health.command:
            self._command_probes.submit(replica)
        else:
            (self._ready_probes if replica.tracker.ready else self._not_ready_probes).submit(replica)

    def _start_probe(self, replica: ProbedReplica) -> asyncio.Task[None]:
        replica.queued = replica.probe_again = replica.discard_result = False
        replica.probe_started_at = self._loop.time()
        replica.probe_task = self._loop.create_task(self._probe(replica))
        return replica.probe_task

    async def _probe(self, replica: ProbedReplica) -> None:
        try:
            result = self._unless_stalled(replica, await replica.probe.run())
        except Exception as error:  # of a user's own dialect, or ours: it must not end the other probes
            result = self._internal_error(replica, error)
        if self._is_followed(replica):
            self.result_counts[replica.key[0], result.status.value] += 1
        silent = result.status is ProbeStatus.NO_RESPONSE and replica.tracker.ready
        busy = silent and not replica.discard_result and await self._is_busy(replica.key)
        replica.probe_task = None
        if self._is_followed(replica):
            if not replica.discard_result:
                self._report(replica, replica.tracker.probe_finished(result, self._loop.time(), busy=busy))
            self._plan(replica)

    def _unless_stalled(self, replica: ProbedReplica, result: ProbeResult) -> ProbeResult:
        limit = replica.target.health.timeout + STALL_MARGIN_SECONDS
        if result.status is not ProbeStatus.NO_RESPONSE or result.seconds <= limit:
            return result
        replica.probe_again = True
        message = f"{result.message}; but Steelyard itself was stalled"
        return result._replace(status=ProbeStatus.UNKNOWN, message=message)

    def _internal_error(self, replica: ProbedReplica, error: Exception) -> ProbeResult:
        message = f"the probe itself failed: {type(error).__name__}: {error}"
        if message != replica.tracker.last_result.message:
            log.error("%s of %s: %s", replica.key[1], replica.key[0], message, exc_info=error)
        return ProbeResult(ProbeStatus.UNKNOWN, message)

    async def _is_busy(self, key: ReplicaKey) -> bool:
        try:
            return await asyncio.wait_for(self._progress(key), BUSY_CHECK_TIMEOUT_SECONDS)
        except Exception:  # no word is not a yes
            return False

    def _plan(self, replica: ProbedReplica) -> None:
        when = min(replica.tracker.next_probe_at, self._schedule.time_of(replica))
        if replica.tracker.ready:
            self._not_ready.discard(replica.key)
        else:
            self._not_ready.add(replica.key)
            when = max(when, self._loop.time() + len(self._not_ready) / MAX_NOT_READY_PROBES_PER_SECOND)
        if replica.probe_again or replica.discard_result:
            when = min(when, self._earliest(replica))
        self._probe_at(replica, when)

    def _report(self, replica: ProbedReplica, changes: list[HealthChange]) -> None:
        replica.reset_after_restart()
        self._update_check(replica)
        for event, reason in changes:
            try:
                self.on_change(replica.key, event, reason)
            except Exception:
                log.exception("%s of %s: %s could not be reported", replica.key[1], replica.key[0], event.value)

    def _task_ended(self, replica: ProbedReplica, task: asyncio.Future[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:  # our own mistake: probe again later
            log.error("%s of %s cannot be probed", replica.key[1], replica.key[0], exc_info=error)
            if self._is_followed(replica):
                self._probe_at(replica, self._loop.time() + INTERNAL_ERROR_RETRY_SECONDS)

    # ------------------------------------------------------------------ warm-ups and inferences

    def _update_check(self, replica: ProbedReplica) -> None:
        wanted = replica.tracker.check_wanted is not None
        if wanted and replica.check_task is None and replica not in self._checks:
            self._checks.submit(replica)
        elif not wanted:
            self._checks.forget(replica)
            if replica.check_task is not None:
                replica.check_task.cancel()
                replica.check_task = None

    def _start_check(self, replica: ProbedReplica) -> asyncio.Task[None]:
        replica.check_task = self._loop.create_task(self._check(replica))
        return replica.check_task

    async def _check(self, replica: ProbedReplica) -> None:
        check = replica.tracker.check_wanted
        assert check is not None
        try:
            result = await replica.run_check(check)
        except Exception as error:
            result = CheckResult(self._internal_error(replica, error).message, inconclusive=True)
        busy = result.ambiguous and replica.tracker.ready and await self._is_busy(replica.key)
        if self._is_followed(replica) and replica.check_task is asyncio.current_task():
            replica.check_task = None
            self._report(replica, replica.tracker.check_finished(result, self._loop.time(), busy=busy))
            self._plan(replica)


class ProbedReplica:
    """Its probe, its health, and the tasks under way."""

    def __init__(self, key: ReplicaKey, target: ProbeTarget, contexts: TlsContexts, rng: Random, now: float) -> None:
        self.key = key
        self.tracker = HealthTracker(target.health, rng, now)
        self.probe_task: asyncio.Task[None] | None = None
        self.check_task: asyncio.Task[None] | None = None
        self.queued = False  # due, and waiting for its turn
        self.probe_started_at = -INFINITY
        self.probe_again = False  # as soon as the current probe ends
        self.discard_result = False  # of the current probe
        self._contexts = contexts
        self._take(target)

    def change(self, target: ProbeTarget, now: float) -> None:
        self.tracker.change(target.health, now)
        self.discard_result = self.probe_task is not None
        self._take(target)

    def _take(self, target: ProbeTarget) -> None:
        self.target = target
        self._probe: CommandProbe | HttpProbe | None = None
        self._warm_up = WarmUpRunner(target, self._contexts)
        self._generation = self.tracker.generation

    @property
    def probe(self) -> CommandProbe | HttpProbe:
        """A user's own dialect may raise anything."""
        if self._probe is None:
            if self.target.health.command:
                self._probe = CommandProbe(self.target)
            else:
                self._probe = HttpProbe(self.target, self._contexts)
        return self._probe

    async def run_check(self, check: RequestCheck) -> CheckResult:
        if check is RequestCheck.WARM_UP:
            return await self._warm_up.run()
        return await run_inference_check(self.target, self._contexts)

    def reset_after_restart(self) -> None:
        if self._generation != self.tracker.generation:
            self._generation = self.tracker.generation
            self._warm_up.forget()
            if self._probe is not None:
                self._probe.reset()

    def view(self, now: float) -> ProbeView:
        tracker = self.tracker
        result, since = tracker.last_result, tracker.loading_since
        return ProbeView(
            result=result.status.value,
            message=result.message,
            age=now - tracker.last_probe_at if tracker.last_probe_at > -INFINITY else None,
            seconds=result.seconds,
            consecutive_successes=tracker.successes,
            consecutive_failures=tracker.failures,
            required_successes=tracker.required_successes,
            instance=tracker.restarts.instance,
            restarts=tracker.restarts.count,
            loading_for=None if since is None else now - since,
        )
