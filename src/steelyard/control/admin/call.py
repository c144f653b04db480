"""What a handler is given: a request that is allowed, parsed and checked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ..errors import NotFoundError
from ..observability.views import ModelView, ReplicaView

if TYPE_CHECKING:
    from ..supervisor.fleet_admin import FleetAdmin
    from .server import AdminServer


@dataclass
class AdminCall:
    server: AdminServer
    path: Mapping[str, str]
    body: Any  # as the route says
    query: Any
    status: int  # of the response; a handler may change it
    headers: dict[str, str] = field(default_factory=dict)  # of the response

    @property
    def operations(self) -> FleetAdmin:
        return self.server.operations

    @property
    def model(self) -> str:
        return self.path["model"]

    @property
    def replica(self) -> str:
        return self.path["replica"]

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
