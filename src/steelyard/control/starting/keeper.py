"""The keeper: has as many replicas of each model run as there should be."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Mapping

from ...config import Config
from ...core.replica import State
from ...runtimes import Instance, Phase, Runtime
from ..placing.load_times import LoadTimes
from ..probing.target import Key
from ..views import Alarm
from .errands import Errands
from .flock import Flock
from .hands import StartingHands
from .ids import Ids
from .showing import Count, Kept, alarms, count, kept
from .tools import Tools

GRACE = 5.0  # seconds beside the patience of those that are stopped
PAUSE = 5.0  # seconds in which a model whose handling went wrong is left alone

__all__ = ["Count", "Keeper", "Kept"]

log = logging.getLogger("steelyard.control.starting")


class Keeper:
    """To be made and used inside a running loop."""

    def __init__(
        self, hands: StartingHands, runtimes: Mapping[str, Runtime], *, clock: Callable[[], float] | None = None
    ) -> None:
        """`runtimes`: by kind. They are closed with it."""
        self._clock = clock or asyncio.get_running_loop().time
        self._flocks: dict[str, Flock] = {}
        self._begun = False
        self._ended: set[Key] = set()  # while it begins
        self._paused: dict[str, float] = {}  # models that are left alone until then
        self._tools = Tools(
            config=Config(models={}),
            hands=hands,
            runtimes=runtimes,
            clock=self._clock,
            errands=Errands(hands, self._clock),
            rooms=self._rooms,
            ours=self._ours,
            times=LoadTimes(),
            ids=Ids(),
        )

    # ------------------------------------------------------------------ what others tell

    async def begin(self, config: Config, *, spare: bool = False, heir_of: int = 0) -> None:
        """Takes over what an earlier supervisor left, before anything is started: adopted where the model still has a
        runtime, stopped where not; with `spare`, not before `spare_no_more`. `heir_of`: that one's pid, if it lives.
        Whatever fails here is noted, and does not keep it from starting."""
        self._tools.sparing = spare
        self.follow(config)
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
            self._carefully(model, Flock.settle)

    def spare_no_more(self) -> None:
        """The workers of the last supervisor are gone: what was adopted may be stopped as any other."""
        self._tools.sparing = False
        for model in list(self._flocks):
            self._carefully(model, Flock.settle)

    def follow(self, config: Config) -> None:
        """From now on these models; replicas with other settings are replaced one by one, those of models that are
        gone, or have no runtime any more, are drained and stopped."""
        now = self._clock()
        for flock in self._flocks.values():
            flock.pay(now)  # at the price until now
        self._tools.config = config
        for model in {*self._flocks, *(name for name, each in config.models.items() if each.runtime is not None)}:
            settings = config.models[model].runtime if model in config.models else None
            self._paused.pop(model, None)
            self._flock(model)
            self._carefully(model, Flock.follow, settings)
        self._tools.times.keep(set(config.models))
        self._forget_empty()

    def want(self, model: str, replicas: int, why: str) -> None:
        """So many of ours should run. Starts and stops follow at once; again and again the same number does nothing."""
        self._carefully(model, Flock.want, replicas, why)

    def wanted(self, model: str) -> int:
        flock = self._flocks.get(model)
        return (flock.wanted or 0) if flock is not None else 0

    def state(self, key: Key, state: State) -> None:
        """What has become of a replica in the eyes of the fleet: the first READY after a start is its cold start."""
        model, id = key
        self._carefully(model, Flock.stands, id, state)

    def tick(self, now: float) -> None:
        """What time alone brings about; called a few times a second."""
        if self._tools.resting:
            return
        for model in list(self._flocks):
            if now >= self._paused.get(model, now):
                self._carefully(model, Flock.tick, now)
        self._forget_empty()

    def _told(self, instance: Instance) -> None:
        if not self._begun and instance.phase is Phase.ENDED:
            self._ended.add((instance.model, instance.id))
        self._carefully(instance.model, Flock.told, instance)

    def _carefully(self, model: str, act: Callable[..., None], *args: object) -> None:
        """What goes wrong with one model must not concern the others."""
        flock = self._flocks.get(model)
        if flock is None:
            return
        try:
            act(flock, *args)
        except Exception:
            log.exception("the replicas of %s were not handled", model)
            self._paused[model] = self._clock() + PAUSE

    # ------------------------------------------------------------------ who is there

    def _flock(self, model: str) -> Flock:
        if model not in self._flocks:
            self._flocks[model] = Flock(model, self._tools)
        return self._flocks[model]

    def _adopt(self, instance: Instance, kind: str) -> None:
        known = self._flock(instance.model).replicas
        if instance.id not in known and (instance.model, instance.id) not in self._ended:
            self._carefully(instance.model, Flock.adopt, instance, kind)

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
                    rooms[device] -= flock.orders.footprint()
        return rooms

    # ------------------------------------------------------------------ what others ask

    def count(self, model: str) -> Count:
        flock = self._flocks.get(model)
        return count(flock) if flock is not None else Count()

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
        return flock.failure(self._clock()) if flock is not None else ""

    def kept(self, model: str) -> Kept:
        flock = self._flocks.get(model)
        return kept(flock, self._clock()) if flock is not None else Kept()

    def last_words(self, key: Key, lines: int) -> tuple[str, ...] | None:
        """The end of a replica's log; None: it is none of ours."""
        flock = self._flocks.get(key[0])
        return flock.last_words(key[1], lines) if flock is not None else None

    def alarms(self) -> list[Alarm]:
        now = self._clock()
        return [alarm for flock in self._flocks.values() for alarm in alarms(flock, now)]

    # ------------------------------------------------------------------ the end

    def rest(self) -> None:
        """Nothing is started any more, whatever ends; what is being started may still become ready, and serve."""
        self._tools.resting = True

    async def hand_over(self) -> None:
        """A successor takes over: nothing is started or stopped, and what is being started is waited for."""
        self.rest()
        await self._tools.errands.finish_starts()
        for runtime in self._tools.runtimes.values():
            runtime.let_go()

    async def take_back(self) -> None:
        """The successor did not start: all goes on."""
        self._tools.resting = False
        for runtime in self._tools.runtimes.values():
            await runtime.list()
        for model in list(self._flocks):
            self._carefully(model, Flock.settle)

    def fall_silent(self) -> None:
        """The fleet ends: nobody is told any more who is there."""
        self._tools.resting = self._tools.ending = True

    def hurry(self) -> None:
        """All that is being stopped, or will be, is killed."""
        for flock in self._flocks.values():
            flock.departures.impatient = True
            for replica in flock.replicas.values():
                flock.departures.kill(replica)

    async def stop_all(self, *, spare: bool = False) -> None:
        """Every replica of ours ends (the supervisor does, and its workers have): SIGTERM, patience, SIGKILL.

        With `spare`, those that were adopted go on.
        """
        self.fall_silent()
        patience = 0.0
        for flock in self._flocks.values():
            for replica in [r for r in flock.replicas.values() if not (spare and r.adopted)]:
                patience = max(patience, flock.departures.patience)
                flock.departures.stop_now(replica)
        await self._tools.errands.finish(patience + GRACE)

    async def close(self) -> None:
        """Nothing is started or stopped any more; what runs goes on."""
        self.fall_silent()
        await self._tools.errands.close()
        for runtime in self._tools.runtimes.values():
            await runtime.close()
