"""One probed replica: its probe, its health, and the tasks under way."""

from __future__ import annotations

import asyncio
from random import Random

from ...core.request import INFINITY
from ..fleet.registry import ReplicaKey
from ..observability.views import ProbeView
from .client.origin import TlsContexts
from .command_probe import CommandProbe
from .detection import probe_strategy
from .http_probe import HttpProbe
from .probe import CheckResult, ProbeTarget
from .request_checks import RequestCheck
from .synthetic_requests import WarmUpRunner, run_inference_check
from .tracker import HealthTracker


class ProbedReplica:
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
                self._probe = HttpProbe(self.target, self._contexts, probe_strategy(self.target))
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
            detail=result.detail,
            age=now - tracker.last_probe_at if tracker.last_probe_at > -INFINITY else None,
            seconds=result.seconds,
            consecutive_successes=tracker.successes,
            consecutive_failures=tracker.failures,
            required_successes=tracker.required_successes,
            instance=tracker.restarts.instance,
            restarts=tracker.restarts.count,
            loading_for=None if since is None else now - since,
        )
