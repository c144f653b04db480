"""BentoML: a service of any paths, with the probes of Kubernetes and metrics beside them."""

from __future__ import annotations

from .base import Call
from .health import Question, Questions
from .plain import PlainHttp

OWN = ("/readyz", "/livez", "/healthz", "/metrics")


class BentoML(PlainHttp):
    name = "bentoml"

    def call(self, method: str, path: str) -> Call | None:
        return super().call(method, path) if path in OWN else None  # the service's are those of `http`

    def questions(self, model: str) -> Questions:
        return Questions((Question("/readyz"),), live=Question("/livez"))
