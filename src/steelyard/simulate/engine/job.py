"""A simulated request: what the balancer sees, and the truth."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ...core.outcome import Outcome
from ...core.request import INFINITY, Request

if TYPE_CHECKING:
    from ...core.balancer import Balancer
    from .servers import Server


class Job(Request):
    """`work`: true seconds alone on a replica of speed 1, unknown to the balancer."""

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
        self.intended_at = intended_at  # latency counts from here
        self.work = work
        self.prefix = prefix  # blocks of context
        self.saved_per_block = saved_per_block  # seconds of `work` that each cached block saves
        self.finish = -1.0  # of the running attempt; an event at any other time is stale
        self.planned_outcome = Outcome.OK
        self.server: Server | None = None
        self.origin: Job | None = None  # of a hedge: the request
        self.balancer: Balancer | None = None

    def hedge_attempt(self) -> Job:
        hedge = Job(self.intended_at, self.work, self.features, kind=self.kind, prefix=self.prefix)
        hedge.saved_per_block = self.saved_per_block
        hedge.origin, hedge.balancer = self, self.balancer
        return hedge


class BackgroundJob(Job):
    """A model load: it takes a slot, and no client waits for it."""

    __slots__ = ("on_done",)

    def __init__(self, now: float, work: float, on_done: Callable[[float], None]) -> None:
        super().__init__(now, work, ())
        self.on_done = on_done
