"""Keeps as many managed replicas of each model running as there should be: one `ReplicaSet` per model."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Mapping
from types import MappingProxyType

from ...config import Config, RuntimeConfig
from ...core.replica import State
from ...link.messages import StartProgress, ToWorker
from ...runtimes import Instance, InstancePhase, Runtime
from ..fleet.observer import FleetControl, FleetObserver
from ..fleet.registry import ReplicaKey
from ..memory import MemoryAccounting
from ..observability.views import Alarm
from .context import ControllerContext, ReplicaOperations
from .replica_set import ReplicaSet
from .views import ReplicaCounts, ReplicaSetSummary, count_replicas, replica_alarms, summarize

STOP_GRACE_SECONDS = 5.0  # on top of `stop_timeout`
FAILED_MODEL_PAUSE_SECONDS = 5.0  # after an unexpected exception

OPEN_RETRY_SECONDS = 5.0  # until a runtime that could not be opened is tried again

__all__ = ["ReplicaController", "ReplicaCounts", "ReplicaSetSummary"]

log = logging.getLogger("steelyard.control.replicas")


class ReplicaController(FleetObserver):
    def __init__(
        self,
        fleet: FleetControl,
        memory: MemoryAccounting,
        gateway: str = "",
        runtimes: Mapping[str, Runtime] = MappingProxyType({}),
    ) -> None:
        """`runtimes`: by kind; others are opened, under the gateway's name, for a model or for replicas left behind."""
        self._clock = fleet.now
        self._replica_sets: dict[str, ReplicaSet] = {}
        self._gateway = gateway
        self._opening: dict[str, asyncio.Task[None]] = {}  # runtimes, by kind
        self._listing = 1  # runtimes that are asked what they run; the first time, all at once
        self._ended: set[ReplicaKey] = set()  # meanwhile
        self._paused: dict[str, float] = {}  # models to skip until then
        self._context = ControllerContext(
            fleet=fleet,
            memory=memory,
            runtimes=dict(runtimes),
            clock=self._clock,
            operations=ReplicaOperations(self._clock),
            rooms=self._rooms,
            replicas_per_device=self._replicas_per_device,
        )

    # ------------------------------------------------------------------ events

    async def begin(self, config: Config, *, keep_adopted: bool = False, predecessor_pid: int = 0) -> None:
        """Adopts what an earlier supervisor left where the model still has a runtime, stops the rest; with
        `keep_adopted`, not before `release_adopted`. `predecessor_pid`: of that supervisor, if it lives."""
        self._context.keep_adopted = keep_adopted
        wanted: dict[str, RuntimeConfig | type[RuntimeConfig]] = {**_runtimes_of(config)}
        for kind in RuntimeConfig.kinds.keys() - wanted.keys() - self._context.runtimes.keys():
            if await self._has_replicas(kind, predecessor_pid):
                wanted[kind] = RuntimeConfig.struct_of(kind)
        for kind, settings in wanted.items():
            if kind not in self._context.runtimes and (runtime := self._open(kind, settings)) is not None:
                self._context.runtimes[kind] = runtime
        self.config_changed(config, self._clock())
        for kind, runtime in list(self._context.runtimes.items()):
            for instance in await self._running(kind, runtime, predecessor_pid):
                self._adopt(instance, kind)
        self._listed()
        self._reconcile_all()

    def release_adopted(self) -> None:
        """The workers of the last supervisor are gone: adopted replicas may be stopped like others."""
        self._context.keep_adopted = False
        self._reconcile_all()

    def _reconcile_all(self) -> None:
        for model in list(self._replica_sets):
            self._carefully(model, ReplicaSet.reconcile)

    def config_changed(self, config: Config, now: float) -> None:
        """Replaces outdated replicas one by one; drains and stops those of models that are gone or have no runtime."""
        for replica_set in self._replica_sets.values():
            replica_set.charge(now)  # at the price until now
        self._context.config = config
        for model in {*self._replica_sets, *(name for name, each in config.models.items() if each.runtime is not None)}:
            settings = config.models[model].runtime if model in config.models else None
            if settings is not None and settings.kind not in self._context.runtimes:
                self._open_soon(settings.kind)
                continue
            self._paused.pop(model, None)
            self._replica_sets[model] = self._replica_set(model)
            self._carefully(model, ReplicaSet.follow, settings)
        self._context.load_times.keep(set(config.models))
        self._forget_empty()

    def scale(self, model: str, replicas: int, reason: str) -> None:
        """Sets how many should run. Starts and stops follow at once; the same number again does nothing."""
        self._carefully(model, ReplicaSet.scale, replicas, reason)

    def desired(self, model: str) -> int:
        return self._replica_set(model).desired or 0

    def state_changed(self, key: ReplicaKey, state: State, now: float) -> None:
        self._carefully(key[0], ReplicaSet.fleet_changed, key[1], state, now)

    def tick(self, now: float) -> None:
        if self._context.paused:
            return
        for model in list(self._replica_sets):
            if now >= self._paused.get(model, now):
                self._carefully(model, ReplicaSet.tick, now)
        self._forget_empty()

    def _instance_changed(self, instance: Instance) -> None:
        if self._listing and instance.phase is InstancePhase.ENDED:
            self._ended.add((instance.model, instance.id))
        self._carefully(instance.model, ReplicaSet.runtime_changed, instance)

    def _carefully(self, model: str, act: Callable[..., None], *args: object) -> None:
        """An exception in one model must not affect the others."""
        replica_set = self._replica_sets.get(model)
        if replica_set is None:
            return
        try:
            act(replica_set, *args)
        except Exception:
            log.exception("reconciling the replicas of %s failed", model)
            self._paused[model] = self._clock() + FAILED_MODEL_PAUSE_SECONDS

    # ------------------------------------------------------------------ runtimes

    async def _has_replicas(self, kind: str, predecessor_pid: int) -> bool:
        try:
            return await asyncio.to_thread(RuntimeConfig.struct_of(kind).has_replicas, self._gateway, predecessor_pid)
        except Exception as problem:
            self._note_failure(f"what the runtime {kind} runs is unknown", problem)
            return False

    def _open(self, kind: str, settings: RuntimeConfig | type[RuntimeConfig]) -> Runtime | None:
        try:
            runtime: Runtime = settings.open(self._gateway)
            return runtime
        except Exception as problem:  # a user's own may raise anything
            self._note_failure(f"the runtime {kind} cannot be opened", problem)
            return None

    def _open_soon(self, kind: str) -> None:
        if kind not in self._opening:
            task = self._opening[kind] = asyncio.create_task(self._open_until_done(kind))
            task.add_done_callback(lambda _: self._opening.pop(kind, None))

    async def _open_until_done(self, kind: str) -> None:
        """What the runtime runs is adopted before anything is started."""
        while (settings := _runtimes_of(self._context.config).get(kind)) is not None:
            if (runtime := self._open(kind, settings)) is not None:
                self._listing += 1
                try:
                    found = await self._running(kind, runtime)
                except asyncio.CancelledError:
                    await runtime.close()
                    raise
                self._context.runtimes[kind] = runtime
                for instance in found:
                    self._adopt(instance, kind)
                self._listed()
                self.config_changed(self._context.config, self._clock())
                return
            await asyncio.sleep(OPEN_RETRY_SECONDS)

    async def _running(self, kind: str, runtime: Runtime, predecessor_pid: int = 0) -> tuple[Instance, ...]:
        try:
            runtime.watch(self._instance_changed)
            return await runtime.list(predecessor_pid)
        except Exception as problem:
            self._note_failure(f"what the runtime {kind} runs could not be taken over", problem)
            return ()

    def _listed(self) -> None:
        self._listing -= 1
        if not self._listing:
            self._ended.clear()

    def _note_failure(self, what: str, problem: Exception) -> None:
        log.exception(what)
        self._context.fleet.record("scaling", f"{what}: {type(problem).__name__}: {problem}", "", level=logging.ERROR)

    # ------------------------------------------------------------------ replica sets

    def _replica_set(self, model: str) -> ReplicaSet:
        """An empty one for a model without."""
        return self._replica_sets.get(model) or ReplicaSet(model, self._context)

    def _adopt(self, instance: Instance, kind: str) -> None:
        known = self._replica_sets[instance.model] = self._replica_set(instance.model)
        if instance.id not in known.replicas and (instance.model, instance.id) not in self._ended:
            self._carefully(instance.model, ReplicaSet.adopt, instance, kind)

    def _forget_empty(self) -> None:
        for model, replica_set in list(self._replica_sets.items()):
            if replica_set.settings is None and not replica_set.replicas:
                del self._replica_sets[model]
                self._paused.pop(model, None)

    def _replicas_per_device(self) -> Mapping[str, int]:
        return Counter(
            r.instance.device for replica_set in self._replica_sets.values() for r in replica_set.replicas.values()
        )

    def _rooms(self) -> Mapping[str, int]:
        """Less what is reserved for replicas that the ledger does not count yet."""
        rooms, now = dict(self._context.memory.free_bytes()), self._clock()
        for replica_set in self._replica_sets.values():
            for replica in replica_set.replicas.values():
                device = replica.instance.device
                if device in rooms and not replica.is_counted(now):
                    rooms[device] -= replica_set.start_requests.footprint()
        return rooms

    # ------------------------------------------------------------------ queries

    def count(self, model: str) -> ReplicaCounts:
        return count_replicas(self._replica_set(model))

    def cold_start(self, model: str) -> tuple[float, bool]:
        return self._context.cold_start(model)

    def ready_in(self, model: str) -> float:
        """Seconds until the next starting replica should be ready; 0.0: none is or will be started."""
        return self._replica_set(model).ready_in(self._clock())

    def failure(self, model: str) -> str:
        """Why the last start failed; empty: none did, or another is under way."""
        return self._replica_set(model).last_failure(self._clock())

    def summary(self, model: str) -> ReplicaSetSummary:
        return summarize(self._replica_set(model), self._clock())

    def log_tail(self, key: ReplicaKey, lines: int) -> tuple[str, ...] | None:
        """The end of a replica's log; None: it is not managed."""
        return self._replica_set(key[0]).log_tail(key[1], lines)

    def initial_state(self) -> list[ToWorker]:
        return [
            StartProgress(name, seconds, not self.cold_start(name)[1], self.failure(name))
            for name, model in self._context.config.models.items()
            if model.runtime is not None and (seconds := self.ready_in(name))
        ]

    def alarms(self, now: float) -> list[Alarm]:
        return [alarm for replica_set in self._replica_sets.values() for alarm in replica_alarms(replica_set, now)]

    # ------------------------------------------------------------------ shutdown

    def stopping(self) -> None:
        self.pause()

    async def stopped(self) -> None:
        self.stop_reporting()

    def pause(self) -> None:
        """Starts nothing any more; replicas that are starting may still become ready."""
        self._context.paused = True

    async def hand_over(self) -> None:
        """A successor takes over: starts and stops nothing, and waits for starts under way."""
        self.pause()
        await self._context.operations.finish_starts()
        for runtime in self._context.runtimes.values():
            runtime.release()

    async def resume(self) -> None:
        """The successor did not start."""
        self._context.paused = False
        for runtime in self._context.runtimes.values():
            await runtime.list()
        self._reconcile_all()

    def stop_reporting(self) -> None:
        self._context.paused = self._context.silent = True

    def kill_stopping(self) -> None:
        """Kills what is being stopped, now and later."""
        for replica_set in self._replica_sets.values():
            replica_set.shutdown.impatient = True
            for replica in replica_set.replicas.values():
                replica_set.shutdown.kill(replica)

    async def stop_all(self, *, keep_adopted: bool = False) -> None:
        """Stops every managed replica, after the workers: SIGTERM, `stop_timeout`, SIGKILL.

        With `keep_adopted`, adopted ones run on.
        """
        self.stop_reporting()
        timeout = 0.0
        for replica_set in self._replica_sets.values():
            for replica in [r for r in replica_set.replicas.values() if not (keep_adopted and r.adopted)]:
                timeout = max(timeout, replica_set.shutdown.timeout)
                replica_set.shutdown.stop_now(replica)
        await self._context.operations.finish(timeout + STOP_GRACE_SECONDS)

    async def close(self) -> None:
        """Starts and stops nothing any more; replicas run on."""
        self.stop_reporting()
        for task in self._opening.values():
            task.cancel()
        await asyncio.gather(*self._opening.values(), return_exceptions=True)
        await self._context.operations.close()
        for runtime in self._context.runtimes.values():
            await runtime.close()


def _runtimes_of(config: Config) -> dict[str, RuntimeConfig]:
    return {model.runtime.kind: model.runtime for model in config.models.values() if model.runtime is not None}
