"""The guided minute: does what the steps say, to real replicas and through the real admin API."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path
from random import Random

import msgspec

from ..config import Config
from ..control.errors import StartError
from ..control.supervisor import Supervisor
from . import steps
from .client import Client
from .corpus import MODEL
from .endpoints import Health
from .fleet import HOST, Fleet, ReplicaProcess
from .settings import scaled
from .steps import FIRST, Outcome, merged
from .tally import Tally
from .traffic import Traffic

SLOWER = 4.0
PATIENCE = 10.0  # seconds for the last answers of a policy, so that they do not burden the next
LOOK = 0.1  # seconds
SILENT = 2.0  # seconds after which a replica is left as it is: somebody may have stopped it


class Guide:
    """`outcomes`: of each step that was begun."""

    def __init__(
        self,
        fleet: Fleet,
        supervisor: Supervisor,
        traffic: Traffic,
        reconfigure: Callable[[Config], None],
        folder: Path,
        say: Callable[[Outcome], None],
    ) -> None:
        """`reconfigure`: what the next reload reads. `say` is called as a step begins, and as it has ended."""
        self.outcomes: list[Outcome] = []
        self._compared: list[Outcome] = []  # the two policies in turn, each to its end
        self._fleet = fleet
        self._supervisor = supervisor
        self._traffic = traffic
        self._reconfigure = reconfigure
        self._folder = folder
        self._say = say
        self._rate = traffic.rate
        assert supervisor.admin_address is not None
        self._admin = Client(HOST, supervisor.admin_address.port)
        self._usual = supervisor.config.models[MODEL].policy
        self._second = self._usual if self._usual != FIRST else "least_work"

    async def run(self, seconds: int | None) -> None:
        doing = {
            "before": self._before,
            "after": self._after,
            "slow": self._slow,
            "dead": self._dead,
            "double": self._double,
        }
        for step in steps.plan(seconds, self._second):
            self.outcomes.append(outcome := Outcome(step, Tally(time.monotonic())))
            self._say(outcome)
            self._supervisor.note("demo", step.title, model=MODEL)
            outcome.note = await doing[step.key](outcome)
            self._say(outcome)
            self._supervisor.note("demo", outcome.note, model=MODEL)
        self._traffic.turn(self._rate, Random())

    async def close(self) -> None:
        await self._admin.close()

    def comparison(self) -> str:
        """Of whole rounds, so that both policies had the same requests."""
        if not self.outcomes:
            return ""
        whole = merged(self._compared[: len(self._compared) // 2 * 2])
        return steps.compared(whole["before"], self._second, whole["after"]) if whole else steps.TOO_SHORT

    # ------------------------------------------------------------------ the steps

    def _turn(self, outcome: Outcome, times: float = 1.0) -> Tally:
        outcome.tally = self._traffic.turn(times * self._rate, Random(outcome.step.seed))
        return outcome.tally

    async def _before(self, outcome: Outcome) -> str:
        await self._with_policy(FIRST, outcome)
        return steps.shared(outcome.tally)

    async def _after(self, outcome: Outcome) -> str:
        await self._with_policy(self._second, outcome)
        if self._second != self._usual:
            await self._set_policy(self._usual)
        return self.comparison()

    async def _with_policy(self, policy: str, outcome: Outcome) -> None:
        await self._traffic.pause(PATIENCE)
        await self._set_policy(policy)
        before = await self._strain()
        self._turn(outcome)
        await asyncio.sleep(outcome.step.seconds)
        await self._traffic.pause(PATIENCE)
        meant, late = (now - was for now, was in zip(await self._strain(), before, strict=True))
        outcome.late = late / meant if meant > 0.0 else 0.0
        self._compared.append(outcome)

    async def _slow(self, outcome: Outcome) -> str:
        usual = merged(self.outcomes)["after"].tally.share("fast")
        replica = self._fleet["fast"]
        tally = self._turn(outcome)
        slowed = await self._set_pace(replica, SLOWER)
        try:
            await asyncio.sleep(0.3 * outcome.step.seconds)  # to learn it
            before, fast = tally.latency.count, tally.answered["fast"]
            await asyncio.sleep(0.7 * outcome.step.seconds)
        finally:
            await self._set_pace(replica, 1.0)
        answered = max(1, tally.latency.count - before)
        return steps.moved("fast", usual, (tally.answered["fast"] - fast) / answered if slowed else None)

    async def _dead(self, outcome: Outcome) -> str:
        tally, retried = self._turn(outcome), self._retried()
        end = time.monotonic() + outcome.step.seconds
        self._fleet.kill("half")
        await asyncio.sleep(0.3 * outcome.step.seconds)
        back = time.monotonic()
        await self._fleet.revive("half", 0.2 * outcome.step.seconds)
        ready = None
        while ready is None and time.monotonic() < end:
            await asyncio.sleep(LOOK)
            ready = time.monotonic() - back if self._state("half") == "ready" else None
        early = await self._early("half")
        await asyncio.sleep(end - time.monotonic())
        return steps.returned("half", tally, self._retried() - retried, early, ready)

    async def _double(self, outcome: Outcome) -> str:
        self._reconfigure(scaled(self._supervisor.config, self._folder))
        await self._call("POST", "/v1/reload")
        tally, began, first = self._turn(outcome, 2.0), time.monotonic(), None
        while (now := time.monotonic()) < began + outcome.step.seconds:
            await asyncio.sleep(LOOK)
            if first is None and self._of_new(tally):
                first = now - began
        ready = self._ready()
        ours = sum(name in self._fleet for name in ready)
        return steps.grown(ours, len(ready) - ours, self._of_new(tally), first)

    # ------------------------------------------------------------------ what is asked and told

    async def _set_policy(self, policy: str) -> None:
        await self._call("PATCH", f"/v1/models/{MODEL}", {"policy": policy})

    async def _call(self, method: str, path: str, body: object = None) -> None:
        reply = await self._admin.ask(method, path, b"" if body is None else msgspec.json.encode(body))
        if reply.status >= 300:
            raise StartError(f"the admin API refuses {method} {path}: {reply.body.decode(errors='replace')}")

    async def _set_pace(self, replica: ReplicaProcess, times: float) -> bool:
        """Of its usual one. False: it does not answer."""
        try:
            async with asyncio.timeout(SILENT):
                await replica.set_pace(times * replica.pace)
        except (OSError, EOFError):
            return False
        return True

    async def _early(self, name: str) -> int | None:
        """Requests that reached it while it was loading, by its own count."""
        told = await self._health(name)
        return None if told is None else told.early

    async def _strain(self) -> tuple[float, float]:
        """Seconds that their answers should have taken so far, and by which they took longer; of all that answer."""
        told = [found for replica in self._fleet if (found := await self._health(replica.name)) is not None]
        return sum(each.meant for each in told), sum(each.late for each in told)

    async def _health(self, name: str) -> Health | None:
        """What it counts. None: it does not answer."""
        try:
            async with asyncio.timeout(SILENT):
                reply = await self._fleet[name].ask("GET", "/health")
            return msgspec.json.decode(reply.body, type=Health)
        except (OSError, EOFError, msgspec.DecodeError):
            return None

    def _state(self, name: str) -> str:
        seen = self._supervisor.status().replicas.get((MODEL, name))
        return seen.state if seen is not None else ""

    def _ready(self) -> list[str]:
        """By name, also those that the autoscaler started."""
        return [seen.id for seen in self._supervisor.status().replicas.values() if seen.state == "ready"]

    def _retried(self) -> int:
        return self._supervisor.status().models[MODEL].retried

    def _of_new(self, tally: Tally) -> dict[str, int]:
        return {name: count for name, count in tally.answered.items() if name not in self._fleet}
