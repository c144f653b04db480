"""The agent inside a model server."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable
from typing import Any

from . import options as read
from .concurrency import ConcurrencyLimiter
from .http.asgi import App
from .http.middleware import Middleware
from .lifecycle import AgentLifecycle
from .loadable_models import LoadableModel, LoadableModels, LoadStep, ModelSpec
from .memory.footprint import Footprint
from .memory.meter import MemoryMeter
from .memory.peaks import MeasuredSection
from .options import ANY_MODEL, Options
from .readiness import Readiness


class ReplicaAgent:
    """One for each process of a model server; it begins with the app's first event.

    `gateway`: the admin address of Steelyard, or several; without one there are only readiness, counts and drain.
    `url`: how the gateway reaches this replica. `concurrency`: requests that run at once; `max_queue` more wait here.
    `ready_path`: a path of the app that answers 200 when it is ready, in place of calls of `ready()`.
    `bypass_paths`: always answered, and not counted.
    """

    def __init__(
        self,
        model: str,
        *,
        gateway: str | Iterable[str] | None = None,
        url: str | None = None,
        id: str = "",
        weight: float = 1.0,
        zone: str = "",
        device: str = "",
        token: str | None = None,
        lease: float = 15.0,
        concurrency: int | None = None,
        max_queue: int = 1024,
        drain_timeout: float = 30.0,
        drain_idle: float = 1.0,
        deregistration_delay: float = 5.0,
        ready_path: str = "",
        bypass_paths: Iterable[str] = (),
        max_cached_memory: str | int | None = "5%",
        control_token: str | None = None,
    ) -> None:
        self._equip(
            Options(
                model=read.name("model", model, needed=True),
                gateways=read.gateways(gateway),
                url=read.url(url),
                id=read.replica_id(id),
                weight=read.number("weight", weight, 1e-6, 1e6),
                zone=read.name("zone", zone),
                device=read.name("device", device),
                token=read.token(token),
                lease=read.number("lease", lease, 1.0, 86_400.0),
                concurrency=None if concurrency is None else read.count("concurrency", concurrency, 1),
                max_queue=read.count("max_queue", max_queue, 0),
                drain_timeout=read.number("drain_timeout", drain_timeout, 0.0, 86_400.0),
                drain_idle=read.number("drain_idle", drain_idle, 0.0, 3600.0),
                deregistration_delay=read.number("deregistration_delay", deregistration_delay, 0.0, 3600.0),
                ready_path=ready_path,
                bypass_paths=read.paths(bypass_paths, ready_path),
                max_cached_memory=read.max_cached_memory(max_cached_memory),
                control_token=read.token(control_token, "control_token", "STEELYARD_CONTROL_TOKEN"),
            )
        )

    def _equip(self, options: Options, models: tuple[ModelSpec, ...] = ()) -> None:
        self.options = options
        self.readiness = Readiness(loaded=options.model == ANY_MODEL)
        self.models = LoadableModels({one.model: LoadableModel(one) for one in models})
        self.limiter = ConcurrencyLimiter(options.concurrency, options.max_queue)
        self.meter = MemoryMeter()
        self.footprint = Footprint(
            options.max_cached_memory, lambda: self.readiness.serves and self.limiter.present == 0
        )
        self.refused: dict[str, int] = {}
        self.parent: Any = None  # the process that called `run`, if this is not it
        self._life: AgentLifecycle | None = None
        self._beginning = threading.Lock()

    def __reduce__(self) -> tuple[Any, ...]:
        """LitServe sends its server to other processes; there the agent has not begun."""
        return _revived, (self.options, tuple(model.spec for model in self.models.values()))

    def __repr__(self) -> str:
        return f"<ReplicaAgent {self.options.model!r}: {self.state}>"

    # ------------------------------------------------------------------ around an app

    def middleware(self, app: App) -> App:
        """For `add_middleware` of FastAPI and Starlette, and for `middlewares` of LitServe."""
        return Middleware(self, app)

    wrap = middleware  # for any ASGI app

    def run(self, serve: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """For a server whose app runs in another process, such as LitServe: `agent.run(server.run, port=8001)`.

        SIGTERM and SIGINT to this process first drain the app's process.
        """
        from .parent_process import ParentProcess

        self.parent = ParentProcess(self.options.drain_timeout)
        self.footprint.in_other_process = True
        return self.parent.run(lambda: serve(*args, **kwargs))

    # ------------------------------------------------------------------ what the model says

    def ready(self) -> None:
        """The model is loaded. From any thread."""
        self.readiness.ready()
        if self._life is not None:  # else the server has yet to take its own memory
            self.footprint.read()

    def loading(self, reason: str = "the model is being loaded") -> None:
        """Requests are refused until `ready`."""
        self.readiness.loading(reason)
        self.footprint.forget()

    def add_model(self, model: str, *, load: LoadStep, unload: LoadStep, paths: Iterable[str] = ()) -> None:
        """A model that this server loads and unloads when told to at /steelyard/models.

        `load` and `unload` take no arguments; a plain function runs in a thread. `paths`: of its requests, with all
        below, by default `/v2/models/{model}`; refused while it is not loaded.
        """
        name = read.name("add_model", model, needed=True)
        own = tuple(path.rstrip("/") for path in read.paths(paths, "")) or (f"/v2/models/{name}",)
        self.models.add(ModelSpec(name, load, unload, own))
        if self._life is not None:
            self._life.register(name)

    def measuring(self) -> MeasuredSection:
        """`with agent.measuring():` around the inference, under a lock of the app, or `@agent.measuring()`: reports its
        memory with the answer. Overlapping sections report nothing."""
        return MeasuredSection(self.footprint.peaks)

    def drain(self) -> bool:
        """For servers without signals: blocks until nothing runs here (True), or `drain_timeout`.

        In a coroutine, `await asyncio.to_thread(agent.drain)`.
        """
        return self.begin().drain("the app was asked to end")

    @property
    def state(self) -> str:
        """`loading`, `ready` or `draining`."""
        return self.readiness.status.state

    @property
    def running(self) -> int:
        """Requests that run now."""
        return self.limiter.running

    @property
    def waiting(self) -> int:
        """Requests that wait for one of the `concurrency` slots."""
        return self.limiter.waiting

    @property
    def instance(self) -> str:
        """A random id of this process; empty before the first event."""
        return self._life.instance if self._life is not None else ""

    # ------------------------------------------------------------------ from start to end

    def begin(self) -> AgentLifecycle:
        """At the first event in this process, which may be a fork."""
        life = self._life
        if life is not None and life.process == os.getpid():
            return life
        with self._beginning:
            life = self._life
            if life is None or life.process != os.getpid():
                self.readiness.reset()
                self.footprint.forget()
                life = AgentLifecycle(self)
                life.begin()
                self._life = life
                # The first look at a GPU can take a second.
                threading.Thread(target=self._look, name="steelyard-memory", daemon=True).start()
        return life

    def _look(self) -> None:
        self.meter.read()
        self.footprint.read()

    def end(self) -> None:
        self._life = None


def _revived(options: Options, models: tuple[ModelSpec, ...]) -> ReplicaAgent:
    agent = ReplicaAgent.__new__(ReplicaAgent)
    agent._equip(options, models)  # noqa: SLF001  (unpickling: no constructor runs)
    return agent
