"""Operations on a running supervisor, and their errors. The admin API uses them."""

from __future__ import annotations

from typing import Any, Protocol

from ...config import ReplicaConfig
from ...core.errors import SteelyardError
from ..observability.live import LiveFeed
from ..observability.metrics_snapshot import MetricsSnapshot
from ..observability.views import FleetEvent, FleetView, ScalingView


class NotFoundError(SteelyardError):
    """No such model or replica."""

    reason = "not_found"


class ConflictError(SteelyardError):
    """It cannot be done to this one, or not now."""

    reason = "conflict"


class InvalidError(SteelyardError):
    """A value that cannot be; `key` is the path of it in what was sent."""

    reason = "invalid"

    def __init__(self, key: str, what: str) -> None:
        super().__init__(f"{key}: {what}" if key else what)
        self.key = key
        self.what = what


class AdminService(Protocol):
    """Each raises NotFoundError, ConflictError or InvalidError before anything is changed, or does what it says."""

    def fleet(self) -> FleetView: ...

    def metrics(self) -> tuple[FleetView, MetricsSnapshot]:
        """All that the metrics show."""
        ...

    @property
    def live_feed(self) -> LiveFeed:
        """The fleet as it is followed live."""
        ...

    def events(self) -> list[FleetEvent]:
        """The latest last; a bounded number."""
        ...

    def is_live(self) -> bool:
        """Does a worker serve?"""
        ...

    def readiness_problems(self) -> list[str]:
        """Why it should get no traffic now, in words; empty: it should."""
        ...

    def scaling(self, model: str) -> ScalingView:
        """With all its history. NotFoundError: how many replicas it has is none of our business."""
        ...

    def log_tail(self, model: str, replica: str, lines: int) -> tuple[str, ...]:
        """The end of the log of a replica that Steelyard started."""
        ...

    async def add(self, model: str, replica: ReplicaConfig) -> None:
        """Until it is removed or Steelyard restarts. It gets requests when its probe says so."""
        ...

    async def remove(self, model: str, replica: str) -> None:
        """One that was added or registered; what runs there is finished. ConflictError: another names it."""
        ...

    async def drain(self, model: str, replica: str) -> None:
        """Returns when no worker sends it anything new. What runs there is finished."""
        ...

    async def undrain(self, model: str, replica: str) -> None:
        """It gets requests again when a probe that begins now says that it is ready."""
        ...

    async def load(self, model: str, replica: str) -> None:
        """Its server is asked to load the model; others may go for it. Returns when that has begun."""
        ...

    async def unload(self, model: str, replica: str) -> None:
        """Nothing new goes there, what runs is finished, then the model goes. Requests that come may bring it back."""
        ...

    async def set_weight(self, model: str, replica: str, weight: float | None) -> None:
        """None: what the configuration says."""
        ...

    async def set_model(self, model: str, changes: dict[str, Any]) -> None:
        """`policy` with `policy_options`, and `concurrency`; None: what the configuration says again."""
        ...

    async def reload(self) -> None:
        """InvalidError: the new configuration is refused, the last good one stays."""
        ...

    async def register(self, model: str, replica: ReplicaConfig, seconds: float, instance: str) -> float:
        """A replica registers or renews. Returns for how many seconds it holds (no more than `admin.max_lease`).

        Another `instance` than before under the same name is a restart: it is loading until a probe says otherwise.
        """
        ...

    async def deregister(self, model: str, replica: str, instance: str) -> None:
        """It leaves: returns when no worker sends it anything new; it is forgotten when what runs there has ended."""
        ...
