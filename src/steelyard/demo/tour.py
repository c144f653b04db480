"""The guided minute: does what the steps say, to real replicas and through the real admin API."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

import httpx
import msgspec

from ..config import Config
from ..control.errors import StartError
from ..control.supervisor.supervisor import Supervisor
from . import steps
from .corpus import MODEL_NAME
from .replica.endpoints import Health
from .replica_processes import HOST, ReplicaProcess, ReplicaProcesses, http_client
from .settings import with_autoscaling
from .steps import BASELINE_POLICY, StepResult, merge_rounds
from .traffic import Traffic, TrafficStats

SLOW_FACTOR = 4.0
DRAIN_TIMEOUT_SECONDS = 10.0  # the last answers do not burden the next policy
POLL_SECONDS = 0.1
REPLICA_TIMEOUT_SECONDS = 2.0  # it may be stopped


@dataclass
class GuidedTour:
    fleet: ReplicaProcesses
    supervisor: Supervisor
    traffic: Traffic
    reconfigure: Callable[[Config], None]  # what the next reload reads
    folder: Path
    say: Callable[[StepResult], None] = lambda result: None  # called as a step begins, and as it has ended
    results: list[StepResult] = field(default_factory=list)  # of each step that was begun

    def __post_init__(self) -> None:
        self._compared: list[StepResult] = []  # the two policies in turn, each to its end
        self._rate = self.traffic.rate
        assert self.supervisor.admin_address is not None
        self._admin = http_client(f"http://{HOST}:{self.supervisor.admin_address.port}")
        self._configured_policy = self.supervisor.config.models[MODEL_NAME].policy
        self._policy = self._configured_policy if self._configured_policy != BASELINE_POLICY else "least_work"

    async def run(self, seconds: int | None) -> None:
        for step in steps.plan(seconds, self._policy):
            self.results.append(outcome := StepResult(step, TrafficStats(time.monotonic())))
            self.say(outcome)
            self.supervisor.fleet.events.record("demo", step.title, model=MODEL_NAME)
            outcome.note = await getattr(self, f"_run_{step.key}")(outcome)
            self.say(outcome)
            self.supervisor.fleet.events.record("demo", outcome.note, model=MODEL_NAME)
        self.traffic.start_part(self._rate, Random())

    async def close(self) -> None:
        await self._admin.aclose()

    def comparison(self) -> str:
        """Of whole rounds, so that both policies had the same requests."""
        if not self.results:
            return ""
        whole = merge_rounds(self._compared[: len(self._compared) // 2 * 2])
        return steps.comparison_note(whole["before"], self._policy, whole["after"]) if whole else steps.TOO_SHORT_NOTE

    def _start_part(self, outcome: StepResult, times: float = 1.0) -> TrafficStats:
        outcome.stats = self.traffic.start_part(times * self._rate, Random(outcome.step.seed))
        return outcome.stats

    async def _run_before(self, outcome: StepResult) -> str:
        await self._with_policy(BASELINE_POLICY, outcome)
        return steps.share_note(outcome.stats)

    async def _run_after(self, outcome: StepResult) -> str:
        await self._with_policy(self._policy, outcome)
        if self._policy != self._configured_policy:
            await self._set_policy(self._configured_policy)
        return self.comparison()

    async def _with_policy(self, policy: str, outcome: StepResult) -> None:
        await self.traffic.pause(DRAIN_TIMEOUT_SECONDS)
        await self._set_policy(policy)
        before = await self._overrun()
        self._start_part(outcome)
        await asyncio.sleep(outcome.step.seconds)
        await self.traffic.pause(DRAIN_TIMEOUT_SECONDS)
        meant, late = (now - was for now, was in zip(await self._overrun(), before, strict=True))
        outcome.overrun_ratio = late / meant if meant > 0.0 else 0.0
        self._compared.append(outcome)

    async def _run_slow(self, outcome: StepResult) -> str:
        usual = merge_rounds(self.results)["after"].stats.share("fast")
        replica = self.fleet["fast"]
        stats = self._start_part(outcome)
        slowed = await self._set_slowdown(replica, SLOW_FACTOR)
        try:
            await asyncio.sleep(0.3 * outcome.step.seconds)  # to learn it
            before, fast = stats.latency.count, stats.answered["fast"]
            await asyncio.sleep(0.7 * outcome.step.seconds)
        finally:
            await self._set_slowdown(replica, 1.0)
        answered = max(1, stats.latency.count - before)
        return steps.slowdown_note("fast", usual, (stats.answered["fast"] - fast) / answered if slowed else None)

    async def _run_dead(self, outcome: StepResult) -> str:
        stats, retried = self._start_part(outcome), self._retried()
        end = time.monotonic() + outcome.step.seconds
        self.fleet.kill("half")
        await asyncio.sleep(0.3 * outcome.step.seconds)
        back = time.monotonic()
        await self.fleet.restart("half", 0.2 * outcome.step.seconds)
        ready = None
        while ready is None and time.monotonic() < end:
            await asyncio.sleep(POLL_SECONDS)
            ready = time.monotonic() - back if "half" in self._ready() else None
        health = await self._health("half")
        await asyncio.sleep(end - time.monotonic())
        early = None if health is None else health.early_requests
        return steps.restart_note("half", stats, self._retried() - retried, early, ready)

    async def _run_double(self, outcome: StepResult) -> str:
        self.reconfigure(with_autoscaling(self.supervisor.config, self.folder))
        await self._call("POST", "/v1/reload")
        stats, began, first = self._start_part(outcome, 2.0), time.monotonic(), None
        while (now := time.monotonic()) < began + outcome.step.seconds:
            await asyncio.sleep(POLL_SECONDS)
            if first is None and self._answered_by_started(stats):
                first = now - began
        ready = self._ready()
        ours = sum(name in self.fleet for name in ready)
        return steps.scaling_note(ours, len(ready) - ours, self._answered_by_started(stats), first)

    async def _set_policy(self, policy: str) -> None:
        await self._call("PATCH", f"/v1/models/{MODEL_NAME}", {"policy": policy})

    async def _call(self, method: str, path: str, body: object = None) -> None:
        reply = await self._admin.request(method, path, json=body)
        if reply.status_code >= 300:
            raise StartError(f"the admin API refuses {method} {path}: {reply.text}")

    async def _set_slowdown(self, replica: ReplicaProcess, times: float) -> bool:
        """Of its usual one. False: it does not answer."""
        try:
            async with asyncio.timeout(REPLICA_TIMEOUT_SECONDS):
                await replica.set_slowdown(times * replica.slowdown)
        except (httpx.TransportError, TimeoutError):
            return False
        return True

    async def _overrun(self) -> tuple[float, float]:
        """Seconds that answers should have taken so far, and by which they took longer."""
        reports = [found for replica in self.fleet.values() if (found := await self._health(replica.name)) is not None]
        return sum(each.expected_seconds for each in reports), sum(each.overrun_seconds for each in reports)

    async def _health(self, name: str) -> Health | None:
        """None: it does not answer."""
        try:
            async with asyncio.timeout(REPLICA_TIMEOUT_SECONDS):
                reply = await self.fleet[name].ask("GET", "/health")
            return msgspec.json.decode(reply.content, type=Health)
        except (httpx.TransportError, TimeoutError, msgspec.DecodeError):
            return None

    def _ready(self) -> list[str]:
        """Names, also of replicas that the autoscaler started."""
        return [seen.id for seen in self.supervisor.status().replicas.values() if seen.state == "ready"]

    def _retried(self) -> int:
        return self.supervisor.status().models[MODEL_NAME].retried

    def _answered_by_started(self, stats: TrafficStats) -> dict[str, int]:
        return {name: count for name, count in stats.answered.items() if name not in self.fleet}
