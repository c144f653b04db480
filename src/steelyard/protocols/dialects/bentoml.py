"""BentoML: a service with any paths, and probes as Kubernetes has them."""

from __future__ import annotations

from ..base import ApiCall
from ..health import ProbePlan, ServerRequest
from .http import PlainHttp

BENTOML_PATHS = ("/readyz", "/livez", "/healthz", "/metrics")


class BentoML(PlainHttp):
    name = "bentoml"

    def call(self, method: str, path: str) -> ApiCall | None:
        return super().call(method, path) if path in BENTOML_PATHS else None  # the service's are those of `http`

    def probe_plan(self, model: str) -> ProbePlan:
        return ProbePlan((ServerRequest("/readyz"),), live=ServerRequest("/livez"))
