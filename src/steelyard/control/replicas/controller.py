"""The keeper: has as many replicas of each model run as there should be."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Mapping

from ...config import Config
from ...core.replica import State
from ...runtimes import Instance, InstancePhase, Runtime
from ..health.probe import ReplicaKey
from ..observability.views import Alarm
from ..placement.load_history import LoadTimes
from .context import ControllerContext, ReplicaIds
from .dependencies import ReplicaDependencies
from .operations import ReplicaOperations
from .replica_set import ReplicaSet
from .views import ReplicaCounts, ReplicaSetSummary, count_replicas, replica_alarms, summarize

STOP_GRACE_SECONDS = 5.0  # seconds beside the patience of those that are stopped
FAILED_MODEL_PAUSE_SECONDS = 5.0  # seconds in which a model whose handling went wrong is left alone

__all__ = ["ReplicaController", "ReplicaCounts", "ReplicaSetSummary"]

log = logging.getLogger("steelyard.control.replicas")


class ReplicaController:
    """To be made and used inside a running loop."""

    def __init__(
        self, hands: ReplicaDependencies, runtimes: Mapping[str, Runtime], *, clock: Callable[[], float] | None = None
    ) -> None:
        """`runtimes`: by kind. They are closed with it."""
        self._clock = clock or asyncio.get_running_loop().time
        self._flocks: dict[str, ReplicaSet] = {}
        self._begun = False
        self._ended: set[ReplicaKey] = set()  # while it begins
        self._paused: dict[str, float] = {}  # models that are left alone until then
        self._tools = ControllerContext(
            config=Config(models={}),
            hands=hands,
            runtimes=runtimes,
            clock=self._clock,
            operations=ReplicaOperations(hands, self._clock),
            rooms=self._rooms,
            replicas_per_device=self._ours,
            load_times=LoadTimes(),
            ids=ReplicaIds(),
        )

    # ------------------------------------------------------------------ what others tell

    async def begin(self, config: Config, *, spare: bool = False, heir_of: int = 0) -> None:
        """Takes over what an earlier supervisor left, before anything is started: adopted where the model still has a
        runtime, stopped where not; with `spare`, not before `spare_no_more`. `heir_of`: that one's pid, if it lives.
        Whatever fails here is noted, and does not keep it from starting."""
        self._tools.keep_adopted = spare
        self.config_changed(config)
        for kind, runtime in self._tools.runtimes.items():
            try:
                runtime.watch(self._told)
                for instance in await runtime.list(heir_of):
                    self._adopt(instance, kind)
            except Exception as problem:
                log.exception("what the runtime %s runs could not be taken over", kind)
                what = f"what the runtime {kind} runs could not be taken over: {type(problem).__name__}: {problem}"
                self._tools.hands.note(what, "", level=logging.ERROR)
        self._begun = True
        self._ended.clear()
        for model in list(self._flocks):
            self._carefully(model, ReplicaSet.reconcile)

    def release_adopted(self) -> None:
        """The workers of the last supervisor are gone: what was adopted may be stopped as any other."""
        self._tools.keep_adopted = False
        for model in list(self._flocks):
            self._carefully(model, ReplicaSet.reconcile)

    def config_changed(self, config: Config) -> None:
        """From now on these models; replicas with other settings are replaced one by one, those of models that are
        gone, or have no runtime any more, are drained and stopped."""
        now = self._clock()
        for flock in self._flocks.values():
            flock.charge(now)  # at the price until now
        self._tools.config = config
        for model in {*self._flocks, *(name for name, each in config.models.items() if each.runtime is not None)}:
            settings = config.models[model].runtime if model in config.models else None
            self._paused.pop(model, None)
            self._flock(model)
            self._carefully(model, ReplicaSet.follow, settings)
        self._tools.load_times.keep(set(config.models))
        self._forget_empty()

    def scale(self, model: str, replicas: int, why: str) -> None:
        """So many of ours should run. Starts and stops follow at once; again and again the same number does nothing."""
        self._carefully(model, ReplicaSet.scale, replicas, why)

    def desired(self, model: str) -> int:
        flock = self._flocks.get(model)
        return (flock.desired or 0) if flock is not None else 0

    def state_changed(self, key: ReplicaKey, state: State) -> None:
        """What has become of a replica in the eyes of the fleet: the first READY after a start is its cold start."""
        model, id = key
        self._carefully(model, ReplicaSet.fleet_changed, id, state)

    def tick(self, now: float) -> None:
        """What time alone brings about; called a few times a second."""
        if self._tools.paused:
            return
        for model in list(self._flocks):
            if now >= self._paused.get(model, now):
                self._carefully(model, ReplicaSet.tick, now)
        self._forget_empty()

    def _told(self, instance: Instance) -> None:
        if not self._begun and instance.phase is InstancePhase.ENDED:
            self._ended.add((instance.model, instance.id))
        self._carefully(instance.model, ReplicaSet.runtime_changed, instance)

    def _carefully(self, model: str, act: Callable[..., None], *args: object) -> None:
        """What goes wrong with one model must not concern the others."""
        flock = self._flocks.get(model)
        if flock is None:
            return
        try:
            act(flock, *args)
        except Exception:
            log.exception("the replicas of %s were not handled", model)
            self._paused[model] = self._clock() + FAILED_MODEL_PAUSE_SECONDS

    # ------------------------------------------------------------------ who is there

    def _flock(self, model: str) -> ReplicaSet:
        if model not in self._flocks:
            self._flocks[model] = ReplicaSet(model, self._tools)
        return self._flocks[model]

    def _adopt(self, instance: Instance, kind: str) -> None:
        known = self._flock(instance.model).replicas
        if instance.id not in known and (instance.model, instance.id) not in self._ended:
            self._carefully(instance.model, ReplicaSet.adopt, instance, kind)

    def _forget_empty(self) -> None:
        """Models that are gone, when the last of their replicas is."""
        for model, flock in list(self._flocks.items()):
            if flock.settings is None and not flock.replicas:
                del self._flocks[model]
                self._paused.pop(model, None)

    def _ours(self) -> Mapping[str, int]:
        return Counter(r.instance.device for flock in self._flocks.values() for r in flock.replicas.values())

    def _rooms(self) -> Mapping[str, int]:
        """Without what is promised to those that the ledger does not count yet."""
        rooms, now = dict(self._tools.hands.room.rooms()), self._clock()
        for flock in self._flocks.values():
            for replica in flock.replicas.values():
                device = replica.instance.device
                if device in rooms and not replica.is_counted(now):
                    rooms[device] -= flock.start_requests.footprint()
        return rooms

    # ------------------------------------------------------------------ what others ask

    def count(self, model: str) -> ReplicaCounts:
        flock = self._flocks.get(model)
        return count_replicas(flock) if flock is not None else ReplicaCounts()

    def cold_start(self, model: str) -> tuple[float, bool]:
        """Seconds from a start to readiness, and whether that was measured (else as configured)."""
        return self._tools.cold_start(model)

    def ready_in(self, model: str) -> float:
        """Seconds until the next of those being started should be ready; 0.0: none is being started, nor will be."""
        flock = self._flocks.get(model)
        return flock.ready_in(self._clock()) if flock is not None else 0.0

    def failure(self, model: str) -> str:
        """Why the last start of the model failed; empty: none did, or another is on its way."""
        flock = self._flocks.get(model)
        return flock.last_failure(self._clock()) if flock is not None else ""

    def summary(self, model: str) -> ReplicaSetSummary:
        flock = self._flocks.get(model)
        return summarize(flock, self._clock()) if flock is not None else ReplicaSetSummary()

    def log_tail(self, key: ReplicaKey, lines: int) -> tuple[str, ...] | None:
        """The end of a replica's log; None: it is none of ours."""
        flock = self._flocks.get(key[0])
        return flock.log_tail(key[1], lines) if flock is not None else None

    def alarms(self) -> list[Alarm]:
        now = self._clock()
        return [alarm for flock in self._flocks.values() for alarm in replica_alarms(flock, now)]

    # ------------------------------------------------------------------ the end

    def pause(self) -> None:
        """Nothing is started any more, whatever ends; what is being started may still become ready, and serve."""
        self._tools.paused = True

    async def hand_over(self) -> None:
        """A successor takes over: nothing is started or stopped, and what is being started is waited for."""
        self.pause()
        await self._tools.operations.finish_starts()
        for runtime in self._tools.runtimes.values():
            runtime.release()

    async def resume(self) -> None:
        """The successor did not start: all goes on."""
        self._tools.paused = False
        for runtime in self._tools.runtimes.values():
            await runtime.list()
        for model in list(self._flocks):
            self._carefully(model, ReplicaSet.reconcile)

    def stop_reporting(self) -> None:
        """The fleet ends: nobody is told any more who is there."""
        self._tools.paused = self._tools.silent = True

    def kill_stopping(self) -> None:
        """All that is being stopped, or will be, is killed."""
        for flock in self._flocks.values():
            flock.shutdown.impatient = True
            for replica in flock.replicas.values():
                flock.shutdown.kill(replica)

    async def stop_all(self, *, spare: bool = False) -> None:
        """Every replica of ours ends (the supervisor does, and its workers have): SIGTERM, patience, SIGKILL.

        With `spare`, those that were adopted go on.
        """
        self.stop_reporting()
        patience = 0.0
        for flock in self._flocks.values():
            for replica in [r for r in flock.replicas.values() if not (spare and r.adopted)]:
                patience = max(patience, flock.shutdown.patience)
                flock.shutdown.stop_now(replica)
        await self._tools.operations.finish(patience + STOP_GRACE_SECONDS)

    async def close(self) -> None:
        """Nothing is started or stopped any more; what runs goes on."""
        self.stop_reporting()
        await self._tools.operations.close()
        for runtime in self._tools.runtimes.values():
            await runtime.close()
