"""One replica under watch: what is asked of it, what is known of it, and what is under way."""

from __future__ import annotations

import asyncio
from random import Random

from ..observability.views import ProbeView
from .client.origin import TlsContexts
from .command_probe import CommandProbe
from .http_probe import HttpProbe
from .inference_check import run_inference_check
from .probe import CheckResult, ProbeResult, ProbeStatus, ProbeTarget, ReplicaKey
from .request_checks import RequestCheck
from .tracker import INFINITY, HealthTracker
from .warm_up import WarmUpRunner

STALL_MARGIN_SECONDS = 0.5  # seconds over its time limit: it was this process that did not listen


class ProbedReplica:
    def __init__(self, key: ReplicaKey, target: ProbeTarget, contexts: TlsContexts, rng: Random, now: float) -> None:
        self.key = key
        self.tracker = HealthTracker(target.health, rng, now)
        self.probe_task: asyncio.Task[None] | None = None
        self.check_task: asyncio.Task[None] | None = None
        self.queued = False  # for a place in a lane
        self.probe_started_at = -INFINITY  # the last look
        self.probe_again = False  # look again as soon as this look has ended
        self.discard_result = False  # this look does not count
        self._contexts = contexts
        self._take(target)

    def change(self, target: ProbeTarget, now: float) -> None:
        """Other settings for the same server."""
        self.tracker.change(target.health, now)
        self.discard_result = self.probe_task is not None
        self._take(target)

    def _take(self, target: ProbeTarget) -> None:
        self.target = target
        self._probe: CommandProbe | HttpProbe | None = None
        self._warm_ups = WarmUpRunner(target, self._contexts)
        self._cooled = self.tracker.generation

    async def probe(self) -> ProbeResult:
        """Raises whatever a dialect of the user's own may raise."""
        if self._probe is None:
            by_command = bool(self.target.health.command)
            self._probe = CommandProbe(self.target) if by_command else HttpProbe(self.target, self._contexts)
        seen = await self._probe.run()
        if seen.status is ProbeStatus.NO_RESPONSE and seen.seconds > self.target.health.timeout + STALL_MARGIN_SECONDS:
            self.probe_again = True
            return seen._replace(status=ProbeStatus.UNKNOWN, detail=f"{seen.detail}; but Steelyard itself stood still")
        return seen

    async def run_check(self, trial: RequestCheck) -> CheckResult:
        return await (
            self._warm_ups.run() if trial is RequestCheck.WARM_UP else run_inference_check(self.target, self._contexts)
        )

    def reset_after_restart(self) -> None:
        """Forget what does not hold for the process that is there now."""
        if self._cooled != self.tracker.generation:
            self._cooled = self.tracker.generation
            self._warm_ups.forget()
            if self._probe is not None:
                self._probe.reset()

    def view(self, now: float) -> ProbeView:
        keeper = self.tracker
        seen, since = keeper.last_result, keeper.loading_since
        return ProbeView(
            result=seen.status.value,
            detail=seen.detail,
            age=now - keeper.last_probe_at if keeper.last_probe_at > -INFINITY else None,
            seconds=seen.seconds,
            consecutive_successes=keeper.successes,
            consecutive_failures=keeper.failures,
            required_successes=keeper.required_successes,
            instance=keeper.lives.instance,
            restarts=keeper.lives.restarts,
            loading_for=None if since is None else now - since,
        )
