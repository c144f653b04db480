"""The state of each replica, from probes, scraped metrics, workers and operators.

Every event goes through `_apply`: the state machine, the event log, the workers, the observers, in this order.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from urllib.parse import quote

import msgspec

from ...config import Config, HealthConfig, ModelConfig
from ...core.errors import IllegalTransitionError
from ...core.replica import Event, State, next_state
from ...link.messages import LoadReading, ReplicaEvent, ReplicaEvents, ReplicaFailure, ToWorker
from ...protocols.load import EngineLoad
from ..health.load_scraper import LoadScraper
from ..health.probe import MISCONFIGURED, ProbeTarget
from ..health.prober import Prober
from ..observability.event_log import EventLog
from ..observability.replica_failures import ReplicaFailures
from .ejections import Ejections
from .observer import DRAIN_TIMEOUT_SECONDS, FleetObserver
from .registry import ReplicaKey
from .worker_sync import WorkerSync

# The event that brings a new worker's replica to the same state.
_REPLAY_EVENTS = {
    State.LOADING: Event.LIVE,
    State.UNLOADED: Event.UNLOAD,
    State.READY: Event.LOADED,
    State.UNREACHABLE: Event.LOST,
    State.DRAINING: Event.DRAIN,
}
NOT_YET_READY = (State.STARTING, State.LOADING, State.UNREACHABLE)  # expected to become ready
MAX_REPLICAS_LOGGED_AT_START = 20
DEGRADED_STATES = (State.UNREACHABLE, State.LOADING)  # from ready to one of these is a warning
UNPROBED_REASON = "not probed: it counts as ready"
LOAD_READING_LIFETIME_INTERVALS = 3.0  # scrape intervals for which a load reading is valid
DRAIN_POLL_SECONDS = 0.1  # between two checks whether a replica has drained
EAGER_POLL_SECONDS = 5.0  # in which each check asks the workers; later their periodic reports must do


class ReplicaStatus:
    """As the supervisor sees it; the core's transition table decides."""

    def __init__(self, now: float) -> None:
        self.state = State.STARTING
        self.since = now
        self.reason = "not looked at yet"
        self.last_ready_at = now  # or when it was added
        self.not_ready_since = now  # since when it has been in NOT_YET_READY

    def apply(self, event: Event, reason: str, now: float) -> bool:
        """Returns whether the state changed."""
        try:
            state = next_state(self.state, event)
        except IllegalTransitionError:  # an undrain of a replica that is not draining
            return False
        if state is self.state:
            if state is not State.DRAINING:
                self.reason = reason
            return False
        if self.state is State.READY:
            self.last_ready_at = now
        if self.state not in NOT_YET_READY:
            self.not_ready_since = now
        self.state, self.reason, self.since = state, reason, now
        return True

    def replay_event(self) -> Event | None:
        return _REPLAY_EVENTS.get(self.state)


