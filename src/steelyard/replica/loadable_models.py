"""Models that a server loads and unloads on request."""

from __future__ import annotations

import asyncio
import inspect
import logging
import time
from collections.abc import Callable
from typing import Any, NamedTuple

from ..core.errors import OptionError
from .memory.out_of_memory import is_out_of_memory

UNLOADED, LOADING, READY, UNLOADING, FAILED = "unloaded", "loading", "ready", "unloading", "failed"
MAX_REASON_CHARS = 300
log = logging.getLogger("steelyard.replica")

LoadStep = Callable[[], Any]  # a coroutine function, or one that runs in a thread
MeasuredStep = Callable[[LoadStep], Any]  # runs it; returns the bytes that it added, None: not known


class ModelSpec(NamedTuple):
    model: str
    load: LoadStep
    unload: LoadStep
    paths: tuple[str, ...]  # with all below them


class LoadableModel:
    """Changed from the loop's thread only."""

    def __init__(self, terms: ModelSpec) -> None:
        self.spec = terms
        self.state = UNLOADED
        self.reason = "not requested yet"
        self.in_flight = 0  # requests for it that run or wait here
        self.code = ""  # of the last failure
        self.bytes: int | None = None  # that its load added to this process
        self._since = time.monotonic()
        self._there = False  # loaded, and not unloaded since
        self._going: asyncio.Task[None] | None = None

    def load(self, measured: MeasuredStep) -> None:
        """Begins, unless it is loaded or loading."""
        if self.state in (UNLOADED, FAILED):
            self._begin(LOADING, "it is being loaded", self._load(measured))

    def unload(self, measured: MeasuredStep) -> None:
        """Begins, unless it is unloaded or unloading. Requests for it are refused from now on."""
        if self.state == FAILED and not self._there:
            self._now(UNLOADED, "its load had failed")
        elif self.state in (READY, FAILED):
            self._begin(UNLOADING, "it is being unloaded", self._unload(measured))

    async def wait_finished(self, seconds: float) -> None:
        if self._going is not None and seconds > 0:
            await asyncio.wait({self._going}, timeout=seconds)

    def as_json(self, now: float) -> dict[str, Any]:
        return {
            "model": self.spec.model,
            "state": self.state,
            "reason": self.reason,
            "loaded": self._there,
            "since": round(now - self._since, 3),
            "bytes": self.bytes,
            "in_flight": self.in_flight,
        }

    def _begin(self, state: str, reason: str, work: Any) -> None:
        self._now(state, reason)
        self._going = asyncio.get_running_loop().create_task(work, name=f"steelyard-{state}")

    def _now(self, state: str, reason: str = "") -> None:
        self.state, self.reason, self._since = state, reason, time.monotonic()

    async def _load(self, measured: MeasuredStep) -> None:
        try:
            more = await measured(self.spec.load)
        except Exception as problem:  # of the app, whatever it is
            self._fail("load", problem)
            return
        self.bytes = self.bytes if more is None else max(0, more)
        self._there = True
        self._now(READY)

    async def _unload(self, measured: MeasuredStep) -> None:
        try:
            await measured(self.spec.unload)
        except Exception as problem:
            self._fail("unload", problem)
            return
        self._there = False
        self._now(UNLOADED, "it was unloaded")

    def _fail(self, step: str, problem: Exception) -> None:
        log.error("%s of the model %r failed", step, self.spec.model, exc_info=problem)
        self.code = "out_of_memory" if is_out_of_memory(problem) else FAILED
        self._now(FAILED, f"its {step} failed with {type(problem).__name__}: {problem}"[:MAX_REASON_CHARS])


class LoadableModels(dict[str, LoadableModel]):
    """By name."""

    def add(self, terms: ModelSpec) -> None:
        if terms.model in self:
            raise OptionError(f"add_model: the model {terms.model!r} was added before")
        self[terms.model] = LoadableModel(terms)

    def of(self, path: str) -> LoadableModel | None:
        """The model of a request; None: none of these."""
        for model in self.values():
            if any(path == own or path.startswith(own + "/") for own in model.spec.paths):
                return model
        return None


async def run_step(step: LoadStep) -> None:
    if inspect.iscoroutinefunction(step) or inspect.iscoroutinefunction(getattr(step, "__call__", None)):  # noqa: B004
        await step()
        return
    done = await asyncio.to_thread(step)
    if inspect.isawaitable(done):
        await done
