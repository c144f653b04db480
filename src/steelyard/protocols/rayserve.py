"""Ray Serve: an application of any paths behind a proxy that tells on a path of its own whether it has routes."""

from __future__ import annotations

from .base import Call
from .health import Question, Questions, Verdict
from .plain import PlainHttp

HEALTH = Question("/-/healthz")
OWN = (HEALTH.path, "/-/routes")
READY = b"success"
# No routes yet, no replicas yet, this node is being drained: what the proxy itself says with a 503.
NOT_READY = (b"Route table is not populated yet", b"No replicas are available yet", b"This node is being drained")


class RayServe(PlainHttp):
    name = "rayserve"

    def call(self, method: str, path: str) -> Call | None:
        return super().call(method, path) if path in OWN else None  # the application's are those of `http`

    def questions(self, model: str) -> Questions:
        return Questions((HEALTH,))

    def judge(self, question: Question, status: int, body: bytes, model: str) -> Verdict:
        """An application on `/` of another server may answer any path with anything."""
        if status == 200 and body.strip() == READY:
            return Verdict.READY
        return Verdict.LOADING if status == 503 and body.startswith(NOT_READY) else Verdict.ABSENT
