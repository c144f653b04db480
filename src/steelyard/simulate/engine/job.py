"""A simulated request: what the balancer sees, and what only the simulated world knows."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ...core.outcome import Outcome
from ...core.request import INFINITY, Request

if TYPE_CHECKING:
    from ...core.balancer import Balancer
    from .servers import Server


class Job(Request):
    """`work` is the true seconds on a replica of speed 1 with nothing beside it: never shown to the balancer."""

    __slots__ = (
        "balancer",
        "finish",
        "intended_at",
        "origin",
        "planned_outcome",
        "prefix",
        "saved_per_block",
        "server",
        "work",
    )

    def __init__(
        self,
        intended_at: float,
        work: float,
        features: tuple[float, ...],
        *,
        model: str = "",
        deadline: float = INFINITY,
        priority: int = 0,
        tenant: str = "",
        kind: str = "",
        key: str | None = None,
        cold_seconds: float = 0.0,
        prefix: tuple[int, ...] = (),
        saved_per_block: float = 0.0,
    ) -> None:
        super().__init__(
            model,
            features,
            deadline=deadline,
            priority=priority,
            tenant=tenant,
            kind=kind,
            key=key,
            cold_seconds=cold_seconds,
        )
        self.intended_at = intended_at  # when the client meant to send it: latency counts from here
        self.work = work
        self.prefix = prefix  # blocks of context, for replicas with a prefix cache
        self.saved_per_block = saved_per_block  # seconds of `work` that each cached block saves
        self.finish = -1.0  # when the attempt now running ends; an event at any other time is stale
        self.planned_outcome = Outcome.OK  # how the attempt will end
        self.server: Server | None = None
        self.origin: Job | None = None  # the request this is a second attempt (hedge) of
        self.balancer: Balancer | None = None

    def hedge_attempt(self) -> Job:
        """A second attempt of the same request, for a hedge: it needs a finish of its own."""
        second = Job(
            self.intended_at,
            self.work,
            self.features,
            kind=self.kind,
            prefix=self.prefix,
            saved_per_block=self.saved_per_block,
        )
        second.origin = self
        second.balancer = self.balancer
        return second


class BackgroundJob(Job):
    """A model load: it takes a slot, and no client waits for it."""

    __slots__ = ("on_done",)

    def __init__(self, now: float, work: float, on_done: Callable[[float], None]) -> None:
        super().__init__(now, work, ())
        self.on_done = on_done