class FleetHealth:
    def __init__(
        self,
        sync: WorkerSync,
        events: EventLog,
        observers: Iterable[FleetObserver],
        clock: Callable[[], float],
        added: Callable[[ReplicaKey], str],
    ) -> None:
        """`added(key)` is called for each new replica and returns why it must drain; empty: it need not."""
        self.statuses: dict[ReplicaKey, ReplicaStatus] = {}
        self.drained: set[ReplicaKey] = set()  # by an operator, until the operator says otherwise
        self.ejections = Ejections()
        self.failures = ReplicaFailures()
        self._sync = sync
        self._events = events
        self._observers = observers
        self._clock = clock
        self._added = added
        self.targets: dict[ReplicaKey, ProbeTarget] = {}
        self._models: Mapping[str, ModelConfig] = {}

    def start(self) -> None:
        self.prober = Prober(self._apply, self.makes_progress)
        self.scraper = LoadScraper(self.load_reported, self.restarted)

    async def close(self) -> None:
        await asyncio.gather(self.prober.close(), self.scraper.close())

    def set_targets(self, config: Config, coming: Config | None = None, *, configured: bool = False) -> None:
        """While another configuration is `coming`, only replicas unchanged in it. `configured`: a reload is over."""
        now = self._clock()
        targets = _probe_targets(config)
        if coming is not None:
            later = _probe_targets(coming)
            targets = {key: target for key, target in targets.items() if _is_same_server(target, later.get(key))}
        for key in [key for key in self.statuses if not _is_same_server(self.targets[key], targets.get(key))]:
            del self.statuses[key]
            self.ejections.forget(key, now)
        self.targets, self._models = targets, config.models
        if coming is None:
            self.drained = {key for key in self.drained if key[0] in config.models}
        for key, target in targets.items():
            status = self.statuses.get(key)
            if status is None:
                status = self._add(key, now, configured=configured)
            if not target.health.enabled and status.state not in (State.READY, State.DRAINING):
                self._apply(key, Event.LOADED, UNPROBED_REASON)
        self.prober.set_targets(targets)
        self.scraper.set_targets(targets)

    def _add(self, key: ReplicaKey, now: float, *, configured: bool) -> ReplicaStatus:
        status = self.statuses[key] = ReplicaStatus(now)
        if key in self.drained:  # another server under this name: the operator's order still holds
            self._apply(key, Event.DRAIN, "an operator drains it")
        elif reason := self._added(key):
            self._apply(key, Event.DRAIN, reason)
        elif configured:  # after a refused reload, workers may still have it draining
            self._sync.queue_change(ReplicaEvent(*key, Event.UNDRAIN.value))
        return status

    def broadcast_config(self, message: ToWorker) -> list[str]:
        """With the drains: a replica that it changes may be ready at once, but not if it is drained."""
        receivers = self._sync.send(message)
        if self.drained:
            self._sync.send(ReplicaEvents(tuple(ReplicaEvent(*key, Event.DRAIN.value) for key in self.drained)))
        return receivers

    # ------------------------------------------------------------------ state changes

    def transition(self, key: ReplicaKey, event: Event, reason: str) -> None:
        """After an undrain, a new probe decides."""
        self._apply(key, event, reason)
        if event is Event.UNDRAIN:
            self.reprobe(key)

    def reprobe(self, key: ReplicaKey) -> None:
        if key not in self.statuses:
            return
        if self.targets[key].health.enabled:
            self.prober.reprobe(key)
        else:
            self._apply(key, Event.LOADED, UNPROBED_REASON)

    def restarted(self, key: ReplicaKey) -> None:
        """Another process answers than before."""
        if key in self.statuses:
            self._apply(key, Event.LIVE, "restarted")
            self.reprobe(key)

    def _apply(self, key: ReplicaKey, event: Event, reason: str) -> None:
        status = self.statuses.get(key)
        if status is None:
            return
        now, before = self._clock(), status.state
        changed = status.apply(event, reason, now)
        if changed and event is Event.UNLOAD:
            self.prober.model_unloaded(key)
        if changed and event in (Event.LIVE, Event.LOST):
            self.ejections.forget(key, now)
        if changed:
            self._record(key, before, status)
        self._sync.queue_change(ReplicaEvent(*key, event.value))
        if changed:
            for observer in self._observers:
                observer.state_changed(key, status.state, now)

    def _record(self, key: ReplicaKey, before: State, status: ReplicaStatus) -> None:
        is_bad = (before is State.READY and status.state in DEGRADED_STATES) or status.reason.startswith(MISCONFIGURED)
        level = logging.WARNING if is_bad else logging.INFO
        if before is State.STARTING and len(self.statuses) > MAX_REPLICAS_LOGGED_AT_START:
            level = logging.DEBUG  # the start of a large fleet needs no line for each
        what = f"{status.state.value}: {status.reason}"
        self._events.record("replica", what, model=key[0], replica=key[1], level=level)

    # ------------------------------------------------------------------ from replicas and workers

    def load_reported(self, key: ReplicaKey, load: EngineLoad) -> None:
        if key not in self.statuses:
            return
        now = self._clock()
        for observer in self._observers:
            observer.load_reported(key, load, now)
        if load.requests is not None:
            lifetime = LOAD_READING_LIFETIME_INTERVALS * self.targets[key].load.interval
            self._sync.queue_reading(LoadReading(*key, load.requests, lifetime, load.kv_tokens or 0.0))

    def worker_failed(self, message: ReplicaFailure) -> None:
        key = (message.model, message.id)
        if key not in self.statuses:
            return
        if message.refused:
            self._apply(key, Event.LOST, "connection refused")
            self.prober.reprobe(key)
        else:
            self.prober.probe_now(key)

    async def makes_progress(self, key: ReplicaKey) -> bool:
        """Whether requests there go on although a probe failed."""
        target = self.targets.get(key)
        return await self._sync.makes_progress(key, target.health.timeout if target is not None else 0.0)

    def record_ejections(self) -> None:
        now = self._clock()
        began, ended = self.ejections.update(self._sync.reports(), now)
        for key, ejected in ended.items():
            if key in self.statuses:
                what = f"no longer ejected, after {now - ejected.since:.0f} s"
                self._events.record("replica", what, model=key[0], replica=key[1])
        for key, ejected in began.items():
            what = f"ejected for {ejected.seconds:.0f} s: {ejected.reason}"
            self._events.record("replica", what, model=key[0], replica=key[1], level=logging.WARNING)

    def initial_state(self) -> ReplicaEvents:
        """For a new worker: events that lead to the state of each replica."""
        changes = [
            ReplicaEvent(*key, event.value)
            for key, status in self.statuses.items()
            if (event := status.replay_event()) is not None
        ]
        return ReplicaEvents((*changes, *self.ejections.active(self._clock())))

    def ready(self) -> set[ReplicaKey]:
        return {key for key, status in self.statuses.items() if status.state is State.READY}

    def ready_counts(self) -> Mapping[str, int]:
        return Counter(model for model, _ in self.ready())

    async def wait_drained(self, key: ReplicaKey, seconds: float = DRAIN_TIMEOUT_SECONDS) -> bool:
        self._sync.flush()
        began = self._clock()
        while True:
            eager = self._clock() < began + EAGER_POLL_SECONDS
            if eager or key not in self._sync.in_flight():
                complete = await self._sync.request_reports(1.0)
                if complete and key not in self._sync.in_flight():
                    return True
            if self._clock() >= began + seconds or key not in self.statuses:
                return False
            await asyncio.sleep(DRAIN_POLL_SECONDS if eager else 5 * DRAIN_POLL_SECONDS)


def _probe_targets(config: Config) -> dict[ReplicaKey, ProbeTarget]:
    return {
        (name, replica.name): ProbeTarget(
            name, replica, model.dialect, _health_settings(name, model), model.load_metrics, model.tls
        )
        for name, model in config.models.items()
        for replica in model.replicas
    }


def _health_settings(name: str, model: ModelConfig) -> HealthConfig:
    """A server with our agent that loads models on demand is ready for a model once that one is loaded."""
    if model.placement is None or model.placement.load_api != "agent" or model.health.path:
        return model.health
    return msgspec.structs.replace(model.health, path=f"/steelyard/models/{quote(name, safe='')}/ready")


def _is_same_server(target: ProbeTarget, later: ProbeTarget | None) -> bool:
    """Otherwise workers start over under its name."""
    return later is not None and target.is_same_server(later)
