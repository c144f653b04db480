"""What a handler is given and gives."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, NamedTuple

import msgspec

from ...observability.views import DeviceView, ModelView, ReplicaView
from ...supervisor.admin_service import AdminService, NotFoundError
from ..live_subscribers import LiveSubscribers
from ..metrics import MetricsCache
from ..security.replica_allowlist import ReplicaAllowlist


class AdminCall(NamedTuple):
    """A request that may be made, read and checked."""

    operations: AdminService
    allowed: ReplicaAllowlist
    lease: float  # seconds, the longest
    path: Mapping[str, str]
    body: Any  # as the route says
    query: Any
    watchers: LiveSubscribers
    scrapes: MetricsCache

    @property
    def model(self) -> str:
        return self.path["model"]

    @property
    def replica(self) -> str:
        return self.path["replica"]

    def device_view(self) -> DeviceView:
        for view in self.operations.fleet().devices:
            if view.device == self.path["device"]:
                return view
        raise NotFoundError(f"no device {self.path['device']!r}")

    def model_view(self) -> ModelView:
        for view in self.operations.fleet().models:
            if view.model == self.model:
                return view
        raise NotFoundError(f"no model {self.model!r}")

    def replica_view(self, name: str | None = None) -> ReplicaView:
        name = self.replica if name is None else name
        fleet = self.operations.fleet()
        for view in fleet.replicas:
            if view.model == self.model and view.id == name:
                return view
        if any(view.model == self.model for view in fleet.models):
            raise NotFoundError(f"no replica {name!r} of the model {self.model!r}")
        raise NotFoundError(f"no model {self.model!r}")


class AdminResponse(NamedTuple):
    value: msgspec.Struct | str | None = None  # None: no body; text is sent as it is
    status: int = 0  # 0: that of the route
    headers: Mapping[str, str] = {}


Handler = Callable[[AdminCall], Awaitable[AdminResponse]]
