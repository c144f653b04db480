"""Ray Serve: any paths, behind a proxy with a health path."""

from __future__ import annotations

from ..base import ApiCall
from ..health import ProbePlan, ServerReadiness, ServerRequest
from .http import PlainHttp

HEALTH_REQUEST = ServerRequest("/-/healthz")
RAY_SERVE_PATHS = (HEALTH_REQUEST.path, "/-/routes")
READY_BODY = b"success"
NOT_READY_BODIES = (
    b"Route table is not populated yet",
    b"No replicas are available yet",
    b"This node is being drained",
)


class RayServe(PlainHttp):
    name = "rayserve"

    def call(self, method: str, path: str) -> ApiCall | None:
        return super().call(method, path) if path in RAY_SERVE_PATHS else None  # the application's are those of `http`

    def probe_plan(self, model: str) -> ProbePlan:
        return ProbePlan((HEALTH_REQUEST,))

    def readiness(self, question: ServerRequest, status: int, body: bytes, model: str) -> ServerReadiness:
        """An application of another server may answer any path with anything."""
        if status == 200 and body.strip() == READY_BODY:
            return ServerReadiness.READY
        loading = status == 503 and body.startswith(NOT_READY_BODIES)
        return ServerReadiness.LOADING if loading else ServerReadiness.NOT_FOUND
